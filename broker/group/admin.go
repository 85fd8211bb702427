package group

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeNotFound is the version of DescribeGroups from which on a missing group is an error; before it is "Dead".
const describeNotFound = 6

// The group types that ListGroups tells.
const (
	typeClassic  = "Classic"
	typeConsumer = "Consumer"
)

// stateDead is what a group is in that does not exist.
const stateDead = "Dead"

// DescribeGroup describes one group of the classic protocol.
func (m *Machine) DescribeGroup(id string, version int16, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.DescribeGroupsResponseGroup]) {
	resp := kmsg.NewDescribeGroupsResponseGroup()
	resp.Group, resp.State = id, stateDead
	g := m.group(id)
	switch {
	case g == nil || g.consumer != nil:
		if version >= describeNotFound {
			resp.ErrorCode = kerr.GroupIDNotFound.Code
			resp.ErrorMessage = ptr(fmt.Sprintf("Group %s not found.", id))
			if g != nil {
				resp.ErrorMessage = ptr(fmt.Sprintf("Group %s is not a classic group.", id))
			}
		}
	case g.classic == nil:
		resp.State = stateEmpty.String()
	default:
		g.classic.describe(&resp)
	}
	answer(fx, reply, &resp)
}

func (c *classicGroup) describe(resp *kmsg.DescribeGroupsResponseGroup) {
	resp.State, resp.ProtocolType = c.state.String(), c.protocolType
	if c.state == stateStable {
		resp.Protocol = c.protocol
	}
	for _, mb := range c.members.list {
		rm := kmsg.NewDescribeGroupsResponseGroupMember()
		rm.MemberID, rm.InstanceID, rm.ClientID, rm.ClientHost = mb.id, mb.instance, mb.clientID, mb.clientHost
		if c.state == stateStable {
			rm.ProtocolMetadata, rm.MemberAssignment = mb.metadata(c.protocol), mb.assignment
		}
		resp.Members = append(resp.Members, rm)
	}
}

// ListGroups lists the groups in one of the states and of one of the types; none given: any. Case does not matter.
func (m *Machine) ListGroups(states, types []string, _ time.Time, fx *coordinator.Effects, reply Reply[[]kmsg.ListGroupsResponseGroup]) {
	var list []kmsg.ListGroupsResponseGroup
	for _, id := range m.sortedGroups() {
		l := m.groups[id].listed()
		if fits(states, l.GroupState) && fits(types, l.GroupType) {
			list = append(list, l)
		}
	}
	answer(fx, reply, list)
}

// fits reports whether a filter lets value pass.
func fits(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), value) })
}

func (g *group) listed() kmsg.ListGroupsResponseGroup {
	l := kmsg.NewListGroupsResponseGroup()
	l.Group, l.GroupType, l.GroupState = g.id, typeClassic, stateEmpty.String()
	switch {
	case g.consumer != nil:
		l.GroupType, l.GroupState, l.ProtocolType = typeConsumer, g.consumer.state(), consumerProtocol
	case g.classic != nil:
		l.GroupState, l.ProtocolType = g.classic.state.String(), g.classic.protocolType
	}
	return l
}

// DeleteGroup deletes a group without members, with its offsets. A group with very many takes several operations: more
// is true, and the caller is to call again.
func (m *Machine) DeleteGroup(id string, _ time.Time, fx *coordinator.Effects, reply func(e *Error, more bool, err error)) {
	g := m.group(id)
	var refused *Error
	more := false
	switch {
	case id == "":
		refused = refusal(kerr.InvalidGroupID)
	case g == nil:
		refused = refusal(kerr.GroupIDNotFound)
	case !g.isEmpty():
		refused = refusal(kerr.NonEmptyGroup)
	default:
		list := g.offsets.all()
		if more = len(list) > deletesMax; more {
			list = list[:deletesMax]
		}
		for _, tp := range list {
			fx.Append(records.Tombstone(g.tombstone(tp)))
		}
		if !more {
			g.appendTombstones(fx)
		}
	}
	fx.Then(func(err error) { reply(refused, more, err) })
}
