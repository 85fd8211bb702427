package isr

import (
	"time"

	"cairn/broker/internal/rules"
	"cairn/internal/ids"
)

// Propose returns the ISR that the leader wants, if that is another than the committed one and no proposal is under way.
// To be called when a Change says so and every so often, for members that fall behind say nothing. After it returned a
// proposal it returns none until Answered. A member that the proposal adds counts for the high watermark from now on.
func (l *Leader) Propose(now time.Time) (Proposal, bool) {
	if l.flying {
		return Proposal{}, false
	}
	p := Proposal{LeaderEpoch: l.epoch, PartitionEpoch: l.view.PartitionEpoch}
	changed := false
	for i := range l.members {
		m := &l.members[i]
		want := l.wants(m, now)
		// A member proposed before, by a proposal of unknown fate, keeps counting until the partition epoch has moved. If
		// it is not wanted any more, proposing the ISR as it is moves the epoch.
		changed = changed || want != m.InSync || m.proposed && !m.InSync
		if want {
			p.ISR = append(p.ISR, m.Node)
		}
	}
	if !changed {
		return Proposal{}, false
	}
	for i := range l.members {
		m := &l.members[i]
		m.proposed = m.proposed || !m.InSync && l.wants(m, now)
	}
	l.flying = true
	return p, true
}

// Answered tells that a proposal was answered, or will not be. Whatever the answer was, it says nothing about the ISR: the
// leader learns that from its own metadata, where ISR and minimum belong together.
func (l *Leader) Answered() { l.flying = false }

// wants reports whether the member belongs into the ISR, for what the leader knows.
func (l *Leader) wants(m *member, now time.Time) bool {
	switch {
	case m.Replica == l.cfg.Self:
		return true
	case m.InSync:
		return m.Eligible && !l.lags(m, now)
	default:
		return m.Eligible && l.holdsEnough(m) && !l.lags(m, now)
	}
}

// holdsEnough is rule 3 of the design: the member holds the log up to the high watermark, and up to the log end at which
// this leader registered, because a new leader's own high watermark may be behind what was exposed before.
func (l *Leader) holdsEnough(m *member) bool {
	return m.end >= l.hw && (m.end >= l.start || l.cfg.Off.Has(rules.NoEpochStart))
}

// lags reports whether the member was last caught up longer than the lag time ago. One at the log end never lags, so an
// idle partition keeps its ISR.
func (l *Leader) lags(m *member, now time.Time) bool {
	return now.Sub(l.samples.caughtUp(m.end, now)) > l.cfg.LagTimeMax
}

// Lagging lists the nodes in the committed ISR that are to leave it, for metrics and messages.
func (l *Leader) Lagging(now time.Time) []ids.NodeID {
	var nodes []ids.NodeID
	for i := range l.members {
		if m := &l.members[i]; m.InSync && m.Replica != l.cfg.Self && l.lags(m, now) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}
