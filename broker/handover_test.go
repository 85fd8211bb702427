package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestHandOverUnderLoad hands the leadership of all partitions of a broker over while clients write to them.
func TestHandOverUnderLoad(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 6, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range int32(6) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r := &kgo.Record{Partition: i, Value: fmt.Appendf(nil, "%d", n)}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil && ctx.Err() == nil {
					t.Errorf("partition %d: %v", i, err)
				}
			}
		})
	}
	for _, b := range c.brokers {
		for _, p := range b.broker.replicas.partitions() {
			if !p.isLeader() {
				continue
			}
			img := b.images.Image()
			state, _ := img.PartitionOf(p.topicID, p.index)
			to := successors(img, state, b.broker.nodeID)
			if len(to) != 2 {
				t.Fatalf("%d replicas to hand over to", len(to))
			}
			start := time.Now()
			if err := p.handOver(t.Context(), to); err != nil {
				t.Errorf("broker %d partition %d after %v: %v", b.broker.nodeID, p.index, time.Since(start), err)
			}
		}
	}
}

// TestNothingIsHandedOverToWhoDoesNotFollow: clients would not be served until Raft gives such a transfer up.
func TestNothingIsHandedOverToWhoDoesNotFollow(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t, kgo.DefaultProduceTopic("t"))
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produce := func() {
		t.Helper()
		if err := cl.ProduceSync(testContext(t), kgo.StringRecord("v")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce()
	state := c.partition("t")
	leader := c.brokers[state.Leader-1]
	gone := state.Leader%3 + 1
	c.stop(t, int(gone))
	produce() // which the one that is gone does not have
	p, err := leader.broker.replicas.lookup("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	r, begun := p.serving(), time.Now()
	p.transferTo(t.Context(), state.ReplicaIDs[state.ReplicaOf(gone)])
	if took := time.Since(begun); took > handOverTimeout || r == nil || p.serving() != r {
		t.Errorf("the partition was not served for %v; it is now: %t", took, p.serving() == r)
	}
	begun = time.Now()
	other := 6 - state.Leader - gone
	p.transferTo(t.Context(), state.ReplicaIDs[state.ReplicaOf(other)])
	if took := time.Since(begun); p.serving() == r {
		t.Errorf("nor was it handed over to one that follows, for %v", took)
	}
}
