package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

func mustAcquire(t *testing.T, m *memory, n int) *frame {
	t.Helper()
	f, err := m.acquire(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return f
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
		if m.waiting() != 3 || m.used() != 600<<10 {
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
		_, err := m.acquire(ctx, 800<<10)
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
			_, err := m.acquire(ctx, 600<<10)
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
