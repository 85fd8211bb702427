package group

import (
	"bytes"
	"errors"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/broker/group/records"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upgrade makes a classic group a consumer group, so that a member of the consumer protocol can join it: its generation
// becomes the epoch, and what its members have becomes the target. Members who wait for a rebalance are told to join
// again, which they do with the consumer group then.
func (op *consumerOp) upgrade(g *group) *Error {
	c, cfg := g.classic, op.m.cfg.Consumer
	op.c = newConsumerGroup()
	op.add(records.Tombstone(records.GroupKey(g.id)))
	refused := ""
	switch {
	case c.state == stateEmpty:
		return nil // nobody has anything
	case !cfg.Migration.up():
		refused = "group.consumer.migration.policy forbids it"
	case c.protocolType != consumerProtocol:
		refused = "its members are no consumers"
	case c.members.len() > cfg.MaxSize:
		refused = "it has more members than group.consumer.max.size allows"
	default:
		if err := op.takeMembers(c); err != nil {
			refused = err.Error()
		}
	}
	if refused != "" {
		return refusal(kerr.GroupIDNotFound, "group "+g.id+" cannot become a consumer group: "+refused)
	}
	op.beside = append(op.beside, func(fx *coordinator.Effects) {
		for _, m := range c.members.list {
			m.answerJoin(fx, joinRefusal(kerr.RebalanceInProgress.Code, m.id))
			m.answerSync(fx, syncRefusal(kerr.RebalanceInProgress.Code))
		}
	})
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		for id, member := range op.c.members {
			op.m.startConsumer(g, id, member, op.now)
		}
	})
	op.addGroup()
	return nil
}

// takeMembers makes the members of a classic group those of the operation's group.
func (op *consumerOp) takeMembers(c *classicGroup) error {
	op.c.epoch = max(c.generation, 0)
	op.c.target.epoch = op.c.epoch
	for _, m := range c.members.list {
		selected := m.metadata(c.protocol)
		if selected == nil && len(m.protocols) > 0 {
			selected = m.protocols[0].metadata // it has joined since
		}
		subscription, err := readSubscription(selected)
		if err != nil {
			return err
		}
		assigned, err := op.readAssignment(m.assignment)
		if err != nil {
			return err
		}
		op.c.replayMember(m.id, records.ConsumerMember{
			InstanceID: m.instance, RackID: subscription.Rack, ClientID: m.clientID, ClientHost: m.clientHost,
			Topics: subscription.Topics, RebalanceTimeoutMillis: int32(m.rebalanceTimeout.Milliseconds()),
			Classic: classicMember(m),
		})
		op.c.replayAssignment(m.id, records.CurrentAssignment{Epoch: op.c.epoch, Previous: op.c.epoch, Assigned: assigned})
		op.c.target.members[m.id] = listed(assigned)
	}
	op.updated = nil
	op.c.metadataHash = hashTopics(op.topics())
	return nil
}

func classicMember(m *member) *records.ClassicMember {
	out := &records.ClassicMember{SessionTimeoutMillis: int32(m.sessionTimeout.Milliseconds())}
	for _, p := range m.protocols {
		out.Protocols = append(out.Protocols, records.ClassicProtocol{Name: p.name, Metadata: p.metadata})
	}
	return out
}

// addGroup collects the records of all of the operation's group.
func (op *consumerOp) addGroup() {
	c := op.c
	for m := range c.sorted() {
		op.add(m.metadataRecord(op.id))
	}
	op.add(records.Encode(groupKey(records.KindConsumerGroup, op.id), records.ConsumerGroup{Epoch: c.epoch, MetadataHash: c.metadataHash}.Encode()))
	for m := range c.sorted() {
		op.add(targetRecord(op.id, m.id, c.target.members[m.id]))
	}
	op.add(records.Encode(groupKey(records.KindTargetAssignment, op.id), records.TargetAssignment{Epoch: c.target.epoch}.Encode()))
	for m := range c.sorted() {
		op.add(m.assignmentRecord(op.id))
	}
}

// readSubscription reads what a consumer of the classic protocol wants.
func readSubscription(metadata []byte) (s kmsg.ConsumerMemberMetadata, err error) {
	if err = s.ReadFrom(metadata); err != nil {
		return s, errors.New("a member's subscription cannot be read")
	}
	s.Topics = sortedSet(s.Topics)
	return s, nil
}

// readAssignment reads what a consumer of the classic protocol has, as far as the topics exist and it is not another
// member's.
func (op *consumerOp) readAssignment(assignment []byte) (partitionEpochs, error) {
	if len(assignment) == 0 {
		return nil, nil
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(assignment); err != nil {
		return nil, errors.New("a member's assignment cannot be read")
	}
	if len(bytes.TrimSpace(a.UserData)) > 0 {
		return nil, errors.New("it uses an assignor of its own, whose data would be lost")
	}
	out := partitionEpochs{}
	for _, t := range a.Topics {
		id, partitions, ok := op.m.cfg.Topics.Topic(t.Topic)
		for _, p := range t.Partitions {
			if ok && p >= 0 && p < partitions && !op.c.taken(id, p) {
				put(out, id, p, op.c.epoch)
			}
		}
	}
	return out, nil
}

// subscriptionOwned is what a member of the classic protocol says it has.
func (op *consumerOp) subscriptionOwned(s kmsg.ConsumerMemberMetadata) map[ids.UUID][]int32 {
	owned := map[ids.UUID][]int32{}
	for _, t := range s.OwnedPartitions {
		if id, _, ok := op.m.cfg.Topics.Topic(t.Topic); ok {
			owned[id] = append(owned[id], t.Partitions...)
		}
	}
	return owned
}

// classicAssignment is an assignment as members of the classic protocol read it, in the version of their subscription.
func (m *Machine) classicAssignment(parts assignor.Partitions, subscription []byte) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	if s, err := readSubscription(subscription); err == nil {
		a.Version = s.Version
	}
	for id, list := range byTopic(parts) {
		if name, _, ok := m.cfg.Topics.TopicByID(id); ok {
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = name, list
			a.Topics = append(a.Topics, t)
		}
	}
	return a.AppendTo(nil)
}
