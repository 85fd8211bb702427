package main

import (
	"testing"
	"time"
)

func TestBucketsAreOrderedAndNarrow(t *testing.T) {
	previous := -1
	for d := time.Duration(0); d < time.Hour; d += d/40 + time.Microsecond {
		i := bucket(d)
		if i < previous {
			t.Fatalf("%v is in bucket %d behind %d", d, i, previous)
		}
		previous = i
		if lo, hi := lower(i), lower(i+1); d < lo || d >= hi || float64(hi-lo) > float64(lo)*0.07+float64(time.Microsecond) {
			t.Fatalf("%v is in bucket %d from %v to %v", d, i, lo, hi)
		}
	}
}

func TestQuantile(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := h.quantile(q); got < want || got > want+want/10 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
}
