package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets of at most 6 % width. It is safe for concurrent use.
type histogram struct {
	counts [64 * subBuckets]atomic.Int64
}

const (
	subBuckets = 16
	subBits    = 4
)

// bucket orders durations: below 16 µs one bucket per microsecond, then 16 to each doubling.
func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	if us < subBuckets {
		return int(us)
	}
	shift := bits.Len64(us) - subBits - 1
	return (shift+1)*subBuckets + int(us>>shift) - subBuckets
}

// lower is the smallest duration of the bucket.
func lower(i int) time.Duration {
	if i < subBuckets {
		return time.Duration(i) * time.Microsecond
	}
	shift := i/subBuckets - 1
	return time.Duration(uint64(subBuckets+i%subBuckets)<<shift) * time.Microsecond
}

func (h *histogram) add(d time.Duration) { h.counts[bucket(d)].Add(1) }

// quantile is the duration below which the part q of all lies; 0 when there are none.
func (h *histogram) quantile(q float64) time.Duration {
	var total int64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	left := int64(q * float64(total))
	for i := range h.counts {
		if left -= h.counts[i].Load(); left < 0 {
			return lower(i + 1)
		}
	}
	return 0
}
