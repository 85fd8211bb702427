package group

import (
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch tells what one group has committed: of the partitions that are named, or of all if Topics is nil. With
// requireStable it refuses those that an open transaction may yet change. The handler has resolved topic ids to names.
func (m *Machine) OffsetFetch(req kmsg.OffsetFetchRequestGroup, requireStable bool, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.OffsetFetchResponseGroup]) {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	g := m.group(req.Group)
	if g != nil && g.consumer != nil {
		resp.ErrorCode = g.consumer.checkFetch(req.MemberID, req.MemberEpoch).code()
	}
	if resp.ErrorCode == 0 {
		if req.Topics == nil {
			resp.Topics = g.fetchAll(requireStable)
		}
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, g.fetch(topicPartition{t.Topic, p}, t.TopicID, requireStable))
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	answer(fx, reply, &resp)
}

// fetchAll tells all committed offsets of a group, which may be nil.
func (g *group) fetchAll(requireStable bool) []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	if g == nil {
		return topics
	}
	for _, tp := range g.offsets.sorted() {
		if n := len(topics); n == 0 || topics[n-1].Topic != tp.topic {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic = tp.topic
			topics = append(topics, rt)
		}
		rt := &topics[len(topics)-1]
		rt.Partitions = append(rt.Partitions, g.fetch(tp, [16]byte{}, requireStable))
	}
	return topics
}

// fetch tells one committed offset of a group, which may be nil: -1 if there is none for the topic with this id, zero
// for any.
func (g *group) fetch(tp topicPartition, id [16]byte, requireStable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	none := ""
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.partition, -1, -1, &none
	if g == nil {
		return p
	}
	if requireStable && g.offsets.unstable(tp) {
		p.ErrorCode = kerr.UnstableOffsetCommit.Code
		return p
	}
	c, ok := g.offsets.committed[tp]
	another := id != [16]byte{} && c.TopicID != [16]byte{} && c.TopicID != id
	if ok && !another {
		p.Offset, p.LeaderEpoch, p.Metadata = c.Offset.Offset, c.LeaderEpoch, &c.Metadata
	}
	return p
}
