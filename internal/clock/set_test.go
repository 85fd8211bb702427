package clock

import (
	"testing"
	"time"
)

// TestSetMovesTheWallClockAlone: by hours in both directions, and what has passed between two times is what it was.
func TestSetMovesTheWallClockAlone(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Hour, -3 * time.Hour, 400 * 24 * time.Hour, time.Second, 0} {
		now := Now()
		set := Set(now, by)
		if d := set.Sub(now); d != 0 {
			t.Errorf("by %v: %v lie between the two", by, d)
		}
		if wall := set.UnixNano() - now.UnixNano(); wall != by.Nanoseconds() {
			t.Errorf("by %v: the wall clock moved by %v", by, time.Duration(wall))
		}
		if gone := time.Since(set); gone < 0 || gone > time.Minute {
			t.Errorf("by %v: %v have passed since", by, gone)
		}
		if bare := Set(now.Round(0), by); bare.UnixNano() != set.UnixNano() {
			t.Errorf("by %v, without a monotonic reading: %v, want %v", by, bare, set)
		}
	}
}
