package integration

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/workload"
	"cairn/wire/batch"
)

const producersPartitions = 10

// TestManyProducers: 100,000 producers (3,000 in the short form) whose state one broker keeps: what they cost in memory, how long a restart
// takes, and that a request costs the same with them as without.
func TestManyProducers(t *testing.T) {
	producers := 3_000
	if long() {
		producers = 100_000
	}
	c := single(t, nil)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "producers", producersPartitions, 1, nil))
	r := newRawProducer(t, c, "producers")
	few := r.medianTime(1 << 40)
	before, err := c.Nodes[0].Usage()
	must(t, err)
	begun := time.Now()
	r.introduce(producers)
	took := time.Since(begun)
	many := r.medianTime(1 << 41)
	after, err := c.Nodes[0].Usage()
	must(t, err)
	t.Logf("%d producers in %v: resident memory %d MiB before, %d MiB after; a request takes %v with few of them, %v with all",
		producers, took.Round(time.Millisecond), before.RSS>>20, after.RSS>>20, few, many)
	if many > 4*few+5*time.Millisecond {
		t.Errorf("a request takes %v with %d producers and %v with few", many, producers, few)
	}
	must(t, c.Nodes[0].Kill())
	begun = time.Now()
	must(t, c.Nodes[0].Start())
	_, err = c.Nodes[0].WaitReady(deadline(t, time.Minute))
	must(t, err)
	r.want("after the restart", 0, 1_000_000, 0, 1, 20, nil) // the first producer's batch, behind those of medianTime
	t.Logf("restarted, and a repeated batch answered, after %v", time.Since(begun).Round(time.Millisecond))
}

// many is a request with one batch of one record for each partition, each of a producer of its own from first on.
func (r *rawProducer) many(first int64, sequence int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.id
	for p := range int32(producersPartitions) {
		cfg := batch.NewBuilderConfig(batch.CodecNone, time.Now().UnixMilli())
		cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = first+int64(p), 0, sequence
		b, err := batch.NewBuilder(cfg)
		must(r.t, err)
		must(r.t, b.AppendKV(cfg.BaseTimestamp, nil, []byte("v")))
		raw, err := b.Build()
		must(r.t, err)
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, raw
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (r *rawProducer) sendMany(first int64, sequence int32) error {
	resp, err := r.cl.Broker(r.c.Nodes[0].ID).Request(deadline(r.t, time.Minute), r.many(first, sequence))
	if err != nil {
		return err
	}
	for _, p := range resp.(*kmsg.ProduceResponse).Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// introduce has so many producers write one batch each; those of the first request write before all others.
func (r *rawProducer) introduce(producers int) {
	r.t.Helper()
	must(r.t, r.sendMany(1_000_000, 0))
	var next atomic.Int64
	next.Store(producersPartitions)
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		wg.Go(func() {
			for {
				i := next.Add(producersPartitions) - producersPartitions
				if i >= int64(producers) {
					return
				}
				if err := r.sendMany(1_000_000+i, 0); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	must(r.t, <-errs)
}

// medianTime is that of twenty requests of the same ten producers.
func (r *rawProducer) medianTime(first int64) time.Duration {
	r.t.Helper()
	var times []time.Duration
	for i := range int32(20) {
		begun := time.Now()
		must(r.t, r.sendMany(first, i))
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	return times[len(times)/2]
}
