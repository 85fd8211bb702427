package group

import (
	"slices"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerLeave handles members that leave: for good, or, static ones, for a while.
func (m *Machine) consumerLeave(req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse, now time.Time, fx *coordinator.Effects) *Error {
	op, e := m.openConsumer(req.Group, now, false)
	if e != nil {
		return e
	}
	member, _, e := op.enter(entrant{id: req.MemberID, instance: deref(req.InstanceID), classic: true})
	if e != nil {
		return e
	}
	if req.MemberEpoch == epochLeaveStatic {
		// Its partitions stay with it; what it had to give back is free. Its session goes on.
		op.add(member.with(func(n *consumerMember) { n.epoch, n.revoking = epochLeaveStatic, nil }).assignmentRecord(req.Group))
	} else {
		op.fence([]*consumerMember{member})
	}
	op.commit(fx)
	resp.MemberID, resp.MemberEpoch = ptr(member.id), req.MemberEpoch
	return nil
}

// fence takes members out of the group. When only members of the classic protocol are left, the group becomes a classic
// one, if it may.
func (op *consumerOp) fence(members []*consumerMember) {
	if len(members) == 0 {
		return
	}
	leaving := map[string]bool{}
	for _, m := range members {
		leaving[m.id] = true
	}
	if op.downgradesWithout(leaving, 0) {
		op.downgrade(leaving, nil)
		op.rebalanceLater()
		return
	}
	for _, m := range members {
		op.drop(m.id)
	}
	op.dropRegexes()
	op.bump(hashTopics(op.topics()))
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		for id := range leaving {
			delete(g.live.timers, id)
		}
		op.m.wakeAt(g, g.live.deadline())
	})
}

// consumerClassicLeave handles a LeaveGroup to a consumer group: of members of the classic protocol, or an operator's.
func (m *Machine) consumerClassicLeave(g *group, _ Client, req *kmsg.LeaveGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.LeaveGroupResponse]) {
	resp := kmsg.NewPtrLeaveGroupResponse()
	op := &consumerOp{m: m, id: g.id, c: g.consumer, now: now, epoch: g.consumer.epoch, regexes: g.consumer.regexes}
	single := req.Version < leaveBatch
	wanted := req.Members
	if single {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = req.MemberID
		wanted = []kmsg.LeaveGroupRequestMember{one}
	}
	var leaving []*consumerMember
	for _, w := range wanted {
		who := entrant{id: w.MemberID, instance: deref(w.InstanceID), classic: true}
		if static := op.c.staticMember(who.instance); static != nil && who.id == "" {
			who.id = static.id // an operator names the instance alone
		}
		member, _, e := op.enter(who)
		if single {
			resp.ErrorCode = e.code()
		} else {
			out := kmsg.NewLeaveGroupResponseMember()
			out.MemberID, out.InstanceID, out.ErrorCode = w.MemberID, w.InstanceID, e.code()
			resp.Members = append(resp.Members, out)
		}
		if e == nil && !slices.Contains(leaving, member) {
			leaving = append(leaving, member)
		}
	}
	op.fence(leaving)
	op.commit(fx)
	answer(fx, reply, resp)
}
