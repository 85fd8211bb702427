package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/ids"
)

// errNotLeader refuses what only the registered leader of a partition may do. Where a batch was proposed before, its
// outcome is unknown: it may yet turn up in the log of the next leader.
var errNotLeader = errors.New("not the leader of the partition")

// errProposeTimeout refuses a batch that found no room in the group's queue within its request's time. It was not appended.
var errProposeTimeout = errors.New("no room for the proposal within the request's time")

// ticket is what is left of a proposal in the hands of the proposer; see raftgroup.Ticket.
type ticket interface{ Dropped() bool }

// proposeFunc hands a proposal with its header set to the partition's Raft group, which copies it.
type proposeFunc func(ctx context.Context, data []byte) (ticket, error)

// appendWaiter hears what becomes of a proposal: exactly one of the two methods, once, without locks held. Neither
// may block.
type appendWaiter interface {
	// appended: the proposal is durable in the leader's own log at [base, next). duplicateOf is the largest timestamp
	// of the batch that this one repeats, or batch.NoTimestamp when it repeats none.
	appended(slot int, base, next ids.Offset, duplicateOf int64)
	// dropped: leadership was lost or Raft dropped the proposal. It may still survive in another leader's log.
	dropped(slot int)
}

// submission is one proposal on its way in. data is borrowed until submit returns and gets the proposal's header.
type submission struct {
	data   []byte
	kind   engine.EntryKind
	batch  producer.Batch // of KindData; ProducerID negative: nothing to check
	waiter appendWaiter
	slot   int
	own    bool // this broker made it, so no transaction coordinator need be asked
	// guard: the transaction's coordinator was asked; see beginVerification.
	guard *verification
}

// proposal is a submission that was handed to Raft and whose fate is not known yet.
type proposal struct {
	ordinal uint64
	batch   producer.Batch
	ticket  ticket // nil until Propose has returned
	waiter  appendWaiter
	slot    int
	// repeats wait for the proposal because their batch is the same.
	repeats []repeat
	// before is the producer's speculative state without this proposal, to take back the newest one; zero when this
	// proposal began the speculation.
	before producer.Entry
}

type repeat struct {
	waiter appendWaiter
	slot   int
}

// speculation is the state of one producer with its batches in flight, on top of what is saved.
type speculation struct {
	entry    producer.Entry
	inFlight int
}

// sequencer orders the proposals of one partition's leader: producer check, ordinal and Propose happen in one order.
//
// The turn is held across all three, and across the wait for room in the group's queue, so nothing overtakes; mu is
// held for moments and never while anything waits, as the workers that report saves need it.
//
// The speculative producer state counts batches in flight as appended. When one of them turns out not to be, all that
// were proposed behind it are void by their ordinals: the whole speculation is dropped and what is saved is the truth.
//
// Invariant: inFlight has ascending ordinals without gaps, the newest being ordinal; doomed is empty or nothing is
// accepted.
type sequencer struct {
	propose proposeFunc
	saved   func(producerID int64) (producer.Entry, bool)
	turn    chan struct{} // capacity 1: full while somebody's turn is on

	mu           sync.Mutex
	reign        *reign                  // guarded by mu; nil: this replica does not lead
	paused       bool                    // guarded by mu; nothing is let in until the next reign
	term         ids.Term                // guarded by mu; of the latest reign: what follows counts in it
	ordinal      uint64                  // guarded by mu; the last one given out
	savedOrdinal uint64                  // guarded by mu; the last one that is saved and not void
	inFlight     []*proposal             // guarded by mu
	doomed       []*proposal             // guarded by mu; failed already, but Raft may still append them as void
	speculative  map[int64]*speculation  // guarded by mu; only producers with batches in flight
	verifying    map[int64]*verification // guarded by mu; of requests under way
}

func newSequencer(propose proposeFunc, saved func(int64) (producer.Entry, bool)) *sequencer {
	return &sequencer{
		propose: propose, saved: saved, turn: make(chan struct{}, 1),
		speculative: map[int64]*speculation{}, verifying: map[int64]*verification{},
	}
}

// begin starts the reign r. A second reign in the same term, as after a false fencing, goes on with the ordinals of
// the first.
func (s *sequencer) begin(r *reign) {
	s.mu.Lock()
	failed := s.failLocked()
	if s.term != r.term {
		s.term, s.ordinal, s.savedOrdinal, s.doomed = r.term, 0, 0, nil
	}
	s.reign, s.paused = r, false
	s.mu.Unlock()
	dropAll(failed)
}

// end ends the reign r, unless another has begun, and fails everything in flight.
func (s *sequencer) end(r *reign) {
	s.mu.Lock()
	if s.reign != r {
		s.mu.Unlock()
		return
	}
	s.reign = nil
	failed := s.failLocked()
	s.mu.Unlock()
	dropAll(failed)
}

// leave forgets the terms before term: Raft appends nothing of them here any more.
func (s *sequencer) leave(term ids.Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term < term && s.reign == nil {
		s.doomed = nil
	}
}

// pause lets no submission in until the next reign, and returns when the one that has the turn is through.
func (s *sequencer) pause(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	s.paused = true
	s.mu.Unlock()
	<-s.turn
	return nil
}

// resume lets submissions of the reign r in again.
func (s *sequencer) resume(r *reign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign == r {
		s.paused = false
	}
}

// submit checks and proposes one batch in the reign r. With isDup the batch is saved already, as dup, and
// neither proposed nor reported to the waiter. With an error it was not appended and the waiter hears nothing, either.
// Otherwise the waiter hears of it, perhaps before submit returns.
//
// Errors: errNotLeader, errProposeTimeout when ctx ended first, the sentinels of package producer, those of
// raftgroup.Group.Propose.
func (s *sequencer) submit(ctx context.Context, r *reign, sub submission) (dup producer.CachedBatch, isDup bool, err error) {
	select {
	case s.turn <- struct{}{}:
	default:
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return dup, false, s.interrupted(r, ctx.Err())
		}
	}
	defer func() { <-s.turn }()

	p, header, dup, isDup, err := s.admit(r, sub)
	if p == nil {
		return dup, isDup, err
	}
	engine.PutHeader(sub.data, header)
	t, err := s.propose(ctx, sub.data)
	if err == nil {
		s.mu.Lock()
		p.ticket = t
		s.mu.Unlock()
		return dup, false, nil
	}
	if !s.retract(p) {
		return dup, false, nil // the reign ended meanwhile, and the waiter has heard of that
	}
	if ctx.Err() != nil {
		err = s.interrupted(r, err)
	}
	return dup, false, err
}

// interrupted says why a wait for the turn or for room ended early: because the reign did, or by the request's time.
func (s *sequencer) interrupted(r *reign, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign != r {
		return errNotLeader
	}
	return fmt.Errorf("%w: %w", errProposeTimeout, err)
}

// admit checks a submission and gives it its place. No proposal: it is refused, a duplicate, or waits for its
// original in flight.
func (s *sequencer) admit(r *reign, sub submission) (p *proposal, h engine.Header, dup producer.CachedBatch, isDup bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign != r || s.paused || len(s.doomed) > 0 {
		return nil, h, dup, false, errNotLeader
	}
	p = &proposal{ordinal: s.ordinal + 1, batch: sub.batch, waiter: sub.waiter, slot: sub.slot}
	if sub.batch.ProducerID >= 0 {
		waits, dup, isDup, err := s.speculateLocked(p, &sub)
		if waits || isDup || err != nil {
			return nil, h, dup, isDup, err
		}
	}
	s.ordinal++
	s.inFlight = append(s.inFlight, p)
	return p, engine.Header{Ordinal: p.ordinal, Term: r.term, LeaderEpoch: r.epoch, Kind: sub.kind}, dup, false, nil
}

// offsetInFlight stands for the first offset of a transaction whose first batch is in flight.
const offsetInFlight = ids.Offset(math.MaxInt64)

// speculateLocked checks p's batch against saved and speculative state and adds it to the latter. waits: the batch
// repeats one in flight, whose fate it shares.
func (s *sequencer) speculateLocked(p *proposal, sub *submission) (waits bool, dup producer.CachedBatch, isDup bool, err error) {
	id := p.batch.ProducerID
	saved, known := s.saved(id)
	state := &saved
	spec := s.speculative[id]
	switch {
	case spec != nil:
		state = &spec.entry
	case !known:
		state = nil
	}
	dup, isDup, err = producer.Check(state, p.batch)
	if !isDup {
		err = s.checkGuardLocked(state, sub, err)
	}
	switch {
	case err != nil:
		return false, dup, false, err
	case isDup:
		return s.duplicateLocked(p, dup, saved, known)
	}
	if spec == nil {
		spec = &speculation{entry: producer.NewEntry(p.batch.Epoch)}
		if known {
			spec.entry = saved
		}
		s.speculative[id] = spec
	} else {
		p.before = spec.entry
	}
	if p.batch.Transactional || p.batch.Control {
		s.overtakeLocked(&p.batch) // it is open now, or ended meanwhile
	}
	spec.entry.Append(p.batch)
	if p.batch.Transactional && !p.batch.Control && spec.entry.TxnFirstOffset == ids.NoOffset {
		spec.entry.TxnFirstOffset = offsetInFlight
	}
	spec.inFlight++
	return false, dup, false, nil
}

// duplicateLocked answers a duplicate from the saved state, or makes it wait for its original in flight. dup is what
// the check found, without offsets when the batch was in flight as the speculation began.
func (s *sequencer) duplicateLocked(p *proposal, dup producer.CachedBatch, saved producer.Entry, known bool) (waits bool, _ producer.CachedBatch, isDup bool, err error) {
	if known && saved.Epoch == p.batch.Epoch {
		if c, found := saved.Find(p.batch.BaseSequence, p.batch.LastSequence()); found {
			return false, c, true, nil
		}
	}
	for i := len(s.inFlight) - 1; i >= 0; i-- {
		o := &s.inFlight[i].batch
		if o.ProducerID == p.batch.ProducerID && o.Epoch == p.batch.Epoch &&
			o.BaseSequence == p.batch.BaseSequence && o.Count == p.batch.Count {
			s.inFlight[i].repeats = append(s.inFlight[i].repeats, repeat{p.waiter, p.slot})
			return true, dup, false, nil
		}
	}
	if dup.BaseOffset >= 0 {
		return false, dup, true, nil
	}
	// Saved since, and expired at once: batches may carry old timestamps. The producer is to ask again, when no
	// speculation remembers it.
	return false, dup, false, fmt.Errorf("%w: producer %d expired while it was writing", errNotLeader, p.batch.ProducerID)
}

// retract takes back the newest proposal, which Raft did not take. False: it has failed with its reign already.
func (s *sequencer) retract(p *proposal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.inFlight) - 1
	if last < 0 || s.inFlight[last] != p {
		s.forgetDoomedLocked(func(d *proposal) bool { return d == p })
		return false
	}
	s.inFlight = s.inFlight[:last]
	s.ordinal--
	if spec := s.speculative[p.batch.ProducerID]; spec != nil {
		spec.entry = p.before
		s.releaseLocked(p, spec)
	}
	return true
}

// poll finds out whether Raft has dropped what is in flight, which it does without telling.
func (s *sequencer) poll() {
	s.mu.Lock()
	var failed []*proposal
	if len(s.inFlight) > 0 && s.inFlight[0].dropped() {
		failed = s.failLocked()
	}
	s.forgetDoomedLocked((*proposal).dropped)
	s.mu.Unlock()
	dropAll(failed)
}

// failLocked gives up on everything in flight: it goes from inFlight to doomed, where it stays until Raft has either
// appended it as void or dropped it; only then ordinals can be given out again from the last one saved.
func (s *sequencer) failLocked() (failed []*proposal) {
	failed = s.inFlight
	s.inFlight = nil
	s.doomed = append(s.doomed, failed...)
	clear(s.speculative)
	return failed
}

// forgetDoomedLocked removes the doomed proposals whose fate is known, and has ordinals go on when none is left.
func (s *sequencer) forgetDoomedLocked(known func(*proposal) bool) {
	if len(s.doomed) == 0 {
		return
	}
	var left []*proposal
	for _, p := range s.doomed {
		if !known(p) {
			left = append(left, p)
		}
	}
	s.doomed = left
	if len(left) == 0 {
		s.ordinal = s.savedOrdinal
	}
}

// inFlightCount is the number of proposals whose fate is not known.
func (s *sequencer) inFlightCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inFlight) + len(s.doomed)
}

func (p *proposal) dropped() bool { return p.ticket != nil && p.ticket.Dropped() }

// dropAll reports proposals as dropped. repeats of p cannot grow any more: it is out of inFlight.
func dropAll(failed []*proposal) {
	for _, p := range failed {
		p.waiter.dropped(p.slot)
		for _, r := range p.repeats {
			r.waiter.dropped(r.slot)
		}
	}
}

// noDuplicate is the timestamp "none" of appendWaiter.appended.
const noDuplicate int64 = -1
