package group

import (
	"maps"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The types of members in ConsumerGroupDescribe.
const (
	memberTypeClassic  = 0
	memberTypeConsumer = 1
)

// ConsumerGroupDescribe describes one consumer group.
func (m *Machine) ConsumerGroupDescribe(id string, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.ConsumerGroupDescribeResponseGroup]) {
	resp := kmsg.NewConsumerGroupDescribeResponseGroup()
	resp.Group = id
	switch g := m.group(id); {
	case g == nil:
		resp.ErrorCode, resp.ErrorMessage = kerr.GroupIDNotFound.Code, ptr("there is no group "+id)
	case g.consumer == nil:
		resp.ErrorCode, resp.ErrorMessage = kerr.GroupIDNotFound.Code, ptr("group "+id+" is not a consumer group")
	default:
		m.describeConsumer(g.consumer, &resp)
	}
	answer(fx, reply, &resp)
}

func (m *Machine) describeConsumer(c *consumerGroup, resp *kmsg.ConsumerGroupDescribeResponseGroup) {
	resp.State, resp.Epoch, resp.AssignmentEpoch = c.state(), c.epoch, c.target.epoch
	resp.AssignorName = mostWanted(maps.Values(c.members), m.cfg.Consumer)
	for member := range c.sorted() {
		out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		out.MemberID, out.InstanceID, out.RackID, out.MemberEpoch = member.id, member.InstanceID, member.RackID, member.epoch
		out.ClientID, out.ClientHost = member.ClientID, member.ClientHost
		out.SubscribedTopics, out.SubscribedTopicRegex = member.Topics, member.Regex
		out.Assignment = m.describeAssignment(listed(member.assigned))
		out.TargetAssignment = m.describeAssignment(c.target.members[member.id])
		out.MemberType = memberTypeConsumer
		if member.usesClassic() {
			out.MemberType = memberTypeClassic
		}
		resp.Members = append(resp.Members, out)
	}
}

// describeAssignment leaves out topics that are not there any more.
func (m *Machine) describeAssignment(parts assignor.Partitions) kmsg.Assignment {
	out := kmsg.NewAssignment()
	for id, list := range byTopic(parts) {
		name, _, ok := m.cfg.Topics.TopicByID(id)
		if !ok {
			continue
		}
		tp := kmsg.NewAssignmentTopicPartition()
		tp.TopicID, tp.Topic, tp.Partitions = ids.UUID(id), name, list
		out.TopicPartitions = append(out.TopicPartitions, tp)
	}
	return out
}
