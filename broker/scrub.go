package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"cairn/engine"
	"cairn/internal/clock"

	"go.uber.org/zap"
)

// scrubFirst is the longest wait for the first scrub of a process.
const scrubFirst = time.Hour

// scrubber reads all that is stored from time to time, so that damage is found, and repaired from the other replicas, before they are
// damaged too.
type scrubber struct {
	b     *Broker
	every time.Duration // negative: only when something was found damaged
	rate  int64         // bytes per second
	now   chan struct{} // capacity 1: something was found damaged, so where and what else is?

	mu    sync.Mutex
	state scrubState // guarded by mu
}

// scrubState is what is told of it. Zero times: never.
type scrubState struct {
	began, ended time.Time // of the scrub under way, and of the last complete one
	bytes        int64     // read since the start of the process
	complete     int64     // scrubs since then
}

func newScrubber(b *Broker) *scrubber {
	return &scrubber{b: b, every: b.cfg.ScrubInterval, rate: b.cfg.ScrubRate, now: make(chan struct{}, 1)}
}

func (s *scrubber) snapshot() scrubState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// run scrubs until ctx ends, or until something is damaged that no peer can repair.
func (s *scrubber) run(ctx context.Context, fail func(error)) {
	timer := time.NewTimer(min(max(s.every, 0), scrubFirst))
	defer timer.Stop()
	due := timer.C
	if s.every < 0 {
		due = nil
	}
	for s.once(ctx, due, fail) {
		timer.Reset(s.every)
	}
}

// once waits for its time and scrubs. False: it is over.
func (s *scrubber) once(ctx context.Context, due <-chan time.Time, fail func(error)) bool {
	rate := s.rate
	select {
	case <-due:
	case <-s.now:
		rate = 0
	case <-ctx.Done():
		return false
	}
	s.note(func(st *scrubState) { st.began = clock.Now() })
	_, err := s.b.engine.Scrub(func(bytes int) bool {
		s.note(func(st *scrubState) { st.bytes += int64(bytes) })
		return s.pace(ctx, bytes, rate)
	})
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, engine.ErrStoreDamaged) {
		fail(err)
		return false
	}
	if err != nil {
		s.b.log.Warn("stored data cannot be scrubbed to its end", zap.Error(err))
	}
	s.note(func(st *scrubState) { st.began, st.ended, st.complete = time.Time{}, clock.Now(), st.complete+1 })
	return true
}

func (s *scrubber) note(change func(*scrubState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// pace waits as long as so many bytes take at that rate; 0: no time.
func (s *scrubber) pace(ctx context.Context, bytes int, rate int64) bool {
	if rate == 0 || bytes == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(time.Duration(float64(bytes) / float64(rate) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// storeCorrupt hears of damage to a file that the store came across, perhaps in work of its own, of which no partition hears otherwise. It
// does not block.
func (b *Broker) storeCorrupt(file string, err error) {
	b.noise.warn(b.log, "a file of the store is damaged", zap.String("file", file), zap.Error(err))
	if s := b.scrubber.Load(); s != nil {
		signal(s.now)
	}
}
