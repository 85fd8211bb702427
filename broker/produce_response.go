package broker

import (
	"fmt"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceLeaderHints is the first produce version that tells who leads instead (KIP-951).
const produceLeaderHints = 10

// response builds the answer of a request that is done; nothing changes its slots any more.
func (op *produceOp) response() *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(op.req.Topics))
	partitions := make([]kmsg.ProduceResponseTopicPartition, len(op.slots))
	hints := leaderHints{b: op.b, listener: op.r.listenerName()}
	slot := 0
	for i := range op.req.Topics {
		asked, t := &op.req.Topics[i], &resp.Topics[i]
		t.Topic, t.TopicID = asked.Topic, asked.TopicID
		t.Partitions = partitions[slot : slot+len(asked.Partitions)]
		for j := range t.Partitions {
			op.slots[slot].putTo(&t.Partitions[j])
			if p := &t.Partitions[j]; p.ErrorCode == kerr.NotLeaderForPartition.Code && op.req.Version >= produceLeaderHints {
				state := hints.partition(asked.Topic, asked.TopicID, p.Partition)
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = hints.leaderOf(state)
			}
			slot++
		}
	}
	for _, n := range hints.endpoints {
		resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: n.NodeID, Host: n.Host, Port: n.Port, Rack: n.Rack})
	}
	return resp
}

func (s *produceSlot) putTo(p *kmsg.ProduceResponseTopicPartition) {
	p.Default()
	p.Partition, p.ErrorCode = s.index, s.code
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = int64(s.base), s.appendTime, int64(s.logStart)
	if s.code == 0 {
		return
	}
	p.ErrorMessage = &s.message
	for _, e := range s.recordErrors {
		r := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		r.RelativeOffset, r.ErrorMessage = e.BatchIndex, kmsg.StringPtr(e.Message)
		p.ErrorRecords = append(p.ErrorRecords, r)
	}
}

// endSilently ends an acks=0 request, whose one way to tell of an error is to close the connection.
func (op *produceOp) endSilently() {
	for i := range op.slots {
		if s := &op.slots[i]; s.code != 0 {
			op.r.closeConnection(fmt.Errorf("produce with acks=0 failed: %w: %s", kerr.ErrorForCode(s.code), s.message))
			return
		}
	}
	op.r.noReply()
}

// partition finds a partition's state by what the client called its topic; nil when it is gone.
func (h *leaderHints) partition(topic string, id [16]byte, index int32) *controller.Partition {
	img := h.image()
	state, ok := img.PartitionOf(ids.UUID(id), index)
	if !ok {
		state, _ = img.Partition(topic, index)
	}
	return state
}
