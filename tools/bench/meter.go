package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are counted in microseconds up to ten minutes, to three digits.
const (
	latencyMax    = 10 * time.Minute
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, latencyMax.Microseconds(), latencyDigits)
}

// meter counts one worker's acknowledged records since the last window was taken.
type meter struct {
	warmup int64 // the first so many records of the worker do not count for the steady state

	mu      sync.Mutex
	window  *hdrhistogram.Histogram // guarded by mu
	bytes   int64                   // guarded by mu; of values, in the window
	steady  *hdrhistogram.Histogram // guarded by mu; since the warm-up, nil without one
	steadyB int64                   // guarded by mu
	first   time.Duration           // guarded by mu; when the steady state began, by the run's clock; negative: not yet
}

func newMeter(warmup int64) *meter {
	m := &meter{warmup: warmup, window: newHistogram(), first: -1}
	if warmup > 0 {
		m.steady = newHistogram()
	}
	return m
}

// add counts record number index (from 0), sent at sent and acknowledged at now, both by the run's clock, with size bytes.
func (m *meter) add(index int64, sent, now time.Duration, size int) {
	us := min(max((now-sent).Microseconds(), 1), latencyMax.Microseconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.window.RecordValue(us) // in range
	m.bytes += int64(size)
	if m.steady == nil || index < m.warmup {
		return
	}
	if m.first < 0 || sent < m.first {
		m.first = sent
	}
	_ = m.steady.RecordValue(us) // in range
	m.steadyB += int64(size)
}

// take adds the window to into, and empties it.
func (m *meter) take(into *tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	into.merge(m.window, m.bytes)
	m.window.Reset()
	m.bytes = 0
}

// takeSteady adds what was counted since the warm-up; began is the earliest of the meters' beginnings so far.
func (m *meter) takeSteady(into *tally, began *time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steady == nil || m.first < 0 {
		return
	}
	into.merge(m.steady, m.steadyB)
	if *began < 0 || m.first < *began {
		*began = m.first
	}
}

// tally is a sum over meters.
type tally struct {
	latencies *hdrhistogram.Histogram
	bytes     int64
}

func newTally() *tally { return &tally{latencies: newHistogram()} }

func (t *tally) merge(h *hdrhistogram.Histogram, bytes int64) {
	t.latencies.Merge(h)
	t.bytes += bytes
}

// Window is what was acknowledged in a span of time; its JSON form is a line of the time line. Latencies are in milliseconds, rates per second, MB is
// 2^20 bytes.
type Window struct {
	Second  float64 `json:"second"` // end of the window, since the start
	Records int64   `json:"records"`
	Rate    float64 `json:"recordsPerSecond"`
	MBRate  float64 `json:"mbPerSecond"`
	Average float64 `json:"averageMs"`
	P50     float64 `json:"p50Ms"`
	P95     float64 `json:"p95Ms"`
	P99     float64 `json:"p99Ms"`
	P999    float64 `json:"p999Ms"`
	P9999   float64 `json:"p9999Ms"`
	Max     float64 `json:"maxMs"`
}

// window sums up what was tallied in (from, to].
func (t *tally) window(from, to time.Duration) Window {
	h := t.latencies
	w := Window{Second: to.Seconds(), Records: h.TotalCount()}
	if w.Records == 0 {
		return w
	}
	if span := (to - from).Seconds(); span > 0 {
		w.Rate = float64(w.Records) / span
		w.MBRate = float64(t.bytes) / (1 << 20) / span
	}
	ms := func(percentile float64) float64 { return float64(h.ValueAtPercentile(percentile)) / 1000 }
	w.Average, w.Max = h.Mean()/1000, float64(h.Max())/1000
	w.P50, w.P95, w.P99, w.P999, w.P9999 = ms(50), ms(95), ms(99), ms(99.9), ms(99.99)
	return w
}
