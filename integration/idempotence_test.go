package integration

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/wire/batch"
)

// rawProducer sends batches of its own making, with acks=all, as no client would.
type rawProducer struct {
	t     *testing.T
	c     *harness.Cluster
	cl    *kgo.Client
	topic string
	id    [16]byte
}

func newRawProducer(t *testing.T, c *harness.Cluster, topic string) *rawProducer {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	t.Cleanup(cl.Close)
	meta, err := kadm.NewClient(cl).Metadata(deadline(t, 20*time.Second), topic)
	must(t, err)
	return &rawProducer{t: t, c: c, cl: cl, topic: topic, id: meta.Topics[topic].ID}
}

// producerID asks for a new one.
func (r *rawProducer) producerID() int64 {
	r.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := req.RequestWith(deadline(r.t, 20*time.Second), r.cl)
	must(r.t, err)
	must(r.t, kerr.ErrorForCode(resp.ErrorCode))
	if resp.ProducerEpoch != 0 {
		r.t.Errorf("a new producer has epoch %d", resp.ProducerEpoch)
	}
	return resp.ProducerID
}

// produce sends n records to a partition, again while its leader changes.
func (r *rawProducer) produce(partition int32, producerID int64, sequence, n int32) (base int64, code error) {
	r.t.Helper()
	cfg := batch.NewBuilderConfig(batch.CodecNone, time.Now().UnixMilli())
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = producerID, 0, sequence
	b, err := batch.NewBuilder(cfg)
	must(r.t, err)
	for i := range n {
		must(r.t, b.AppendKV(cfg.BaseTimestamp, nil, fmt.Appendf(nil, "%d/%d+%d", producerID, sequence, i)))
	}
	raw, err := b.Build()
	must(r.t, err)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx := deadline(r.t, time.Minute)
	for {
		base, code = r.send(ctx, partition, req)
		if code == nil || !kerr.IsRetriable(code) {
			return base, code
		}
		if err := workload.Pause(ctx, 50*time.Millisecond); err != nil {
			r.t.Fatalf("partition %d: %v: %v", partition, err, code)
		}
	}
}

func (r *rawProducer) send(ctx context.Context, partition int32, req *kmsg.ProduceRequest) (int64, error) {
	leaders, err := workload.Leaders(ctx, r.running(), r.topic)
	if err != nil || leaders[partition] < 0 {
		return -1, kerr.NotLeaderForPartition
	}
	resp, err := r.cl.Broker(int(leaders[partition])).Request(ctx, req)
	if err != nil {
		return -1, kerr.NetworkException
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

func (r *rawProducer) running() (list []string) {
	for _, b := range r.c.Brokers() {
		if b.Running() {
			list = append(list, b.Addr)
		}
	}
	return list
}

func (r *rawProducer) want(what string, partition int32, producerID int64, sequence, n int32, base int64, code error) {
	r.t.Helper()
	gotBase, got := r.produce(partition, producerID, sequence, n)
	if got != code || code == nil && gotBase != base {
		r.t.Errorf("%s: sequence %d answers base offset %d, %v; want %d, %v", what, sequence, gotBase, got, base, code)
	}
}

// end is how many records the partition has.
func (r *rawProducer) end(partition int32) int64 {
	r.t.Helper()
	ends, err := kadm.NewClient(r.cl).ListEndOffsets(deadline(r.t, 20*time.Second), r.topic)
	must(r.t, err)
	o, _ := ends.Lookup(r.topic, partition)
	return o.Offset
}

// rememberedBatches checks the rows duplicate, duplicate-old and gap: of seven batches of ten records from offset 0 on, the last five.
func (r *rawProducer) rememberedBatches(when string, id, wrapping int64) {
	r.t.Helper()
	for i := int32(2); i < 7; i++ {
		r.want(when+": duplicate", 0, id, i*10, 10, int64(i*10), nil)
	}
	r.want(when+": duplicate-old", 0, id, 10, 10, -1, kerr.OutOfOrderSequenceNumber)
	r.want(when+": gap", 0, id, 71, 1, -1, kerr.OutOfOrderSequenceNumber)
	r.want(when+": part of a batch", 0, id, 60, 5, -1, kerr.OutOfOrderSequenceNumber)
	r.want(when+": duplicate across the wrap", 1, wrapping, math.MaxInt32-4, 10, 10, nil)
	r.want(when+": duplicate after the wrap", 1, wrapping, 5, 10, 20, nil)
	if n := r.end(0); n != 70 {
		r.t.Errorf("%s: partition 0 has %d records, want 70", when, n)
	}
}

// TestIdempotentProducerRows is the table of the idempotent producer, on a cluster whose leader dies and which restarts as a whole.
func TestIdempotentProducerRows(t *testing.T) {
	c := three(t, nil)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "rows", 3, 3, nil))
	r := newRawProducer(t, c, "rows")
	id, wrapping := r.producerID(), r.producerID()
	if id == wrapping {
		t.Errorf("pid: two producers have the id %d", id)
	}
	for i := range int32(7) {
		r.want("append", 0, id, i*10, 10, int64(i*10), nil)
	}
	r.want("before the wrap", 1, wrapping, math.MaxInt32-14, 10, 0, nil)
	r.want("across the wrap", 1, wrapping, math.MaxInt32-4, 10, 10, nil)
	r.want("after the wrap", 1, wrapping, 5, 10, 20, nil)
	r.want("one-partition: another partition knows nothing of it", 2, id, 500, 1, 0, nil)
	r.want("one-partition: nor of another producer", 2, wrapping, 7, 1, 1, nil)
	r.want("not-business: the same record again", 2, wrapping, 8, 1, 2, nil)
	r.rememberedBatches("at once", id, wrapping)

	leaders, err := workload.Leaders(deadline(t, 20*time.Second), c.Bootstrap(), "rows")
	must(t, err)
	dead := c.Node(int(leaders[0]))
	must(t, dead.Kill())
	r.rememberedBatches("survives the leader", id, wrapping)
	must(t, dead.Start())
	for _, n := range c.Brokers() {
		_, err := n.WaitReady(deadline(t, 60*time.Second))
		must(t, err)
	}
	waitInSync(t, c, "rows")
	for _, n := range c.Brokers() {
		must(t, n.Kill())
	}
	for _, n := range c.Brokers() {
		must(t, n.Start())
	}
	for _, n := range c.Brokers() {
		_, err := n.WaitReady(deadline(t, 60*time.Second))
		must(t, err)
	}
	r.rememberedBatches("survives a restart of all", id, wrapping)
	if again := r.producerID(); again == id || again == wrapping {
		t.Errorf("pid: the id %d is given out twice", again)
	}
	must(t, c.Brokers()[0].Stop(30*time.Second))
	dump := cairn(t, "", "dump", "--data-dir", c.Brokers()[0].DataDir(), "--topic", "rows", "--partition", "0")
	for i := range 7 {
		want := fmt.Sprintf("baseSequence: %d lastSequence: %d producerId: %d producerEpoch: 0 ", i*10, i*10+9, id)
		if strings.Count(dump, want) != 1 {
			t.Errorf("dump-sequence: %d lines with %q in\n%s", strings.Count(dump, want), want, dump)
		}
	}
}

// TestInFlightFive: a client with five requests in flight, whose connections are cut, slowed, and deprived of their answers, at any byte, while
// leaders are killed: each record is there once, and in order. 20,000 records, or 200,000 at full length.
func TestInFlightFive(t *testing.T) {
	t.Parallel()
	const partitions = 6
	total := 20_000 * rounds(t, 1, 10)
	c := three(t, nil)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "five", partitions, 3, nil))
	u := &unreliable{rng: seeded(t)}
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.Dialer(u.dial), kgo.DefaultProduceTopic("five"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2_000),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(2_000))...)
	must(t, err)
	defer cl.Close()
	ctx := deadline(t, time.Duration(total/20_000)*2*time.Minute)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	kills := 0
	killer.Go(func() { kills = killLeaders(t, c, "five", stop) })
	produceNumbered(t, ctx, cl, partitions, total)
	close(stop)
	killer.Wait()
	records, err := workload.Read(deadline(t, 2*time.Minute), c.Bootstrap(), "five")
	must(t, err)
	next := map[int32]int{}
	for _, rec := range records {
		if got := string(rec.Value); got != strconv.Itoa(next[rec.Partition]) {
			t.Fatalf("partition %d has record %s at offset %d, expected %d", rec.Partition, got, rec.Offset, next[rec.Partition])
		}
		next[rec.Partition]++
	}
	if len(records) != total {
		t.Errorf("%d records of %d", len(records), total)
	}
	cuts, lost := u.counts()
	t.Logf("%d records, %d connections cut, %d of them with answers withheld, %d kills", total, cuts, lost, kills)
	if cuts < 10 || lost < 3 || kills < 2 {
		t.Errorf("too little happened: %d connections cut, %d with answers withheld, %d kills", cuts, lost, kills)
	}
}

// produceNumbered gives each partition the numbers from 0 on, at a pace that lets some kills happen meanwhile.
func produceNumbered(t *testing.T, ctx context.Context, cl *kgo.Client, partitions int32, total int) {
	t.Helper()
	var mu sync.Mutex
	var failed error
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := range total {
		if i%20 == 0 {
			<-pace.C
		}
		rec := &kgo.Record{Partition: int32(i) % partitions, Value: []byte(strconv.Itoa(i / int(partitions)))}
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
		})
	}
	must(t, cl.Flush(ctx))
	mu.Lock()
	defer mu.Unlock()
	must(t, failed)
}

// killLeaders kills a leader of the topic every few seconds and starts it again, until stop; it returns how often.
func killLeaders(t *testing.T, c *harness.Cluster, topic string, stop <-chan struct{}) (kills int) {
	for round := 0; ; round++ {
		select {
		case <-stop:
			return kills
		case <-time.After(1500 * time.Millisecond):
		}
		leaders, err := workload.Leaders(deadline(t, 20*time.Second), c.Bootstrap(), topic)
		if err != nil || leaders[int32(round)%6] < 0 {
			continue
		}
		n := c.Node(int(leaders[int32(round)%6]))
		if err = n.Kill(); err == nil {
			kills++
			err = n.Start()
		}
		if err == nil {
			_, err = n.WaitReady(deadline(t, 60*time.Second))
		}
		if err != nil {
			t.Error(err)
			return kills
		}
	}
}
