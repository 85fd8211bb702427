package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// ownAppend is a batch that this broker makes itself and appends with acks=all: it waits for its save, and then for the high watermark.
type ownAppend struct {
	watch
	alarm
	p    *partition
	r    *reign
	done func(base, next ids.Offset, err error)

	mu      sync.Mutex
	base    ids.Offset // guarded by mu
	settled bool       // guarded by mu
}

// appendOwn checks and submits a batch as a produce request with acks=all does. nil: done hears once what became of it, from any goroutine
// and without locks held, perhaps before appendOwn returns; it must not block. Its errors are errNotLeader, errNotEnoughAfterAppend and
// errRequestTimedOut, after all of which the batch may still be in the log. With an error it was not appended and done hears nothing:
// errNotLeader, errNotEnoughReplicas, errDiskFull, errProposeTimeout, the sentinels of package producer. It may wait for room in the group's queue, up to
// room; timeout bounds all of it.
func (p *partition) appendOwn(r *reign, sub submission, room, timeout time.Duration, done func(base, next ids.Offset, err error)) error {
	if err := p.checkAppend(r, true); err != nil {
		return err
	}
	if err := p.owner.checkRoom(true); err != nil {
		return err
	}
	o := &ownAppend{p: p, r: r, done: done, base: ids.NoOffset}
	o.watch.op = o
	begun := clock.Now()
	if !p.owner.cfg.Waiting.enter(&o.alarm, o, begun.Add(timeout)) {
		return fmt.Errorf("%w: too many requests wait", errProposeTimeout)
	}
	sub.waiter, sub.own = o, true
	ctx, cancel := context.WithDeadline(r.ctx, begun.Add(room))
	defer cancel()
	if _, _, err := p.seq.submit(ctx, r, sub); err != nil {
		if o.settle() {
			return err
		}
	}
	return nil
}

// settle reports whether it is the caller who answers.
func (o *ownAppend) settle() bool {
	o.mu.Lock()
	first := !o.settled
	o.settled = true
	o.mu.Unlock()
	if first {
		o.p.owner.cfg.Waiting.leave(&o.alarm)
		o.p.watches.remove(&o.watch)
	}
	return first
}

func (o *ownAppend) finish(err error) {
	if !o.settle() {
		return
	}
	o.mu.Lock()
	base := o.base
	o.mu.Unlock()
	if err != nil {
		o.done(ids.NoOffset, ids.NoOffset, err)
		return
	}
	o.done(base, o.threshold, nil)
}

// appended implements appendWaiter.
func (o *ownAppend) appended(_ int, base, next ids.Offset, _ int64) {
	o.mu.Lock()
	o.base, o.threshold = base, next
	settled := o.settled
	o.mu.Unlock()
	if settled {
		return
	}
	switch o.p.watches.add(&o.watch, o.r) {
	case watchReached:
		o.reached()
	case watchClosed:
		o.finish(errNotLeader)
	}
}

// reached answers once the high watermark has passed the batch.
func (o *ownAppend) reached() {
	done, err := o.p.settle(o.r, o.threshold, true)
	if err == nil && !done {
		err = fmt.Errorf("%w: offset %d is not there yet", errNotLeader, o.threshold)
	}
	o.finish(err)
}

// dropped implements appendWaiter.
func (o *ownAppend) dropped(int) { o.finish(errNotLeader) }

// outlivesReign implements parked: who made the batch looks at the log of the next reign.
func (o *ownAppend) outlivesReign() bool { return false }

// woken implements parked.
func (o *ownAppend) woken(_ *watch, cause wakeCause) {
	if cause == wakeReached {
		o.reached()
		return
	}
	o.finish(errNotLeader)
}

// expired implements parked.
func (o *ownAppend) expired() { o.finish(errRequestTimedOut) }

// marker ends the open transaction of a producer in a partition.
type marker struct {
	producerID       int64
	producerEpoch    int16
	commit           bool
	coordinatorEpoch int32
	version          int16 // transaction.version that the transaction follows
}

// batch is the control batch of the marker.
func (m marker) batch(now time.Time) []byte {
	return batch.BuildMarker(m.producerID, m.producerEpoch, batch.Marker{Commit: m.commit, CoordinatorEpoch: m.coordinatorEpoch}, now.UnixMilli())
}

// submission is the marker for the sequencer.
func (m marker) submission(data []byte, waiter appendWaiter, slot int) submission {
	return submission{
		data: data, kind: engine.KindData, waiter: waiter, slot: slot, own: true,
		batch: producer.Batch{
			ProducerID: m.producerID, Epoch: m.producerEpoch, BaseSequence: batch.NoSequence, Count: 1, BaseOffset: ids.NoOffset, LastOffset: ids.NoOffset,
			Timestamp: batch.NoTimestamp, Transactional: true, Control: true, Commit: m.commit, CoordinatorEpoch: m.coordinatorEpoch,
			TransactionVersion: m.version,
		},
	}
}

// appendMarker appends a marker with acks=all, as appendOwn does.
func (p *partition) appendMarker(r *reign, m marker, room, timeout time.Duration, done func(err error)) error {
	return p.appendOwn(r, m.submission(m.batch(p.owner.cfg.Now()), nil, 0), room, timeout, func(_, _ ids.Offset, err error) { done(err) })
}
