package broker

import (
	"context"
	"slices"
	"sync"
)

const (
	// smallFrame is the largest request in bytes that draws on the part of the memory kept for small requests.
	smallFrame = 16 << 10
	// smallShare is the part of the memory kept for small requests: one in smallShare.
	smallShare = 8
	// firstCharge is what a frame takes before any of it has come: as much as the first buffer.
	firstCharge = 64 << 10
)

// memory bounds the bytes of all requests that were read and are not yet answered. A connection waits here before it
// reads a frame, and again before each larger buffer for it: a frame takes memory for the bytes that have come, not for
// the length it announces, or a few half-sent ones would shut out everybody else. Large and small frames have budgets of
// their own, so that neither heartbeats and metadata wait behind produce requests, nor the other way round. It also keeps
// frame buffers for reuse.
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

// acquire waits until a frame of size bytes may begin to be read, and takes what its first buffer needs; grow takes the
// rest, until ctx ends. Waiters are served in the order they came, frames that grow before new ones.
func (m *memory) acquire(ctx context.Context, size int) (*frame, error) {
	b := &m.large
	if size <= smallFrame {
		b = &m.small
	}
	f := &frame{memory: m, budget: b, ctx: ctx}
	if err := b.acquire(f, int64(min(size, firstCharge))); err != nil {
		return nil, err
	}
	return f, nil
}

// used returns the bytes taken now, and limit how many there are.
func (m *memory) used() int64  { return m.large.taken() + m.small.taken() }
func (m *memory) limit() int64 { return m.large.limit + m.small.limit }

// waiting returns how many connections wait for memory.
func (m *memory) waiting() int { return m.large.queued() + m.small.queued() }

// budget is a counting semaphore with two first-come queues.
type budget struct {
	limit int64 // constant

	mu   sync.Mutex
	used int64
	// whole is the part of used that frames hold which have come completely: it is given back without anything more
	// being needed. guarded by mu
	whole int64
	// beyond is the frame that may go beyond the limit until it is released, so that frames in the middle do not wait for
	// each other, or for senders that have stopped. guarded by mu
	beyond *frame
	// growing and queue have the waiters in order of arrival: frames of which a part has come, and new ones.
	// guarded by mu
	growing, queue []*memoryWaiter
}

type memoryWaiter struct {
	frame *frame
	bytes int64
	ready chan struct{}
}

// acquire waits for n more bytes for a frame and adds them to what it holds.
func (b *budget) acquire(f *frame, n int64) error {
	b.mu.Lock()
	w := memoryWaiter{frame: f, bytes: n}
	if b.fitsLocked(&w) && len(b.growing) == 0 && (f.held > 0 || len(b.queue) == 0) || b.beyond == f {
		b.takeLocked(&w)
		b.mu.Unlock()
		return nil
	}
	return b.wait(&memoryWaiter{frame: f, bytes: n, ready: make(chan struct{})})
}

// wait is the rest of acquire, with b.mu locked, which it unlocks.
func (b *budget) wait(w *memoryWaiter) error {
	b.queueLocked(w, true)
	b.admitLocked()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-w.frame.ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // admitted meanwhile: give it back
		b.used -= w.bytes
		w.frame.held -= w.bytes
	default:
		b.queueLocked(w, false)
	}
	b.admitLocked() // those behind w may fit
	return w.frame.ctx.Err()
}

// queueLocked puts a waiter at the end of its queue, or takes it out wherever it stands.
func (b *budget) queueLocked(w *memoryWaiter, in bool) {
	q := &b.queue
	if w.frame.held > 0 {
		q = &b.growing
	}
	if in {
		*q = append(*q, w)
		return
	}
	*q = slices.DeleteFunc(*q, func(other *memoryWaiter) bool { return other == w })
}

// completed notes that a frame has come completely.
func (b *budget) completed(f *frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.whole = true
	b.whole += f.held
}

// release gives back what a frame held.
func (b *budget) release(f *frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= f.held
	if f.whole {
		b.whole -= f.held
	}
	if b.beyond == f {
		b.beyond = nil
	}
	if b.used < 0 || b.whole < 0 {
		panic("BUG: request memory released twice")
	}
	b.admitLocked()
}

// admitLocked lets in the waiters that fit: those at the head of growing, and once there are none those of queue. If
// nobody is about to give memory back, since no frame is complete, the first of growing goes on beyond the limit.
func (b *budget) admitLocked() {
	for len(b.growing) > 0 {
		w := b.growing[0]
		if !b.fitsLocked(w) {
			if b.whole > 0 || b.beyond != nil {
				return
			}
			b.beyond = w.frame
		}
		b.growing = b.growing[1:]
		b.takeLocked(w)
	}
	for len(b.queue) > 0 && b.fitsLocked(b.queue[0]) {
		w := b.queue[0]
		b.queue = b.queue[1:]
		b.takeLocked(w)
	}
}

func (b *budget) takeLocked(w *memoryWaiter) {
	b.used += w.bytes
	w.frame.held += w.bytes
	if w.ready != nil {
		close(w.ready)
	}
}

func (b *budget) fitsLocked(w *memoryWaiter) bool {
	return b.used == w.frame.held || b.used+w.bytes <= b.limit
}

func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.growing) + len(b.queue)
}

// frame holds the bytes of one request and its share of the memory bound, from before it is read until it is answered.
type frame struct {
	memory *memory
	budget *budget
	ctx    context.Context // of its connection: ends the wait for memory
	held   int64           // guarded by budget.mu, like whole, and written by the frame's reader alone or while it waits
	whole  bool            // it has come completely
	buf    []byte          // full capacity of the buffer in use
	last   []byte          // that of the buffer before, whose content is being copied
	bytes  []byte          // the request; aliases buf
}

// grow returns a buffer of n bytes, when there is memory for it. The buffer of the call before stays valid until the next
// call or release.
func (f *frame) grow(n int) ([]byte, error) {
	if more := int64(n) - f.held; more > 0 {
		if err := f.budget.acquire(f, more); err != nil {
			return nil, err
		}
	}
	f.memory.buffers.keep(f.last)
	f.last, f.buf = f.buf, f.memory.buffers.take(n)
	return f.buf[:n], nil
}

// complete notes the bytes of the whole frame.
func (f *frame) complete(body []byte) {
	f.bytes = body
	f.budget.completed(f)
}

// release gives buffer and memory back. The bytes must not be used any more.
func (f *frame) release() {
	if f.budget == nil {
		panic("BUG: request frame released twice")
	}
	f.memory.buffers.keep(f.last)
	f.memory.buffers.keep(f.buf)
	f.budget.release(f)
	f.buf, f.last, f.bytes, f.budget = nil, nil, nil, nil
}
