package controller

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestQuorumIsToldByTheActiveController(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.SetVersion(2)
		req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: metadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}, {Partition: 1}}}}
		got := conn.Handle(t.Context(), req).(*kmsg.DescribeQuorumResponse)
		p := got.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || p.ErrorCode != 0 || p.HighWatermark != int64(q.image().Index)+1 || len(p.Observers)+1 != len(q.image().Brokers) {
			t.Errorf("answer %+v", got)
		}
		for _, s := range append(p.Observers, p.CurrentVoters...) {
			if s.LogEndOffset != p.HighWatermark {
				t.Errorf("replica %+v, high watermark %d", s, p.HighWatermark)
			}
		}
		if code := got.Topics[0].Partitions[1].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("partition 1: %d", code)
		}
		q.depose()
		if got := conn.Handle(t.Context(), req); !saysNotController(got) {
			t.Errorf("without an active controller: %+v", got)
		}
	})
}
