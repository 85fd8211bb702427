package raftgroup

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
)

// localReplica is what the host and the transport know of one replica that runs here: a partition group's or the metadata group's.
type localReplica struct {
	shard ids.ShardID
	self  ids.ReplicaID
	group *Group // nil for the metadata group

	leader        atomic.Pointer[leadership] // as last announced
	leaderChanged func(leader ids.ReplicaID, term ids.Term)
	unloaded      chan struct{} // closed when dragonboat's workers have let go of the replica
	unloadOnce    sync.Once

	voters map[ids.ReplicaID]ids.NodeID // as configured at the start

	// hw is the high watermark that this replica tells the others while it leads. It never falls.
	hw atomic.Int64

	mu    sync.Mutex
	peers map[ids.ReplicaID]*peerState // guarded by mu
}

type leadership struct {
	leader ids.ReplicaID
	term   ids.Term
}

// peerState is what the transport has seen between this replica and another member of its group.
type peerState struct {
	sent       ids.RaftIndex // last index of the latest Replicate that was sent
	acked      ids.RaftIndex // durable position of the member, as answered in term ackedTerm
	ackedTerm  ids.Term
	node       ids.NodeID // where it was sent to; NoNode: nowhere yet
	told       ids.Offset // the high watermark that went with the latest message
	heldCommit bool       // the commit of a Replicate was lowered: the member is to hear of it as soon as it has answered

	// Of a member far behind, see pace.go: whether it is paced, and the piece of the log that was sent last.
	paced     bool
	lastPrev  uint64 // the index before it
	lastTerm  uint64 // the leader's
	lastSent  time.Time
	lastBytes int // not charged yet
}

func newLocalReplica(shard ids.ShardID, self ids.ReplicaID, voters map[ids.ReplicaID]ids.NodeID, changed func(ids.ReplicaID, ids.Term)) *localReplica {
	lr := &localReplica{shard: shard, self: self, leaderChanged: changed, unloaded: make(chan struct{}), peers: map[ids.ReplicaID]*peerState{}}
	lr.leader.Store(&leadership{})
	lr.voters = voters
	return lr
}

func (lr *localReplica) markUnloaded() { lr.unloadOnce.Do(func() { close(lr.unloaded) }) }

func (lr *localReplica) isUnloaded() bool {
	select {
	case <-lr.unloaded:
		return true
	default:
		return false
	}
}

// leading reports whether this replica was announced as the leader, and of which term.
func (lr *localReplica) leading() (ids.Term, bool) {
	l := lr.leader.Load()
	return l.term, l.leader == lr.self
}

// announce stores a leader change and passes it on. dragonboat repeats itself; a stale report about a term that this replica came to lead
// is ignored. Called by the listener goroutine only.
func (lr *localReplica) announce(leader ids.ReplicaID, term ids.Term) {
	old := lr.leader.Load()
	if term < old.term || old.term == term && (old.leader == leader || old.leader == lr.self) {
		return
	}
	lr.leader.Store(&leadership{leader: leader, term: term})
	lr.leaderChanged(leader, term)
	if lr.group == nil || leader != lr.self {
		return
	}
	for from, index := range lr.answeredIn(term) { // answers may overtake the announcement
		lr.group.events.Progress(from, index, term)
	}
}

func (lr *localReplica) answeredIn(term ids.Term) map[ids.ReplicaID]ids.RaftIndex {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	answers := map[ids.ReplicaID]ids.RaftIndex{}
	for from, p := range lr.peers {
		if p.ackedTerm == term {
			answers[from] = p.acked
		}
	}
	return answers
}

// nodesAnsweredIn is answeredIn by the nodes that messages to the members went to.
func (lr *localReplica) nodesAnsweredIn(term ids.Term) map[ids.NodeID]ids.RaftIndex {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	answers := map[ids.NodeID]ids.RaftIndex{}
	for _, p := range lr.peers {
		if p.ackedTerm == term && p.node != ids.NoNode {
			answers[p.node] = max(answers[p.node], p.acked)
		}
	}
	return answers
}

func (lr *localReplica) peerLocked(r ids.ReplicaID) *peerState {
	p := lr.peers[r]
	if p == nil {
		p = &peerState{node: ids.NoNode}
		lr.peers[r] = p
	}
	return p
}

// observeAnswer takes a follower's acceptance of entries: it answers after its own save, so index is its durable position.
// before and after tell whether a heartbeat answer is to be handed to dragonboat ahead of or behind the acceptance.
func (lr *localReplica) observeAnswer(m *raftpb.Message, durable ids.RaftIndex) (before, after bool) {
	from, index, term := ids.ReplicaID(m.From), ids.RaftIndex(m.LogIndex), ids.Term(m.Term)
	lr.mu.Lock()
	p := lr.peerLocked(from)
	if term < p.ackedTerm {
		lr.mu.Unlock()
		return false, false
	}
	p.acked, p.ackedTerm = index, term
	before, p.heldCommit = p.heldCommit, false
	after = index >= p.sent && index < durable // all that was sent has arrived, and there is more
	lr.mu.Unlock()
	if leads, ok := lr.leading(); ok && leads == term && lr.group != nil {
		lr.group.events.Progress(from, index, term)
	}
	return before, after
}

// observeSend looks at a message that leaves, and lowers its commit index to the last entry that is saved here: a single voter commits
// before it saves, and a member told of such a commit would keep an entry that a crash of the voter takes back. It returns the high
// watermark that goes with the message, and whether the message is to be dropped.
func (lr *localReplica) observeSend(node ids.NodeID, m *raftpb.Message, durable ids.RaftIndex) (mark ids.Offset, drop bool) {
	held := m.Commit > uint64(durable)
	if held {
		m.Commit = uint64(durable)
	}
	if lr.group != nil {
		mark = ids.Offset(lr.hw.Load())
	}
	lr.mu.Lock()
	defer lr.mu.Unlock()
	p := lr.peerLocked(ids.ReplicaID(m.To))
	now := clock.Now()
	if p.repeatsLocked(m, now) {
		return mark, true
	}
	p.node, p.told = node, mark
	if m.Type == raftpb.Replicate {
		p.sent = ids.RaftIndex(m.LogIndex + uint64(len(m.Entries)))
		p.heldCommit = p.heldCommit || held
		p.notePieceLocked(m, now)
	}
	return mark, false
}

// carriesPayload reports whether all entries are whole: not those that are damaged here. It stops the process before an entry whose
// payload was left out (as the engine does at a restart) reaches a member.
func carriesPayload(m *raftpb.Message) bool {
	for i := range m.Entries {
		if engine.IsStub(m.Entries[i].Cmd) {
			return false
		}
		if e := &m.Entries[i]; e.Type == raftpb.EncodedEntry && len(e.Cmd) < 1+engine.HeaderLen {
			panic(fmt.Sprintf("BUG: entry %d of shard %d is sent to replica %d without its payload (%d bytes)", e.Index, m.ShardID, m.To, len(e.Cmd)))
		}
	}
	return true
}

// outbound prepares messages to a node for the wire, in place; what it drops is left out of the result. The high watermarks that go
// with them are appended to marks.
func (h *Host) outbound(node ids.NodeID, reqs []raftpb.Message, marks []ids.Offset) ([]raftpb.Message, []ids.Offset) {
	kept := reqs[:0]
	for i := range reqs {
		m, mark := &reqs[i], ids.Offset(0)
		if lr := h.replica(ids.ShardID(m.ShardID)); lr != nil {
			switch m.Type {
			case raftpb.Propose:
				if lr.group != nil && forwardsData(m) {
					continue // a proposal of a past leader would be void at the new one
				}
			case raftpb.Replicate, raftpb.Heartbeat:
				if lr.group != nil && !carriesPayload(m) {
					continue // as if it had got lost: somebody else has to lead
				}
				drop := false
				if mark, drop = lr.observeSend(node, m, h.cfg.Engine.DurableIndex(lr.shard)); drop {
					continue
				}
			}
		}
		kept, marks = append(kept, *m), append(marks, mark)
	}
	return kept, marks
}

func forwardsData(m *raftpb.Message) bool {
	for i := range m.Entries {
		if m.Entries[i].Type == raftpb.ConfigChangeEntry {
			return false
		}
	}
	return true
}

// inbound shows received messages, and the high watermarks that came with them, to their replicas and adds the heartbeat answers that make dragonboat go on at once: to a member far
// behind it would send one piece of the log per heartbeat, and a commit that was held back it would repeat with the next one.
func (h *Host) inbound(reqs []raftpb.Message, marks []ids.Offset, from ids.NodeID) []raftpb.Message {
	out := reqs
	copied := false
	for i := range reqs {
		m := &reqs[i]
		drop, before, after := h.observe(m, from)
		if !drop && marks[i] > 0 {
			h.hear(watermark{ids.ShardID(m.ShardID), ids.ReplicaID(m.To), ids.ReplicaID(m.From), marks[i]})
		}
		if !copied && !drop && !before && !after {
			continue
		}
		if !copied {
			out, copied = append(make([]raftpb.Message, 0, len(reqs)+8), reqs[:i]...), true
		}
		beat := raftpb.Message{Type: raftpb.HeartbeatResp, To: m.To, From: m.From, ShardID: m.ShardID, Term: m.Term}
		if before {
			out = append(out, beat)
		}
		if !drop {
			out = append(out, *m)
		}
		if after {
			out = append(out, beat)
		}
	}
	return out
}

// observe decides what becomes of one received message: dropped, or accompanied by a heartbeat answer before or after it.
func (h *Host) observe(m *raftpb.Message, from ids.NodeID) (drop, before, after bool) {
	if f := h.cfg.Faults.DropMessage; f != nil && f(ids.ShardID(m.ShardID), ids.ReplicaID(m.From), ids.ReplicaID(m.To), m.Type.String()) {
		return true, false, false
	}
	if m.Type == raftpb.Replicate && len(m.Entries) > 0 && !h.hasRoom(m) {
		return true, false, false
	}
	answer := m.Type == raftpb.ReplicateResp && !m.Reject
	vote := m.Type == raftpb.RequestVote || m.Type == raftpb.RequestVoteResp && m.Reject
	if !answer && !vote && m.Type != raftpb.TimeoutNow {
		return false, false, false
	}
	lr := h.replica(ids.ShardID(m.ShardID))
	if lr == nil || lr.self != ids.ReplicaID(m.To) {
		return false, false, false
	}
	if answer {
		durable := h.cfg.Engine.DurableIndex(lr.shard)
		before, after = lr.observeAnswer(m, durable)
		if wait, paced := lr.paced(m, durable); paced {
			h.pacer.hold(*m, from, wait)
			return true, before, false
		}
		return false, before, after
	}
	if vote {
		h.elections.observeVote(lr, m)
		return false, false, false
	}
	// The leader hands over. Raft ignores it while a committed entry waits to be applied, and the leader would then refuse proposals
	// for an election timeout; so it is repeated here until it has had its effect.
	return h.takeOver(lr, leadership{ids.ReplicaID(m.From), ids.Term(m.Term)}), false, false
}
