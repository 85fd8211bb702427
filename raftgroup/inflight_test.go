package raftgroup

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
)

func always() bool { return true }

func newInflight(limit, total int64) *inflight {
	return &inflight{limit: limit, shared: newBudget(total)}
}

func reserveN(t *testing.T, f *inflight, term ids.Term, from, to uint64, n int64) {
	t.Helper()
	for o := from; o <= to; o++ {
		if _, err := f.reserve(context.Background(), position{term, o}, n, always); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAppliedEntriesSettleEarlierOnes(t *testing.T) {
	for name, tc := range map[string]struct {
		at   position
		left int64
	}{
		"one":                    {position{5, 1}, 9},
		"several":                {position{5, 4}, 6},
		"a gap: dropped between": {position{5, 20}, 0},
		"of an earlier term":     {position{4, 20}, 10},
		"of a later leader":      {position{6, 1}, 0},
	} {
		f := newInflight(1000, 1000)
		reserveN(t, f, 5, 1, 10, 1)
		f.settle(tc.at)
		if got := f.inUse(); got != tc.left {
			t.Errorf("%s: %d left, want %d", name, got, tc.left)
		}
		if got := f.shared.inUse(); got != tc.left {
			t.Errorf("%s: %d left of the shared budget, want %d", name, got, tc.left)
		}
		f.close()
		if got := f.shared.inUse(); got != 0 {
			t.Errorf("%s: %d left after close", name, got)
		}
	}
}

func TestUnsavedProposalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(1<<30, 1<<30)
		reserveN(t, f, 5, 1, maxUnsaved, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := f.reserve(ctx, position{5, maxUnsaved + 1}, 1, always); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		f.markSaved([]engine.SavedEntry{{HeaderTerm: 5, Ordinal: 3}})
		reserveN(t, f, 5, maxUnsaved+1, maxUnsaved+3, 1)
		if got := f.inUse(); got != maxUnsaved+3 {
			t.Fatalf("%d in flight: saved is not applied", got)
		}
		f.close()
	})
}

func TestReservationEndsWithLeadershipAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(10, 10)
		reserveN(t, f, 5, 1, 1, 10)
		var mu sync.Mutex
		leads := true
		got := make(chan error)
		go func() {
			_, err := f.reserve(context.Background(), position{5, 2}, 10, func() bool { mu.Lock(); defer mu.Unlock(); return leads })
			got <- err
		}()
		synctest.Wait()
		mu.Lock()
		leads = false
		mu.Unlock()
		if err := <-got; !errors.Is(err, ErrNotLeader) {
			t.Fatalf("after the loss of leadership: %v", err)
		}
		go func() {
			_, err := f.reserve(context.Background(), position{5, 2}, 10, always)
			got <- err
		}()
		synctest.Wait()
		f.close()
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Fatalf("after close: %v", err)
		}
	})
}

func TestCloseWhileWaitingForTheSharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(10, 10)
		if err := f.shared.acquire(context.Background(), 5); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			_, err := f.reserve(context.Background(), position{5, 1}, 10, always)
			got <- err
		}()
		synctest.Wait()
		f.close()
		f.shared.release(5)
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v", err)
		}
		if n := f.shared.inUse(); n != 0 {
			t.Fatalf("%d bytes leak", n)
		}
	})
}

func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		take := func(n int64) chan error {
			c := make(chan error, 1)
			go func() { c <- b.acquire(context.Background(), n) }()
			synctest.Wait()
			return c
		}
		<-take(8)
		large := take(9)
		small := take(2) // would fit, but came later
		select {
		case <-small:
			t.Fatal("a small request overtook a large one")
		default:
		}
		b.release(8)
		<-large
		synctest.Wait()
		select {
		case <-small:
			t.Fatal("11 of 10 taken")
		default:
		}
		b.release(9)
		<-small
		b.release(2)

		ctx, cancel := context.WithCancel(context.Background())
		<-take(10)
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- b.acquire(ctx, 10) }()
		synctest.Wait()
		behind := take(10)
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		b.release(10)
		if err := <-behind; err != nil {
			t.Fatal(err)
		}
		b.release(10)
		if n := b.inUse(); n != 0 {
			t.Fatalf("%d in use", n)
		}
	})
}
