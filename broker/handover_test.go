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
