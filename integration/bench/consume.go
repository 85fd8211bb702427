package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumed is what one run of a consumer gave.
type consumed struct {
	Records, Bytes int64
	Elapsed        time.Duration
	CPUPerGB       float64
	PeakRSS        int64
	P50, P99       time.Duration // tail only: from the record's timestamp to its arrival
}

func (c consumed) mbPerSecond() float64      { return float64(c.Bytes) / 1e6 / c.Elapsed.Seconds() }
func (c consumed) recordsPerSecond() float64 { return float64(c.Records) / c.Elapsed.Seconds() }

// drain reads so many records of all partitions from the beginning.
func drain(ctx context.Context, bootstrap []string, topic string, records int64) (consumed, error) {
	var out consumed
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(1<<20))
	if err != nil {
		return out, err
	}
	defer cl.Close()
	begun := time.Now()
	for out.Records < records {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return out, fmt.Errorf("after %d of %d records: %w", out.Records, records, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out.Records++
			out.Bytes += int64(len(r.Value))
		})
	}
	out.Elapsed = time.Since(begun)
	return out, nil
}

// follow reads at the end of the topic until ctx ends, and measures how old records are when they arrive.
func follow(ctx context.Context, bootstrap []string, topic string, ready chan<- struct{}) (consumed, error) {
	var out consumed
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		close(ready)
		return out, err
	}
	defer cl.Close()
	close(ready)
	var h histogram
	begun := time.Now()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return out, err
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			out.Records++
			out.Bytes += int64(len(r.Value))
			h.add(now.Sub(r.Timestamp))
		})
	}
	out.Elapsed = time.Since(begun)
	out.P50, out.P99 = h.quantile(0.5), h.quantile(0.99)
	return out, nil
}
