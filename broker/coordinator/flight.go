package coordinator

import (
	"errors"
	"fmt"
	"time"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// flight is a batch from the moment it is complete until it is committed, and the replies that wait for that. One without
// bytes that is saved stands for what was appended by others.
type flight struct {
	bytes   []byte // nil once it is in the partition's hands
	saved   bool   // and ends at next
	next    ids.Offset
	replies []reply
}

// reply waits for a flight.
type reply struct {
	fn       func(error)
	deadline time.Time
}

// openBatch collects the records of the operations of one turn.
type openBatch struct {
	b     *batch.Builder
	bound int // the batch has at most so many bytes
	flight
}

// recordOverhead bounds what a record takes beside its key and value: five varints and two bytes.
const recordOverhead = 40

// add adds records to the batch of this turn, or starts another one. Errors: ErrTooLarge, ErrUnavailable; of transactional
// records why the partition refuses them.
func (s *shard[M]) add(b *Batch, now time.Time) error {
	if s.phase != leading {
		return ErrNotCoordinator
	}
	if len(s.flights) >= flightsMax {
		return fmt.Errorf("%w: %d batches wait for their commit", ErrUnavailable, len(s.flights))
	}
	bound := batch.HeaderLen
	for _, rec := range b.Records {
		bound += recordOverhead + len(rec.Key) + len(rec.Value)
	}
	most := s.reign.MaxBatchBytes()
	if b.ProducerID != noProducer {
		return s.addTxn(b, most, now)
	}
	if s.open != nil && s.open.bound+bound > min(shareBytes, most) {
		s.seal(now)
		if s.phase != leading {
			return ErrNotCoordinator
		}
	}
	if s.open == nil {
		builder, err := build(b, most, now)
		if err != nil {
			return err
		}
		s.open = &openBatch{b: builder, bound: bound}
		return nil
	}
	s.open.bound += bound
	return appendAll(s.open.b, b.Records, now)
}

// addTxn appends transactional records as a batch of their own at once: the partition checks the producer.
func (s *shard[M]) addTxn(b *Batch, most int, now time.Time) error {
	if err := s.flush(now); err != nil {
		return err
	}
	builder, err := build(b, most, now)
	if err != nil {
		return err
	}
	raw, err := builder.Build()
	if err != nil {
		return err
	}
	return s.hand(&flight{}, now, func(done Outcome) error { return s.reign.Append(raw, done) })
}

// build begins a batch with the given records.
func build(b *Batch, most int, now time.Time) (*batch.Builder, error) {
	cfg := batch.NewBuilderConfig(batch.CodecNone, now.UnixMilli())
	cfg.MaxBytes = most
	if b.ProducerID != noProducer {
		cfg.ProducerID, cfg.ProducerEpoch, cfg.Transactional = b.ProducerID, b.ProducerEpoch, true
	}
	builder, err := batch.NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	if err := appendAll(builder, b.Records, now); err != nil {
		builder.Abort()
		return nil, err
	}
	return builder, nil
}

func appendAll(builder *batch.Builder, recs []Record, now time.Time) error {
	for _, rec := range recs {
		err := builder.AppendKV(now.UnixMilli(), rec.Key, rec.Value)
		if errors.Is(err, batch.ErrMessageTooLarge) {
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// seal completes the batch of this turn and sends it.
func (s *shard[M]) seal(now time.Time) {
	if s.open == nil {
		return
	}
	f := &s.open.flight
	raw, err := s.open.b.Build()
	if err != nil {
		panic("BUG: a batch that was begun cannot be built: " + err.Error())
	}
	f.bytes, s.open = raw, nil
	s.flights = append(s.flights, f)
	s.send(now)
}

// abortOpen gives the batch of this turn up.
func (s *shard[M]) abortOpen() {
	if s.open != nil {
		s.open.b.Abort()
		s.flights = append(s.flights, &s.open.flight)
		s.open = nil
	}
}

// send hands complete batches to the partition. False: not all of them are there, and nothing is to be added. A partition that
// had no room is not asked again in this turn, since each time it is waited for.
func (s *shard[M]) send(now time.Time) bool {
	if now.Before(s.retryAt) {
		return false
	}
	for _, f := range s.flights {
		if f.bytes == nil {
			continue
		}
		err := s.handAgain(f, func(done Outcome) error { return s.reign.Append(f.bytes, done) })
		switch {
		case errors.Is(err, ErrBusy):
			s.retryAt = now.Add(busyRetry)
			return false
		case err != nil:
			s.counters.AppendErrors++
			s.lost(err, now)
			return false
		}
		f.bytes = nil
	}
	return true
}

// flush sends the batch of this turn and says whether something more may be appended now.
func (s *shard[M]) flush(now time.Time) error {
	s.seal(now)
	switch {
	case s.phase != leading:
		return ErrNotCoordinator
	case !s.send(now):
		return fmt.Errorf("%w: %w", ErrUnavailable, ErrBusy)
	}
	return nil
}

// hand hands a new flight to the partition, behind all others.
func (s *shard[M]) hand(f *flight, now time.Time, send func(Outcome) error) error {
	err := s.handAgain(f, send)
	switch {
	case err == nil:
		s.flights = append(s.flights, f)
	case errors.Is(err, ErrBusy):
		s.retryAt = now.Add(busyRetry)
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// handAgain hands a flight to the partition, and has the mailbox hear of its outcome.
func (s *shard[M]) handAgain(f *flight, send func(Outcome) error) error {
	s.unheard++
	err := send(func(base, next ids.Offset, appended bool) {
		s.post(func(now time.Time) { s.heard(f, base, next, appended, now) })
	})
	if err != nil {
		s.unheard--
	}
	return err
}

// heard takes the outcome of a flight. One that was given up on matters only as one less to wait for.
func (s *shard[M]) heard(f *flight, base, next ids.Offset, appended bool, now time.Time) {
	s.unheard--
	at := -1
	for i, g := range s.flights {
		if g == f {
			at = i
			break
		}
	}
	switch {
	case at < 0 || s.phase != leading:
	case !appended:
		s.lost(errors.New("its fate is unknown"), now)
	case base != s.end:
		s.lost(fmt.Errorf("appended at offset %d and not at %d: somebody else writes to the partition", base, s.end), now)
	default:
		f.saved, f.next = true, next
		s.end, s.applied, s.epoch = next, next, s.reign.Epoch()
	}
}

// await has replies wait for all that was appended so far.
func (s *shard[M]) await(fns []func(error), now time.Time) {
	if len(fns) == 0 {
		return
	}
	if s.phase != leading {
		for _, fn := range fns {
			fn(ErrNotCoordinator)
		}
		return
	}
	var f *flight
	switch {
	case s.open != nil:
		f = &s.open.flight
	case len(s.flights) > 0:
		f = s.flights[len(s.flights)-1]
	default:
		f = &flight{saved: true, next: s.end}
		s.flights = append(s.flights, f)
	}
	deadline := now.Add(s.c.cfg.CommitTimeout)
	for _, fn := range fns {
		f.replies = append(f.replies, reply{fn, deadline})
	}
}

// settle answers what is committed.
func (s *shard[M]) settle() {
	for len(s.flights) > 0 && s.flights[0].saved {
		f := s.flights[0]
		done, err := s.reign.Settled(f.next)
		if !done {
			return
		}
		s.flights[0] = nil
		s.flights = s.flights[1:]
		for _, r := range f.replies {
			r.fn(err)
		}
	}
	if len(s.flights) == 0 {
		s.flights = nil
	}
}

// firstDeadline is when the oldest reply has waited long enough; zero: none waits.
func (s *shard[M]) firstDeadline() time.Time {
	for _, f := range s.flights {
		if len(f.replies) > 0 {
			return f.replies[0].deadline
		}
	}
	return time.Time{}
}

// expireReplies answers those that have waited too long.
func (s *shard[M]) expireReplies(now time.Time) {
	for _, f := range s.flights {
		for len(f.replies) > 0 && !now.Before(f.replies[0].deadline) {
			r := f.replies[0]
			f.replies = f.replies[1:]
			r.fn(ErrTimeout)
		}
		if len(f.replies) > 0 {
			return
		}
	}
}

// failFlights answers everything that waits.
func (s *shard[M]) failFlights(err error) {
	s.abortOpen()
	flights := s.flights
	s.flights = nil
	for _, f := range flights {
		for _, r := range f.replies {
			r.fn(err)
		}
	}
}
