package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// wireLoad is one load of producers.
type wireLoad struct {
	cell    produceCell
	length  time.Duration
	begun   time.Time
	pattern []byte
	tally   *tally

	records, failed atomic.Int64
	first           atomic.Pointer[error]
}

func (c *wireClient) produce(ctx context.Context, topic string, p produceCell, length time.Duration) (*tally, error) {
	clients, err := c.producers(topic, p)
	if err != nil {
		return nil, err
	}
	l := &wireLoad{cell: p, length: length, pattern: make([]byte, p.bytes), tally: &tally{latency: newLatencies()}}
	if _, err := rand.Read(l.pattern); err != nil {
		return nil, err
	}
	l.begun = time.Now()
	var running sync.WaitGroup
	for _, cl := range clients {
		running.Go(func() {
			if p.sync {
				l.one(ctx, cl)
			} else {
				l.many(ctx, cl)
			}
		})
	}
	running.Wait()
	var errs []error
	for _, cl := range clients {
		errs = append(errs, cl.Flush(ctx))
	}
	l.tally.elapsed = time.Since(l.begun)
	for _, cl := range clients {
		cl.Close()
	}
	l.tally.records = l.records.Load()
	l.tally.bytes = l.tally.records * int64(p.bytes)
	if n := l.failed.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%d records failed, the first with: %w", n, *l.first.Load()))
	}
	return l.tally, errors.Join(errs...)
}

// answered counts a record; its latency since at, if that is set.
func (l *wireLoad) answered(at time.Time, err error) {
	switch {
	case err != nil:
		l.failed.Add(1)
		l.first.CompareAndSwap(nil, &err)
		return
	case !at.IsZero():
		l.tally.latency.add(time.Since(at))
	}
	l.records.Add(1)
}

// one has one record unanswered at a time.
func (l *wireLoad) one(ctx context.Context, cl *kgo.Client) {
	for now := l.begun; now.Sub(l.begun) <= l.length && ctx.Err() == nil && l.failed.Load() == 0; now = time.Now() {
		l.answered(now, cl.ProduceSync(ctx, &kgo.Record{Value: stamped(l.pattern, now)}).FirstErr())
	}
}

// many has as many unanswered as the client buffers.
func (l *wireLoad) many(ctx context.Context, cl *kgo.Client) {
	now := l.begun
	for n := 0; ; n++ {
		var measured time.Time
		if l.cell.sampled(n) {
			if now = l.cell.pace(l.begun, n); now.Sub(l.begun) > l.length || ctx.Err() != nil {
				return
			}
			measured = now
		}
		cl.Produce(ctx, &kgo.Record{Value: stamped(l.pattern, now)}, func(_ *kgo.Record, err error) { l.answered(measured, err) })
	}
}
