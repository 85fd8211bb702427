package raftgroup

import (
	"context"
	"sync"
)

// budget bounds the bytes that all groups together have in flight. Waiters are served in order of arrival.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64           // guarded by mu
	waiters []*budgetWaiter // guarded by mu
}

type budgetWaiter struct {
	n     int64
	ready chan struct{} // closed when n was taken for the waiter
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// acquire takes n bytes, n <= limit, or returns the error of ctx.
func (b *budget) acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiters) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // taken meanwhile: give it back
		b.used -= n
	default:
		for i, o := range b.waiters {
			if o == w {
				b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
				break
			}
		}
	}
	b.serveLocked()
	return context.Cause(ctx)
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("BUG: more bytes released than acquired")
	}
	b.serveLocked()
}

func (b *budget) serveLocked() {
	for len(b.waiters) > 0 && b.used+b.waiters[0].n <= b.limit {
		b.used += b.waiters[0].n
		close(b.waiters[0].ready)
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
	}
}

// inUse returns the bytes in flight.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
