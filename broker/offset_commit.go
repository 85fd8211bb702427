package broker

import (
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetCommitTopicIDs is the version of OffsetCommit from which on topics are named by their ids.
const offsetCommitTopicIDs = 10

// handleOffsetCommit commits offsets of partitions that exist.
func handleOffsetCommit(b *Broker, r *request) {
	req := r.msg.(*kmsg.OffsetCommitRequest)
	img := b.images.Image()
	var refused, taken []kmsg.OffsetCommitRequestTopic
	var codes []int16
	for _, t := range req.Topics {
		code := nameCommitted(img, &t, req.Version)
		if code != 0 {
			refused, codes = append(refused, t), append(codes, code)
			continue
		}
		known, unknown := splitCommitted(img.Topics[t.Topic], t)
		if len(unknown.Partitions) > 0 {
			refused, codes = append(refused, unknown), append(codes, kerr.UnknownTopicOrPartition.Code)
		}
		if len(known.Partitions) > 0 {
			taken = append(taken, known)
		}
	}
	req.Topics = taken
	finish := func(resp *kmsg.OffsetCommitResponse) {
		for i, t := range refused {
			addCommitted(resp, t, codes[i])
		}
		r.reply(resp)
	}
	if len(taken) == 0 {
		finish(kmsg.NewPtrOffsetCommitResponse())
		return
	}
	fail := func(err error) {
		resp := kmsg.NewPtrOffsetCommitResponse()
		for _, t := range taken {
			addCommitted(resp, t, commitErrorCode(err))
		}
		finish(resp)
	}
	b.groups.Do(req.Group, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		m.OffsetCommit(req, now, fx, func(resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				fail(err)
				return
			}
			finish(resp)
		})
	}, fail)
}

// nameCommitted fills in the name or the id that the request does not have, or returns why it cannot.
func nameCommitted(img *controller.Image, t *kmsg.OffsetCommitRequestTopic, version int16) int16 {
	if version >= offsetCommitTopicIDs {
		topic := img.TopicsByID[t.TopicID]
		if topic == nil {
			return kerr.UnknownTopicID.Code
		}
		t.Topic = topic.Name
		return 0
	}
	topic := img.Topics[t.Topic]
	if topic == nil {
		return kerr.UnknownTopicOrPartition.Code
	}
	t.TopicID = topic.ID
	return 0
}

// splitCommitted sorts the partitions into those that the topic has and those that it has not.
func splitCommitted(topic *controller.Topic, t kmsg.OffsetCommitRequestTopic) (known, unknown kmsg.OffsetCommitRequestTopic) {
	known, unknown = t, t
	known.Partitions, unknown.Partitions = nil, nil
	for _, p := range t.Partitions {
		if hasPartition(topic, p.Partition) {
			known.Partitions = append(known.Partitions, p)
		} else {
			unknown.Partitions = append(unknown.Partitions, p)
		}
	}
	return known, unknown
}

// hasPartition reports whether the topic, which may be nil, has a partition.
func hasPartition(topic *controller.Topic, partition int32) bool {
	return topic != nil && partition >= 0 && int(partition) < len(topic.Partitions)
}

// addCommitted adds the answer to all partitions of a topic, to the topic's own entry if there is one.
func addCommitted(resp *kmsg.OffsetCommitResponse, t kmsg.OffsetCommitRequestTopic, code int16) {
	rt := (*kmsg.OffsetCommitResponseTopic)(nil)
	for i := range resp.Topics {
		if resp.Topics[i].Topic == t.Topic && resp.Topics[i].TopicID == t.TopicID {
			rt = &resp.Topics[i]
		}
	}
	if rt == nil {
		n := kmsg.NewOffsetCommitResponseTopic()
		n.Topic, n.TopicID = t.Topic, t.TopicID
		resp.Topics = append(resp.Topics, n)
		rt = &resp.Topics[len(resp.Topics)-1]
	}
	for _, p := range t.Partitions {
		rp := kmsg.NewOffsetCommitResponseTopicPartition()
		rp.Partition, rp.ErrorCode = p.Partition, code
		rt.Partitions = append(rt.Partitions, rp)
	}
}
