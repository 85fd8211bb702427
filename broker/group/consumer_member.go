package group

import (
	"maps"
	"slices"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"
	"cairn/internal/ids"
)

// memberState is how far a member is on its way to the target. The numbers are those of the records.
type memberState int8

const (
	memberStable     memberState = 0 // it has all that it is to have at its epoch
	memberUnrevoked  memberState = 1 // it has to give back partitions, and stays at its epoch until it has
	memberUnreleased memberState = 2 // it waits for partitions that others have to give back
	memberUnknown    memberState = 127
)

// Member epochs that are none.
const (
	epochJoin        int32 = 0
	epochLeave       int32 = -1
	epochLeaveStatic int32 = -2 // it will be back within the session timeout
)

// partitionEpochs is topic, partition, and the epoch at which the member got it.
type partitionEpochs = map[ids.UUID]map[int32]int32

// consumerMember is a member of a consumer group. It is never changed once it is in a group; changes make another one.
type consumerMember struct {
	id string
	records.ConsumerMember
	epoch, previous int32
	state           memberState
	assigned        partitionEpochs // what it has
	revoking        partitionEpochs // what it has to give back
}

func (c *consumerMember) with(change func(*consumerMember)) *consumerMember {
	next := *c
	change(&next)
	return &next
}

func (c *consumerMember) reconciledTo(epoch int32) bool {
	return c.state == memberStable && c.epoch == epoch
}

// usesClassic says whether it speaks the classic protocol.
func (c *consumerMember) usesClassic() bool { return c.Classic != nil }

// instance is its instance id; empty: it has none.
func (c *consumerMember) instance() string { return deref(c.InstanceID) }

// regex is what it subscribes to by expression; empty: nothing.
func (c *consumerMember) regex() string { return deref(c.Regex) }

// wants says whether it subscribes to the topic.
func (c *consumerMember) wants(topic string, regexes map[string]resolvedRegex) bool {
	if slices.Contains(c.Topics, topic) {
		return true
	}
	return c.regex() != "" && slices.Contains(regexes[c.regex()].topics, topic)
}

// sameMetadata says whether two members' records of who they are and what they want are alike.
func (c *consumerMember) sameMetadata(o *consumerMember) bool {
	return deref(c.InstanceID) == deref(o.InstanceID) && deref(c.RackID) == deref(o.RackID) && c.ClientID == o.ClientID &&
		c.ClientHost == o.ClientHost && slices.Equal(c.Topics, o.Topics) && c.regex() == o.regex() &&
		c.RebalanceTimeoutMillis == o.RebalanceTimeoutMillis && deref(c.Assignor) == deref(o.Assignor) && sameClassic(c.Classic, o.Classic)
}

func sameClassic(a, b *records.ClassicMember) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.SessionTimeoutMillis == b.SessionTimeoutMillis && slices.EqualFunc(a.Protocols, b.Protocols, func(p, q records.ClassicProtocol) bool {
		return p.Name == q.Name && slices.Equal(p.Metadata, q.Metadata)
	})
}

// sameAssignment says whether two members' records of what they have are alike.
func (c *consumerMember) sameAssignment(o *consumerMember) bool {
	return c.epoch == o.epoch && c.previous == o.previous && c.state == o.state && sameParts(c.assigned, o.assigned) && sameParts(c.revoking, o.revoking)
}

func sameParts(a, b partitionEpochs) bool {
	return maps.EqualFunc(a, b, maps.Equal[map[int32]int32])
}

// metadataRecord tells who the member is and what it wants.
func (c *consumerMember) metadataRecord(group string) coordinator.Record {
	return coordinator.Record{Key: memberKey(records.KindConsumerMember, group, c.id), Value: c.ConsumerMember.Encode()}
}

// assignmentRecord tells what the member has.
func (c *consumerMember) assignmentRecord(group string) coordinator.Record {
	return coordinator.Record{
		Key: memberKey(records.KindCurrentAssignment, group, c.id),
		Value: records.CurrentAssignment{
			Epoch: c.epoch, Previous: c.previous, State: int8(c.state), Assigned: c.assigned, Revoking: c.revoking,
		}.Encode(),
	}
}

func memberKey(kind int16, group, member string) []byte {
	return records.ConsumerKey{Kind: kind, Group: group, Name: member}.Encode()
}

func groupKey(kind int16, group string) []byte {
	return records.ConsumerKey{Kind: kind, Group: group}.Encode()
}

// sortedSet is the list sorted and without duplicates; the list itself stays as it is.
func sortedSet(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
