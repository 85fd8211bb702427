package group

import (
	"fmt"
	"slices"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/broker/group/records"
	"cairn/internal/ids"
)

// replayConsumer applies a record of a consumer group. A tombstone of what is not there changes nothing, as it may
// stand in a log whose older records are gone.
func (m *Machine) replayConsumer(kind int16, rec coordinator.Record) error {
	if !records.IsConsumer(kind) {
		return fmt.Errorf("%w: kind %d", records.ErrUnknown, kind)
	}
	k, err := records.DecodeConsumerKey(rec.Key)
	if err != nil {
		return err
	}
	if rec.Value == nil {
		if g := m.group(k.Group); g != nil && g.consumer != nil {
			m.replayConsumerTombstone(g, k)
		}
		return nil
	}
	if g := m.group(k.Group); g != nil && g.classic != nil {
		return fmt.Errorf("record of kind %d of the consumer group %q, which is a classic group", k.Kind, k.Group)
	}
	apply, err := decodeConsumer(k, rec.Value)
	if err != nil {
		return err
	}
	g := m.addGroup(k.Group)
	if g.consumer == nil {
		g.consumer = newConsumerGroup()
	}
	apply(g.consumer)
	return nil
}

// decodeConsumer reads a value and returns what it changes.
func decodeConsumer(k records.ConsumerKey, value []byte) (func(*consumerGroup), error) {
	switch k.Kind {
	case records.KindConsumerGroup:
		v, err := records.DecodeConsumerGroup(value)
		return func(c *consumerGroup) { c.epoch, c.metadataHash = v.Epoch, v.MetadataHash }, err
	case records.KindPartitionMetadata:
		return func(c *consumerGroup) { c.oldMetadata = true }, nil
	case records.KindConsumerMember:
		v, err := records.DecodeConsumerMember(value)
		return func(c *consumerGroup) { c.replayMember(k.Name, v) }, err
	case records.KindTargetAssignment:
		v, err := records.DecodeTargetAssignment(value)
		return func(c *consumerGroup) { c.target.epoch, c.target.timestamp = v.Epoch, v.Timestamp }, err
	case records.KindTargetMember:
		v, err := records.DecodeTargetMember(value)
		return func(c *consumerGroup) { c.target.members[k.Name] = partitionsOf(v.Partitions) }, err
	case records.KindCurrentAssignment:
		v, err := records.DecodeCurrentAssignment(value)
		return func(c *consumerGroup) { c.replayAssignment(k.Name, v) }, err
	default:
		v, err := records.DecodeRegularExpression(value)
		return func(c *consumerGroup) { c.regexes[k.Name] = resolvedRegex{sortedSet(v.Topics), v.Version, v.Timestamp} }, err
	}
}

// partitionsOf sorts what another broker may have written in any order, and leaves out topics without partitions.
func partitionsOf(topics map[ids.UUID][]int32) assignor.Partitions {
	out := make(assignor.Partitions, len(topics))
	for id, list := range topics {
		if len(list) > 0 {
			out[id] = slices.Compact(slices.Sorted(slices.Values(list)))
		}
	}
	return out
}

// member returns a member, or a new one that is in no record yet.
func (c *consumerGroup) member(id string) *consumerMember {
	if member := c.members[id]; member != nil {
		return member
	}
	return &consumerMember{id: id}
}

func (c *consumerGroup) replayMember(id string, v records.ConsumerMember) {
	before := c.member(id)
	if was := before.instance(); was != "" && c.static[was] == id {
		delete(c.static, was)
	}
	v.Topics = sortedSet(v.Topics)
	now := before.with(func(n *consumerMember) { n.ConsumerMember = v })
	c.members[id] = now
	if now.instance() != "" {
		c.static[now.instance()] = id
	}
}

func (c *consumerGroup) replayAssignment(id string, v records.CurrentAssignment) {
	before := c.member(id)
	now := before.with(func(n *consumerMember) {
		n.epoch, n.previous, n.state = v.Epoch, v.Previous, memberState(v.State)
		n.assigned, n.revoking = v.Assigned, v.Revoking
	})
	switch now.state {
	case memberStable, memberUnrevoked, memberUnreleased:
	default:
		now.state = memberUnknown // of a later broker's
	}
	c.own(before, now)
	c.members[id] = now
}

func (m *Machine) replayConsumerTombstone(g *group, k records.ConsumerKey) {
	c := g.consumer
	switch k.Kind {
	case records.KindConsumerGroup:
		g.consumer = nil
		m.dropIfGone(g)
	case records.KindPartitionMetadata:
		c.oldMetadata = false
	case records.KindConsumerMember:
		c.remove(k.Name)
	case records.KindTargetAssignment:
		c.target.epoch, c.target.timestamp = 0, 0
	case records.KindTargetMember:
		delete(c.target.members, k.Name)
	case records.KindCurrentAssignment:
		if before := c.members[k.Name]; before != nil {
			now := before.with(func(n *consumerMember) {
				n.epoch, n.previous, n.state, n.assigned, n.revoking = epochLeave, epochLeave, memberStable, nil, nil
			})
			c.own(before, now)
			c.members[k.Name] = now
		}
	case records.KindRegularExpression:
		delete(c.regexes, k.Name)
	}
}

// remove takes a member out of the group with all that it has.
func (c *consumerGroup) remove(id string) {
	member := c.members[id]
	if member == nil {
		return
	}
	c.own(member, &consumerMember{id: id})
	if instance := member.instance(); instance != "" && c.static[instance] == id {
		delete(c.static, instance)
	}
	delete(c.members, id)
	delete(c.target.members, id)
}
