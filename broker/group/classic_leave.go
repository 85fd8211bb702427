package group

import (
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveBatch is the version of LeaveGroup from which on it names several members.
const leaveBatch = 3

// LeaveGroup takes members out at once. One that names an instance and no member id is an operator's.
func (m *Machine) LeaveGroup(client Client, req *kmsg.LeaveGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.LeaveGroupResponse]) {
	resp := kmsg.NewPtrLeaveGroupResponse()
	g := m.group(req.Group)
	switch {
	case req.Group == "":
		resp.ErrorCode = kerr.InvalidGroupID.Code
	case g != nil && g.consumer != nil:
		m.consumerClassicLeave(g, client, req, now, fx, reply)
		return
	case g == nil || g.classic == nil:
		resp.ErrorCode = kerr.UnknownMemberID.Code
	case req.Version < leaveBatch:
		resp.ErrorCode = m.leave(g, g.classic, req.MemberID, nil, fx).code()
		m.left(g, g.classic, resp.ErrorCode == 0, now, fx)
	default:
		anybody := false
		for _, rm := range req.Members {
			e := m.leave(g, g.classic, rm.MemberID, rm.InstanceID, fx)
			anybody = anybody || e == nil
			out := kmsg.NewLeaveGroupResponseMember()
			out.MemberID, out.InstanceID, out.ErrorCode = rm.MemberID, rm.InstanceID, e.code()
			resp.Members = append(resp.Members, out)
		}
		m.left(g, g.classic, anybody, now, fx)
	}
	answer(fx, reply, resp)
}

// leave takes one member out.
func (m *Machine) leave(g *group, c *classicGroup, id string, instance *string, fx *coordinator.Effects) *Error {
	if id == "" {
		owner, ok := "", false
		if instance != nil {
			owner, ok = c.members.static[*instance]
		}
		if !ok {
			return refusal(kerr.UnknownMemberID)
		}
		id = owner
	} else if _, ok := c.issued[id]; ok {
		c.remove(id)
		return nil
	} else if e := c.check(id, instance); e != nil {
		return e
	}
	mb := c.members.get(id)
	mb.answerJoin(fx, joinRefusal(kerr.UnknownMemberID.Code, ""))
	mb.answerSync(fx, syncRefusal(kerr.UnknownMemberID.Code))
	c.remove(id)
	return nil
}

// left has the others go on after somebody has left.
func (m *Machine) left(g *group, c *classicGroup, anybody bool, now time.Time, fx *coordinator.Effects) {
	if !anybody || c.state == stateEmpty {
		return
	}
	m.rebalanceOrJoin(g, c, now, fx)
	m.wakeAt(g, c.deadline())
}
