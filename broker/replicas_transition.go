package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// groupStopTimeout bounds the wait for a Raft group to be unloaded.
const groupStopTimeout = 30 * time.Second

// replicaSlot is the place of one partition on this broker: what runs there and what is to run. All fields are guarded
// by replicaManager.mu, but partition's own state.
type replicaSlot struct {
	info engine.PartitionInfo
	// wanted is the state of the replica that is to run; nil: none, and its data is to be deleted.
	wanted *controller.Partition
	// current is what runs; nil: nothing.
	current *partition
	// gone: the data is deleted, too.
	gone bool
	// active: queued for a worker or in its hands. retryAt is when a failed transition is tried again.
	active  bool
	retryAt time.Time
	waits   int // how often in a row it was not yet time
}

// settled reports whether the slot needs no transition.
func (s *replicaSlot) settled() bool {
	if s.wanted == nil {
		return s.current == nil && s.gone
	}
	return s.current != nil && s.current.is(s.wanted)
}

// want notes that this broker is to host the partition in the given state, and returns what runs of it.
func (m *replicaManager) want(info engine.PartitionInfo, state *controller.Partition) *partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[info.ID]
	if s == nil {
		s = &replicaSlot{info: info}
		m.slots[info.ID] = s
	}
	if s.waits > 0 && (s.wanted == nil || s.wanted.PartitionEpoch != state.PartitionEpoch) {
		s.waits, s.retryAt = 0, time.Time{} // what it waits for may have happened
	}
	s.wanted, s.gone = state, false
	m.kickLocked(s)
	return s.current
}

// dropUnwanted has everything stopped and deleted that this broker hosts or stores and is not wanted.
func (m *replicaManager) dropUnwanted(wanted map[ids.PartitionID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listStoredLocked()
	for id, s := range m.slots {
		if wanted[id] {
			continue
		}
		s.wanted = nil
		if s.settled() {
			delete(m.slots, id)
			continue
		}
		m.kickLocked(s)
	}
}

// listStoredLocked gives a slot to each partition that was stored here before the start, once.
func (m *replicaManager) listStoredLocked() {
	if m.listed {
		return
	}
	stored, err := m.cfg.Engine.Partitions()
	if err != nil {
		m.cfg.Log.Error("stored partitions cannot be listed", zap.Error(err))
		return
	}
	for _, info := range stored {
		if m.slots[info.ID] == nil {
			m.slots[info.ID] = &replicaSlot{info: info}
		}
	}
	m.listed = true
}

// kickLocked has a worker take care of the slot if it needs one.
func (m *replicaManager) kickLocked(s *replicaSlot) {
	if s.active || s.settled() || m.closed || clock.Now().Before(s.retryAt) {
		return
	}
	s.active = true
	m.queue = append(m.queue, s)
	if m.busy < transitionWorkers {
		m.busy++
		m.running.Go(m.runTransitions)
	}
}

// retryTransitions kicks what failed before.
func (m *replicaManager) retryTransitions() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slots {
		m.kickLocked(s)
	}
}

// runTransitions is a worker: it ends when the queue is empty.
func (m *replicaManager) runTransitions() {
	for {
		m.mu.Lock()
		if len(m.queue) == 0 || m.closed {
			m.busy--
			m.mu.Unlock()
			return
		}
		s := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		wanted, current := s.wanted, s.current
		m.mu.Unlock()

		next, gone, err := m.transition(s.info, current, wanted)

		m.mu.Lock()
		s.current, s.gone, s.active = next, gone, false
		switch {
		case err == nil:
			s.waits = 0
		case errors.Is(err, errNotYet):
			s.waits++
			s.retryAt = clock.Now().Add(min(notYetRetry<<min(s.waits/4, 4), transitionRetry))
		default:
			s.retryAt = clock.Now().Add(transitionRetry)
		}
		m.kickLocked(s)
		m.mu.Unlock()
		if errors.Is(err, errNotYet) {
			m.cfg.Log.Debug("replica waits", zap.String("topic", s.info.Topic), zap.Int32("partition", s.info.Partition), zap.Error(err))
			continue
		}
		if errors.Is(err, engine.ErrStoreDamaged) {
			m.cfg.Fail(err)
		}
		if err != nil {
			m.cfg.Log.Error("replica cannot be brought in line with the metadata; trying again",
				zap.String("topic", s.info.Topic), zap.Int32("partition", s.info.Partition), zap.Error(err))
			continue
		}
		if next != nil {
			m.begin(next)
		}
	}
}

// transition makes one step from what runs to what is wanted. It returns what runs afterwards.
func (m *replicaManager) transition(info engine.PartitionInfo, current *partition, wanted *controller.Partition) (next *partition, gone bool, err error) {
	var former *partition
	if current != nil && (wanted == nil || !current.is(wanted)) {
		if wanted != nil {
			current.leaveTo(wanted)
		}
		ctx, cancel := context.WithTimeout(context.Background(), groupStopTimeout)
		err := m.stopReplica(ctx, current)
		cancel()
		if err != nil {
			return current, false, err
		}
		if err := m.cfg.Host.Forget(current.shard); err != nil {
			m.cfg.Log.Warn("files of a former replica stay", append(current.fields(), zap.Error(err))...)
		}
		if wanted == nil && current.coord != nil {
			current.coord.Detach(current.index)
		}
		former, current = current, nil
		defer func() {
			if next == nil || next.watches != former.watches {
				former.abandonHeld()
			}
		}()
	}
	if wanted == nil {
		if err := m.settleLosses(info); err != nil {
			return nil, false, err
		}
		if err := m.cfg.Engine.DeletePartition(info.ID); err != nil {
			return nil, false, fmt.Errorf("delete %s: %w", label(info), err)
		}
		return nil, true, nil
	}
	if current != nil {
		return current, false, nil
	}
	next, err = m.startReplica(info, wanted, former)
	return next, false, err
}

// startReplica brings the stored data in line with the generation, binds them to its group and starts that. An error that
// wraps errNotYet: somebody else is not ready. former has just been stopped here; nil: nothing.
func (m *replicaManager) startReplica(info engine.PartitionInfo, state *controller.Partition, former *partition) (*partition, error) {
	self := state.ReplicaIDs[state.ReplicaOf(m.cfg.NodeID)]
	binding, err := m.prepare(info, state, self)
	if err != nil {
		return nil, err
	}
	p := newPartition(m, info, state, self)
	p.baseOffset = binding.BaseOffset
	if former != nil && former.seedsNext(state) {
		p.watches = former.watches
	}
	m.applySettings(p, m.cfg.Images.Image())
	members := state.Members()
	_, founder := members[self]
	if !founder {
		members = nil
	}
	group, err := m.cfg.Host.StartGroup(raftgroup.GroupConfig{
		Binding: binding, Members: members, Join: !founder, NonVoting: !founder, Events: p, Pace: p.pace,
	})
	if err != nil {
		if engine.IsDamage(err) {
			m.noteDamage(binding, err)
		}
		return nil, fmt.Errorf("start group of %s: %w", label(info), err)
	}
	p.attach(group)
	m.show(p)
	p.lossesDue.Store(true)
	if err := m.cfg.Engine.DropFormerOwners(info.ID); err != nil {
		m.cfg.Log.Warn("rows of former replicas stay", append(p.fields(), zap.Error(err))...)
	}
	if shouldCampaign(state, m.cfg.NodeID) {
		group.Campaign()
	}
	return p, nil
}

// shouldCampaign reports whether a replica that has just started stands for election at once: a single voter always,
// and the first replica of a partition that has never had a leader. Otherwise somebody may be leading.
func shouldCampaign(state *controller.Partition, node ids.NodeID) bool {
	if len(state.Voters) == 1 {
		return state.Voters[0] == node
	}
	return state.LeaderTerm == 0 && len(state.Replicas) > 0 && state.Replicas[0] == node
}

// stopReplica takes a partition from clients and unloads its group. Its data stays.
func (m *replicaManager) stopReplica(ctx context.Context, p *partition) error {
	m.hide(p)
	p.stop()
	if err := p.core.Load().group.Stop(ctx); err != nil {
		return fmt.Errorf("stop group of %s-%d: %w", p.topic, p.index, err)
	}
	return nil
}
