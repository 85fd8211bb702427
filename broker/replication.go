package broker

import (
	"errors"
	"fmt"
	"sync"

	"cairn/broker/controller"
	"cairn/broker/isr"
	"cairn/engine"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// replication is what a leader keeps of its partition's replicas while it serves clients: who is in sync and how far
// consumers read. The rules are package isr's; here they are told what Raft, the log and the metadata say.
type replication struct {
	mu     sync.Mutex
	reign  *reign      // guarded by mu; nil: no client is served
	leader *isr.Leader // guarded by mu; nil: no client is served, or the image says that this reign is over
	acks   []ack       // guarded by mu; of the reign's term
	seen   seenState   // guarded by mu; what the leader's view was made from
}

// ack is up to where a follower holds the log durably. told is how much of that the leader knows: a follower can be ahead
// of what is saved here, and of what is not saved here nobody knows the offset.
type ack struct {
	replica     ids.ReplicaID
	index, told ids.RaftIndex
}

// seenState is the part of an image that a view depends on, so that images that change something else are passed over.
type seenState struct {
	img      *controller.Image
	state    *controller.Partition
	minimum  int
	eligible uint64 // by position in the assignment
}

func (s *seenState) sameAs(o *seenState) bool {
	return s.state == o.state && s.minimum == o.minimum && s.eligible == o.eligible
}

// look returns what the newest image says of the partition; no state: it is gone.
func (p *partition) look() (t *controller.Topic, s seenState) {
	s.img = p.owner.cfg.Images.Image()
	t = s.img.TopicsByID[p.topicID]
	state, ok := s.img.PartitionOf(p.topicID, p.index)
	if !ok {
		return t, s
	}
	s.state, s.minimum = state, s.img.MinISR(t.Name, state)
	for i, n := range state.Replicas {
		if b := s.img.Brokers[n]; b != nil && !b.Fenced && !b.ShuttingDown && i < 64 {
			s.eligible |= 1 << i
		}
	}
	return t, s
}

// beginReplication starts the bookkeeping of a reign whose epoch begins at offset start. False: the image shows already
// that the reign is over.
func (p *partition) beginReplication(r *reign, start ids.Offset) bool {
	rep := &p.replication
	rep.mu.Lock()
	defer rep.mu.Unlock()
	t, seen := p.look()
	if seen.state == nil || seen.state.LeaderEpoch != r.epoch || !p.registered(seen.state) {
		return false
	}
	rep.reign, rep.seen = r, seen
	rep.leader = isr.New(isr.Config{Self: p.self, LagTimeMax: p.owner.cfg.LagTimeMax}, seen.img.View(t, seen.state),
		start, min(p.highWatermark(), start), p.owner.cfg.Now())
	rep.acks = p.followers.answers(r.term)
	return true
}

// endReplication ends the bookkeeping, whatever the reign.
func (p *partition) endReplication() {
	p.replication.mu.Lock()
	defer p.replication.mu.Unlock()
	p.replication.reign, p.replication.leader, p.replication.acks = nil, nil, nil
}

// advance raises the high watermark as far as it may: on a leader by the rules of the ISR, else to what the leader told, as
// far as that is committed and saved here.
func (p *partition) advance() {
	c := p.core.Load()
	if c == nil {
		return
	}
	rep := &p.replication
	rep.mu.Lock()
	hw, wants := ids.Offset(0), false
	switch {
	case rep.leader != nil:
		wants = p.tellLocked(c.log)
		hw = rep.leader.HighWatermark()
	case rep.reign == nil:
		if end, ok := p.endOf(c.log, p.positions.both()); ok {
			hw = min(end, ids.Offset(p.heard.Load()))
		}
	}
	rep.mu.Unlock()
	p.expose(c, hw)
	if wants {
		p.owner.isr.wants(p)
	}
}

// tellLocked tells the leader what is saved, committed and held by others. It reports whether it may want another ISR.
func (p *partition) tellLocked(log *engine.Log) (wants bool) {
	rep := &p.replication
	now := p.owner.cfg.Now()
	rep.leader.NoteSaved(log.End(), now)
	if end, ok := p.endOf(log, p.positions.both()); ok {
		rep.leader.NoteCommitted(end)
	}
	saved := log.LastIndex()
	for i := range rep.acks {
		a := &rep.acks[i]
		index := min(a.index, saved)
		if index <= a.told {
			continue
		}
		if end, ok := p.endOf(log, index); ok {
			a.told = index
			wants = rep.leader.NoteProgress(a.replica, end).Propose || wants
		}
	}
	return wants
}

// endOf is the end offset of the log up to an index; not ok when the log does not know the entry: it was replaced or
// compacted meanwhile, and the events of that are on their way.
func (p *partition) endOf(log *engine.Log, index ids.RaftIndex) (end ids.Offset, ok bool) {
	if index == 0 {
		return 0, false
	}
	end, err := log.NextAfter(index)
	if err != nil && !errors.Is(err, engine.ErrNoEntry) {
		p.owner.cfg.Log.Error("end of the log cannot be read", append(p.fields(), zap.Uint64("index", uint64(index)), zap.Error(err))...)
	}
	return end, err == nil
}

// expose raises the high watermark to hw, if it is below: the log keeps it, the followers hear of it, and who waited for
// it is woken.
func (p *partition) expose(c *core, hw ids.Offset) {
	if !p.raiseHighWatermark(hw) {
		return
	}
	hw = p.highWatermark()
	c.log.SetHighWatermark(hw)
	c.group.ShowHighWatermark(hw)
	p.watches.reach(hw)
	p.stable.reach(c.log.LastStable(hw))
	if p.coord != nil {
		p.coord.Advanced(p.index)
	}
}

// noteProgress hears up to where a follower holds the log, in a term that this replica leads.
func (p *partition) noteProgress(from ids.ReplicaID, index ids.RaftIndex, term ids.Term) {
	rep := &p.replication
	rep.mu.Lock()
	fresh := rep.leader != nil && rep.reign.term == term && rep.noteLocked(from, index)
	rep.mu.Unlock()
	if fresh {
		p.advance()
	}
}

// noteLocked reports whether the follower's position is news.
func (rep *replication) noteLocked(from ids.ReplicaID, index ids.RaftIndex) bool {
	for i := range rep.acks {
		if a := &rep.acks[i]; a.replica == from {
			fresh := index > a.index
			a.index = max(a.index, index)
			return fresh
		}
	}
	rep.acks = append(rep.acks, ack{replica: from, index: index})
	return true
}

// noteImage gives the leader its view of the newest image. When that shows that the reign is over nothing is exposed or
// answered any more from here on; follow ends the reign.
func (p *partition) noteImage() {
	rep := &p.replication
	rep.mu.Lock()
	if rep.leader == nil {
		rep.mu.Unlock()
		return
	}
	t, seen := p.look()
	var change isr.Change
	switch {
	case seen.state == nil || !p.registered(seen.state):
		rep.leader = nil
	case !seen.sameAs(&rep.seen):
		var over bool
		if change, over = rep.leader.NoteView(seen.img.View(t, seen.state)); over {
			rep.leader = nil
		}
	}
	rep.seen = seen
	leads := rep.leader != nil
	rep.mu.Unlock()
	if leads {
		p.handOverAsAsked(&seen)
	}
	if change.HighWatermark {
		p.advance()
	}
	if change.Propose {
		p.owner.isr.wants(p)
	}
}

// checkAppend is asked before a batch is appended in the reign r. Errors: errNotLeader, and for acks=all
// errNotEnoughReplicas.
func (p *partition) checkAppend(r *reign, all bool) error {
	rep := &p.replication
	rep.mu.Lock()
	defer rep.mu.Unlock()
	l := p.leaderLocked(r)
	if l == nil {
		return errNotLeader
	}
	now := p.owner.cfg.Now()
	l.NoteLease(now.Add(p.owner.cfg.Client.LeaseLeft()))
	return replicationError(l, l.CheckAppend(all, now), errNotEnoughReplicas)
}

// settle is asked whether a request whose batch, appended in the reign r, ends at next can be answered, and how. Errors:
// errNotLeader, and for acks=all errNotEnoughAfterAppend.
func (p *partition) settle(r *reign, next ids.Offset, all bool) (done bool, err error) {
	rep := &p.replication
	rep.mu.Lock()
	defer rep.mu.Unlock()
	l := p.leaderLocked(r)
	if l == nil {
		return true, errNotLeader
	}
	now := p.owner.cfg.Now()
	l.NoteLease(now.Add(p.owner.cfg.Client.LeaseLeft()))
	done, err = l.Settled(next, all, now)
	return done, replicationError(l, err, errNotEnoughAfterAppend)
}

// leaderLocked is the leader of the reign r, nil when that is over. The newest image is asked too: what goes through all
// partitions after each image comes a little later.
func (p *partition) leaderLocked(r *reign) *isr.Leader {
	if p.replication.reign != r || p.replication.leader == nil {
		return nil
	}
	state, ok := p.owner.cfg.Images.Image().PartitionOf(p.topicID, p.index)
	if !ok || state.LeaderEpoch != r.epoch {
		return nil
	}
	return p.replication.leader
}

// replicationError is the broker's error for one of package isr.
func replicationError(l *isr.Leader, err, tooFew error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, isr.ErrNotEnoughReplicas):
		size, minimum := l.InSync()
		return fmt.Errorf("%w: %d in sync, %d needed", tooFew, size, minimum)
	default:
		return fmt.Errorf("%w: %w", errNotLeader, err)
	}
}

// inSyncCount is the size of the committed ISR and the effective minimum, of one image; zeros while no client is served.
func (p *partition) inSyncCount() (size, minimum int) {
	p.replication.mu.Lock()
	defer p.replication.mu.Unlock()
	if p.replication.leader == nil {
		return 0, 0
	}
	return p.replication.leader.InSync()
}

// nextMember is the next change of the Raft group's membership; none while no client is served here.
func (p *partition) nextMember(voters, nonVoters []ids.ReplicaID) (isr.MemberChange, bool) {
	p.replication.mu.Lock()
	defer p.replication.mu.Unlock()
	if p.replication.leader == nil {
		return isr.MemberChange{}, false
	}
	return p.replication.leader.NextMember(voters, nonVoters)
}
