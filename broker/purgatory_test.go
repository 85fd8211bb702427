package broker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/ids"
)

// parkedRecorder counts what it hears.
type parkedRecorder struct {
	alarm
	watch
	mu       sync.Mutex
	outlives bool
	reached  int
	lost     int
	expiry   []time.Time
}

func (p *parkedRecorder) outlivesReign() bool { return p.outlives }

func (p *parkedRecorder) woken(_ *watch, cause wakeCause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cause == wakeReached {
		p.reached++
	} else {
		p.lost++
	}
}

func (p *parkedRecorder) expired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expiry = append(p.expiry, time.Now())
}

func (p *parkedRecorder) heard() (reached, lost, expired int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached, p.lost, len(p.expiry)
}

func TestPurgatoryExpiresEachAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPurgatory(purgatoryConfig{})
		defer p.close()
		start := time.Now()
		waits := []time.Duration{30 * time.Second, 10 * time.Millisecond, 5 * time.Second, 10 * time.Millisecond, 0}
		ops := make([]*parkedRecorder, len(waits))
		for i, w := range waits {
			ops[i] = &parkedRecorder{}
			if !p.enter(&ops[i].alarm, ops[i], start.Add(w)) {
				t.Fatal("refused")
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, w := range waits {
			if len(ops[i].expiry) != 1 || ops[i].expiry[0].Sub(start) != w {
				t.Errorf("operation with deadline %v expired %v after the start", w, ops[i].expiry)
			}
		}
		if n := p.waiting(); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

func TestPurgatoryForgetsWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPurgatory(purgatoryConfig{})
		defer p.close()
		stays, leaves := &parkedRecorder{}, &parkedRecorder{}
		p.enter(&leaves.alarm, leaves, time.Now().Add(time.Second))
		p.enter(&stays.alarm, stays, time.Now().Add(2*time.Second))
		p.leave(&leaves.alarm)
		p.leave(&leaves.alarm)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if _, _, n := leaves.heard(); n != 0 {
			t.Error("expired after it left")
		}
		if _, _, n := stays.heard(); n != 1 {
			t.Errorf("expired %d times", n)
		}
	})
}

func TestPurgatoryIsBounded(t *testing.T) {
	p := newPurgatory(purgatoryConfig{MaxWaiting: 2})
	defer p.close()
	far := time.Now().Add(time.Hour)
	ops := [3]parkedRecorder{}
	if !p.enter(&ops[0].alarm, &ops[0], far) || !p.enter(&ops[1].alarm, &ops[1], far) {
		t.Fatal("refused below the bound")
	}
	if p.enter(&ops[2].alarm, &ops[2], far) {
		t.Fatal("taken above the bound")
	}
	p.leave(&ops[0].alarm)
	if !p.enter(&ops[2].alarm, &ops[2], far) {
		t.Fatal("refused after one had left")
	}
}

func TestPurgatoryCloseExpiresAllAndRunsQueuedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPurgatory(purgatoryConfig{Workers: 1})
		op := &parkedRecorder{}
		p.enter(&op.alarm, op, time.Now().Add(time.Hour))
		done := 0
		for range 3 {
			p.submit(func() { done++ })
		}
		p.close()
		if _, _, n := op.heard(); n != 1 {
			t.Errorf("expired %d times", n)
		}
		if done != 3 {
			t.Errorf("%d of 3 jobs ran", done)
		}
		if p.enter(&op.alarm, op, time.Now().Add(time.Hour)) {
			t.Error("taken after close")
		}
	})
}

func TestWatchListWakesByThreshold(t *testing.T) {
	var l watchList
	r := &reign{}
	l.open(nil, r, 10)
	ops := make([]*parkedRecorder, 5)
	for i, threshold := range []ids.Offset{15, 12, 20, 11, 15} {
		ops[i] = &parkedRecorder{}
		ops[i].watch.op, ops[i].watch.threshold = ops[i], threshold
		if got := l.add(&ops[i].watch, r); got != watchParked {
			t.Fatalf("threshold %d: %v", threshold, got)
		}
	}
	for _, step := range []struct {
		hw   ids.Offset
		want [5]int
	}{{10, [5]int{}}, {14, [5]int{0, 1, 0, 1, 0}}, {15, [5]int{1, 1, 0, 1, 1}}, {15, [5]int{1, 1, 0, 1, 1}}, {99, [5]int{1, 1, 1, 1, 1}}} {
		l.reach(step.hw)
		for i, want := range step.want {
			if got, _, _ := ops[i].heard(); got != want {
				t.Errorf("high watermark %d: operation %d woken %d times, want %d", step.hw, i, got, want)
			}
		}
	}
	if l.len() != 0 {
		t.Errorf("%d watches left", l.len())
	}
}

func TestWatchListBelongsToOneReign(t *testing.T) {
	var l watchList
	first, second := &reign{}, &reign{}
	op, late := &parkedRecorder{}, &parkedRecorder{}
	op.watch.op, op.threshold = op, 5
	late.watch.op, late.threshold = late, 5
	if got := l.add(&op.watch, first); got != watchClosed {
		t.Fatalf("before any reign: %v", got)
	}
	l.open(nil, first, 0)
	l.add(&op.watch, first)
	lost, _ := l.open(nil, second, 3)
	wakeAll(lost, wakeLost)
	if _, n, _ := op.heard(); n != 1 {
		t.Fatalf("lost %d times when the next reign began", n)
	}
	if got := l.add(&late.watch, first); got != watchClosed {
		t.Fatalf("a reign that is over: %v", got)
	}
	l.close(first) // late: must not end the second reign
	if got := l.add(&late.watch, second); got != watchParked {
		t.Fatalf("second reign: %v", got)
	}
	l.close(second)
	if _, n, _ := late.heard(); n != 1 {
		t.Fatalf("lost %d times at the end", n)
	}
	reached := &parkedRecorder{}
	reached.watch.op, reached.threshold = reached, 3
	third := &reign{}
	l.open(nil, third, 2)
	if got := l.add(&reached.watch, third); got != watchReached {
		t.Fatalf("threshold that was reached before: %v", got)
	}
}

func TestWatchListGoesOnInTheNextGeneration(t *testing.T) {
	var l watchList
	old, next := &reign{}, &reign{}
	l.open(nil, old, 0)
	ops := [4]parkedRecorder{{outlives: true}, {outlives: true}, {}, {outlives: true}}
	for i, threshold := range []ids.Offset{5, 9, 5, 12} {
		ops[i].watch.op, ops[i].threshold = &ops[i], threshold
		l.add(&ops[i].watch, old)
	}
	want := func(when string, i, reached, lost int) {
		t.Helper()
		if r, n, _ := ops[i].heard(); r != reached || n != lost {
			t.Errorf("%s: operation %d reached %d times, lost %d times", when, i, r, n)
		}
	}
	l.hold(old)
	l.close(old)
	l.reach(99) // of the generation that is over
	want("held", 0, 0, 0)
	want("held", 1, 0, 0)
	want("held", 2, 0, 1)
	heir := &partition{}
	lost, reached := l.open(heir, next, 6)
	if len(lost) != 0 || len(reached) != 1 || reached[0] != &ops[0].watch {
		t.Fatalf("lost %v, reached %v", lost, reached)
	}
	l.reach(10)
	want("next reign", 1, 1, 0)
	if w := &ops[1].watch; w.heir != heir || w.heirReign != next {
		t.Error("the watch does not know who goes on")
	}
	l.hold(next)
	l.abandon()
	want("abandoned", 3, 0, 1)
	if l.len() != 0 {
		t.Errorf("%d watches left", l.len())
	}
}

func TestWatchListRemove(t *testing.T) {
	var l watchList
	r := &reign{}
	l.open(nil, r, 0)
	var ops [20]parkedRecorder
	for i := range ops {
		ops[i].watch.op, ops[i].threshold = &ops[i], ids.Offset(i*7%20+1)
		l.add(&ops[i].watch, r)
	}
	for i := 0; i < len(ops); i += 2 {
		l.remove(&ops[i].watch)
		l.remove(&ops[i].watch)
	}
	l.reach(100)
	for i := range ops {
		if got, _, _ := ops[i].heard(); got != i%2 {
			t.Errorf("operation %d woken %d times", i, got)
		}
	}
}
