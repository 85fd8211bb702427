package raftgroup

import (
	"context"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"

	"cairn/engine"
	"cairn/internal/ids"
)

const (
	// maxUnsaved bounds the proposals handed to Raft and not yet seen saved, below the 2,048 that dragonboat's queue holds.
	maxUnsaved = 1536
	// dropPoll is how often a blocked proposer looks for proposals that Raft has dropped: it reports them to the request alone.
	dropPoll = 10 * time.Millisecond
	// maxUnreaped bounds the settled proposals whose result is still awaited for the sake of dragonboat's pool.
	maxUnreaped = 64
)

// position names a proposal: ordinals count from 1 in each term.
type position struct {
	term    ids.Term
	ordinal uint64
}

func (p position) after(q position) bool {
	return p.term > q.term || p.term == q.term && p.ordinal > q.ordinal
}

// inflight is the proposals of one group in the order they were handed to Raft, from there until they are applied or known not to be.
// An applied entry settles all proposals up to its own and of earlier terms: what was dropped or truncated before it can't come any more.
type inflight struct {
	limit  int64
	shared *budget

	mu      sync.Mutex
	tickets []*Ticket     // head is the oldest; settled ones wait for their result; guarded by mu
	settled int           // tickets[:settled] hold no bytes; guarded by mu
	saved   int           // tickets[:saved] are known to be saved or settled; guarded by mu
	bytes   int64         // guarded by mu
	closed  bool          // guarded by mu
	changed chan struct{} // closed and forgotten when room may have appeared; nil while nobody waits; guarded by mu
}

// Ticket is a proposal that was handed to Raft.
type Ticket struct {
	f   *inflight
	pos position
	n   int64

	rs      *dragonboat.RequestState // nil before it is queued and after its result was taken; guarded by f.mu
	dropped bool                     // guarded by f.mu
	charged bool                     // n was taken from the shared budget; guarded by f.mu
	freed   bool                     // guarded by f.mu
}

// Dropped reports whether Raft is known to have refused the proposal without appending it. False may still turn into true, until
// the entry is saved.
func (t *Ticket) Dropped() bool {
	t.f.mu.Lock()
	freed := t.f.pollLocked(t)
	dropped := t.dropped
	t.f.mu.Unlock()
	t.f.shared.release(freed)
	return dropped
}

// pollLocked takes the ticket's result, if it is there. It returns the bytes to release.
func (f *inflight) pollLocked(t *Ticket) (freed int64) {
	if t.rs == nil {
		return 0
	}
	select {
	case r := <-t.rs.ResultC():
		t.rs.Release()
		t.rs = nil
		switch {
		case r.Dropped():
			t.dropped = true
			freed = f.freeLocked(t)
		case r.Terminated():
			freed = f.freeLocked(t)
		}
		// Completed: the state machine has settled it. Timeout: it is still in Raft's memory until something later is applied.
	default:
	}
	return freed
}

// freeLocked gives the ticket's bytes back to the group, and returns those to be given back to the shared budget.
func (f *inflight) freeLocked(t *Ticket) int64 {
	if t.freed {
		return 0
	}
	t.freed = true
	f.bytes -= t.n
	f.notifyLocked()
	if !t.charged {
		return 0
	}
	return t.n
}

func (f *inflight) notifyLocked() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (f *inflight) waitLocked() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// reserve waits for room for n bytes and appends a ticket. leads is asked before each attempt.
func (f *inflight) reserve(ctx context.Context, pos position, n int64, leads func() bool) (*Ticket, error) {
	for {
		t, wait, err := f.tryReserve(pos, n, leads)
		if t == nil && err == nil {
			err = f.wait(ctx, wait)
		}
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		return t, f.charge(ctx, t)
	}
}

// charge takes the ticket's bytes from the shared budget.
func (f *inflight) charge(ctx context.Context, t *Ticket) error {
	err := f.shared.acquire(ctx, t.n)
	f.mu.Lock()
	if err != nil {
		f.withdrawLocked(t)
		f.mu.Unlock()
		return err
	}
	closed := t.freed
	t.charged = !closed
	f.mu.Unlock()
	if closed {
		f.shared.release(t.n)
		return ErrClosed
	}
	return nil
}

func (f *inflight) tryReserve(pos position, n int64, leads func() bool) (*Ticket, <-chan struct{}, error) {
	if !leads() {
		return nil, nil, ErrNotLeader
	}
	f.mu.Lock()
	freed := f.reapLocked()
	defer f.shared.release(freed)
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, nil, ErrClosed
	case f.bytes+n > f.limit || len(f.tickets)-f.saved >= maxUnsaved:
		return nil, f.waitLocked(), nil
	}
	t := &Ticket{f: f, pos: pos, n: n}
	f.tickets = append(f.tickets, t)
	f.bytes += n
	return t, nil, nil
}

// wait returns when room may have appeared, looking for dropped proposals meanwhile.
func (f *inflight) wait(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(dropPoll)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
		f.sweep()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// withdraw takes back the latest ticket, which was not queued.
func (f *inflight) withdraw(t *Ticket) {
	f.mu.Lock()
	held := f.withdrawLocked(t)
	f.mu.Unlock()
	f.shared.release(held)
}

func (f *inflight) withdrawLocked(t *Ticket) int64 {
	if last := len(f.tickets) - 1; last >= 0 && f.tickets[last] == t {
		f.tickets[last] = nil
		f.tickets = f.tickets[:last]
		f.settled, f.saved = min(f.settled, last), min(f.saved, last)
	}
	return f.freeLocked(t)
}

// queued attaches the request of a ticket that Raft has taken.
func (f *inflight) queued(t *Ticket, rs *dragonboat.RequestState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.rs = rs
}

// reapLocked forgets settled tickets at the head whose result has come. It returns the bytes to release.
func (f *inflight) reapLocked() (freed int64) {
	n := 0
	for n < f.settled {
		t := f.tickets[n]
		freed += f.pollLocked(t)
		if t.rs != nil && f.settled-n <= maxUnreaped {
			break
		}
		f.tickets[n] = nil
		n++
	}
	f.tickets = f.tickets[n:]
	f.settled -= n
	f.saved -= n
	return freed
}

// sweep looks at all tickets for results: of dropped proposals nobody else tells.
func (f *inflight) sweep() {
	f.mu.Lock()
	var freed int64
	for _, t := range f.tickets {
		freed += f.pollLocked(t)
	}
	for f.settled < len(f.tickets) && f.tickets[f.settled].freed {
		f.settled++
	}
	f.saved = max(f.saved, f.settled)
	freed += f.reapLocked()
	f.mu.Unlock()
	f.shared.release(freed)
}

// markSaved takes note of saved entries: their proposals, and earlier ones, have left Raft's queue.
func (f *inflight) markSaved(entries []engine.SavedEntry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved == len(f.tickets) {
		return
	}
	before := f.saved
	for i := range entries {
		if entries[i].Ordinal > 0 {
			at := position{entries[i].HeaderTerm, entries[i].Ordinal}
			for f.saved < len(f.tickets) && !f.tickets[f.saved].pos.after(at) {
				f.saved++
			}
		}
	}
	if f.saved != before {
		f.notifyLocked()
	}
}

// settle releases everything up to the proposal at that position, which was applied.
func (f *inflight) settle(at position) {
	f.mu.Lock()
	var freed int64
	for f.settled < len(f.tickets) && !f.tickets[f.settled].pos.after(at) {
		freed += f.freeLocked(f.tickets[f.settled])
		f.settled++
	}
	f.saved = max(f.saved, f.settled)
	f.mu.Unlock()
	f.shared.release(freed)
}

// close releases everything; further reservations fail.
func (f *inflight) close() {
	f.mu.Lock()
	var freed int64
	for _, t := range f.tickets {
		freed += f.freeLocked(t)
	}
	f.settled, f.saved, f.closed = len(f.tickets), len(f.tickets), true
	f.notifyLocked()
	f.mu.Unlock()
	f.shared.release(freed)
}

// drained waits until nothing is in flight.
func (f *inflight) drained(ctx context.Context) error {
	for {
		f.sweep()
		f.mu.Lock()
		if f.bytes == 0 {
			f.mu.Unlock()
			return nil
		}
		changed := f.waitLocked()
		f.mu.Unlock()
		if err := f.wait(ctx, changed); err != nil {
			return err
		}
	}
}

// inUse returns the bytes in flight of this group.
func (f *inflight) inUse() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}
