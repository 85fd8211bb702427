package raftgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"

	"cairn/engine"
	"cairn/internal/ids"
)

// MachineGroup is the local replica of the metadata group: an ordinary replicated state machine in memory, with snapshots.
type MachineGroup struct {
	h       *Host
	lr      *localReplica
	session *client.Session
	machine Machine
	applied atomic.Uint64
}

// StartMachine starts the replica of ids.MetadataShard.
func (h *Host) StartMachine(cfg MachineConfig) (*MachineGroup, error) {
	if cfg.Replica == 0 || cfg.Machine == nil {
		return nil, fmt.Errorf("raftgroup: metadata replica %d without a machine", cfg.Replica)
	}
	changed := cfg.LeaderChanged
	if changed == nil {
		changed = func(ids.ReplicaID, ids.Term) {}
	}
	m := &MachineGroup{h: h, machine: cfg.Machine}
	m.lr = newLocalReplica(ids.MetadataShard, cfg.Replica, cfg.Members, changed)
	if err := h.add(m.lr); err != nil {
		return nil, err
	}
	m.session = h.nh.GetNoOPSession(uint64(m.lr.shard))
	rc := config.Config{
		ShardID: uint64(m.lr.shard), ReplicaID: uint64(m.lr.self), IsNonVoting: cfg.NonVoting,
		ElectionRTT: uint64(h.cfg.ElectionTicks), HeartbeatRTT: uint64(h.cfg.HeartbeatTicks), PreVote: true,
		SnapshotEntries: orDefault(cfg.SnapshotEntries, 8192), CompactionOverhead: orDefault(cfg.CompactionOverhead, 1024),
	}
	newMachine := func(uint64, uint64) statemachine.IStateMachine { return &metadataMachine{m} }
	err := h.startReplica(m.lr, cfg.Join, func(members map[uint64]dragonboat.Target, join bool) error {
		return h.nh.StartReplica(members, join, newMachine, rc)
	})
	if err != nil {
		h.remove(m.lr)
		return nil, err
	}
	return m, nil
}

// Stop stops the replica and waits until it is unloaded. As Group.Stop.
func (m *MachineGroup) Stop(ctx context.Context) error {
	if err := m.h.stopReplica(ctx, m.lr); err != nil {
		return err
	}
	m.h.remove(m.lr)
	return nil
}

// Self returns the replica id of this member.
func (m *MachineGroup) Self() ids.ReplicaID { return m.lr.self }

// Leader returns the leader and its term as last announced; false when there is none.
func (m *MachineGroup) Leader() (ids.ReplicaID, ids.Term, bool) { return m.lr.leaderNow() }

// Applied returns the index of the last command that the machine has applied.
func (m *MachineGroup) Applied() uint64 { return m.applied.Load() }

// Followers are the positions that members have saved the log to, as they have answered this replica's present term as leader, by their
// nodes. The caller owns the map.
func (m *MachineGroup) Followers() map[ids.NodeID]ids.RaftIndex {
	term, _ := m.lr.leading()
	return m.lr.nodesAnsweredIn(term)
}

// Campaign is as Group.Campaign.
func (m *MachineGroup) Campaign() { m.h.campaign(m.lr) }

// TransferLeadership is as Group.TransferLeadership.
func (m *MachineGroup) TransferLeadership(to ids.ReplicaID) error {
	return fromDragonboat(m.h.nh.RequestLeaderTransfer(uint64(m.lr.shard), uint64(to)))
}

// Propose has the leader, which this replica must be, append cmd, and waits until it is applied here. cmd is borrowed until return, the
// result owned by the caller. ErrNotLeader and ErrClosed are definite; ErrUnknown is not.
func (m *MachineGroup) Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error) {
	if len(cmd) == 0 {
		return 0, nil, errors.New("raftgroup: empty command")
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	rs, err := m.enqueue(ctx, cmd)
	if err != nil {
		return 0, nil, err
	}
	r, err := await(ctx, rs)
	switch {
	case err != nil:
		return 0, nil, err
	case r.Completed():
		return r.GetResult().Value, r.GetResult().Data, nil
	case r.Dropped():
		return 0, nil, ErrNotLeader
	}
	return 0, nil, ErrUnknown
}

// await waits for the result of a request. ErrUnknown when ctx ends before.
func await(ctx context.Context, rs *dragonboat.RequestState) (dragonboat.RequestResult, error) {
	select {
	case r := <-rs.ResultC():
		rs.Release()
		return r, nil
	case <-ctx.Done():
		return dragonboat.RequestResult{}, unknown(ctx)
	}
}

func (m *MachineGroup) enqueue(ctx context.Context, cmd []byte) (*dragonboat.RequestState, error) {
	for {
		if _, leads := m.lr.leading(); !leads {
			return nil, ErrNotLeader
		}
		rs, err := m.h.nh.Propose(m.session, cmd, m.timeout(ctx))
		if !errors.Is(err, dragonboat.ErrSystemBusy) {
			return rs, fromDragonboat(err)
		}
		if pause(ctx, busyRetry); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// timeout is the time left, in whole ticks at least two: dragonboat refuses shorter ones, and ctx ends the wait anyway.
func (m *MachineGroup) timeout(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return max(time.Until(deadline), 2*m.h.cfg.TickInterval)
}

// Barrier waits until the machine has applied everything that was committed before the call. Works on every member while there is a leader.
func (m *MachineGroup) Barrier(ctx context.Context) error {
	err := attempts(ctx, func(ctx context.Context) error {
		rs, err := m.h.nh.ReadIndex(uint64(m.lr.shard), m.timeout(ctx))
		if err != nil {
			return err
		}
		r, err := await(ctx, rs)
		switch {
		case err != nil:
			return dragonboat.ErrTimeout
		case r.Completed():
			return nil
		case r.Terminated():
			return dragonboat.ErrShardClosed
		}
		return dragonboat.ErrShardNotReady
	})
	return requestError(err)
}

// AddNonVoting is as Group.AddNonVoting.
func (m *MachineGroup) AddNonVoting(ctx context.Context, r ids.ReplicaID, n ids.NodeID) error {
	return m.h.addNonVoting(ctx, m.lr.shard, r, n)
}

// AddVoter is as Group.AddVoter.
func (m *MachineGroup) AddVoter(ctx context.Context, r ids.ReplicaID, n ids.NodeID) error {
	return m.h.addVoter(ctx, m.lr.shard, r, n)
}

// Remove is as Group.Remove.
func (m *MachineGroup) Remove(ctx context.Context, r ids.ReplicaID) error {
	return m.h.removeMember(ctx, m.lr.shard, r)
}

// Membership is as Group.Membership.
func (m *MachineGroup) Membership(ctx context.Context) (Membership, error) {
	return m.h.membership(ctx, m.lr.shard)
}

// metadataMachine adapts Machine to dragonboat. A snapshot is the applied index (8 bytes, BE), which dragonboat does not tell the
// machine that recovers, and the machine's own bytes.
type metadataMachine struct{ m *MachineGroup }

// Update implements statemachine.IStateMachine.
func (s *metadataMachine) Update(e statemachine.Entry) (statemachine.Result, error) {
	data := s.m.machine.Apply(e.Index, e.Cmd)
	s.m.applied.Store(e.Index)
	return statemachine.Result{Value: e.Index, Data: data}, nil
}

// Lookup implements statemachine.IStateMachine; readers use the machine itself.
func (s *metadataMachine) Lookup(any) (any, error) { return nil, nil }

// SaveSnapshot implements statemachine.IStateMachine.
func (s *metadataMachine) SaveSnapshot(w io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{}) error {
	if s.m.h.cfg.Engine.SpaceLevel() == engine.SpaceOut {
		return statemachine.ErrSnapshotAborted // a write that fails would end the process; a later one has room
	}
	b, err := s.m.machine.Snapshot()
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	var index [8]byte
	binary.BigEndian.PutUint64(index[:], s.m.applied.Load())
	if _, err := w.Write(index[:]); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// RecoverFromSnapshot implements statemachine.IStateMachine.
func (s *metadataMachine) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	if len(b) < 8 {
		return fmt.Errorf("metadata snapshot of %d bytes", len(b))
	}
	if err := s.m.machine.Restore(b[8:]); err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	s.m.applied.Store(binary.BigEndian.Uint64(b))
	return nil
}

// Close implements statemachine.IStateMachine.
func (s *metadataMachine) Close() error { return nil }
