package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// compactionShape is how much is compacted.
type compactionShape struct {
	keys, rounds, valueBytes int
	partitions               int32
	probe                    time.Duration // length of a window in which latencies are measured; 0: they are not
}

const (
	compactionTopic = "compacted"
	compactionEnd   = "end" // key of what is written behind the rest, so that the last batches hold nothing else
)

// TestCompactionLeavesTheLastValues: a topic whose keys are all written several times, and some deleted at the end, is compacted until a consumer gets each
// key once, with its last value. The long form measures what that does to somebody else's latencies.
func TestCompactionLeavesTheLastValues(t *testing.T) {
	t.Parallel()
	s := compactionShape{keys: 20_000, rounds: 5, valueBytes: 60, partitions: 2}
	props := map[string]string{"log.cleaner.backoff.ms": "100"}
	if long() {
		s = compactionShape{keys: 1_000_000, rounds: 10, valueBytes: 100, partitions: 4, probe: 5 * time.Second}
		props["log.cleaner.threads"] = "0"
	}
	c := single(t, props)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), compactionTopic, s.partitions, 1,
		map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}))
	began := time.Now()
	s.write(t, c)
	t.Logf("%d records written in %v, %d bytes in the largest partition", s.keys*s.rounds+s.keys/100, time.Since(began).Round(time.Millisecond), largestLog(t, c, compactionTopic))
	if s.probe > 0 {
		s.measure(t, c)
	}
	s.judge(t, c)
	t.Logf("%d bytes are left in the largest partition", largestLog(t, c, compactionTopic))
}

func (s compactionShape) client(t *testing.T, c *harness.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), opts...)...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// value says which key and round it is of.
func (s compactionShape) value(key, round int) []byte {
	v := make([]byte, s.valueBytes)
	binary.BigEndian.PutUint64(v, uint64(key))
	binary.BigEndian.PutUint64(v[8:], uint64(round))
	return v
}

// write produces all rounds, then deletes each hundredth key.
func (s compactionShape) write(t *testing.T, c *harness.Cluster) {
	t.Helper()
	cl := s.client(t, c, kgo.DefaultProduceTopic(compactionTopic), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxBufferedRecords(50_000))
	var failed error
	ctx := deadline(t, 20*time.Minute)
	send := func(key int, value []byte) {
		cl.Produce(ctx, &kgo.Record{Key: fmt.Appendf(nil, "key-%d", key), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	for round := range s.rounds {
		for key := range s.keys {
			send(key, s.value(key, round))
		}
	}
	for key := 0; key < s.keys; key += 100 {
		send(key, nil)
	}
	must(t, cl.Flush(ctx))
	must(t, failed)
}

// tick writes a batch of its own to the end of each partition.
func (s compactionShape) tick(t *testing.T, cl *kgo.Client) {
	t.Helper()
	for p := range s.partitions {
		must(t, cl.ProduceSync(deadline(t, 30*time.Second), &kgo.Record{Topic: compactionTopic, Partition: p, Key: []byte(compactionEnd), Value: []byte("x")}).FirstErr())
	}
}

// judge reads the topic until each key is there once, with its last value, and no key that was deleted.
func (s compactionShape) judge(t *testing.T, c *harness.Cluster) {
	t.Helper()
	cl := s.client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	live := s.keys - (s.keys+99)/100
	ctx := deadline(t, time.Minute+time.Duration(s.keys)*200*time.Microsecond)
	for {
		s.tick(t, cl)
		records, deleted := s.read(t, c)
		if records == live && deleted == 0 {
			return
		}
		if err := workload.Pause(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("%d records and %d without value are left, want %d and none: %v", records, deleted, live, err)
		}
	}
}

// read reads the topic to its end. What it ends with must be the last values, compacted or not; it counts the records with and without value.
func (s compactionShape) read(t *testing.T, c *harness.Cluster) (records, deleted int) {
	t.Helper()
	last := map[string]int{} // the round
	readToEnd(t, c, compactionTopic, func(r *kgo.Record) {
		switch {
		case string(r.Key) == compactionEnd:
		case r.Value == nil:
			deleted++
			delete(last, string(r.Key))
		default:
			records++
			key, round := binary.BigEndian.Uint64(r.Value), binary.BigEndian.Uint64(r.Value[8:])
			if string(r.Key) != fmt.Sprintf("key-%d", key) || len(r.Value) != s.valueBytes {
				t.Fatalf("key %s has the value of key %d", r.Key, key)
			}
			last[string(r.Key)] = int(round)
		}
	})
	for key := range s.keys {
		round, ok := last[fmt.Sprintf("key-%d", key)]
		if want := key%100 != 0; ok != want || ok && round != s.rounds-1 {
			t.Fatalf("key %d ends with round %d (%v), want round %d (%v)", key, round, ok, s.rounds-1, want)
		}
	}
	return records, deleted
}

// readToEnd gives all records of a topic up to the present end. The last batch of each partition must be there whole.
func readToEnd(t *testing.T, c *harness.Cluster, topic string, fn func(*kgo.Record)) {
	t.Helper()
	ctx := deadline(t, 5*time.Minute)
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	must(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	must(t, err)
	left := map[int32]int64{}
	ends.Each(func(e kadm.ListedOffset) { left[e.Partition] = e.Offset })
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if fn(r); r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
}

// measure compares the latencies of a producer to another topic with and without compaction. The topic is loaded before, and the cleaner works and stands
// still in turn, until no partition shrinks any more, so that both windows see the same machine. A latency is the time from sending a record, one each 5 ms whether or
// not those before are acknowledged, to its acknowledgement; p99 is of all windows of a kind together. How much it varies by itself tell the
// odd and the even windows without compaction.
func (s compactionShape) measure(t *testing.T, c *harness.Cluster) {
	t.Helper()
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "probe", 1, 1, nil))
	p := startLatencyProbe(t, s.client(t, c, kgo.DefaultProduceTopic("probe"), kgo.ProducerLinger(0)))
	cl := s.client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	s.tick(t, cl)
	window := func(threads string) []time.Duration {
		_, err := kadm.NewClient(cl).AlterBrokerConfigs(deadline(t, 30*time.Second), []kadm.AlterConfig{{Name: "log.cleaner.threads", Value: &threads}})
		must(t, err)
		p.rest(t, 500*time.Millisecond)
		p.take()
		p.rest(t, s.probe)
		return p.take()
	}
	p.rest(t, 20*time.Second) // what loading has left to do
	var alone [2][]time.Duration
	var during []time.Duration
	first := largestLog(t, c, compactionTopic)
	size, windows := first, 0
	for steady := 0; steady < 2; {
		off, on := window("0"), window("1")
		now := largestLog(t, c, compactionTopic)
		if now == size && size < first/2 { // the largest one has had its pass, and nothing was done in this window
			steady++
			continue
		}
		if windows++; windows > 100 {
			t.Fatalf("the largest partition has %d bytes of %d after %d windows", now, first, windows)
		}
		size, steady = now, 0
		alone[windows%2], during = append(alone[windows%2], off...), append(during, on...)
	}
	both := slices.Concat(alone[0], alone[1])
	t.Logf("produce latency in %d windows of %v without compaction: %s (even ones: %s; odd ones: %s); and in as many with it: %s", windows, s.probe,
		summary(both), summary(alone[0]), summary(alone[1]), summary(during))
	if quantile(during, 0.99) > quantile(both, 0.99)*3/2 {
		t.Errorf("p99 rose from %v to %v", quantile(both, 0.99), quantile(during, 0.99))
	}
}

// latencyProbe produces a record each 5 ms and measures each.
type latencyProbe struct {
	latencies chan []time.Duration // capacity 1: what was measured so far
}

func startLatencyProbe(t *testing.T, cl *kgo.Client) *latencyProbe {
	p := &latencyProbe{latencies: make(chan []time.Duration, 1)}
	p.latencies <- nil
	ctx, cancel := context.WithCancel(t.Context())
	var failed atomic.Pointer[error]
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			sent := time.Now()
			cl.Produce(context.Background(), &kgo.Record{Value: make([]byte, 100)}, func(_ *kgo.Record, err error) {
				if took := time.Since(sent); err == nil {
					p.latencies <- append(<-p.latencies, took)
				} else if ctx.Err() == nil {
					failed.CompareAndSwap(nil, &err)
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := failed.Load(); err != nil {
			t.Error(*err)
		}
	})
	return p
}

// take returns what was measured since the last time.
func (p *latencyProbe) take() []time.Duration {
	list := <-p.latencies
	p.latencies <- nil
	return list
}

// rest lets it go on for a while.
func (p *latencyProbe) rest(t *testing.T, d time.Duration) {
	t.Helper()
	must(t, workload.Pause(t.Context(), d))
}

func summary(list []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v, p99.9 %v of %d", quantile(list, 0.5), quantile(list, 0.99), quantile(list, 0.999), len(list))
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[min(len(list)-1, int(q*float64(len(list))))]
}
