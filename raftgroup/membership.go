package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lni/dragonboat/v4"

	"cairn/internal/ids"
)

const (
	requestTimeout = 10 * time.Second       // of requests whose ctx has no deadline
	attemptTimeout = 2 * time.Second        // of one attempt at a change; a request that reached no leader is lost
	firstRead      = 250 * time.Millisecond // of the first attempt at a read; each further one gets twice as long, to lastRead
	lastRead       = 4 * time.Second
	attemptPause   = 10 * time.Millisecond
)

// Membership is a group's configuration as committed.
type Membership struct {
	Voters, NonVoting map[ids.ReplicaID]ids.NodeID
	Index             ids.RaftIndex // of the last change
}

// withDeadline bounds a wait whose ctx has no bound of its own.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// attempts calls f, a read, until it succeeds, fails for good, or ctx ends. dragonboat now and then loses one (a member that learns of
// its leader and of the index at once), so that each attempt has a deadline of its own, longer after each that was not answered in time.
func attempts(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for limit := firstRead; ; {
		one, cancelOne := context.WithTimeout(ctx, limit)
		err := f(one)
		cancelOne()
		if err == nil || !dragonboat.IsTempError(err) || errors.Is(err, dragonboat.ErrClosed) || errors.Is(err, dragonboat.ErrShardClosed) {
			return err
		}
		if errors.Is(err, dragonboat.ErrTimeout) {
			limit = min(2*limit, lastRead)
		}
		if pause(ctx, attemptPause); ctx.Err() != nil {
			return fmt.Errorf("%w: %w: %w", ErrUnknown, context.Cause(ctx), err)
		}
	}
}

// membership reads the configuration linearizably; it works on every member, as long as there is a leader.
func (h *Host) membership(ctx context.Context, s ids.ShardID) (Membership, error) {
	var m *dragonboat.Membership
	err := attempts(ctx, func(ctx context.Context) (err error) {
		m, err = h.nh.SyncGetShardMembership(ctx, uint64(s))
		return err
	})
	if err != nil {
		return Membership{}, requestError(err)
	}
	return Membership{Voters: nodesOf(m.Nodes), NonVoting: nodesOf(m.NonVotings), Index: ids.RaftIndex(m.ConfigChangeID)}, nil
}

func nodesOf(addrs map[uint64]string) map[ids.ReplicaID]ids.NodeID {
	nodes := make(map[ids.ReplicaID]ids.NodeID, len(addrs))
	for r, a := range addrs {
		n, err := ids.ParseRaftAddress(a)
		if err != nil {
			panic("BUG: member with a foreign address: " + err.Error())
		}
		nodes[ids.ReplicaID(r)] = n
	}
	return nodes
}

func requestError(err error) error {
	if errors.Is(err, ErrUnknown) {
		return err
	}
	if errors.Is(err, dragonboat.ErrRejected) {
		return ErrRejected
	}
	return fromDragonboat(err)
}

// change makes a membership change unless done holds already. A change may be lost on its way, or made although its answer is: so the
// configuration is read before each attempt.
func (h *Host) change(ctx context.Context, s ids.ShardID, done func(Membership) bool, request func(context.Context) error) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for {
		m, err := h.membership(ctx, s)
		if err != nil {
			return err
		}
		if done(m) {
			return nil
		}
		one, cancelOne := context.WithTimeout(ctx, attemptTimeout)
		err = request(one)
		cancelOne()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, dragonboat.ErrRejected):
			if m, err := h.membership(ctx, s); err == nil && done(m) {
				return nil
			}
			return ErrRejected
		case !dragonboat.IsTempError(err), errors.Is(err, dragonboat.ErrClosed), errors.Is(err, dragonboat.ErrShardClosed):
			return requestError(err)
		}
		if pause(ctx, attemptPause); ctx.Err() != nil {
			return unknown(ctx)
		}
	}
}

func (h *Host) addNonVoting(ctx context.Context, s ids.ShardID, r ids.ReplicaID, n ids.NodeID) error {
	return h.change(ctx, s, func(m Membership) bool {
		at, voter := m.Voters[r]
		if !voter {
			at, voter = m.NonVoting[r]
		}
		return voter && at == n
	}, func(ctx context.Context) error {
		return h.nh.SyncRequestAddNonVoting(ctx, uint64(s), uint64(r), n.RaftAddress(), 0)
	})
}

func (h *Host) addVoter(ctx context.Context, s ids.ShardID, r ids.ReplicaID, n ids.NodeID) error {
	return h.change(ctx, s, func(m Membership) bool {
		at, voter := m.Voters[r]
		return voter && at == n
	}, func(ctx context.Context) error {
		return h.nh.SyncRequestAddReplica(ctx, uint64(s), uint64(r), n.RaftAddress(), 0)
	})
}

func (h *Host) removeMember(ctx context.Context, s ids.ShardID, r ids.ReplicaID) error {
	return h.change(ctx, s, func(m Membership) bool {
		_, voter := m.Voters[r]
		_, nonVoting := m.NonVoting[r]
		return !voter && !nonVoting
	}, func(ctx context.Context) error {
		return h.nh.SyncRequestDeleteReplica(ctx, uint64(s), uint64(r), 0)
	})
}

// AddNonVoting adds a member that gets the log and has no vote. Nil when it is a member at that node already. Waits until the change
// is committed and applied here; ErrUnknown when ctx ended before that is known.
func (g *Group) AddNonVoting(ctx context.Context, r ids.ReplicaID, n ids.NodeID) error {
	return g.h.addNonVoting(ctx, g.lr.shard, r, n)
}

// AddVoter adds a voter, or gives a non-voting member a vote. As AddNonVoting.
func (g *Group) AddVoter(ctx context.Context, r ids.ReplicaID, n ids.NodeID) error {
	return g.h.addVoter(ctx, g.lr.shard, r, n)
}

// Remove removes a member; its id is never used again. Nil when it is none. As AddNonVoting.
func (g *Group) Remove(ctx context.Context, r ids.ReplicaID) error {
	return g.h.removeMember(ctx, g.lr.shard, r)
}

// Membership reads the configuration linearizably.
func (g *Group) Membership(ctx context.Context) (Membership, error) {
	return g.h.membership(ctx, g.lr.shard)
}
