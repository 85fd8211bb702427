package group

import (
	"maps"
	"slices"
	"strings"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeatClientID is the version of ConsumerGroupHeartbeat from which on clients make their member ids.
const heartbeatClientID = 1

// ConsumerGroupHeartbeat joins a member, keeps its session, tells it what it is to have, hears what it has, and lets it
// leave.
func (m *Machine) ConsumerGroupHeartbeat(client Client, req *kmsg.ConsumerGroupHeartbeatRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.ConsumerGroupHeartbeatResponse]) {
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	e := m.checkHeartbeat(req)
	switch {
	case e != nil:
	case req.MemberEpoch < 0:
		e = m.consumerLeave(req, resp, now, fx)
	default:
		e = m.consumerHeartbeat(client, req, resp, now, fx)
	}
	if e != nil {
		resp = kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode, resp.ErrorMessage = e.Code, ptr(e.Error())
	}
	answer(fx, reply, resp)
}

// checkHeartbeat refuses what is wrong in itself.
func (m *Machine) checkHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) *Error {
	blank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	hasID := req.Version >= heartbeatClientID || req.MemberEpoch > 0 || req.MemberEpoch == epochLeave
	bad := ""
	switch {
	case hasID && blank(&req.MemberID):
		bad = "the member id is empty"
	case blank(&req.Group):
		bad = "the group id is empty"
	case blank(req.InstanceID):
		bad = "the instance id is empty"
	case blank(req.RackID):
		bad = "the rack id is empty"
	case req.MemberEpoch == epochJoin && req.RebalanceTimeoutMillis == -1:
		bad = "a member that joins must give its rebalance timeout"
	case req.MemberEpoch == epochJoin && (req.Topics == nil || len(req.Topics) > 0):
		bad = "a member that joins must own no partitions, and say so"
	case req.MemberEpoch == epochJoin && req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		bad = "a member that joins must subscribe by names or by a regular expression"
	case req.MemberEpoch == epochLeaveStatic && req.InstanceID == nil:
		bad = "only a static member can leave for a while"
	case req.MemberEpoch < epochLeaveStatic:
		bad = "the member epoch is below -2"
	}
	if bad != "" {
		return refusal(kerr.InvalidRequest, bad)
	}
	if name := req.ServerAssignor; name != nil && !m.cfg.Consumer.offers(*name) {
		return refusal(kerr.UnsupportedAssignor, "there is no assignor "+*name+" here; use one of "+strings.Join(m.cfg.Consumer.Assignors, ", "))
	}
	return nil
}

// consumerHeartbeat handles members that join or stay. First it takes over what the member wants, and moves the group to
// its next epoch if that changes something; then it divides the partitions anew, if the epoch is above the target's; then
// it brings the member a step nearer to the target.
func (m *Machine) consumerHeartbeat(client Client, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse, now time.Time, fx *coordinator.Effects) *Error {
	join := req.MemberEpoch == epochJoin
	op, e := m.openConsumer(req.Group, now, join)
	if e != nil {
		return e
	}
	id := req.MemberID
	if e = op.room(id); e != nil {
		return e
	}
	if id == "" {
		id = m.cfg.NewID()
	}
	owned := ownedBy(req.Topics)
	before, inherited, e := op.enter(entrant{id: id, instance: deref(req.InstanceID), epoch: req.MemberEpoch, owned: owned, join: join})
	if e != nil {
		return e
	}
	op.updated = before.with(func(n *consumerMember) {
		takeOver(n, req)
		n.ClientID, n.ClientHost, n.Classic = client.ID, client.Host, nil
	})
	resubscribed, e := op.subscribe(before)
	if e != nil {
		return e
	}
	op.advance(op.c.epoch == 0 || resubscribed)
	op.retarget(inherited)
	// What to compare with is the member before it was brought nearer, whatever has become of its metadata.
	if e = op.reconcile(owned, resubscribed); e != nil {
		return e
	}
	op.keepSession(m.consumerSessionTimeout(req.Group))
	op.commit(fx)

	after := op.updated
	resp.MemberID, resp.MemberEpoch = &after.id, after.epoch
	resp.HeartbeatIntervalMillis = int32(m.consumerHeartbeatInterval(req.Group).Milliseconds())
	full := req.RebalanceTimeoutMillis != -1 && (req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil) && req.Topics != nil
	if join || full || !sameOwned(before.assigned, after.assigned) {
		resp.Assignment = assignmentOf(after.assigned)
	}
	return nil
}

// takeOver puts what a request says of a member into it; what it leaves out stays.
func takeOver(n *consumerMember, req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.InstanceID != nil {
		n.InstanceID = req.InstanceID
	}
	if req.RackID != nil {
		n.RackID = req.RackID
	}
	if req.RebalanceTimeoutMillis != -1 {
		n.RebalanceTimeoutMillis = req.RebalanceTimeoutMillis
	}
	if req.ServerAssignor != nil {
		n.Assignor = req.ServerAssignor
	}
	if req.SubscribedTopicNames != nil {
		n.Topics = sortedSet(req.SubscribedTopicNames)
	}
	if req.SubscribedTopicRegex != nil {
		n.Regex = ptr(*req.SubscribedTopicRegex)
	}
}

// subscribe takes over the member's metadata, and says whether what it or the group subscribes to changes.
func (op *consumerOp) subscribe(before *consumerMember) (changed bool, e *Error) {
	if !op.updated.sameMetadata(before) {
		op.add(op.updated.metadataRecord(op.id))
		changed = !slices.Equal(op.updated.Topics, before.Topics)
	}
	regexes, e := op.updateRegexes(before)
	return changed || regexes, e
}

// room refuses a new member when there are enough.
func (op *consumerOp) room(id string) *Error {
	if _, known := op.c.members[id]; !known && len(op.c.members) >= op.m.cfg.Consumer.MaxSize {
		return refusal(kerr.GroupMaxSizeReached, "the group has as many members as it may have")
	}
	return nil
}

// ownedBy is what a member says it has; nil: it says nothing.
func ownedBy(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) map[ids.UUID][]int32 {
	if topics == nil {
		return nil
	}
	owned := make(map[ids.UUID][]int32, len(topics))
	for _, t := range topics {
		if len(t.Partitions) > 0 {
			owned[t.TopicID] = append(owned[t.TopicID], t.Partitions...)
		}
	}
	return owned
}

// sameOwned says whether two assignments are of the same partitions, whatever the epochs.
func sameOwned(a, b partitionEpochs) bool {
	return maps.EqualFunc(a, b, func(x, y map[int32]int32) bool {
		return maps.EqualFunc(x, y, func(int32, int32) bool { return true })
	})
}

// listed is an assignment as sorted lists.
func listed(parts partitionEpochs) assignor.Partitions {
	out := make(assignor.Partitions, len(parts))
	for id, list := range parts {
		out[id] = slices.Sorted(maps.Keys(list))
	}
	return out
}

func assignmentOf(parts partitionEpochs) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	for id, list := range byTopic(listed(parts)) {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = id, list
		out.Topics = append(out.Topics, t)
	}
	return &out
}
