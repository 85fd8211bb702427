package group

import (
	"bytes"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func syncRefusal(code int16) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = code
	return resp
}

// SyncGroup brings the leader's assignment and fetches a member's own, which may wait for the leader.
func (m *Machine) SyncGroup(client Client, req *kmsg.SyncGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.SyncGroupResponse]) {
	refuse := func(kind *kerr.Error) { answer(fx, reply, syncRefusal(kind.Code)) }
	if req.Group == "" {
		refuse(kerr.InvalidGroupID)
		return
	}
	g := m.group(req.Group)
	if g != nil && g.consumer != nil && !g.consumer.empty() {
		m.consumerSync(g, client, req, now, fx, reply)
		return
	}
	if g == nil || g.classic == nil || g.classic.state == stateEmpty {
		refuse(kerr.UnknownMemberID)
		return
	}
	c := g.classic
	if e := c.checkSync(req); e != nil {
		answer(fx, reply, syncRefusal(e.Code))
		return
	}
	mb := c.members.get(req.MemberID)
	switch c.state {
	case statePreparing:
		refuse(kerr.RebalanceInProgress)
		return
	case stateCompleting:
		mb.answerSync(fx, syncRefusal(kerr.RebalanceInProgress.Code)) // nobody listens to an earlier one
		mb.sync = reply
		c.synced(mb.id)
		if c.leader == mb.id {
			m.assign(g, c, req, now, fx)
		}
	case stateStable:
		c.synced(mb.id)
		answer(fx, reply, c.assigned(mb))
	}
	m.wakeAt(g, c.deadline())
}

// checkSync refuses a SyncGroup that does not belong to this generation.
func (c *classicGroup) checkSync(req *kmsg.SyncGroupRequest) *Error {
	if e := c.check(req.MemberID, req.InstanceID); e != nil {
		return e
	}
	differs := func(given *string, own string) bool { return given != nil && own != "" && *given != own }
	switch {
	case req.Generation != c.generation:
		return refusal(kerr.IllegalGeneration)
	case differs(req.ProtocolType, c.protocolType) || differs(req.Protocol, c.protocol):
		return refusal(kerr.InconsistentGroupProtocol)
	}
	return nil
}

// synced notes that a member has sent its SyncGroup.
func (c *classicGroup) synced(id string) {
	if delete(c.unsynced, id); len(c.unsynced) == 0 {
		c.syncDeadline = time.Time{}
	}
}

// assign takes over the leader's assignment, saves it and answers all members that wait for it.
func (m *Machine) assign(g *group, c *classicGroup, req *kmsg.SyncGroupRequest, now time.Time, fx *coordinator.Effects) {
	for _, mb := range c.members.list {
		mb.assignment = nil
	}
	for _, a := range req.GroupAssignment {
		if mb := c.members.get(a.MemberID); mb != nil {
			mb.assignment = bytes.Clone(a.MemberAssignment)
		}
	}
	c.moveTo(stateStable, now)
	m.save(g, c, now, fx)
	for _, mb := range c.members.list {
		if mb.answerSync(fx, c.assigned(mb)) {
			mb.touch(now)
		}
	}
}

// assigned is the answer to a SyncGroup of this generation.
func (c *classicGroup) assigned(mb *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = ptr(c.protocolType), ptr(c.protocol), mb.assignment
	return resp
}
