package group

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"
)

// expireOffsets deletes offsets that are older than they may be, or whose topic is gone and nobody coordinated the group then, and groups of which nothing is left. What does not fit
// into one operation comes with the next.
func (m *Machine) expireOffsets(now time.Time, fx *coordinator.Effects) {
	left := deletesMax
	for _, id := range m.sortedGroups() {
		g := m.groups[id]
		expired := m.expiredOffsets(g, now)
		if len(expired) > left {
			expired = expired[:left]
		}
		for _, tp := range expired {
			fx.Append(records.Tombstone(g.tombstone(tp)))
		}
		if left -= len(expired); left > 0 && len(expired) == len(g.offsets.committed) && len(g.offsets.open) == 0 && g.isEmpty() {
			left -= g.appendTombstones(fx)
		}
		if left <= 0 {
			m.nextCheck = now // there may be more
			return
		}
	}
}

// expiredOffsets lists the offsets of a group whose time is over, or whose topic is.
func (m *Machine) expiredOffsets(g *group, now time.Time) []topicPartition {
	since := g.expirySince()
	var list []topicPartition
	for _, tp := range g.offsets.sorted() {
		c := g.offsets.committed[tp]
		if !g.offsets.unstable(tp) && (m.isOver(g, tp, c, since, now) || m.topicGone(tp.topic, c.TopicID)) {
			list = append(list, tp)
		}
	}
	return list
}

// isOver reports whether an offset that ages since then, if at all, is too old.
func (m *Machine) isOver(g *group, tp topicPartition, c committed, since func(committed) time.Time, now time.Time) bool {
	if since == nil {
		return false
	}
	end := since(c).Add(m.cfg.OffsetsRetention)
	if c.Expires >= 0 {
		end = time.UnixMilli(c.Expires)
	}
	return !now.Before(end) && !g.subscribes(tp.topic)
}

// topicGone reports whether there is no such topic any more: none of the id, or of the name for offsets that were committed without an id.
func (m *Machine) topicGone(name string, id [16]byte) bool {
	if id == ([16]byte{}) {
		_, _, ok := m.cfg.Topics.Topic(name)
		return !ok
	}
	_, _, ok := m.cfg.Topics.TopicByID(id)
	return !ok
}

// expirySince says from when on an offset of the group ages; nil: it does not.
func (g *group) expirySince() func(committed) time.Time {
	commit := func(c committed) time.Time { return time.UnixMilli(c.Committed) }
	c := g.classic
	switch {
	case g.consumer != nil:
		return commit // those of topics that are subscribed to are kept
	case c == nil || c.protocolType == "":
		return commit
	case c.state == stateEmpty:
		return func(committed) time.Time { return c.since }
	case c.state == stateStable:
		if _, known := c.subscribed(); known {
			return commit
		}
	}
	return nil
}

// isEmpty reports whether the group has no member.
func (g *group) isEmpty() bool {
	switch {
	case g.consumer != nil:
		return g.consumer.empty()
	case g.classic != nil:
		return g.classic.state == stateEmpty
	}
	return true
}

// appendTombstones deletes the group itself, its offsets aside, and returns with how many records.
func (g *group) appendTombstones(fx *coordinator.Effects) int {
	switch {
	case g.consumer != nil:
		return g.consumer.tombstones(g.id, fx)
	case g.classic != nil:
		fx.Append(records.Tombstone(records.GroupKey(g.id)))
		return 1
	}
	return 0
}
