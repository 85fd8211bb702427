package main

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sampleEvery is how many records lie between two whose latency is measured; a paced load has all measured.
const sampleEvery = 16

// produceCell is one load of producers.
type produceCell struct {
	bytes     int
	producers int
	acks      string        // cairn, Kafka: 1 or all
	linger    time.Duration // cairn, Kafka
	sync      bool          // each producer waits for the answer before it sends the next
	rate      int           // records per second of each producer; 0: as many as the client takes
}

// tally is what a load gave.
type tally struct {
	records, bytes int64
	elapsed        time.Duration
	latency        *latencies
}

func (t *tally) mbPerSecond() float64 { return float64(t.bytes) / 1e6 / t.elapsed.Seconds() }

// latencies is safe for concurrent use.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // guarded by mu; microseconds
}

const longestLatency = 10 * time.Minute

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, longestLatency.Microseconds(), 3)}
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(max(1, min(d, longestLatency).Microseconds())) // within its bounds
}

// quantile is in milliseconds.
func (l *latencies) quantile(percent float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.h.ValueAtQuantile(percent)) / 1000
}

// stamped is a value that begins with the time when it was to be sent; the rest is random, so that nothing compresses it.
func stamped(pattern []byte, at time.Time) []byte {
	value := append([]byte(nil), pattern...)
	binary.BigEndian.PutUint64(value, uint64(at.UnixNano()))
	return value
}

func age(value []byte) time.Duration {
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(value))))
}

// pace waits until record n is due and returns when that was, or now without a rate: what is late counts from when it was due.
func (p produceCell) pace(begun time.Time, n int) time.Time {
	if p.rate == 0 {
		return time.Now()
	}
	due := begun.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	if d := time.Until(due); d > 0 {
		<-time.After(d)
	}
	return due
}

// sampled says whether the latency of record n is measured.
func (p produceCell) sampled(n int) bool { return p.rate > 0 || n%sampleEvery == 0 }
