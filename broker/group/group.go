package group

import (
	"maps"
	"slices"
)

// group is one group. At most one of classic and consumer is set; neither: there is nothing but offsets, committed by
// consumers that are in no group (Kafka: a simple group).
//
// Invariant: a group that Machine.groups holds has one of the two, an offset, or a pending one.
type group struct {
	id       string
	classic  *classicGroup
	consumer *consumerGroup
	offsets  offsets
	timer    timer
	live     consumerLive // of a consumer group, on the leader
}

// group returns a group, or nil.
func (m *Machine) group(id string) *group { return m.groups[id] }

// addGroup returns a group, which it makes if there is none.
func (m *Machine) addGroup(id string) *group {
	g := m.groups[id]
	if g == nil {
		g = &group{id: id}
		m.groups[id] = g
	}
	return g
}

// dropIfGone removes a group of which nothing is left.
func (m *Machine) dropIfGone(g *group) {
	if g.classic == nil && g.consumer == nil && g.offsets.empty() && m.groups[g.id] == g {
		m.forget(g)
		delete(m.groups, g.id)
	}
}

// sortedGroups lists the ids of all groups.
func (m *Machine) sortedGroups() []string { return slices.Sorted(maps.Keys(m.groups)) }
