package broker

import (
	"slices"

	"cairn/engine/producer"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeProducers answers DescribeProducers: what the leaders of the partitions know of each producer. It is how hanging transactions are
// found, so a partition is answered by its leader alone.
func handleDescribeProducers(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeProducersRequest)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if refuseTooMany(r, n) {
		return
	}
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Topics = make([]kmsg.DescribeProducersResponseTopic, len(req.Topics))
	for i := range req.Topics {
		asked, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = asked.Topic
		t.Partitions = make([]kmsg.DescribeProducersResponseTopicPartition, len(asked.Partitions))
		for j, partition := range asked.Partitions {
			p := &t.Partitions[j]
			p.Default()
			p.Partition = partition
			active, err := b.activeProducers(asked.Topic, partition)
			if p.ErrorCode = errorCode(err); err != nil {
				text := err.Error()
				p.ErrorMessage = &text
			}
			p.ActiveProducers = active
		}
	}
	r.reply(resp)
}

// activeProducers are the producers of a partition led here, by their ids.
func (b *Broker) activeProducers(topic string, partition int32) (list []kmsg.DescribeProducersResponseTopicPartitionActiveProducer, err error) {
	p, err := b.replicas.lookup(topic, partition)
	if err != nil {
		return nil, err
	}
	if p.serving() == nil || !p.owner.leaseValid() {
		return nil, errNotLeader
	}
	p.log().Producers(func(id int64, e producer.Entry) {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastTimestamp = id, int32(e.Epoch), e.LastTimestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = e.CoordinatorEpoch, int64(e.TxnFirstOffset)
		if last, ok := e.Last(); ok {
			a.LastSequence = last.LastSequence
		}
		list = append(list, a)
	})
	slices.SortFunc(list, func(x, y kmsg.DescribeProducersResponseTopicPartitionActiveProducer) int {
		return int(x.ProducerID - y.ProducerID)
	})
	return list, nil
}
