package coordinator

import (
	"errors"
	"fmt"
	"time"

	"cairn/internal/ids"

	"go.uber.org/zap"
)

// unavailableRetry is the wait before timers of the machine are tried again when the partition takes nothing.
const unavailableRetry = 100 * time.Millisecond

// lead runs the operations, timers and replies of a leader.
func (s *shard[M]) lead(now time.Time) (more bool) {
	check := s.reign.Check()
	s.retryAt = time.Time{}
	switch {
	case errors.Is(check, ErrNotCoordinator): // the lease may come back, or the reign end
		s.failQueue(check)
		s.retryAt = now.Add(busyRetry)
	case s.send(now):
		var ran bool
		ran, more = s.runOperations(check, now)
		if s.phase == leading && check == nil && (ran || due(s.expireAt, now)) {
			s.expire(now)
		}
		s.seal(now)
	default:
		s.failOverdue(now)
	}
	if s.phase != leading {
		return true
	}
	if due(s.expireAt, now) {
		s.expireAt = now.Add(unavailableRetry)
	}
	s.settle()
	return more
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// runOperations runs what waits, up to a number a turn.
func (s *shard[M]) runOperations(check error, now time.Time) (ran, more bool) {
	s.mu.Lock()
	n := min(len(s.queue), operationsPerTurn)
	ops := s.queue[:n:n]
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	more = len(s.queue) > 0
	s.mu.Unlock()
	for _, op := range ops {
		s.counters.Operations++
		if s.phase != leading {
			op.fail(ErrNotCoordinator)
			continue
		}
		if op.marker != nil {
			s.mark(op, check, now)
			continue
		}
		fx := NewEffects(s.reign.Epoch())
		op.run(s.machine, now, fx)
		s.doAtOnce(fx, check, now)
	}
	return n > 0, more
}

// expire has the machine do what is due.
func (s *shard[M]) expire(now time.Time) {
	fx := NewEffects(s.reign.Epoch())
	s.expireAt = s.machine.Expire(now, fx)
	s.do(fx, nil, now)
}

// doAtOnce appends all records of an operation or none.
func (s *shard[M]) doAtOnce(fx *Effects, check error, now time.Time) {
	fx.merge()
	for i := range fx.units {
		s.doUnit(&fx.units[i], check, now)
	}
}

// do appends what Elected, Expire or an undo want, unit by unit.
func (s *shard[M]) do(fx *Effects, check error, now time.Time) {
	for i := range fx.units {
		u := &fx.units[i]
		if len(u.then) > 0 || len(u.refused) > 0 {
			s.doUnit(u, check, now)
			continue
		}
		for _, b := range u.batches {
			s.doUnit(&unit{batches: []Batch{b}}, check, now)
		}
	}
}

// doUnit appends, replays, and has the replies wait.
func (s *shard[M]) doUnit(u *unit, check error, now time.Time) {
	var err error
	if len(u.batches) > 0 {
		err = s.append(u, check, now)
	}
	if err == nil {
		s.await(u.then, now)
		return
	}
	s.counters.AppendErrors++
	for _, undo := range u.refused {
		var after Effects
		if s.reign != nil {
			after.epoch = s.reign.Epoch()
		}
		undo(err, &after)
		for i := range after.units {
			after.units[i].refused = nil
		}
		s.do(&after, check, now)
	}
	for _, fn := range u.then {
		fn(err)
	}
}

// append appends the records of a unit as one batch, and replays them.
func (s *shard[M]) append(u *unit, check error, now time.Time) error {
	b := u.batches[0]
	for _, o := range u.batches[1:] {
		if o.ProducerID != b.ProducerID || o.ProducerEpoch != b.ProducerEpoch {
			panic(fmt.Sprintf("BUG: one operation appends for the producers %d and %d", b.ProducerID, o.ProducerID))
		}
		b.Records = append(b.Records[:len(b.Records):len(b.Records)], o.Records...)
	}
	if check != nil {
		return check
	}
	if err := s.add(&b, now); err != nil {
		return err
	}
	meta := Meta{Offset: ids.NoOffset, Timestamp: now.UnixMilli(), ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch}
	for _, rec := range b.Records {
		s.replayRecord(meta, rec)
	}
	return nil
}

// mark appends a marker and tells the machine.
func (s *shard[M]) mark(op operation[M], check error, now time.Time) {
	err := check
	if err == nil {
		err = s.flush(now)
	}
	if err == nil {
		f := &flight{}
		err = s.hand(f, now, func(done Outcome) error { return s.reign.AppendMarker(*op.marker, done) })
	}
	if err != nil {
		s.counters.AppendErrors++
		op.fail(err)
		return
	}
	s.machine.ReplayMarker(op.marker.ProducerID, op.marker.ProducerEpoch, op.marker.Commit)
	s.await([]func(error){op.fail}, now)
}

// failQueue refuses what waits.
func (s *shard[M]) failQueue(err error) {
	s.mu.Lock()
	ops := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, op := range ops {
		op.fail(err)
	}
}

// failOverdue refuses what has waited too long for the partition to take something.
func (s *shard[M]) failOverdue(now time.Time) {
	s.mu.Lock()
	n := 0
	for n < len(s.queue) && !now.Before(s.queue[n].deadline) {
		n++
	}
	ops := s.queue[:n:n]
	s.queue = s.queue[n:]
	s.mu.Unlock()
	for _, op := range ops {
		op.fail(ErrUnavailable)
	}
}

// lost hears that the partition takes no more from this leader, and may not have taken everything.
func (s *shard[M]) lost(err error, now time.Time) {
	s.c.cfg.Log.Info("coordinator lost an append; building its state anew", s.fields(zap.Error(err))...)
	s.reload(now)
}
