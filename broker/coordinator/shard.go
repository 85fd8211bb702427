package coordinator

import (
	"sync"
	"time"

	"cairn/internal/ids"

	"go.uber.org/zap"
)

// phase is what a shard does.
type phase uint8

const (
	following phase = iota // replays what is committed
	loading                // leads, and replays up to where its reign began
	leading                // runs operations
	held                   // its reign is over, and the next one may go on with the same log
)

func (p phase) String() string { return [...]string{"following", "loading", "leading", "held"}[p] }

// operation is what waits for its turn on a machine.
type operation[M Machine] struct {
	run    func(m M, now time.Time, fx *Effects)
	marker *Marker // instead of run
	fail   func(error)
	// deadline is when it is refused if it has not run: the partition takes nothing.
	deadline time.Time
}

// shard is one partition's machine. What comes from outside goes through its mailbox; the rest belongs to whoever runs its
// turn, which is one goroutine of the pool at a time.
//
// While it leads, the machine is ahead of the log: it has replayed what its operations appended, of which the flights are
// not known to be committed. If a flight's fate is unknown when the reign ends, nobody can tell whether the machine is
// what the log says: it is dropped and built anew.
//
// Invariant: the machine is the log up to applied, and then the flights in their order.
type shard[M Machine] struct {
	c         *Coordinator[M]
	partition int32
	timer     timerPlace

	mu       sync.Mutex
	events   []func(time.Time) // guarded by mu; from the partition, a few
	queue    []operation[M]    // guarded by mu; no longer than QueueMax
	refusal  error             // guarded by mu; why operations are refused; nil: they are queued
	queued   bool              // guarded by mu; in the pool's queue or in its turn
	again    bool              // guarded by mu; something came during the turn
	shown    Stats             // guarded by mu; as of the last turn
	finished bool              // guarded by mu; stop has run

	machine  M
	log      Log // nil before attach
	phase    phase
	applied  ids.Offset
	epoch    ids.LeaderEpoch // of the record before applied
	counters Counters
	expireAt time.Time // when the machine wants to be called
	retryAt  time.Time // when something that failed is tried again
	warned   bool      // a record that was not understood has been logged since the machine was made

	reign     Reign      // of loading and leading
	loadSince time.Time  // of loading
	heldUntil time.Time  // of held
	end       ids.Offset // behind the last flight that is known to be saved
	flights   []*flight
	open      *openBatch
	unheard   int // outcomes that are still to come, of any reign
}

func newShard[M Machine](c *Coordinator[M], partition int32) *shard[M] {
	s := &shard[M]{c: c, partition: partition, refusal: ErrNotCoordinator, epoch: ids.NoEpoch, machine: c.cfg.New(partition)}
	s.shown = Stats{Partition: partition, State: following.String()}
	return s
}

func (s *shard[M]) clock() *timerPlace { return &s.timer }

// schedule has the shard take a turn.
func (s *shard[M]) schedule() {
	s.mu.Lock()
	push := !s.queued
	s.queued, s.again = true, true
	s.mu.Unlock()
	if push {
		s.c.pool.push(s)
	}
}

// post puts an event into the mailbox.
func (s *shard[M]) post(event func(time.Time)) {
	s.mu.Lock()
	s.events = append(s.events, event)
	s.mu.Unlock()
	s.schedule()
}

// enqueue puts an operation into the mailbox, or says why not.
func (s *shard[M]) enqueue(op operation[M]) error {
	s.mu.Lock()
	err := s.refusal
	if err == nil && len(s.queue) >= s.c.cfg.QueueMax {
		err = ErrLoading
	}
	if err == nil {
		s.queue = append(s.queue, op)
	}
	s.mu.Unlock()
	if err == nil {
		s.schedule()
	}
	return err
}

// turn runs on one goroutine at a time.
func (s *shard[M]) turn() {
	s.mu.Lock()
	s.again = false
	events := s.events
	s.events = nil
	s.mu.Unlock()
	now := s.c.cfg.Now()
	for _, e := range events {
		e(now)
	}
	more := s.work(now)
	s.setTimer()
	stats := s.snapshot()

	s.mu.Lock()
	s.shown = stats
	more = (more || s.again) && !(s.finished && len(s.events) == 0)
	s.queued = more
	s.mu.Unlock()
	if more {
		s.c.pool.push(s)
	}
}

// work does what the phase asks for. It reports whether there is more to do at once.
func (s *shard[M]) work(now time.Time) (more bool) {
	if s.log == nil {
		return false
	}
	switch s.phase {
	case following:
		return s.replay(s.log.HighWatermark(), now)
	case loading:
		return s.load(now)
	case leading:
		more = s.lead(now)
	case held:
		if !now.Before(s.heldUntil) {
			s.resign()
			return true
		}
	}
	s.expireReplies(now)
	return more
}

// setTimer names the next time at which the shard needs a turn.
func (s *shard[M]) setTimer() {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	earlier(s.retryAt)
	switch s.phase {
	case leading:
		earlier(s.expireAt)
		earlier(s.firstDeadline())
	case held:
		earlier(s.heldUntil)
		earlier(s.firstDeadline())
	}
	s.c.pool.at(s, next)
}

// refuse sets why operations are refused from now on, and fails those that wait. nil: none are.
func (s *shard[M]) refuse(err error) {
	s.mu.Lock()
	s.refusal = err
	var failed []operation[M]
	if err != nil {
		failed, s.queue = s.queue, nil
	}
	s.mu.Unlock()
	for _, op := range failed {
		op.fail(err)
	}
}

// attach takes the log of the partition, or of its next generation.
func (s *shard[M]) attach(log Log, now time.Time) {
	s.log = log
	if s.phase == loading || s.phase == leading { // its end was not told: it is another replica all the same
		s.ended(s.reign, false, now)
	}
	s.verify()
}

// verify drops the machine if the log does not hold what was applied to it any more.
func (s *shard[M]) verify() {
	if s.applied <= s.log.Start() && len(s.flights) == 0 && s.epoch == ids.NoEpoch {
		return
	}
	if s.log.End() >= s.applied && s.log.EpochBefore(s.applied) == s.epoch {
		return
	}
	s.c.cfg.Log.Info("coordinator's log was cut; building its state anew", s.fields(zap.Int64("applied", int64(s.applied)))...)
	s.rebuild()
}

// began starts a reign.
func (s *shard[M]) began(r Reign, now time.Time) {
	if s.log == nil {
		return
	}
	if s.phase == loading || s.phase == leading {
		s.ended(s.reign, false, now)
	}
	s.verify() // may end what is held
	s.reign = r
	if s.phase == held {
		if s.applied >= r.Start() && s.unheard == 0 {
			s.phase, s.retryAt = leading, time.Time{}
			s.refuse(nil)
			return
		}
		s.resign() // others have appended meanwhile
		s.reign = r
	}
	s.phase, s.loadSince = loading, now
	s.refuse(ErrLoading)
}

// ended ends a reign.
func (s *shard[M]) ended(r Reign, hold bool, now time.Time) {
	if s.reign == nil || s.reign != r {
		return
	}
	s.abortOpen()
	certain := true
	for _, f := range s.flights {
		certain = certain && f.saved
	}
	switch {
	case s.phase == loading:
		s.phase, s.reign = following, nil
		s.refuse(ErrNotCoordinator)
	case !certain:
		s.rebuild()
	case hold:
		s.phase, s.reign, s.heldUntil = held, nil, now.Add(holdMax)
		s.retryAt = time.Time{} // what was to be tried again is the next reign's
		s.refuse(ErrLoading)
	default:
		s.resign()
	}
}

func (s *shard[M]) abandoned(time.Time) {
	if s.phase == held {
		s.resign()
	}
}

// resign makes the shard follow. Its machine stays what the log says.
func (s *shard[M]) resign() {
	was := s.phase
	s.phase, s.reign = following, nil
	s.retryAt, s.expireAt = time.Time{}, time.Time{}
	s.refuse(ErrNotCoordinator)
	s.failFlights(ErrNotCoordinator)
	if was == leading || was == held {
		s.machine.Resigned()
	}
}

// rebuild drops the machine, which is not what the log says, and starts over. A load goes on.
func (s *shard[M]) rebuild() {
	r, was := s.reign, s.phase
	s.resign()
	s.counters.Rebuilds++
	s.machine = s.c.cfg.New(s.partition)
	s.applied, s.epoch, s.warned = 0, ids.NoEpoch, false
	if was == loading {
		s.phase, s.reign = loading, r
		s.refuse(ErrLoading)
	}
}

// reload is rebuild while the reign goes on.
func (s *shard[M]) reload(now time.Time) {
	r := s.reign
	s.rebuild()
	s.phase, s.reign, s.loadSince = loading, r, now
	s.refuse(ErrLoading)
}

// stop ends the shard.
func (s *shard[M]) stop(time.Time) {
	s.abortOpen()
	s.resign()
	s.log = nil
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
}

func (s *shard[M]) fields(more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.Int32("partition", s.partition)}, more...)
}

func (s *shard[M]) snapshot() Stats {
	return Stats{Partition: s.partition, State: s.phase.String(), Applied: s.applied, Counters: s.counters}
}

func (s *shard[M]) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.shown
	st.Queue = len(s.queue)
	return st
}
