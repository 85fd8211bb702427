package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// paceSlack is how far ahead of its pace a worker may be before it sleeps: sleeps are not exact enough to take one for each record.
const paceSlack = time.Millisecond

// worker is one producing client.
type worker struct {
	run      *produceRun
	client   *kgo.Client
	payload  payload
	records  int64
	rate     float64 // records per second; at most 0: no pace
	meter    *meter
	counters counters
	slab     []sending // not yet used
}

// sending is a record with what its outcome needs. A slab of them is one allocation, and one function takes all outcomes: so the tool costs little
// beside the client.
type sending struct {
	record kgo.Record
	at     sentAt
}

// sentAt is a record's Context, by which it comes back.
type sentAt struct {
	context.Context
	index int64
	sent  time.Duration // by the run's clock; in an open loop when it should have been
}

// slabRecords is how many records are made at once; they are freed together.
const slabRecords = 64

// work sends the worker's records and waits until each has its outcome.
func (w *worker) work(ctx context.Context) error {
	transactional := w.run.config.TransactionalID != ""
	err := w.send(ctx, transactional)
	// What was sent is waited for even when a person interrupts; the delivery timeout bounds it.
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.run.config.DeliveryTimeout+w.run.config.RequestTimeout)
	defer cancel()
	if transactional && err == nil {
		return w.endTransaction(flushCtx)
	}
	if flushErr := w.client.Flush(flushCtx); flushErr != nil {
		unanswered := w.client.BufferedProduceRecords()
		w.run.outcomes.unanswered(unanswered)
		err = errors.Join(err, fmt.Errorf("%d records are unanswered: %w", unanswered, flushErr))
	}
	return err
}

func (w *worker) send(ctx context.Context, transactional bool) error {
	deliver, done := context.WithoutCancel(ctx), w.done
	var began time.Duration // of the open transaction
	for i := range w.records {
		now := w.run.now()
		if transactional && (i == 0 || now-began >= w.run.opts.TransactionLength) {
			if i > 0 {
				if err := w.endTransaction(deliver); err != nil {
					return err
				}
			}
			if err := w.client.BeginTransaction(); err != nil {
				return err
			}
			began = w.run.now()
		}
		intended, now, ok := w.pace(ctx, i, now)
		if !ok {
			return nil
		}
		w.produce(deliver, i, intended, now, done)
	}
	return nil
}

// pace waits until record i is due and returns the moment that its latency counts from, and the moment that it is; false when ctx ended.
func (w *worker) pace(ctx context.Context, i int64, now time.Duration) (intended, at time.Duration, ok bool) {
	if w.rate <= 0 {
		return now, now, ctx.Err() == nil
	}
	due := dueAt(i, w.rate)
	if ahead := due - now; ahead > paceSlack {
		timer := time.NewTimer(ahead)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, 0, false
		}
		now = w.run.now()
	}
	if w.run.opts.OpenLoop {
		return due, now, ctx.Err() == nil
	}
	return now, now, ctx.Err() == nil
}

// dueAt is when record i is due at a pace, since the start. The slowest pace makes that as good as never.
func dueAt(i int64, perSecond float64) time.Duration {
	return time.Duration(min(float64(i)/perSecond*float64(time.Second), math.MaxInt64/2))
}

// checkThroughput refuses what is no pace; one of at most 0 means as fast as it goes.
func checkThroughput(perSecond float64) error {
	if math.IsNaN(perSecond) || math.IsInf(perSecond, 0) {
		return fmt.Errorf("--throughput %v: want records per second, or -1 for as fast as it goes", perSecond)
	}
	return nil
}

// produce hands record i to the client, which blocks while its buffer is full. The record's timestamp is the moment that it is, which saves the client
// a look at the clock.
func (w *worker) produce(ctx context.Context, i int64, sent, now time.Duration, done func(*kgo.Record, error)) {
	if len(w.slab) == 0 {
		w.slab = make([]sending, slabRecords)
	}
	s := &w.slab[0]
	w.slab = w.slab[1:]
	s.at = sentAt{Context: ctx, index: i, sent: sent}
	s.record.Value, s.record.Timestamp, s.record.Context = w.payload.next(i), w.run.began.Add(now), &s.at
	if !w.run.opts.Sync {
		w.client.Produce(ctx, &s.record, done)
		return
	}
	done(w.client.ProduceSync(ctx, &s.record).First())
}

// done takes the outcome of a record, from the client's own goroutine.
func (w *worker) done(r *kgo.Record, err error) {
	w.run.outcomes.add(err)
	if err != nil {
		return
	}
	s := r.Context.(*sentAt)
	w.meter.add(s.index, s.sent, w.answered(), len(r.Value))
}

// answered is when the client read the newest answer to a produce request: one look at the clock for all records in it.
func (w *worker) answered() time.Duration {
	if at := w.counters.answered.Load(); at > 0 {
		return time.Duration(at)
	}
	return w.run.now() // acks=0
}

func (w *worker) endTransaction(ctx context.Context) error {
	if err := w.client.Flush(ctx); err != nil {
		return err
	}
	if err := w.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit of a transaction: %w", err)
	}
	return nil
}

// counters are the client's own figures, gathered through its hooks.
type counters struct {
	run *produceRun

	answered                                                                        atomic.Int64 // by the run's clock
	connects, batches, batchRecords, uncompressed, compressed, written, writeErrors atomic.Int64
}

var (
	_ kgo.HookBrokerConnect       = (*counters)(nil)
	_ kgo.HookBrokerRead          = (*counters)(nil)
	_ kgo.HookBrokerWrite         = (*counters)(nil)
	_ kgo.HookProduceBatchWritten = (*counters)(nil)
)

func (c *counters) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	c.connects.Add(1)
}

func (c *counters) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Produce) && err == nil {
		c.answered.Store(int64(c.run.now()))
	}
}

func (c *counters) OnBrokerWrite(_ kgo.BrokerMetadata, _ int16, bytes int, _, _ time.Duration, err error) {
	c.written.Add(int64(bytes))
	if err != nil {
		c.writeErrors.Add(1)
	}
}

func (c *counters) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.batches.Add(1)
	c.batchRecords.Add(int64(m.NumRecords))
	c.uncompressed.Add(int64(m.UncompressedBytes))
	c.compressed.Add(int64(m.CompressedBytes))
}
