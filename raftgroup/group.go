package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"

	"cairn/engine"
	"cairn/internal/ids"
)

const (
	// proposalTimeout is how long dragonboat remembers a request. Long, since a proposal stays in flight until it is settled otherwise.
	proposalTimeout = 10 * time.Minute
	busyRetry       = time.Millisecond
	// startTimeout bounds the wait for an earlier replica of the shard to leave dragonboat's tables, after its workers let go of it.
	startTimeout = 5 * time.Second
)

// Group is the local replica of a partition's Raft group, of one generation.
type Group struct {
	h       *Host
	lr      *localReplica
	cfg     GroupConfig
	events  Events
	log     *engine.Log
	session *client.Session
	flight  *inflight

	releaseOnce sync.Once
}

// StartGroup binds the partition's data to the replica and starts it. The earlier owner of the data must have been stopped.
func (h *Host) StartGroup(cfg GroupConfig) (*Group, error) {
	b := cfg.Binding
	if b.Shard == 0 || b.Replica == 0 || b.Shard == ids.MetadataShard || cfg.Events == nil {
		return nil, fmt.Errorf("raftgroup: replica %d of shard %d is no partition group", b.Replica, b.Shard)
	}
	if h.replica(b.Shard) != nil {
		return nil, fmt.Errorf("raftgroup: a replica of shard %d runs already", b.Shard)
	}
	g := &Group{h: h, cfg: cfg, events: cfg.Events}
	g.flight = &inflight{limit: h.cfg.GroupInflightBytes, shared: h.budget}
	g.lr = newLocalReplica(b.Shard, b.Replica, cfg.Members, g.leaderChanged)
	g.lr.group = g
	log, err := h.cfg.Engine.Bind(b, g)
	if err != nil {
		return nil, fmt.Errorf("raftgroup: shard %d: %w", b.Shard, err)
	}
	g.log = log
	if err := h.add(g.lr); err != nil {
		h.cfg.Engine.Release(b.Info.ID)
		return nil, err
	}
	g.session = h.nh.GetNoOPSession(uint64(b.Shard))
	err = h.startReplica(g.lr, cfg.Join, func(members map[uint64]dragonboat.Target, join bool) error {
		return h.nh.StartOnDiskReplica(members, join, g.newMachine, h.groupConfig(cfg))
	})
	if err != nil {
		h.remove(g.lr)
		h.cfg.Engine.Release(b.Info.ID)
		return nil, err
	}
	return g, nil
}

func (h *Host) groupConfig(cfg GroupConfig) config.Config {
	return config.Config{
		ShardID: uint64(cfg.Binding.Shard), ReplicaID: uint64(cfg.Binding.Replica), IsNonVoting: cfg.NonVoting,
		ElectionRTT: uint64(h.cfg.ElectionTicks), HeartbeatRTT: uint64(h.cfg.HeartbeatTicks), PreVote: true,
		// No snapshots of its own accord; with a smaller overhead dragonboat asks at each start to drop all below its snapshot.
		CompactionOverhead: ^uint64(0),
	}
}

// startReplica starts a replica with its first members, or as it was bootstrapped before.
func (h *Host) startReplica(lr *localReplica, join bool, start func(members map[uint64]dragonboat.Target, join bool) error) error {
	var members map[uint64]dragonboat.Target
	if !join && !h.nh.HasNodeInfo(uint64(lr.shard), uint64(lr.self)) {
		members = map[uint64]dragonboat.Target{}
		for r, n := range lr.voters {
			members[uint64(r)] = n.RaftAddress()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := start(members, join)
		if err == nil {
			return nil
		}
		if errors.Is(err, dragonboat.ErrShardAlreadyExist) && ctx.Err() == nil {
			pause(ctx, busyRetry)
			continue
		}
		return fmt.Errorf("raftgroup: start replica %d of shard %d: %w", lr.self, lr.shard, err)
	}
}

func (g *Group) newMachine(uint64, uint64) statemachine.IOnDiskStateMachine {
	return &partitionMachine{g: g}
}

// Stop stops the replica and waits until it is unloaded: no save of it is under way or to come. Then the engine's memory state of the
// partition is released. On an error of ctx the replica is stopping but not unloaded; call Stop again.
func (g *Group) Stop(ctx context.Context) error {
	if err := g.h.stopReplica(ctx, g.lr); err != nil {
		return err
	}
	g.release()
	g.h.remove(g.lr)
	return nil
}

func (h *Host) stopReplica(ctx context.Context, lr *localReplica) error {
	err := h.nh.StopReplica(uint64(lr.shard), uint64(lr.self))
	if err != nil && !errors.Is(err, dragonboat.ErrShardNotFound) && !errors.Is(err, dragonboat.ErrClosed) {
		return fmt.Errorf("raftgroup: stop replica %d of shard %d: %w", lr.self, lr.shard, err)
	}
	select {
	case <-lr.unloaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raftgroup: replica %d of shard %d still stops: %w", lr.self, lr.shard, context.Cause(ctx))
	}
}

// release lets go of everything but dragonboat's part; the replica is unloaded.
func (g *Group) release() {
	g.releaseOnce.Do(func() {
		g.flight.close()
		g.h.cfg.Engine.Release(g.cfg.Binding.Info.ID)
	})
}

// Log returns the partition's log. Valid until Stop.
func (g *Group) Log() *engine.Log { return g.log }

// Self returns the replica id of this member.
func (g *Group) Self() ids.ReplicaID { return g.lr.self }

// Shard returns the group's id.
func (g *Group) Shard() ids.ShardID { return g.lr.shard }

// Leader returns the leader and its term as last announced; false when there is none.
func (g *Group) Leader() (ids.ReplicaID, ids.Term, bool) { return g.lr.leaderNow() }

func (lr *localReplica) leaderNow() (ids.ReplicaID, ids.Term, bool) {
	l := lr.leader.Load()
	return l.leader, l.term, l.leader != 0
}

func (g *Group) leaderChanged(leader ids.ReplicaID, term ids.Term) {
	g.events.LeaderChanged(leader, term)
}

// InflightBytes returns the bytes proposed and not yet applied.
func (g *Group) InflightBytes() int64 { return g.flight.inUse() }

// Propose hands data, which begins with a header of engine.PutHeader, to Raft. data is borrowed until return. It returns once the
// proposal is queued, and blocks while the bounds of bytes in flight are reached, until ctx. Only the leader of the header's term may
// call it, one call at a time, so that the order of calls is the order of ordinals. Errors: ErrNotLeader, ErrClosed, ErrTooLarge, the
// cause of ctx; after each of them the ordinal is free.
func (g *Group) Propose(ctx context.Context, data []byte) (*Ticket, error) {
	hd, err := engine.ParseHeader(data)
	if err != nil {
		return nil, fmt.Errorf("raftgroup: proposal: %w", err)
	}
	n := int64(len(data))
	if n > g.flight.limit {
		return nil, fmt.Errorf("%w: %d bytes, bound %d", ErrTooLarge, n, g.flight.limit)
	}
	leads := func() bool {
		term, ok := g.lr.leading()
		return ok && term == hd.Term
	}
	t, err := g.flight.reserve(ctx, position{hd.Term, hd.Ordinal}, n, leads)
	if err != nil {
		return nil, err
	}
	rs, err := g.enqueue(ctx, data)
	if err != nil {
		g.flight.withdraw(t)
		return nil, err
	}
	g.flight.queued(t, rs)
	return t, nil
}

// enqueue waits while dragonboat's queue is full, which the bound on unsaved proposals should prevent.
func (g *Group) enqueue(ctx context.Context, data []byte) (*dragonboat.RequestState, error) {
	for {
		rs, err := g.h.nh.Propose(g.session, data, proposalTimeout)
		if !errors.Is(err, dragonboat.ErrSystemBusy) {
			return rs, fromDragonboat(err)
		}
		if pause(ctx, busyRetry); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// Drained waits until nothing is in flight.
func (g *Group) Drained(ctx context.Context) error { return g.flight.drained(ctx) }

// Campaign makes this replica stand for election at once, whoever leads. It returns before the election; LeaderChanged tells.
func (g *Group) Campaign() { g.h.campaign(g.lr) }

// TransferLeadership asks the leader, which this replica should be, to hand over to another voter. It has no result: proposals must have
// been paused and drained before, as Raft drops them meanwhile; they may go on at the next LeaderChanged or after an election timeout.
func (g *Group) TransferLeadership(to ids.ReplicaID) error {
	return fromDragonboat(g.h.nh.RequestLeaderTransfer(uint64(g.lr.shard), uint64(to)))
}

// Compact moves the start of the Raft log behind upTo, in the background. What lies below must no longer be needed by the engine.
func (g *Group) Compact(upTo ids.RaftIndex) { g.h.compactor.request(g, upTo) }

// Saved implements engine.Observer.
func (g *Group) Saved(entries []engine.SavedEntry) {
	g.flight.markSaved(entries)
	g.events.Saved(entries)
}

// Truncated implements engine.Observer.
func (g *Group) Truncated(first ids.RaftIndex, next ids.Offset) { g.events.Truncated(first, next) }

// SnapshotInstalled implements engine.Observer: to the group's owner it is a log whose end moved.
func (g *Group) SnapshotInstalled(index ids.RaftIndex, next ids.Offset) {
	g.events.Truncated(index+1, next)
}
