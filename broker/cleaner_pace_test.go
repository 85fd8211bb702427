package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// paceWork has a pace wait for work of 40 µs at a time, for a minute of the test's clock, and tells the share of the time that was work, and the longest
// piece without a rest. others, unless nil, is called before each look at what others do.
func paceWork(t *testing.T, bytesPerSecond float64, others func() int64) (share float64, longest time.Duration) {
	t.Helper()
	const piece = 40 * time.Microsecond
	pace := newCleanerPace(t.Context(), others, func() cleanerSettings { return cleanerSettings{Threads: 1, BytesPerSecond: bytesPerSecond} })
	var worked, now time.Duration
	began := time.Now()
	for time.Since(began) < time.Minute {
		time.Sleep(piece)
		worked, now = worked+piece, now+piece
		before := time.Now()
		if err := pace.wait(4 << 10); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, now)
		if time.Since(before) > 0 {
			now = 0
		}
	}
	return worked.Seconds() / time.Since(began).Seconds(), longest
}

func TestTheCleanerGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		uses := int64(0)
		busy, longest := paceWork(t, 1e12, func() int64 { uses++; return uses })
		if busy < 0.19 || busy > 0.21 || longest > cleanerGo+100*time.Microsecond {
			t.Errorf("beside others it works for %.3f of the time, for %v without a rest", busy, longest)
		}
		alone, longest := paceWork(t, 1e12, func() int64 { return uses })
		if alone < 0.75 || alone > 0.85 || longest > cleanerIdleGo+100*time.Microsecond {
			t.Errorf("alone it works for %.3f of the time, for %v without a rest", alone, longest)
		}
		began := time.Now()
		now, _ := paceWork(t, 1e12, func() int64 { // somebody comes after half a minute
			if time.Since(began) > 30*time.Second {
				uses++
			}
			return uses
		})
		if now < 0.45 || now > 0.55 {
			t.Errorf("with company for half of the time it works for %.3f of it", now)
		}
		limited, _ := paceWork(t, 1<<20, func() int64 { return uses }) // 4 KiB for 40 µs of work are 100 times as much
		if limited < 0.009 || limited > 0.0105 {
			t.Errorf("with a limit it works for %.4f of the time", limited)
		}
	})
}

func TestTheCleanersRestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pace := newCleanerPace(ctx, func() int64 { return 0 }, func() cleanerSettings { return cleanerSettings{Threads: 1, BytesPerSecond: 1} })
		time.Sleep(cleanerIdleGo)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if err := pace.wait(1 << 20); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// log.cleaner.threads=0 stops a pass where it is, and another number has it go on.
func TestTheCleanerStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		pace := newCleanerPace(t.Context(), func() int64 { return 0 }, func() cleanerSettings {
			s := cleanerSettings{BytesPerSecond: 1e12}
			if time.Since(began) > time.Minute {
				s.Threads = 1
			}
			return s
		})
		time.Sleep(cleanerIdleGo)
		if err := pace.wait(1); err != nil || time.Since(began) < time.Minute || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
