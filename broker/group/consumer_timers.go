package group

import (
	"maps"
	"slices"
	"time"

	"cairn/broker/coordinator"
)

// consumerLive is what the leader of the partition knows of a consumer group beside its records. A new leader begins
// with nothing of it: sessions start anew, and topics are looked at again.
type consumerLive struct {
	timers map[string]*memberTimers
	// seen is the version of the cluster's topics that the group's epoch accounts for, plus one.
	seen int64
	// resolved is when expressions were resolved last, and with which version of the topics.
	resolved        time.Time
	resolvedVersion int64
}

// memberTimers are the times by which a member must have done something, or it is out; zero: nothing.
type memberTimers struct {
	session   time.Time // to be heard of
	rebalance time.Time // to have given back what it has to
	// Of members of the classic protocol, in the place of rebalance:
	join time.Time // to have joined again, since there is a rebalance
	sync time.Time // to have sent SyncGroup, since it has joined
}

func (t *memberTimers) first() time.Time { return earliest(t.session, t.rebalance, t.join, t.sync) }

// deadline is when something is due first.
func (l *consumerLive) deadline() (at time.Time) {
	for _, t := range l.timers {
		at = earliest(at, t.first())
	}
	return at
}

// of returns a member's timers.
func (l *consumerLive) of(member string) *memberTimers {
	if l.timers == nil {
		l.timers = map[string]*memberTimers{}
	}
	if l.timers[member] == nil {
		l.timers[member] = &memberTimers{}
	}
	return l.timers[member]
}

// keepSession starts the session of the updated member anew, and its time to give back partitions when it has to since
// this request.
func (op *consumerOp) keepSession(timeout time.Duration) {
	m, before := op.updated, op.c.members[op.updated.id]
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		t := g.live.of(m.id)
		t.session = op.now.Add(timeout)
		switch {
		case m.usesClassic():
		case m.state != memberUnrevoked:
			t.rebalance = time.Time{}
		case before == nil || !m.sameAssignment(before):
			t.rebalance = op.now.Add(millis(m.RebalanceTimeoutMillis))
		}
		op.m.wakeAt(g, t.first())
	})
}

// electedConsumer starts the sessions of all members.
func (m *Machine) electedConsumer(g *group, now time.Time, _ *coordinator.Effects) {
	g.live = consumerLive{}
	for id, member := range g.consumer.members {
		m.startConsumer(g, id, member, now)
	}
}

func (m *Machine) startConsumer(g *group, id string, member *consumerMember, now time.Time) {
	t := g.live.of(id)
	switch {
	case member.usesClassic():
		t.session = now.Add(millis(member.Classic.SessionTimeoutMillis))
	default:
		t.session = now.Add(m.consumerSessionTimeout(g.id))
		if member.state == memberUnrevoked {
			t.rebalance = now.Add(millis(member.RebalanceTimeoutMillis))
		}
	}
	m.wakeAt(g, t.first())
}

// resignedConsumer drops what is not in records.
func (m *Machine) resignedConsumer(g *group) { g.live = consumerLive{} }

// fencedAtOnce bounds how many members are taken out together, since their records go into one batch.
const fencedAtOnce = 500

// expireConsumer takes out the members whose time is over, and returns when to look again.
func (m *Machine) expireConsumer(g *group, now time.Time, fx *coordinator.Effects) (next time.Time) {
	var late []*consumerMember
	for _, id := range slices.Sorted(maps.Keys(g.live.timers)) {
		member := g.consumer.members[id]
		switch {
		case member == nil:
			delete(g.live.timers, id)
		case !g.live.timers[id].first().After(now) && len(late) < fencedAtOnce:
			late = append(late, member)
		}
	}
	if len(late) == 0 {
		return g.live.deadline()
	}
	op := &consumerOp{m: m, id: g.id, c: g.consumer, now: now, epoch: g.consumer.epoch, regexes: g.consumer.regexes}
	op.fence(late)
	op.commit(fx)
	return time.Time{} // finish sets the next one
}

// settle finishes the operations whose records are replayed now.
func (m *Machine) settle(fx *coordinator.Effects) {
	later := m.later
	m.later = nil
	for _, op := range later {
		op.finish(fx)
	}
}
