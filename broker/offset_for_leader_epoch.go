package broker

import (
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleOffsetForLeaderEpoch answers OffsetForLeaderEpoch, versions 2 to 4: the largest leader epoch at or below the
// one asked for, and where it ends.
func handleOffsetForLeaderEpoch(b *Broker, r *request) {
	req := r.msg.(*kmsg.OffsetForLeaderEpochRequest)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if refuseTooMany(r, n) {
		return
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		asked, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = asked.Topic
		t.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(asked.Partitions))
		for j := range asked.Partitions {
			p := &t.Partitions[j]
			p.Default()
			p.Partition = asked.Partitions[j].Partition
			epoch, end, err := b.offsetForLeaderEpoch(asked.Topic, &asked.Partitions[j])
			p.LeaderEpoch, p.EndOffset, p.ErrorCode = int32(epoch), int64(end), errorCode(err)
		}
	}
	r.reply(resp)
}

func (b *Broker) offsetForLeaderEpoch(topic string, q *kmsg.OffsetForLeaderEpochRequestTopicPartition) (ids.LeaderEpoch, ids.Offset, error) {
	p, err := b.replicas.lookup(topic, q.Partition)
	if err != nil {
		return ids.NoEpoch, ids.NoOffset, err
	}
	if _, err := p.leading(b.images.Image(), ids.LeaderEpoch(q.CurrentLeaderEpoch)); err != nil {
		return ids.NoEpoch, ids.NoOffset, err
	}
	epoch, end := p.log().EndOffsetForEpoch(ids.LeaderEpoch(q.LeaderEpoch))
	return epoch, end, nil
}
