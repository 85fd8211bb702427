package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

const (
	// shutdownWorkers is how many partitions are handed over or stopped at a time.
	shutdownWorkers = 64
	// handOverTimeout bounds the hand-over of one partition. What takes longer is left to the failover that the end of
	// this process starts.
	handOverTimeout = time.Second
)

// shutdown hands the leadership of all partitions to live replicas, as far as there are any, and stops all groups. It
// returns when nothing runs any more; the error joins those of groups that did not stop until ctx ended.
func (m *replicaManager) shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	m.running.Wait()
	m.deleting.Wait()
	defer m.leaders.close()

	var leaders []*partition
	for _, p := range m.partitions() {
		if _, leads := p.leaderTerm(); leads {
			leaders = append(leaders, p)
		}
	}
	_ = forEach(leaders, func(p *partition) error { m.handOver(ctx, p); return nil })
	return forEach(m.partitions(), func(p *partition) error {
		defer p.abandonHeld()
		return m.stopReplica(ctx, p)
	})
}

// forEach calls f for every partition, shutdownWorkers at a time, and joins the errors.
func forEach(ps []*partition, f func(*partition) error) error {
	var (
		mu   sync.Mutex
		errs []error
		next int
		wg   sync.WaitGroup
	)
	take := func() *partition {
		mu.Lock()
		defer mu.Unlock()
		if next == len(ps) {
			return nil
		}
		next++
		return ps[next-1]
	}
	for range min(shutdownWorkers, len(ps)) {
		wg.Go(func() {
			for p := take(); p != nil; p = take() {
				if err := f(p); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// handOver makes another replica the leader of p, if one is alive.
func (m *replicaManager) handOver(ctx context.Context, p *partition) {
	img := m.cfg.Images.Image()
	state, ok := img.PartitionOf(p.topicID, p.index)
	if !ok {
		return
	}
	to := successors(img, state, m.cfg.NodeID)
	if len(to) == 0 {
		return
	}
	if err := p.handOver(ctx, to); err != nil {
		m.cfg.Log.Info("leadership not handed over", append(p.fields(), zap.Error(err))...)
	}
}

// successors are the replicas of live voters, in the order of the assignment from behind this node, so that the
// leaderships of one broker spread over the others.
func successors(img *controller.Image, state *controller.Partition, self ids.NodeID) (list []ids.ReplicaID) {
	own := state.ReplicaOf(self)
	for i := 1; i < len(state.Replicas); i++ {
		at := (own + i) % len(state.Replicas)
		node := state.Replicas[at]
		if b := img.Brokers[node]; img.Usable(node) && !b.ShuttingDown && slices.Contains(state.Voters, node) {
			list = append(list, state.ReplicaIDs[at])
		}
	}
	return list
}

// handOver transfers the leadership to one of the replicas and returns when this one has lost it. Proposals are paused
// and drained before, as Raft drops them meanwhile. The new leader is one that has just answered for the end of the log,
// if there is any: Raft asks once, and a request that gets lost costs an election timeout.
func (p *partition) handOver(ctx context.Context, to []ids.ReplicaID) error {
	term, leads := p.leaderTerm()
	if !leads {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if r := p.reign.Load(); r != nil {
		r.closing.Store(true)
	}
	if err := p.seq.pause(ctx); err != nil {
		return fmt.Errorf("pause proposals: %w", err)
	}
	group := p.core.Load().group
	if err := group.Drained(ctx); err != nil {
		return fmt.Errorf("drain proposals: %w", err)
	}
	next := p.followers.awaitCaughtUp(ctx, to, term, p.log().LastIndex())
	if err := group.TransferLeadership(next); err != nil {
		return fmt.Errorf("transfer to replica %d: %w", next, err)
	}
	if err := p.awaitLoss(ctx, term); err != nil {
		return fmt.Errorf("wait for replica %d to lead: %w", next, err)
	}
	return nil
}

// awaitLoss waits until this replica does not lead in term any more.
func (p *partition) awaitLoss(ctx context.Context, term ids.Term) error {
	p.mu.Lock()
	if p.raftLeader != p.self || p.raftTerm != term {
		p.mu.Unlock()
		return nil
	}
	if p.lost == nil {
		p.lost = make(chan struct{})
	}
	lost := p.lost
	p.mu.Unlock()
	select {
	case <-lost:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
