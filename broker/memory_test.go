package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func mustAcquire(t *testing.T, m *memory, n int) *frame {
	t.Helper()
	f, err := acquireWhole(t.Context(), m, n)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// acquireWhole takes memory as a frame of n bytes does that comes at once.
func acquireWhole(ctx context.Context, m *memory, n int) (*frame, error) {
	f, err := m.acquire(ctx, n)
	if err != nil {
		return nil, err
	}
	body, err := f.grow(n)
	if err != nil {
		f.release()
		return nil, err
	}
	f.complete(body)
	return f, nil
}

// A few frames that were announced long and have not come take next to nothing from the others.
func TestHalfSentFramesLeaveMemoryToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(256 << 20)
		var stalled []*frame
		for range 100 {
			f, err := m.acquire(t.Context(), 90<<20)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.grow(2 << 20); err != nil {
				t.Fatal(err)
			}
			stalled = append(stalled, f)
		}
		mustAcquire(t, m, 1<<20).release()
		for _, f := range stalled {
			f.release()
		}
		if m.used() != 0 || m.waiting() != 0 {
			t.Errorf("%d bytes used, %d waiting", m.used(), m.waiting())
		}
	})
}

// Frames that together need more than there is, each with a part of it, all come through; one sender has stopped for good.
func TestFramesInTheMiddleDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(8 << 20)
		stalled, err := m.acquire(t.Context(), 5<<20)
		if err != nil {
			t.Fatal(err)
		}
		const size = 3 << 20
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				f, err := m.acquire(t.Context(), size)
				if err != nil {
					t.Error(err)
					return
				}
				for n := 1 << 20; n <= size; n += 1 << 20 {
					time.Sleep(time.Millisecond) // of the bubble's clock: all frames are at the same point
					b, err := f.grow(n)
					if err != nil {
						t.Error(err)
						return
					}
					if n == size {
						f.complete(b)
					}
				}
				f.release()
			})
		}
		wg.Wait()
		if limit := m.large.limit; m.used() > limit+size || m.waiting() != 0 {
			t.Errorf("%d bytes used, %d waiting", m.used(), m.waiting())
		}
		stalled.release()
		if m.used() != 0 {
			t.Errorf("%d bytes used", m.used())
		}
	})
}

func TestMemoryServesWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(8 * 100 << 10)
		first := mustAcquire(t, m, 600<<10)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, n := range []int{500 << 10, 20 << 10, 30 << 10} { // the small ones would fit beside first
			wg.Go(func() {
				f := mustAcquire(t, m, n)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				f.release()
			})
			synctest.Wait()
		}
		if m.waiting() != 3 || m.used() != 600<<10+firstCharge {
			t.Fatalf("%d waiting, %d bytes used", m.waiting(), m.used())
		}
		first.release()
		wg.Wait()
		if len(order) != 3 || order[0] != 0 && m.used() != 0 {
			t.Errorf("order %v, %d bytes used", order, m.used())
		}
	})
}

func TestSmallRequestsPassLargeOnesThatWait(t *testing.T) {
	m := newMemory(1 << 20)
	large := mustAcquire(t, m, 800<<10)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := acquireWhole(ctx, m, 800<<10)
		failed <- err
	}()
	for range 100 { // one after another, as a client does that waits for answers
		mustAcquire(t, m, 1000).release()
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	large.release()
	if m.used() != 0 || m.waiting() != 0 {
		t.Errorf("%d bytes used, %d waiting", m.used(), m.waiting())
	}
}

func TestFrameLargerThanTheBoundComesInAlone(t *testing.T) {
	m := newMemory(128 << 10)
	f := mustAcquire(t, m, 1<<20)
	if m.used() != 1<<20 {
		t.Errorf("used %d", m.used())
	}
	f.release()
}

func TestCancelledWaiterLetsThoseBehindItIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(800 << 10)
		held := mustAcquire(t, m, 400<<10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := acquireWhole(ctx, m, 600<<10)
			done <- err
		}()
		synctest.Wait()
		got := make(chan *frame, 1)
		go func() { got <- mustAcquire(t, m, 100<<10) }()
		synctest.Wait()
		if m.waiting() != 2 {
			t.Fatalf("%d waiting", m.waiting())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		(<-got).release()
		held.release()
	})
}

func TestMemoryBalanceUnderLoad(t *testing.T) {
	m := newMemory(256 << 10)
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		wg.Go(func() {
			for range 500 {
				n := 1 + rng.IntN(300<<10)
				f, err := m.acquire(context.Background(), n)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := f.grow(n)
				if err != nil || len(b) != n {
					t.Errorf("grow: %d bytes, %v", len(b), err)
				}
				f.release()
			}
		})
	}
	wg.Wait()
	if m.used() != 0 || m.waiting() != 0 {
		t.Errorf("%d bytes used, %d waiting", m.used(), m.waiting())
	}
}

func TestFrameReleasedTwicePanics(t *testing.T) {
	f := mustAcquire(t, newMemory(1<<20), 10)
	f.release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f.release()
}

func TestBufferSizes(t *testing.T) {
	for _, tc := range []struct{ n, want int }{
		{0, 512}, {512, 512}, {513, 640}, {640, 640}, {641, 768}, {1000, 1024}, {1024, 1024}, {1025, 1280}, {1 << 20, 1 << 20}, {1<<20 + 70, 1<<20 + 1<<18},
	} {
		if got := bufferSize(tc.n); got != tc.want {
			t.Errorf("%d: %d, want %d", tc.n, got, tc.want)
		}
	}
}

func TestBuffersAreReusedWithinTheBound(t *testing.T) {
	var p bufferPool
	b := p.take(1000)
	p.keep(b)
	if again := p.take(900); &again[0] != &b[0] {
		t.Error("not reused")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var out [][]byte
	for range 2000 {
		n := 1 + rng.IntN(2<<20)
		if b := p.take(n); len(b) < n {
			t.Fatalf("%d bytes for %d", len(b), n)
		} else {
			out = append(out, b)
		}
		if len(out) > 20 {
			p.keep(out[0])
			out = out[1:]
		}
		held := 0
		for size, list := range p.free {
			held += size * len(list)
		}
		if held != p.held || held > maxFreeBytes {
			t.Fatalf("%d bytes free, counted %d", held, p.held)
		}
	}
	p.keep(make([]byte, maxFreeBytes))
	p.keep(nil)
}
