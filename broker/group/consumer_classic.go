package group

import (
	"bytes"
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/broker/group/records"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerJoin lets a member of the classic protocol join a consumer group, or join again to get on with a rebalance. The
// coordinator divides for it, too; what it gets it learns by SyncGroup.
func (m *Machine) consumerJoin(g *group, client Client, req *kmsg.JoinGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.JoinGroupResponse]) {
	op := &consumerOp{m: m, id: g.id, c: g.consumer, now: now, epoch: g.consumer.epoch, regexes: g.consumer.regexes}
	resp, e := op.joinClassic(client, req)
	if e != nil {
		answer(fx, reply, joinRefusal(e.Code, req.MemberID))
		return
	}
	op.commit(fx)
	answer(fx, reply, resp)
}

func (op *consumerOp) joinClassic(client Client, req *kmsg.JoinGroupRequest) (*kmsg.JoinGroupResponse, *Error) {
	id := req.MemberID
	if id == "" {
		id = op.m.cfg.NewID()
	}
	e := op.room(id)
	switch {
	case e != nil:
		return nil, e
	case op.m.cfg.Consumer.Migration == MigrateNot:
		return nil, refusal(kerr.InconsistentGroupProtocol, "group.consumer.migration.policy forbids members of the classic protocol")
	case !op.supportsClassic(req):
		return nil, refusal(kerr.InconsistentGroupProtocol, "the group's members have none of the protocols")
	case req.MemberID == "" && req.InstanceID == nil && req.Version >= joinKnownMember:
		return joinRefusal(kerr.MemberIDRequired.Code, id), nil
	}
	subscription, err := readSubscription(req.Protocols[0].Metadata) // all protocols carry the same
	if err != nil {
		return nil, refusal(kerr.InconsistentGroupProtocol, err.Error())
	}
	static := op.c.staticMember(deref(req.InstanceID))
	before, inherited, e := op.enter(entrant{
		id: id, instance: deref(req.InstanceID), join: req.InstanceID == nil || req.MemberID == "", classic: true,
	})
	if e != nil {
		return nil, e
	}
	op.updated = before.with(func(n *consumerMember) { takeOverClassic(n, client, req, subscription) })
	resubscribed, e := op.subscribe(before)
	if e != nil {
		return nil, e
	}
	owned := op.subscriptionOwned(subscription)
	if static != nil && static.id != id && op.downgradesWithout(map[string]bool{static.id: true}, 1) {
		e = op.joinDowngrading(static, inherited, owned, resubscribed)
		return op.joined(), e
	}
	op.advance(op.c.epoch == 0 || resubscribed)
	op.retarget(inherited)
	if e = op.reconcile(owned, resubscribed); e != nil {
		return nil, e
	}
	op.afterJoin(req)
	return op.joined(), nil
}

// joinDowngrading has the joining member take the place of the last one of the consumer protocol, and the group become a
// classic one. It rebalances only if the member wants something else.
func (op *consumerOp) joinDowngrading(static *consumerMember, inherited assignor.Partitions, owned map[ids.UUID][]int32, resubscribed bool) *Error {
	op.target, op.targetEpoch = inherited, op.c.target.epoch
	if !resubscribed {
		if e := op.reconcile(owned, false); e != nil {
			return e
		}
	}
	op.downgrade(map[string]bool{static.id: true}, op.updated)
	if resubscribed {
		op.rebalanceLater()
	}
	return nil
}

// takeOverClassic puts what a JoinGroup says of a member into it. Bytes are copied, as the request's belong to its frame.
func takeOverClassic(n *consumerMember, client Client, req *kmsg.JoinGroupRequest, s kmsg.ConsumerMemberMetadata) {
	n.InstanceID = req.InstanceID
	n.ClientID, n.ClientHost, n.Topics, n.Regex = client.ID, client.Host, s.Topics, nil
	if s.Rack != nil {
		n.RackID = s.Rack
	}
	n.RebalanceTimeoutMillis = rebalanceTimeoutOf(req)
	n.Classic = &records.ClassicMember{SessionTimeoutMillis: req.SessionTimeoutMillis}
	for _, p := range req.Protocols {
		n.Classic.Protocols = append(n.Classic.Protocols, records.ClassicProtocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
}

// rebalanceTimeoutOf is the session timeout in the version that has no other.
func rebalanceTimeoutOf(req *kmsg.JoinGroupRequest) int32 {
	if req.Version < 1 {
		return req.SessionTimeoutMillis
	}
	return req.RebalanceTimeoutMillis
}

// supportsClassic says whether the member has a protocol that all others of the classic protocol have.
func (op *consumerOp) supportsClassic(req *kmsg.JoinGroupRequest) bool {
	return req.ProtocolType == consumerProtocol && slices.ContainsFunc(req.Protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		for _, m := range op.c.members {
			if m.usesClassic() && m.protocolMetadata(p.Name) == nil && m.id != req.MemberID {
				return false
			}
		}
		return true
	})
}

func (op *consumerOp) joined() *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.Generation = op.updated.id, op.updated.epoch
	resp.ProtocolType, resp.Protocol = ptr(consumerProtocol), ptr(op.updated.Classic.Protocols[0].Name)
	return resp
}

// afterJoin has the member send SyncGroup in time.
func (op *consumerOp) afterJoin(req *kmsg.JoinGroupRequest) {
	op.keepSession(millis(req.SessionTimeoutMillis))
	id, timeout := op.updated.id, millis(op.updated.RebalanceTimeoutMillis)
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		t := g.live.of(id)
		t.join, t.rebalance, t.sync = time.Time{}, time.Time{}, op.now.Add(timeout)
		op.m.wakeAt(g, t.first())
	})
}

// classicMemberOf finds the member of the classic protocol that a request is from.
func (c *consumerGroup) classicMemberOf(id string, instance *string, generation int32) (*consumerMember, *Error) {
	m := c.members[id]
	if instance != nil {
		if m = c.staticMember(*instance); m != nil {
			if e := m.checkInstance(id); e != nil {
				return nil, e
			}
		}
	}
	switch {
	case m == nil || !m.usesClassic():
		return nil, refusal(kerr.UnknownMemberID)
	case m.epoch != generation:
		return nil, refusal(kerr.IllegalGeneration)
	}
	return m, nil
}

// consumerSync tells a member of the classic protocol what it has.
func (m *Machine) consumerSync(g *group, _ Client, req *kmsg.SyncGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.SyncGroupResponse]) {
	member, e := g.consumer.classicMemberOf(req.MemberID, req.InstanceID, req.Generation)
	var first records.ClassicProtocol
	if e == nil {
		first = member.Classic.Protocols[0]
		switch {
		case req.ProtocolType != nil && *req.ProtocolType != consumerProtocol, req.Protocol != nil && *req.Protocol != first.Name:
			e = refusal(kerr.InconsistentGroupProtocol)
		case g.consumer.epoch > member.epoch && member.state != memberUnrevoked:
			m.awaitJoin(g, member, now)
			e = refusal(kerr.RebalanceInProgress)
		}
	}
	if e != nil {
		answer(fx, reply, syncRefusal(e.Code))
		return
	}
	t := g.live.of(member.id)
	t.sync, t.session = time.Time{}, now.Add(millis(member.Classic.SessionTimeoutMillis))
	m.wakeAt(g, t.first())
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol = req.ProtocolType, req.Protocol
	resp.MemberAssignment = m.classicAssignment(listed(member.assigned), first.Metadata)
	answer(fx, reply, resp)
}

// consumerClassicHeartbeat keeps the session of a member of the classic protocol, and has it join again when that brings
// it on.
func (m *Machine) consumerClassicHeartbeat(g *group, _ Client, req *kmsg.HeartbeatRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.HeartbeatResponse]) {
	resp := kmsg.NewPtrHeartbeatResponse()
	member, e := g.consumer.classicMemberOf(req.MemberID, req.InstanceID, req.Generation)
	if e == nil {
		g.live.of(member.id).session = now.Add(millis(member.Classic.SessionTimeoutMillis))
		if member.epoch < g.consumer.epoch || member.state == memberUnrevoked || member.state == memberUnreleased && !g.consumer.waits(member) {
			m.awaitJoin(g, member, now)
			e = refusal(kerr.RebalanceInProgress)
		}
		m.wakeAt(g, g.live.of(member.id).first())
	}
	resp.ErrorCode = e.code()
	answer(fx, reply, resp)
}

// awaitJoin gives a member its rebalance timeout to join again.
func (m *Machine) awaitJoin(g *group, member *consumerMember, now time.Time) {
	t := g.live.of(member.id)
	if t.join.IsZero() {
		t.join = now.Add(millis(member.RebalanceTimeoutMillis))
	}
	m.wakeAt(g, t.first())
}

// waits says whether somebody else still has a partition that the member is to have.
func (c *consumerGroup) waits(m *consumerMember) bool {
	for id, list := range c.target.members[m.id] {
		for _, p := range list {
			if _, has := m.assigned[id][p]; !has && c.taken(id, p) {
				return true
			}
		}
	}
	return false
}
