package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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
}

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
	deliver := context.WithoutCancel(ctx)
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
		intended, ok := w.pace(ctx, i, now)
		if !ok {
			return nil
		}
		w.produce(deliver, i, intended)
	}
	return nil
}

// pace waits until record i is due and returns the moment that its latency counts from; false when ctx ended.
func (w *worker) pace(ctx context.Context, i int64, now time.Duration) (time.Duration, bool) {
	if w.rate <= 0 {
		return now, ctx.Err() == nil
	}
	due := time.Duration(float64(i) / w.rate * float64(time.Second))
	if ahead := due - now; ahead > paceSlack {
		timer := time.NewTimer(ahead)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, false
		}
		now = w.run.now()
	}
	if w.run.opts.OpenLoop {
		return due, ctx.Err() == nil
	}
	return now, ctx.Err() == nil
}

// produce hands record i to the client, which blocks while its buffer is full.
func (w *worker) produce(ctx context.Context, i int64, sent time.Duration) {
	record := &kgo.Record{Value: w.payload.next(i)}
	done := func(r *kgo.Record, err error) {
		w.run.outcomes.add(err)
		if err == nil {
			w.meter.add(i, sent, w.run.now(), len(r.Value))
		}
	}
	if !w.run.opts.Sync {
		w.client.Produce(ctx, record, done)
		return
	}
	done(w.client.ProduceSync(ctx, record).First())
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
	connects, batches, batchRecords, uncompressed, compressed, written, writeErrors atomic.Int64
}

var (
	_ kgo.HookBrokerConnect       = (*counters)(nil)
	_ kgo.HookBrokerWrite         = (*counters)(nil)
	_ kgo.HookProduceBatchWritten = (*counters)(nil)
)

func (c *counters) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	c.connects.Add(1)
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
