package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteRecords asks for the deletion of one partition's records.
func deleteRecords(t *testing.T, cl *kgo.Client, topic string, offset int64) (int64, int16) {
	t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = offset
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(testContext(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.Topics[0].Partitions[0]
	return p.LowWatermark, p.ErrorCode
}

func TestDeletedRecordsAreGoneOnEveryReplica(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	adm, ctx := kadm.NewClient(cl), testContext(t)
	if _, err := adm.CreateTopic(ctx, 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 100)
	if low, code := deleteRecords(t, cl, "t", 60); low != 60 || code != 0 {
		t.Fatalf("low watermark %d, error %d", low, code)
	}
	for id, n := range c.brokers {
		if n == nil {
			continue
		}
		p, err := n.broker.replicas.lookup("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		if start := p.log().Start(); start != 60 {
			t.Errorf("broker %d: the log starts at %d", id+1, start)
		}
	}
	starts, err := adm.ListStartOffsets(ctx, "t")
	if o, _ := starts.Lookup("t", 0); err != nil || o.Offset != 60 {
		t.Errorf("earliest offset %d, %v", o.Offset, err)
	}
	if low, code := deleteRecords(t, cl, "t", 10); low != 60 || code != 0 {
		t.Errorf("below the log start: low watermark %d, error %d", low, code)
	}
	for _, offset := range []int64{101, -2} {
		if low, code := deleteRecords(t, cl, "t", offset); code != kerr.OffsetOutOfRange.Code || low != -1 {
			t.Errorf("offset %d: low watermark %d, error %d", offset, low, code)
		}
	}
	if low, code := deleteRecords(t, cl, "t", -1); low != 100 || code != 0 {
		t.Errorf("all: low watermark %d, error %d", low, code)
	}
	mustProduce(t, cl, "t", 100, 110) // the log goes on
}

func TestDeletionsAreRefused(t *testing.T) {
	a := startAdmin(t)
	if _, err := a.admin.CreateTopic(testContext(t), 1, 1, map[string]*string{"cleanup.policy": kmsg.StringPtr("compact")}, "compacted"); err != nil {
		t.Fatal(err)
	}
	if _, code := deleteRecords(t, a.client, "compacted", 0); code != kerr.PolicyViolation.Code {
		t.Errorf("a compacted topic: error %d", code)
	}
}

func TestDeletionsTakeABoundedTime(t *testing.T) {
	for asked, want := range map[int32]time.Duration{
		-1: deletionTimeout, 0: deletionTimeout, 1: time.Millisecond, 60_000: time.Minute, 1 << 30: deletionTimeoutMax,
	} {
		if got := deletionWithin(asked); got != want {
			t.Errorf("%d ms asked for: %v, want %v", asked, got, want)
		}
	}
}
