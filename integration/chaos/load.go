package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/chaos/checker"
	"cairn/integration/workload"
)

const (
	topic        = "chaos"
	recordBytes  = 120
	sendEvery    = 8 * time.Millisecond // per writer and partition
	answerWithin = 2 * time.Second      // of direct writers
)

// load is the writers of a round.
type load struct {
	plan    Plan
	history *checker.Recorder
	addrs   []string // of the brokers, in the order of their ids

	next    atomic.Uint64 // the last value given out
	nextTxn atomic.Uint64 // the last number of a transaction given out
	wg      sync.WaitGroup
	cancel  context.CancelFunc
	hard    context.Context // of the clients: it ends what waits for a cluster that answers nothing
	giveUp  context.CancelFunc
	clients []*kgo.Client
	directs []*workload.Direct
	admin   *kgo.Client // for the directs' look at who leads

	mu      sync.Mutex
	leaders map[int32]int32         // as last seen; guarded by mu
	fresh   map[int32]time.Duration // when the last acks=all record that was acknowledged was sent; guarded by mu
	// freshTxn is when the last transaction that a writer saw through was begun, by writer; guarded by mu.
	freshTxn map[string]time.Duration
	begun    time.Time
}

// startLoad begins all writers: two idempotent ones, one of each acks that sends every record once, and two of transactions, unless an
// unclean election is to come: it may take a marker and with it the word on what was committed.
func startLoad(p Plan, addrs []string, history *checker.Recorder) (*load, error) {
	ctx, cancel := context.WithCancel(context.Background())
	hard, giveUp := context.WithCancel(context.Background())
	l := &load{plan: p, history: history, addrs: addrs, cancel: cancel, hard: hard, giveUp: giveUp, leaders: map[int32]int32{}, fresh: map[int32]time.Duration{}, freshTxn: map[string]time.Duration{}, begun: time.Now()}
	var err error
	if l.admin, err = kgo.NewClient(workload.ClientOptions(addrs)...); err != nil {
		return nil, err
	}
	l.wg.Go(func() { l.watchLeaders(ctx) })
	for i := range 2 {
		cl, err := kgo.NewClient(append(workload.ClientOptions(addrs), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(2000), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.RequestTimeoutOverhead(2*time.Second), kgo.ProduceRequestTimeout(answerWithin), kgo.WithContext(hard))...)
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, cl)
		for partition := range p.Partitions {
			l.wg.Go(func() { l.writeIdempotent(ctx, cl, fmt.Sprint("idempotent-", i), partition) })
		}
	}
	if !p.loses() {
		l.startTxnWriters(ctx)
	}
	for _, acks := range []int16{workload.AcksNone, workload.AcksLeader, workload.AcksAll} {
		var directs []*workload.Direct
		for _, addr := range addrs {
			d, err := workload.NewDirect(addr)
			if err != nil {
				return nil, err
			}
			directs = append(directs, d)
		}
		l.directs = append(l.directs, directs...)
		for partition := range p.Partitions {
			rng := rand.New(rand.NewPCG(p.Seed, uint64(acks+2)<<32|uint64(partition)))
			l.wg.Go(func() { l.writeDirect(ctx, directs, rng, acks, partition) })
		}
	}
	return l, nil
}

// stop ends the writers; all that was handed over is answered, or nobody knows. When ctx ends before that, they are cut off.
func (l *load) stop(ctx context.Context) error {
	l.cancel()
	defer l.giveUp()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.wg.Wait()
	}()
	var errs []error
	select {
	case <-ended:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("writers wait for answers and do not end: %w", ctx.Err()))
		l.giveUp()
		for _, cl := range l.clients {
			cl.CloseAllowingRebalance()
		}
		<-ended
	}
	for _, cl := range l.clients {
		if err := cl.Flush(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%d records of an idempotent writer are unanswered: %w", cl.BufferedProduceRecords(), err))
		}
		cl.CloseAllowingRebalance()
	}
	for _, d := range l.directs {
		d.Close()
	}
	l.admin.Close()
	return errors.Join(errs...)
}

// send notes a new record and returns its value.
func (l *load) send(client string, partition int32, acks int16, ordered bool) uint64 {
	v := l.next.Add(1)
	l.history.Add(checker.Event{Kind: checker.Sent, Client: client, Partition: partition, Value: v, Acks: acks, Ordered: ordered})
	return v
}

// answered notes what became of a record. Only NOT_ENOUGH_REPLICAS says that it was not stored; after any other error nobody knows.
func (l *load) answered(client string, partition int32, v uint64, offset int64, sent time.Duration, all bool, err error) {
	e := checker.Event{Kind: checker.Acked, Client: client, Partition: partition, Value: v, Offset: offset}
	switch {
	case errors.Is(err, kerr.NotEnoughReplicas) && !all:
		e.Kind, e.Text = checker.Refused, err.Error()
	case err != nil:
		e.Kind, e.Text = checker.Unknown, err.Error()
	case all:
		l.mu.Lock()
		l.fresh[partition] = max(l.fresh[partition], sent)
		l.mu.Unlock()
	}
	l.history.Add(e)
}

// writeIdempotent hands records to a client that keeps their order and sends each until it is answered.
func (l *load) writeIdempotent(ctx context.Context, cl *kgo.Client, client string, partition int32) {
	for pause(ctx, sendEvery) == nil {
		sent := time.Since(l.begun)
		v := l.send(client, partition, workload.AcksAll, true)
		rec := &kgo.Record{Partition: partition, Value: workload.EncodeRecord(v, recordBytes)}
		// Not ctx: a record that was handed over is to be answered, which stop waits for.
		cl.Produce(context.Background(), rec, func(r *kgo.Record, err error) { l.answered(client, partition, v, r.Offset, sent, true, err) })
	}
}

// writeDirect sends records one by one, each once, mostly to the leader and now and then to any broker: whoever was one may think it is.
func (l *load) writeDirect(ctx context.Context, directs []*workload.Direct, rng *rand.Rand, acks int16, partition int32) {
	client := fmt.Sprint("direct-", acks)
	for pause(ctx, sendEvery) == nil {
		to := int(l.leader(partition)) - 1
		if to < 0 || to >= len(directs) || rng.IntN(10) == 0 {
			to = rng.IntN(len(directs))
		}
		v := l.send(client, partition, acks, false)
		offset, err := directs[to].Produce(context.WithoutCancel(ctx), topic, partition, acks, answerWithin, workload.EncodeRecord(v, recordBytes))
		if acks == workload.AcksNone && err == nil {
			continue // no answer tells anything
		}
		l.answered(client, partition, v, offset, 0, false, err)
	}
}

func (l *load) leader(partition int32) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaders[partition]
}

// watchLeaders asks who leads, again and again.
func (l *load) watchLeaders(ctx context.Context) {
	adm := kadm.NewClient(l.admin)
	for pause(ctx, 50*time.Millisecond) == nil {
		askCtx, cancel := context.WithTimeout(ctx, time.Second)
		meta, err := adm.Metadata(askCtx, topic)
		cancel()
		if err != nil {
			continue // brokers come and go
		}
		l.mu.Lock()
		for _, p := range meta.Topics[topic].Partitions {
			l.leaders[p.Partition] = p.Leader
		}
		l.mu.Unlock()
	}
}

// waitServing waits until each partition has acknowledged an acks=all record that was sent after the call, and each writer of transactions
// has seen one through, and returns those that have not.
func (l *load) waitServing(ctx context.Context) (stuck []int32, stuckTxns []string) {
	for since := time.Since(l.begun); ; {
		stuck, stuckTxns = l.behind(since)
		if len(stuck)+len(stuckTxns) == 0 || pause(ctx, 20*time.Millisecond) != nil {
			return stuck, stuckTxns
		}
	}
}

// waitAcknowledged waits for the partitions alone.
func (l *load) waitAcknowledged(ctx context.Context) (stuck []int32) {
	for since := time.Since(l.begun); ; {
		stuck, _ = l.behind(since)
		if len(stuck) == 0 || pause(ctx, 20*time.Millisecond) != nil {
			return stuck
		}
	}
}

// behind returns the partitions that have acknowledged no acks=all record that was sent after that time, and the writers of transactions that
// have seen none through that began after it.
func (l *load) behind(since time.Duration) (partitions []int32, writers []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, at := range l.freshTxn {
		if at <= since {
			writers = append(writers, w)
		}
	}
	for p := range l.plan.Partitions {
		if l.fresh[p] <= since {
			partitions = append(partitions, p)
		}
	}
	return partitions, writers
}
