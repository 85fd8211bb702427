package group

import (
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat keeps a member's session and tells it of a rebalance.
func (m *Machine) Heartbeat(client Client, req *kmsg.HeartbeatRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.HeartbeatResponse]) {
	g := m.group(req.Group)
	if req.Group != "" && g != nil && g.consumer != nil {
		m.consumerClassicHeartbeat(g, client, req, now, fx, reply)
		return
	}
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = m.heartbeat(g, req, now).code()
	answer(fx, reply, resp)
}

func (m *Machine) heartbeat(g *group, req *kmsg.HeartbeatRequest, now time.Time) *Error {
	switch {
	case req.Group == "":
		return refusal(kerr.InvalidGroupID)
	case g == nil || g.classic == nil:
		return refusal(kerr.UnknownMemberID)
	}
	c := g.classic
	if e := c.check(req.MemberID, req.InstanceID); e != nil {
		return e
	}
	if req.Generation != c.generation {
		return refusal(kerr.IllegalGeneration)
	}
	m.touch(g, c.members.get(req.MemberID), now)
	if c.state == statePreparing {
		return refusal(kerr.RebalanceInProgress)
	}
	return nil
}

// touch starts a member's session anew. Its end moves later as a rule, and the group's timer stays as it is.
func (m *Machine) touch(g *group, mb *member, now time.Time) {
	mb.touch(now)
	m.wakeAt(g, mb.deadline)
}
