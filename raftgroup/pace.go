package raftgroup

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// A member far behind takes what it lacks as fast as it can, unless GroupConfig.Pace says otherwise. dragonboat has no limit of its own: it
// sends the next piece of the log when a piece was accepted, and one more with each proposal. Here it is made to send one piece, and no other
// before it hears that this one was accepted; and that it hears as late as the pace demands. So the pace costs no thread that waits, no
// memory but one short message, and no message that is read from disk and thrown away.
//
// What makes dragonboat wait for an answer is a rejection behind the acceptance: it goes back to sending one piece at a time. The piece that it
// sends again for that is dropped, see localReplica.repeats. How far the member is durable counts at once, for the in-sync replicas.

const (
	// farBehind is how many entries a member lacks that is paced. What is nearer flows with the proposals.
	farBehind = 64
	// repeatAfter is when a piece of the log that was not accepted is sent again: it may have been lost with a connection.
	repeatAfter = 5 * time.Second
	// paceMax bounds how long an acceptance is held back, whatever the pace.
	paceMax = time.Minute
)

// memberOf names a member of a group.
type memberOf struct {
	shard  ids.ShardID
	member ids.ReplicaID
}

// pacer holds acceptances back. There is at most one of each member, the latest.
type pacer struct {
	t *transport

	mu     sync.Mutex
	held   map[memberOf]*time.Timer // guarded by mu
	closed bool                     // guarded by mu
	wg     sync.WaitGroup           // deliveries; Add under mu
}

func newPacer(t *transport) *pacer { return &pacer{t: t, held: map[memberOf]*time.Timer{}} }

// hold hands the acceptance to dragonboat after the wait, and has it send one piece of the log then.
func (p *pacer) hold(accepted raftpb.Message, from ids.NodeID, wait time.Duration) {
	key := memberOf{ids.ShardID(accepted.ShardID), ids.ReplicaID(accepted.From)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if former := p.held[key]; former != nil && former.Stop() {
		p.wg.Done()
	}
	p.wg.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(min(wait, paceMax), func() {
		defer p.wg.Done()
		p.mu.Lock()
		current := p.held[key] == timer
		if current {
			delete(p.held, key)
		}
		current = current && !p.closed
		p.mu.Unlock()
		if current {
			p.deliver(accepted, from)
		}
	})
	p.held[key] = timer
}

func (p *pacer) deliver(accepted raftpb.Message, from ids.NodeID) {
	again := raftpb.Message{
		Type: raftpb.ReplicateResp, To: accepted.To, From: accepted.From, ShardID: accepted.ShardID, Term: accepted.Term,
		Reject: true, LogIndex: accepted.LogIndex + 1, Hint: accepted.LogIndex,
	}
	p.t.deliver(raftpb.MessageBatch{
		Requests: []raftpb.Message{accepted, again}, DeploymentId: p.t.deployment,
		SourceAddress: from.RaftAddress(), BinVer: raftio.TransportBinVersion,
	})
}

// close drops what is held and waits for deliveries under way. Raft repeats what matters.
func (p *pacer) close() {
	p.mu.Lock()
	p.closed = true
	for key, timer := range p.held {
		if timer.Stop() {
			p.wg.Done()
		}
		delete(p.held, key)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// paced reports whether an acceptance is to be held back, and for how long. It is the leader's question about a member far behind.
func (lr *localReplica) paced(m *raftpb.Message, durable ids.RaftIndex) (wait time.Duration, paced bool) {
	if lr.group == nil || lr.group.cfg.Pace == nil || uint64(durable) < m.LogIndex+farBehind {
		return 0, false
	}
	from := ids.ReplicaID(m.From)
	lr.mu.Lock()
	p := lr.peerLocked(from)
	bytes := p.lastBytes
	p.lastBytes = 0 // charged once
	lr.mu.Unlock()
	wait, paced = lr.group.cfg.Pace(from, bytes)
	lr.mu.Lock()
	p.paced = paced
	lr.mu.Unlock()
	return wait, paced
}

// repeatsLocked reports whether entries to a paced member are sent once more though it has them, or is about to. lr.mu is held.
func (p *peerState) repeatsLocked(m *raftpb.Message, now time.Time) bool {
	if !p.paced || m.Type != raftpb.Replicate || len(m.Entries) == 0 {
		return false
	}
	last := ids.RaftIndex(m.LogIndex) + ids.RaftIndex(len(m.Entries))
	has := ids.Term(m.Term) == p.ackedTerm && last <= p.acked
	underWay := m.LogIndex == p.lastPrev && m.Term == p.lastTerm && now.Sub(p.lastSent) < repeatAfter
	return has || underWay
}

// notePieceLocked remembers the entries that leave. lr.mu is held.
func (p *peerState) notePieceLocked(m *raftpb.Message, now time.Time) {
	if m.Type != raftpb.Replicate || len(m.Entries) == 0 {
		return
	}
	p.lastPrev, p.lastTerm, p.lastSent, p.lastBytes = m.LogIndex, m.Term, now, 0
	for i := range m.Entries {
		p.lastBytes += len(m.Entries[i].Cmd)
	}
}
