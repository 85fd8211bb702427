package raftgroup

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

const (
	failOverStagger  = 150 * time.Millisecond // between the survivors of a group
	failOverDeadline = 5 * time.Second        // then Raft's own timers are trusted
	skippedRetry     = 2 * time.Millisecond   // Raft ignores the request while committed entries wait to be applied
	electionRetry    = 100 * time.Millisecond // an election was started and has no winner yet
	maxElectionRetry = time.Second
)

// elections makes local replicas campaign at once, instead of when a timer of Raft runs out: it hands them a TimeoutNow as if their
// leader had sent it. A request is repeated until the group has another leader or the deadline has passed; a failover stays ready up to
// its deadline. One goroutine.
type elections struct {
	h      *Host
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}

	mu      sync.Mutex
	pending map[*localReplica]*campaign // guarded by mu
}

type campaign struct {
	from     leadership    // as known when the campaign was asked for
	dead     ids.ReplicaID // not 0: this one is gone, and another leader settles it, whichever
	next     time.Time
	deadline time.Time
	retry    time.Duration // doubles while Raft ignores the request
	patience time.Duration // doubles with each election without a winner
	waited   bool          // the latest attempt left time to an election
	sentTerm ids.Term      // last known term at the latest attempt, or when it was asked for
}

func newElections(h *Host) *elections {
	e := &elections{h: h, wake: make(chan struct{}, 1), pending: map[*localReplica]*campaign{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

func (e *elections) start() { e.wg.Go(e.run) }

func (e *elections) close() {
	e.cancel()
	e.wg.Wait()
}

func (e *elections) add(lr *localReplica, c *campaign) {
	e.mu.Lock()
	e.pending[lr] = c
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *elections) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := e.due(clock.Now())
		if len(due) > 0 {
			e.h.transport.deliver(raftpb.MessageBatch{Requests: due, DeploymentId: e.h.transport.deployment, BinVer: raftio.TransportBinVersion})
		}
		timer.Reset(next)
		select {
		case <-e.ctx.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// due returns the requests to hand over now and the time until the next look.
func (e *elections) due(now time.Time) (msgs []raftpb.Message, next time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next = time.Hour
	for lr, c := range e.pending {
		settled := c.settled(lr)
		if now.After(c.deadline) || settled && (c.dead == 0 || lr.isUnloaded()) {
			delete(e.pending, lr)
			continue
		}
		if settled {
			c.rest(now, lr.leader.Load().term)
		} else if !now.Before(c.next) && c.attempt(now, lr.leader.Load().term) {
			msgs = c.request(msgs, lr)
		}
		next = min(next, max(c.next.Sub(now), time.Millisecond))
	}
	return msgs, next
}

// settled reports whether the campaign has reached its aim or lost its reason.
func (c *campaign) settled(lr *localReplica) bool {
	l := *lr.leader.Load()
	if l.leader == lr.self || lr.isUnloaded() {
		return true
	}
	if c.dead != 0 {
		return l.leader != 0 && l.leader != c.dead
	}
	return l.leader != 0 && l.term > c.from.term
}

// rest is what a failover does once it is settled, up to its deadline. The other survivor may not have heard of the new leader and depose it
// with a request that was due, though its own log is behind by then and it cannot win: the campaign goes on at once, when without it the group
// would wait for a timer of Raft.
func (c *campaign) rest(now time.Time, term ids.Term) {
	c.retry, c.patience, c.waited, c.sentTerm = skippedRetry, 0, false, term
	c.next = now.Add(electionRetry)
}

// request appends what makes Raft campaign. A candidate ignores it, also one that waits for votes which were lost: after an election
// without a winner it is first made a follower, by news of a higher term; so is one that knew no leader to begin with, which may stand already.
func (c *campaign) request(msgs []raftpb.Message, lr *localReplica) []raftpb.Message {
	m := raftpb.Message{Type: raftpb.TimeoutNow, To: uint64(lr.self), ShardID: uint64(lr.shard)}
	if l := *lr.leader.Load(); l.leader == 0 && (l.term > c.from.term || c.from.leader == 0) {
		msgs = append(msgs, raftpb.Message{Type: raftpb.NoOP, To: m.To, ShardID: m.ShardID, Term: uint64(l.term) + 1})
	}
	return append(msgs, m)
}

// attempt reports whether the request is to be handed over now, and sets the time of the next look: soon, since Raft may ignore it. But
// when the term has risen, some replica's election is under way: it is given time, once, a different one on each replica and longer after
// each, lest two of them go on deposing each other, or one whose log is behind keep the other from its turn.
func (c *campaign) attempt(now time.Time, term ids.Term) bool {
	wait := term > c.sentTerm && !c.waited
	c.sentTerm, c.waited = term, wait
	if wait {
		c.retry = skippedRetry
		c.patience = min(max(2*c.patience, electionRetry), maxElectionRetry)
		c.next = now.Add(c.patience/2 + rand.N(c.patience))
		return false
	}
	c.retry = min(2*c.retry, electionRetry)
	c.next = now.Add(c.retry)
	return true
}

// observeVote looks at the requests and refusals of votes while this replica takes part in a failover: one that is refused makes room for
// the others, and one that is asked by a candidate whose log is shorter, whom it must refuse, stands itself.
func (e *elections) observeVote(lr *localReplica, m *raftpb.Message) {
	ahead := false
	if m.Type == raftpb.RequestVote {
		if lr.group == nil || lr.group.log == nil {
			return
		}
		term, index := uint64(lr.group.log.LastTerm()), uint64(lr.group.log.LastIndex())
		if ahead = m.LogTerm < term || m.LogTerm == term && m.LogIndex < index; !ahead {
			return
		}
	}
	e.mu.Lock()
	c := e.pending[lr]
	if c != nil && c.dead != 0 {
		c.react(clock.Now(), ahead)
	}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// react moves the next attempt: to right behind the request that this replica refuses, or out of the others' way.
func (c *campaign) react(now time.Time, ahead bool) {
	if ahead {
		c.waited, c.next = true, now.Add(skippedRetry)
		return
	}
	c.waited, c.next = true, now.Add(failOverStagger+rand.N(2*failOverStagger))
}

// campaign makes the replica stand for election, whoever leads now.
func (h *Host) campaign(lr *localReplica) {
	now, from := clock.Now(), *lr.leader.Load()
	h.elections.add(lr, &campaign{
		from: from, sentTerm: from.term, next: now, retry: skippedRetry,
		deadline: now.Add(2 * time.Duration(h.cfg.ElectionTicks) * h.cfg.TickInterval),
	})
}

// takeOver makes the replica stand for election because the leader asks for it. False when the leader is of a past term.
func (h *Host) takeOver(lr *localReplica, leader leadership) bool {
	if leader.term < lr.leader.Load().term {
		return false
	}
	now := clock.Now()
	h.elections.add(lr, &campaign{from: leader, sentTerm: leader.term, next: now, retry: skippedRetry, deadline: now.Add(time.Duration(h.cfg.ElectionTicks) * h.cfg.TickInterval / 2)})
	return true
}

// FailOver makes the local voters of all groups that node led campaign, and returns their number. The survivors of a group take turns:
// the first of them at once, each further one a little later if there is no leader by then. Which one is first differs from group to
// group, so that the leaderships of a dead node are spread. A replica that knows no leader, as after its own start, joins in a heartbeat
// later: a leader that lives has been heard of by then.
func (h *Host) FailOver(node ids.NodeID) int {
	voters := h.votersOfShards()
	n, now := 0, clock.Now()
	for _, lr := range h.localReplicas() {
		members := voters[lr.shard]
		if members == nil {
			members = lr.voters
		}
		l, dead := *lr.leader.Load(), replicaOn(members, node)
		if dead == 0 || l.leader != dead && l.leader != 0 {
			continue
		}
		rank, ok := survivorRank(lr, members, node)
		if !ok {
			continue
		}
		delay := time.Duration(rank) * failOverStagger
		if l.leader == 0 {
			delay += time.Duration(h.cfg.HeartbeatTicks) * h.cfg.TickInterval
		}
		n++
		h.elections.add(lr, &campaign{from: l, dead: dead, sentTerm: l.term, retry: skippedRetry, next: now.Add(delay), deadline: now.Add(failOverDeadline)})
	}
	return n
}

func replicaOn(voters map[ids.ReplicaID]ids.NodeID, n ids.NodeID) ids.ReplicaID {
	for r, at := range voters {
		if at == n {
			return r
		}
	}
	return 0
}

// survivorRank returns the turn of the local replica among the voters that are not on the dead node. False: it has no vote.
func survivorRank(lr *localReplica, voters map[ids.ReplicaID]ids.NodeID, dead ids.NodeID) (int, bool) {
	var alive []ids.ReplicaID
	for r, n := range voters {
		if n != dead {
			alive = append(alive, r)
		}
	}
	slices.Sort(alive)
	pos, ok := slices.BinarySearch(alive, lr.self)
	if !ok {
		return 0, false
	}
	return (pos + int(uint64(lr.shard)%uint64(len(alive)))) % len(alive), true
}

// votersOfShards reads the voters of all local groups, as applied here. Groups that have applied nothing yet are left out.
func (h *Host) votersOfShards() map[ids.ShardID]map[ids.ReplicaID]ids.NodeID {
	all := map[ids.ShardID]map[ids.ReplicaID]ids.NodeID{}
	info := h.nh.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true})
	if info == nil {
		return all
	}
	for _, s := range info.ShardInfoList {
		if s.Pending {
			continue
		}
		voters := make(map[ids.ReplicaID]ids.NodeID, len(s.Replicas))
		for r, addr := range s.Replicas {
			if n, err := ids.ParseRaftAddress(addr); err == nil {
				voters[ids.ReplicaID(r)] = n
			}
		}
		all[ids.ShardID(s.ShardID)] = voters
	}
	return all
}
