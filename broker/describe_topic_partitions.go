package broker

import (
	"slices"

	"cairn/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeTopicPartitions describes topics page by page, with their eligible leader replicas.
func handleDescribeTopicPartitions(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeTopicPartitionsRequest)
	p := partitionPager{
		describe: topicDescriber{b: b, img: b.images.Image(), listener: r.listenerName(), version: latestMetadata},
		left:     max(min(int(req.ResponsePartitionLimit), b.cfg.MaxPagePartitions), 1),
		resp:     kmsg.NewPtrDescribeTopicPartitionsResponse(),
	}
	names, all := pageTopics(req, p.describe.img)
	if req.Cursor != nil && req.Cursor.Partition < 0 {
		for _, name := range names {
			p.fail(name, kerr.InvalidRequest.Code)
		}
		r.reply(p.resp)
		return
	}
	for _, name := range names {
		first := int32(0)
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = req.Cursor.Partition
		}
		if !p.add(name, first, all) {
			break
		}
	}
	r.reply(p.resp)
}

// latestMetadata is the Metadata version whose rules for unreachable leaders apply.
const latestMetadata = 13

// pageTopics lists the topics to describe, ordered, from the cursor on. all: the request names none, which means all.
func pageTopics(req *kmsg.DescribeTopicPartitionsRequest, img *controller.Image) (names []string, all bool) {
	all = len(req.Topics) == 0
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	if all {
		for _, t := range img.TopicList() {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		names = slices.DeleteFunc(names, func(n string) bool { return n < req.Cursor.Topic })
	}
	return names, all
}

// partitionPager fills one page.
type partitionPager struct {
	describe topicDescriber
	left     int // partitions that the page still takes
	resp     *kmsg.DescribeTopicPartitionsResponse
}

// add appends the topic's partitions from first on and reports whether the page takes more. If not, the cursor is set.
func (p *partitionPager) add(name string, first int32, all bool) bool {
	topic := p.describe.img.Topics[name]
	if p.left == 0 {
		p.stop(name, first)
		return false
	}
	if topic == nil {
		if !all {
			code := kerr.UnknownTopicOrPartition.Code
			if controller.ValidateTopicName(name) != nil {
				code = kerr.InvalidTopicException.Code
			}
			p.fail(name, code)
		}
		return true
	}
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.TopicID, t.IsInternal, t.AuthorizedOperations = &topic.Name, topic.ID, topic.Internal, topicOperations
	end := min(len(topic.Partitions), int(first)+p.left)
	for i := int(first); i < end; i++ {
		t.Partitions = append(t.Partitions, p.partition(int32(i), topic.Partitions[i]))
	}
	p.left -= len(t.Partitions)
	p.resp.Topics = append(p.resp.Topics, t)
	if end < len(topic.Partitions) {
		p.stop(name, int32(end))
		return false
	}
	return true
}

func (p *partitionPager) stop(name string, partition int32) {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = name, partition
	p.resp.NextCursor = &c
}

// fail adds a topic that cannot be described. It takes a place on the page, as in Kafka.
func (p *partitionPager) fail(name string, code int16) {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.ErrorCode, t.IsInternal = &name, code, isInternalTopic(name)
	p.resp.Topics = append(p.resp.Topics, t)
	p.left--
}

func (p *partitionPager) partition(index int32, state *controller.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	d := p.describe
	m := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	m.Partition, m.LeaderEpoch = index, int32(state.LeaderEpoch)
	m.LeaderID, m.ErrorCode = d.leader(state)
	m.Replicas, m.ISR, m.OfflineReplicas = nodeIDs(state.Replicas), nodeIDs(state.InSync), d.offline(state)
	m.EligibleLeaderReplicas, m.LastKnownELR = nodeIDs(state.ELR), nodeIDs(state.LastKnownELR)
	return m
}
