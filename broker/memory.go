package broker

import (
	"context"
	"sync"
)

const (
	// smallFrame is the largest request in bytes that draws on the part of the memory kept for small requests.
	smallFrame = 16 << 10
	// smallShare is the part of the memory kept for small requests: one in smallShare.
	smallShare = 8
)

// memory bounds the bytes of all requests that were read and are not yet answered. A connection waits here before it
// reads a frame. Large and small frames have budgets of their own, so that neither heartbeats and metadata wait behind
// produce requests, nor the other way round. It also keeps frame buffers for reuse.
type memory struct {
	large, small budget
	buffers      bufferPool
}

// newMemory makes a bound of limit bytes.
func newMemory(limit int64) *memory {
	m := &memory{}
	m.small.limit = max(limit/smallShare, smallFrame)
	m.large.limit = max(limit-m.small.limit, smallFrame)
	return m
}

// acquire waits until n bytes are free and takes them. Waiters are served in the order they came. A frame larger than
// the whole budget is let in once nothing else is.
func (m *memory) acquire(ctx context.Context, n int) (*frame, error) {
	b := &m.large
	if n <= smallFrame {
		b = &m.small
	}
	if err := b.acquire(ctx, int64(n)); err != nil {
		return nil, err
	}
	return &frame{memory: m, budget: b, held: int64(n)}, nil
}

// used returns the bytes taken now, and limit how many there are.
func (m *memory) used() int64  { return m.large.taken() + m.small.taken() }
func (m *memory) limit() int64 { return m.large.limit + m.small.limit }

// waiting returns how many connections wait for memory.
func (m *memory) waiting() int { return m.large.queued() + m.small.queued() }

// budget is a counting semaphore with a first-come queue.
type budget struct {
	limit int64 // constant

	mu   sync.Mutex
	used int64
	// queue has the waiters in order of arrival. guarded by mu
	queue []*memoryWaiter
}

type memoryWaiter struct {
	bytes int64
	ready chan struct{}
}

func (b *budget) acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.queue) == 0 && b.fitsLocked(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &memoryWaiter{bytes: n, ready: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // admitted meanwhile: give it back
		b.releaseLocked(n)
		return ctx.Err()
	default:
	}
	for i, q := range b.queue {
		if q == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			break
		}
	}
	b.admitLocked() // those behind w may fit
	return ctx.Err()
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked(n)
}

func (b *budget) releaseLocked(n int64) {
	b.used -= n
	if b.used < 0 {
		panic("BUG: request memory released twice")
	}
	b.admitLocked()
}

// admitLocked lets in the waiters at the head of the queue that fit.
func (b *budget) admitLocked() {
	for len(b.queue) > 0 && b.fitsLocked(b.queue[0].bytes) {
		w := b.queue[0]
		b.queue = b.queue[1:]
		b.used += w.bytes
		close(w.ready)
	}
}

func (b *budget) fitsLocked(n int64) bool { return b.used == 0 || b.used+n <= b.limit }

func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// frame holds the bytes of one request and its share of the memory bound, from before it is read until it is answered.
type frame struct {
	memory *memory
	budget *budget
	held   int64
	buf    []byte // full capacity of the buffer in use
	last   []byte // that of the buffer before, whose content is being copied
	bytes  []byte // the request; aliases buf
}

// grow returns a buffer of n bytes. The buffer of the call before stays valid until the next call or release.
func (f *frame) grow(n int) ([]byte, error) {
	f.memory.buffers.keep(f.last)
	f.last, f.buf = f.buf, f.memory.buffers.take(n)
	return f.buf[:n], nil
}

// release gives buffer and memory back. The bytes must not be used any more.
func (f *frame) release() {
	if f.budget == nil {
		panic("BUG: request frame released twice")
	}
	f.memory.buffers.keep(f.last)
	f.memory.buffers.keep(f.buf)
	f.budget.release(f.held)
	f.buf, f.last, f.bytes, f.budget = nil, nil, nil, nil
}
