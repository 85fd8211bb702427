package group

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deletesMax bounds the tombstones of one operation, so that they fit into one batch.
const deletesMax = 500

// OffsetDelete deletes offsets of partitions that no member is subscribed to.
func (m *Machine) OffsetDelete(req *kmsg.OffsetDeleteRequest, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.OffsetDeleteResponse]) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	g := m.group(req.Group)
	if e := g.checkOffsetDelete(); e != nil {
		resp.ErrorCode = e.Code
		answer(fx, reply, resp)
		return
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		subscribed := g.subscribes(t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			tp := topicPartition{t.Topic, p.Partition}
			_, ok := g.offsets.committed[tp]
			switch {
			case subscribed:
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			case ok || g.offsets.unstable(tp):
				fx.Append(records.Tombstone(g.tombstone(tp)))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	answer(fx, reply, resp)
}

func (g *group) checkOffsetDelete() *Error {
	switch {
	case g == nil:
		return refusal(kerr.GroupIDNotFound)
	case g.classic != nil && g.classic.state != stateEmpty && g.classic.protocolType != consumerProtocol:
		return refusal(kerr.NonEmptyGroup)
	}
	return nil
}

// subscribes reports whether a member may read the topic. Members whose subscription cannot be read may read any.
func (g *group) subscribes(topic string) bool {
	switch {
	case g.consumer != nil:
		return g.consumer.subscribed(topic)
	case g.classic == nil || g.classic.state == stateEmpty:
		return false
	}
	topics, known := g.classic.subscribed()
	_, ok := topics[topic]
	return ok || !known && g.classic.protocolType == consumerProtocol
}

// RemoveTopics deletes the offsets of topics that are gone: gone tells it of a name and an id, which may be zero. It
// returns whether there are more, for which it is to be called again.
func (m *Machine) RemoveTopics(gone func(topic string, id [16]byte) bool, fx *coordinator.Effects) (more bool) {
	n := 0
	for _, id := range m.sortedGroups() {
		g := m.groups[id]
		for _, tp := range g.offsets.all() {
			if !gone(tp.topic, m.topicIDOf(g, tp)) {
				continue
			}
			if n == deletesMax {
				return true
			}
			fx.Append(records.Tombstone(g.tombstone(tp)))
			n++
		}
	}
	return false
}

// topicIDOf is the topic id with which the partition's offset was committed.
func (m *Machine) topicIDOf(g *group, tp topicPartition) [16]byte {
	if c, ok := g.offsets.committed[tp]; ok {
		return c.TopicID
	}
	for producer := range g.offsets.open[tp] {
		return m.pending[producer].offsets[pendingKey{g.id, tp}].TopicID
	}
	return [16]byte{}
}
