package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/chaos/checker"
	"cairn/integration/workload"
)

const (
	txnWriters = 2
	txnRecords = 6                      // of a transaction, at most
	txnEvery   = 120 * time.Millisecond // pause between two, at most
	txnWithin  = 8 * time.Second        // each step of one; after that the writer begins anew
	initWithin = 2 * time.Second        // one look whether the last transaction is ended
)

// txnWriter writes transactions of a few records each, to some partitions each, and commits most of them.
type txnWriter struct {
	load *load
	name string
	rng  *rand.Rand

	client *kgo.Client // nil: to be made anew
}

func (l *load) startTxnWriters(ctx context.Context) {
	for i := range txnWriters {
		w := &txnWriter{load: l, name: fmt.Sprint("txn-", i), rng: rand.New(rand.NewPCG(l.plan.Seed, uint64(0x7a0+i)))}
		l.mu.Lock()
		l.freshTxn[w.name] = 0
		l.mu.Unlock()
		l.wg.Go(func() { w.run(ctx) })
	}
}

// run writes transactions until ctx ends, and then sees to it that none is left open.
func (w *txnWriter) run(ctx context.Context) {
	for pause(ctx, time.Duration(w.rng.Int64N(int64(txnEvery)))) == nil {
		begun := time.Since(w.load.begun)
		if err := w.transact(ctx); err != nil {
			w.drop()
			continue
		}
		w.load.mu.Lock()
		w.load.freshTxn[w.name] = begun
		w.load.mu.Unlock()
	}
	w.drop()
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.load.plan.within(serveWithin))
	defer cancel()
	if err := w.endAll(endCtx); err != nil {
		w.load.history.Add(checker.Event{Kind: checker.Stuck, Text: fmt.Sprintf("the last transaction of %s could not be ended: %v", w.name, err)})
	}
}

// drop gives the client up. A transaction that is open is ended by the next client with the transactional id.
func (w *txnWriter) drop() {
	if w.client != nil {
		w.client.Close()
		w.client = nil
	}
}

func (w *txnWriter) connect() (err error) {
	if w.client != nil {
		return nil
	}
	w.client, err = kgo.NewClient(append(workload.ClientOptions(w.load.addrs), kgo.TransactionalID(w.name), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.ProduceRequestTimeout(answerWithin), kgo.TransactionTimeout(20*time.Second),
		kgo.WithContext(w.load.hard))...)
	return err
}

// transact writes one transaction to its end. After an error nobody knows how it ended, and the client is not to be used any more.
func (w *txnWriter) transact(ctx context.Context) error {
	if err := w.connect(); err != nil {
		return err
	}
	// Not ctx: what has begun is to be ended.
	stepCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txnWithin)
	defer cancel()
	if err := w.client.BeginTransaction(); err != nil {
		return err
	}
	txn := w.load.nextTxn.Add(1)
	failed := w.write(stepCtx, txn)
	if failed != nil || w.rng.IntN(4) == 0 {
		return errors.Join(failed, w.client.EndTransaction(stepCtx, kgo.TryAbort))
	}
	w.load.history.Add(checker.Event{Kind: checker.Committing, Client: w.name, Txn: txn})
	if err := w.client.EndTransaction(stepCtx, kgo.TryCommit); err != nil {
		return err
	}
	w.load.history.Add(checker.Event{Kind: checker.Committed, Client: w.name, Txn: txn})
	return nil
}

// write sends the records of a transaction, some of them after a pause, and waits for their answers.
func (w *txnWriter) write(ctx context.Context, txn uint64) error {
	failed := make(chan error, txnRecords)
	n := 1 + w.rng.IntN(txnRecords)
	for i := range n {
		partition, sent := w.rng.Int32N(w.load.plan.Partitions), time.Since(w.load.begun)
		v := w.load.next.Add(1)
		w.load.history.Add(checker.Event{Kind: checker.Sent, Client: w.name, Partition: partition, Value: v, Acks: workload.AcksAll, Ordered: true, Txn: txn})
		rec := &kgo.Record{Partition: partition, Value: workload.EncodeRecord(v, recordBytes)}
		w.client.Produce(ctx, rec, func(r *kgo.Record, err error) {
			w.load.answered(w.name, partition, v, r.Offset, sent, true, err)
			failed <- err
		})
		if i+1 < n && w.rng.IntN(4) == 0 {
			if err := pause(ctx, time.Duration(w.rng.Int64N(int64(txnEvery)))); err != nil {
				break
			}
		}
	}
	err := w.client.Flush(ctx)
	for len(failed) > 0 {
		err = errors.Join(err, <-failed)
	}
	return err
}

// endAll has the coordinator end what the writer's last client has left: it gives a new producer epoch only after that.
func (w *txnWriter) endAll(ctx context.Context) error {
	for {
		err := w.connect()
		if err == nil {
			initCtx, cancel := context.WithTimeout(ctx, initWithin)
			_, _, err = w.client.ProducerID(initCtx)
			cancel()
			w.drop()
		}
		if err == nil || pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}
