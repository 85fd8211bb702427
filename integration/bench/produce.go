package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sampleEvery is how many records lie between two whose latency is measured.
const sampleEvery = 16

// produceCase is one load.
type produceCase struct {
	Nodes       int
	Flush       string
	Acks        string // "1" or "all"
	RecordBytes int
	Producers   int
	Rate        int   // records per second of each producer; 0: as many as the client takes
	BatchBytes  int32 // of a batch at most; 0: 1 MiB
	Plain       bool  // without idempotence
}

func (c produceCase) String() string {
	s := fmt.Sprintf("produce %d node(s), flush %s, acks %s, %d B, %d producer(s)", c.Nodes, c.Flush, c.Acks, c.RecordBytes, c.Producers)
	if c.Rate > 0 {
		s += fmt.Sprintf(", paced at %d/s", c.Rate)
	}
	if c.BatchBytes > 0 {
		s += fmt.Sprintf(", batches of %d KiB", c.BatchBytes>>10)
	}
	return s
}

// produced is what one run of a case gave.
type produced struct {
	Records, Bytes int64
	Elapsed        time.Duration
	P50, P99, P999 time.Duration
	CPUPerGB       float64 // seconds of all broker processes
	WrittenPerByte float64 // bytes to storage of all nodes for each byte acknowledged and replica
	PeakRSS        int64   // of the largest node
}

func (p produced) mbPerSecond() float64      { return float64(p.Bytes) / 1e6 / p.Elapsed.Seconds() }
func (p produced) recordsPerSecond() float64 { return float64(p.Records) / p.Elapsed.Seconds() }

// load runs the producers of the case for a while and waits until all is answered.
func (c produceCase) load(ctx context.Context, bootstrap []string, topic string, length time.Duration) (produced, error) {
	var out produced
	var h histogram
	var records, failed atomic.Int64
	value := make([]byte, c.RecordBytes) // random: a compressible one would favour file systems that compress
	if _, err := rand.Read(value); err != nil {
		return out, err
	}
	clients, err := c.clients(bootstrap, topic)
	if err != nil {
		return out, err
	}
	begun := time.Now()
	end := begun.Add(length)
	var wg sync.WaitGroup
	for _, cl := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				var now time.Time
				if n%sampleEvery == 0 {
					now = c.pace(begun, n)
					if now.After(end) || ctx.Err() != nil {
						return
					}
				}
				cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
					if err != nil {
						failed.Add(1)
						return
					}
					records.Add(1)
					if !now.IsZero() {
						h.add(time.Since(now))
					}
				})
			}
		})
	}
	wg.Wait()
	var errs []error
	for _, cl := range clients {
		errs = append(errs, cl.Flush(ctx))
	}
	out.Elapsed = time.Since(begun)
	for _, cl := range clients {
		cl.Close()
	}
	if n := failed.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%s: %d records failed", c, n))
	}
	out.Records = records.Load()
	out.Bytes = out.Records * int64(c.RecordBytes)
	out.P50, out.P99, out.P999 = h.quantile(0.5), h.quantile(0.99), h.quantile(0.999)
	return out, errors.Join(errs...)
}

// pace waits until the record is due and returns when that was: the latency of one that was sent late counts from there.
func (c produceCase) pace(begun time.Time, n int) time.Time {
	if c.Rate == 0 {
		return time.Now()
	}
	due := begun.Add(time.Duration(float64(n) / float64(c.Rate) * float64(time.Second)))
	if d := time.Until(due); d > 0 {
		<-time.After(d)
	}
	return due
}

// clients makes one client per producer. Together they buffer at most 64 MiB, and at least 100 records each.
func (c produceCase) clients(bootstrap []string, topic string) ([]*kgo.Client, error) {
	var list []*kgo.Client
	buffered := min(50_000, max(100, 64<<20/c.RecordBytes/c.Producers))
	for range c.Producers {
		opts := []kgo.Opt{
			kgo.SeedBrokers(bootstrap...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(cmp.Or(c.BatchBytes, 1<<20)), kgo.ProducerLinger(5 * time.Millisecond),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(buffered),
		}
		if c.Acks == "1" {
			opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
		}
		if c.Acks == "1" || c.Plain {
			opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			for _, open := range list {
				open.Close()
			}
			return nil, err
		}
		list = append(list, cl)
	}
	return list, nil
}
