package broker

import (
	"testing"
	"time"
)

// spareWorld is a broker whose clients produce as they can beside a replica that takes all it is given.
type spareWorld struct {
	s   spare
	now time.Time
}

// second is one in which catching up takes what it may, and clients do as react says; it returns what was taken, bytes a second.
func (w *spareWorld) second(react func(given float64) fare) float64 {
	given := w.s.allowed(true)
	f := react(given)
	w.s.given += int64(given)
	w.s.produced.Add(int64(f.bytes))
	for range 100 {
		w.s.answered(f.wait)
	}
	w.now = w.now.Add(time.Second)
	w.s.measure(w.now)
	return given
}

// mean runs so many seconds and returns what was taken in the later half of them, and what clients produced then.
func (w *spareWorld) mean(seconds int, react func(given float64) fare) (given, clients float64) {
	for i := range seconds {
		g := w.second(func(g float64) fare {
			f := react(g)
			if i >= seconds/2 {
				clients += f.bytes
			}
			return f
		})
		if i >= seconds/2 {
			given += g
		}
	}
	return given / float64(seconds-seconds/2), clients / float64(seconds-seconds/2)
}

func newSpareWorld() *spareWorld {
	w := &spareWorld{now: time.Unix(1000, 0)}
	w.s.measure(w.now)
	return w
}

func TestCatchingUpTakesWhatClientsDoNotFeel(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name      string
		react     func(given float64) fare
		low, high float64 // what catching up gets, MiB/s
		least     float64 // what clients keep, MiB/s
	}{
		{"clients feel nothing", func(float64) fare { return fare{10 * mib, 3 * time.Millisecond} }, 500, 1024, 10},
		{"answers take twice as long above 40 MiB/s", func(g float64) fare {
			wait := 6 * time.Millisecond
			if g > 40*mib {
				wait *= 2
			}
			return fare{10 * mib, wait}
		}, 20, 40, 10},
		{"clients produce less above 60 MiB/s", func(g float64) fare {
			if g > 60*mib {
				return fare{5 * mib, 6 * time.Millisecond}
			}
			return fare{10 * mib, 6 * time.Millisecond}
		}, 30, 60, 8},
		{"clients take all that the disk gives", func(g float64) fare {
			bytes := max(300*mib-2*g, 1)
			return fare{bytes, time.Duration(5e11 * mib / bytes)}
		}, 8, 30, 240},
		{"nothing is left: the least", func(g float64) fare {
			if g > 16*mib {
				return fare{1 * mib, time.Second}
			}
			return fare{10 * mib, 5 * time.Millisecond}
		}, 4, 16, 7},
	} {
		given, clients := newSpareWorld().mean(160, tc.react)
		if given < tc.low*mib || given > tc.high*mib || clients < tc.least*mib {
			t.Errorf("%s: catching up gets %.1f MiB/s, want %v to %v; clients %.1f, want %v", tc.name, given/mib, tc.low, tc.high, clients/mib, tc.least)
		}
	}
}

// What clients did an hour ago says nothing about how they are now.
func TestCatchingUpBeginsAtTheLeastRate(t *testing.T) {
	w := newSpareWorld()
	easy := func(float64) fare { return fare{1 << 20, time.Millisecond} }
	w.mean(30, easy)
	if got := w.s.allowed(true); got < 20*catchUpMin && w.s.number%spareCycle != 0 {
		t.Fatalf("after 30 s: %.0f bytes a second", got)
	}
	w.now = w.now.Add(time.Hour)
	w.s.measure(w.now)
	if got := w.s.allowed(true); got != catchUpMin {
		t.Errorf("after an hour it begins with %.0f bytes a second", got)
	}
}
