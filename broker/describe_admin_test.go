package broker

import (
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLogDirsHaveSizes(t *testing.T) {
	a := startAdmin(t)
	ctx := testContext(t)
	for _, topic := range []string{"b", "a"} {
		if _, err := a.admin.CreateTopic(ctx, 2, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	producer := newTestClient(t, kgo.SeedBrokers(clientAddress(a.node)), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: make([]byte, 5000)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ask := func(topics []kmsg.DescribeLogDirsRequestTopic) kmsg.DescribeLogDirsResponseDir {
		t.Helper()
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = topics
		resp, err := req.RequestWith(ctx, a.client.SeedBrokers()[0]) // the client itself would merge the answers of all brokers, in no order
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Dirs) != 1 || !filepath.IsAbs(resp.Dirs[0].Dir) || resp.Dirs[0].ErrorCode != 0 || resp.Dirs[0].TotalBytes < resp.Dirs[0].UsableBytes {
			t.Fatalf("directories %+v", resp.Dirs)
		}
		return resp.Dirs[0]
	}
	all := ask(nil)
	if len(all.Topics) != 2 || all.Topics[0].Topic != "a" || all.Topics[1].Topic != "b" || len(all.Topics[0].Partitions) != 2 {
		t.Fatalf("all: %+v", all.Topics)
	}
	size := int64(0)
	for i, p := range all.Topics[0].Partitions {
		if size += p.Size; int(p.Partition) != i || p.OffsetLag != 0 || p.IsFuture {
			t.Errorf("partition %+v", p)
		}
	}
	if size < 5000 || size > 6000 {
		t.Errorf("a record of 5,000 bytes takes %d", size)
	}
	one := ask([]kmsg.DescribeLogDirsRequestTopic{{Topic: "b", Partitions: []int32{1}}})
	if len(one.Topics) != 1 || len(one.Topics[0].Partitions) != 1 || one.Topics[0].Partitions[0].Partition != 1 {
		t.Errorf("one: %+v", one.Topics)
	}
}

func TestQuorumIsDescribed(t *testing.T) {
	a := startAdmin(t)
	req := kmsg.NewPtrDescribeQuorumRequest()
	for _, name := range []string{"__cluster_metadata", "other"} {
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic, topic.Partitions = name, []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(testContext(t), a.client)
	if err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != 0 || len(resp.Topics) != 2 || len(resp.Nodes) != 1 || resp.Nodes[0].NodeID != 1 || len(resp.Nodes[0].Listeners) != 0 {
		t.Fatalf("answer %+v", resp)
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark < 2 || len(p.CurrentVoters) != 1 || len(p.Observers) != 0 {
		t.Errorf("metadata: %+v", p)
	}
	if v := p.CurrentVoters[0]; v.ReplicaID != 1 || v.LogEndOffset != p.HighWatermark || v.LastCaughtUpTimestamp <= 0 {
		t.Errorf("voter %+v", v)
	}
	if code := resp.Topics[1].Partitions[0].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("another topic: %d", code)
	}
}
