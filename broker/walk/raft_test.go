package walk

import (
	"maps"
	"slices"

	"cairn/broker/controller"
	"cairn/broker/isr"
	"cairn/internal/ids"
)

// peer returns the running replica with that id, if l can talk to it.
func (w *world) peer(l *replica, id ids.ReplicaID, node ids.NodeID) *replica {
	b := w.broker(node)
	if !w.talk(l.b, b) || b.r == nil || b.r.shard != l.shard || b.r.id != id {
		return nil
	}
	return b.r
}

// raftLog is the part of the log that Raft knows.
func (r *replica) raftLog() []entry { return r.b.log[r.first:] }

// upToDate is Raft's comparison: a's log is at least as up to date as b's.
func upToDate(a, b *replica) bool {
	last := func(log []entry) (term ids.Term) {
		if len(log) > 0 {
			term = log[len(log)-1].term
		}
		return term
	}
	la, lb := a.raftLog(), b.raftLog()
	return last(la) > last(lb) || last(la) == last(lb) && len(la) >= len(lb)
}

// matching is how many entries Raft takes for the same in two logs: it compares index and term.
func matching(a, b []entry) int {
	k := 0
	for k < len(a) && k < len(b) && a[k].term == b[k].term {
		k++
	}
	return k
}

// led reports whether a leader of its term reaches the replica.
func (w *world) led(r *replica) bool {
	for _, b := range w.brokers {
		if w.talk(r.b, b) && b.r != nil && b.r.leads && b.r.shard == r.shard && b.r.term == r.term {
			return true
		}
	}
	return false
}

// elect is the election timer of a replica.
func (w *world) elect(b *broker) {
	r := b.r
	if r == nil {
		return
	}
	if w.led(r) && w.rnd.IntN(20) > 0 {
		return // it hears from its leader; only now and then a timer fires all the same
	}
	w.campaign(b)
}

// campaign holds an election at once, with the votes of those that can be reached.
func (w *world) campaign(b *broker) {
	r := b.r
	if !b.up || r == nil || r.leads {
		return
	}
	if _, votes := r.voters[r.id]; !votes {
		return
	}
	term := r.term + 1
	var yes []*replica
	for _, id := range slices.Sorted(maps.Keys(r.voters)) {
		v := w.peer(r, id, r.voters[id])
		switch {
		case v == nil:
		case v != r && v.term >= term:
			r.term = v.term // not now; a later try goes higher
			return
		case v == r || upToDate(r, v):
			yes = append(yes, v)
		}
	}
	if 2*len(yes) <= len(r.voters) {
		return
	}
	for _, v := range yes {
		v.term = term
		v.stopLeading()
	}
	r.leads, r.match, r.nonVoters = true, map[ids.ReplicaID]int{}, map[ids.ReplicaID]ids.NodeID{}
	b.append(entry{generation: r.generation, term: term})
	r.match[r.id] = len(b.log)
	w.say("broker %d is elected in term %d of generation %d, log %d", b.node, term, r.generation, len(b.log))
	w.advance(b)
}

// replicate sends some of the leader's log to a follower, which saves it and answers.
func (w *world) replicate(b, to *broker) {
	l, f := b.r, to.r
	if b == to || l == nil || f == nil || !l.leads || !w.talk(b, to) || f.shard != l.shard || f.term > l.term {
		return
	}
	_, votes := l.voters[f.id]
	if _, follows := l.nonVoters[f.id]; !votes && !follows {
		return
	}
	if f.term < l.term || f.leads {
		f.term = l.term
		f.stopLeading()
	}
	k := matching(f.raftLog(), l.raftLog())
	upTo := k + w.rnd.IntN(len(l.raftLog())-k+1)
	if w.rnd.IntN(3) > 0 { // a follower far behind stays so for a while
		upTo = min(upTo, k+w.rnd.IntN(4))
	}
	w.give(l, f, k, upTo)
	// No follower is told of a commit that its leader has not saved (docs/generations.md, rule 10).
	f.commit = max(f.commit, f.first+min(l.commit-l.first, upTo, b.saved-l.first))
	if l.reign != nil && !w.deaf && w.rnd.IntN(4) == 0 { // the high watermark travels now and then
		to.heard = max(to.heard, min(l.reign.HighWatermark(), to.end(f.first+upTo)))
	}
	id, term := f.id, l.term
	w.send(func() { w.progress(l, id, term, l.first+upTo) })
}

// give makes the follower's log the leader's up to upTo, from k on, where they part, and saves it.
func (w *world) give(l, f *replica, k, upTo int) {
	if upTo > k {
		if k < len(f.raftLog()) {
			if f.first+k < f.commit {
				w.fail("Raft would cut committed entries off broker %d", f.b.node)
			}
			w.cut(f.b, f.first+k)
		}
		for _, e := range l.raftLog()[k:upTo] {
			f.b.append(e)
		}
	}
	f.voters, f.votersAt = l.voters, l.votersAt
	f.b.saved = len(f.b.log)
}

// progress is a follower's answer: it holds the log up to n durably.
func (w *world) progress(l *replica, from ids.ReplicaID, term ids.Term, n int) {
	b := l.b
	if b.r != l || !l.leads || l.term != term {
		return
	}
	w.saveTo(b, min(n, len(b.log))) // dragonboat handles an answer after its own save of what is answered
	if n > l.match[from] {
		l.match[from] = n
		if l.reign != nil {
			l.reign.NoteProgress(from, b.end(n))
		}
	}
	w.advance(b)
}

// append gives an entry its place: offsets are a function of the log.
func (b *broker) append(e entry) {
	e.next = b.end(len(b.log))
	if e.id != 0 {
		e.next++
	}
	b.log = append(b.log, e)
}

// advance moves Raft's commit. A single voter commits before it has saved.
func (w *world) advance(b *broker) {
	l := b.r
	for n := len(b.log); n > l.commit; n-- {
		if b.log[n-1].term != l.term {
			break
		}
		have := 0
		for id := range l.voters {
			if l.match[id] >= n {
				have++
			}
		}
		if 2*have > len(l.voters) {
			l.commit = n
			if l.reign != nil {
				l.reign.NoteCommitted(b.end(n))
			}
			break
		}
	}
}

// reportLeader registers a leader with the controller once its own log is saved.
func (w *world) reportLeader(b *broker) {
	r := b.r
	if !b.reach() || !b.registered || r == nil || !r.leads || r.reign != nil || b.saved != len(b.log) {
		return
	}
	cmd := controller.RegisterLeaders{Broker: b.node, Epoch: b.epoch, Leaders: []controller.LeaderReport{{
		TopicID: topicID, Generation: r.generation, Term: r.term, Replica: r.id, BaseOffset: b.end(r.first),
	}}}
	w.send(func() { w.apply(cmd) })
}

// changeMember makes the membership change that the leader wants next, if Raft can commit it, and reports the voters.
func (w *world) changeMember(b *broker) {
	l := b.r
	if !b.up || l == nil || l.reign == nil {
		return
	}
	c, ok := l.reign.NextMember(slices.Sorted(maps.Keys(l.voters)), slices.Sorted(maps.Keys(l.nonVoters)))
	if !ok {
		w.reportVoters(b)
		return
	}
	if c.Action == isr.AddNonVoting {
		l.nonVoters[c.Replica] = c.Node
		return
	}
	next := maps.Clone(l.voters)
	delete(next, c.Replica)
	if c.Action == isr.Promote {
		next[c.Replica] = c.Node
	}
	with := w.reached(l, l.voters)
	if 2*len(with) <= len(l.voters) || 2*len(w.reached(l, next)) <= len(next) {
		return
	}
	// The change is an entry of the log, here one that a majority holds at once.
	l.voters, l.votersAt = next, l.votersAt+1
	b.append(entry{generation: l.generation, term: l.term})
	l.match[l.id] = len(b.log)
	w.saveTo(b, len(b.log))
	for _, v := range with {
		if v == l {
			continue
		}
		if v.term < l.term {
			v.term = l.term
			v.stopLeading()
		}
		w.give(l, v, matching(v.raftLog(), l.raftLog()), len(l.raftLog()))
		w.progress(l, v.id, l.term, len(b.log))
	}
	delete(l.nonVoters, c.Replica)
	w.say("broker %d changes the voters to %v", b.node, slices.Sorted(maps.Values(next)))
	w.reportVoters(b)
}

// reached lists the voters that the leader can replicate to, itself among them.
func (w *world) reached(l *replica, voters map[ids.ReplicaID]ids.NodeID) []*replica {
	var out []*replica
	for _, id := range slices.Sorted(maps.Keys(voters)) {
		if v := w.peer(l, id, voters[id]); v != nil && v.term <= l.term {
			out = append(out, v)
		}
	}
	return out
}

// reportVoters tells the controller who votes, if it does not know.
func (w *world) reportVoters(b *broker) {
	l, p := b.r, partitionIn(w.images[b.seen])
	voters := slices.Sorted(maps.Keys(l.voters))
	known := slices.Clone(p.FormerVoters)
	for _, n := range p.Voters {
		known = append(known, p.ReplicaIDs[p.ReplicaOf(n)])
	}
	slices.Sort(known)
	if slices.Equal(known, voters) {
		return
	}
	report := controller.ChangeVoters{Broker: b.node, Epoch: b.epoch, Partitions: []controller.VotersReport{{
		TopicID: topicID, LeaderEpoch: l.reign.Epoch(), At: l.votersAt, Voters: voters,
	}}}
	w.send(func() { w.apply(report) })
}
