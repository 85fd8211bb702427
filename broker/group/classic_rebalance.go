package group

import (
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
)

// rebalanceOrJoin begins a rebalance, or ends its join phase if nobody is missing.
func (m *Machine) rebalanceOrJoin(g *group, c *classicGroup, now time.Time, fx *coordinator.Effects) {
	switch {
	case c.state != statePreparing:
		m.prepareRebalance(g, now, fx)
	case !c.initial && c.allJoined():
		m.completeJoin(g, c, now, fx)
	}
}

// prepareRebalance begins the join phase. From Empty it waits for more members to come; else for all that are known.
func (m *Machine) prepareRebalance(g *group, now time.Time, fx *coordinator.Effects) {
	c := g.classic
	if c.state == stateCompleting {
		c.dropAssignment(fx, kerr.RebalanceInProgress.Code, now)
	}
	clear(c.unsynced)
	c.syncDeadline = time.Time{}
	c.initial, c.newcomers = c.state == stateEmpty, false
	c.moveTo(statePreparing, now)
	switch {
	case c.initial:
		c.initialDelay = m.cfg.InitialRebalanceDelay
		c.initialLeft = max(c.rebalanceTimeout()-c.initialDelay, 0)
		c.joinDeadline = now.Add(c.initialDelay)
	case c.allJoined():
		m.completeJoin(g, c, now, fx)
	default:
		c.joinDeadline = now.Add(c.rebalanceTimeout())
	}
	m.wakeAt(g, c.deadline())
}

// joinTimeUp is called when the join phase has lasted as long as it may.
func (m *Machine) joinTimeUp(g *group, c *classicGroup, now time.Time, fx *coordinator.Effects) {
	if c.initial && c.newcomers && c.initialLeft > 0 {
		delay := min(m.cfg.InitialRebalanceDelay, c.initialLeft)
		c.newcomers, c.initialLeft = false, max(c.initialLeft-c.initialDelay, 0)
		c.initialDelay, c.joinDeadline = delay, now.Add(delay)
		return
	}
	m.completeJoin(g, c, now, fx)
}

// completeJoin ends the join phase: dynamic members that did not come are out, and all others get their answers.
func (m *Machine) completeJoin(g *group, c *classicGroup, now time.Time, fx *coordinator.Effects) {
	c.joinDeadline, c.initial = time.Time{}, false
	for _, mb := range slices.Clone(c.members.list) {
		if mb.join == nil && mb.instance == nil {
			mb.answerSync(fx, syncRefusal(kerr.UnknownMemberID.Code))
			c.remove(mb.id)
		}
	}
	if c.members.len() > 0 && !c.electLeader() {
		c.joinDeadline = now.Add(c.rebalanceTimeout()) // only static members, and none of them has come
		return
	}
	c.generation++
	if c.members.len() == 0 {
		c.protocol, c.leader = "", ""
		c.moveTo(stateEmpty, now)
		m.save(g, c, now, fx)
		return
	}
	c.protocol = c.selectProtocol()
	c.moveTo(stateCompleting, now)
	for _, mb := range c.members.list {
		mb.answerJoin(fx, c.joined(mb, c.leader == mb.id))
		mb.fresh = false
		mb.touch(now)
		c.unsynced[mb.id] = struct{}{}
	}
	c.syncDeadline = now.Add(c.rebalanceTimeout())
}

// electLeader makes a member that has joined the leader where the leader has not. False: nobody has.
func (c *classicGroup) electLeader() bool {
	if mb := c.members.get(c.leader); mb != nil && mb.join != nil {
		return true
	}
	i := slices.IndexFunc(c.members.list, func(mb *member) bool { return mb.join != nil })
	if i < 0 {
		return false
	}
	c.leader = c.members.list[i].id
	return true
}

// dropAssignment forgets the assignment and answers who waits for it.
func (c *classicGroup) dropAssignment(fx *coordinator.Effects, code int16, now time.Time) {
	for _, mb := range c.members.list {
		mb.assignment = nil
		if mb.answerSync(fx, syncRefusal(code)) {
			mb.touch(now)
		}
	}
}

// save appends the group's record. Where it is refused, the members are to join once more.
func (m *Machine) save(g *group, c *classicGroup, now time.Time, fx *coordinator.Effects) {
	fx.Append(records.Encode(records.GroupKey(g.id), records.EncodeGroup(c.record())))
	generation := c.generation
	fx.Refused(func(_ error, fx *coordinator.Effects) {
		if g.classic == c && c.generation == generation && c.state == stateStable {
			c.dropAssignment(fx, kerr.RebalanceInProgress.Code, now)
			m.prepareRebalance(g, now, fx)
		}
	})
}

// startClassic starts the sessions of a group whose live layer has just been made.
func (m *Machine) startClassic(g *group, now time.Time, fx *coordinator.Effects) {
	c := g.classic
	for _, mb := range c.members.list {
		if mb.deadline.IsZero() {
			mb.touch(now)
		}
	}
	if c.members.len() > m.cfg.GroupMaxSize {
		m.prepareRebalance(g, now, fx)
	}
	m.wakeAt(g, c.deadline())
}

// expireClassic does what is due in a group and returns its next deadline.
func (m *Machine) expireClassic(g *group, now time.Time, fx *coordinator.Effects) time.Time {
	c := g.classic
	for _, id := range c.sortedIssued() {
		if !now.Before(c.issued[id]) {
			c.remove(id)
			m.joinIfAll(g, c, now, fx)
		}
	}
	for _, mb := range slices.Clone(c.members.list) {
		if c.members.get(mb.id) == mb && !mb.waits() && !now.Before(mb.deadline) {
			m.removeMember(g, c, mb, now, fx)
		}
	}
	if !c.joinDeadline.IsZero() && !now.Before(c.joinDeadline) {
		m.joinTimeUp(g, c, now, fx)
	}
	if !c.syncDeadline.IsZero() && !now.Before(c.syncDeadline) {
		for _, mb := range slices.Clone(c.members.list) {
			if _, ok := c.unsynced[mb.id]; ok {
				c.remove(mb.id)
			}
		}
		m.prepareRebalance(g, now, fx)
	}
	return c.deadline()
}

// removeMember takes a member out who left or fell silent, and has the others go on without it.
func (m *Machine) removeMember(g *group, c *classicGroup, mb *member, now time.Time, fx *coordinator.Effects) {
	mb.answerJoin(fx, joinRefusal(kerr.UnknownMemberID.Code, ""))
	mb.answerSync(fx, syncRefusal(kerr.UnknownMemberID.Code))
	c.remove(mb.id)
	if c.state == stateStable || c.state == stateCompleting {
		m.prepareRebalance(g, now, fx)
		return
	}
	m.joinIfAll(g, c, now, fx)
}

// joinIfAll ends the join phase when the one that was missing is gone.
func (m *Machine) joinIfAll(g *group, c *classicGroup, now time.Time, fx *coordinator.Effects) {
	if c.state == statePreparing && c.allJoined() {
		m.completeJoin(g, c, now, fx)
	}
}
