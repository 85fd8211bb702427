package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/raftgroup"
	"cairn/wire/batch"
)

// coordination is told what happens to the partitions of an internal topic; see coordinator.Coordinator, which is the
// only implementation, with a machine of its own for each topic. None of the methods blocks.
type coordination interface {
	Attach(partition int32, log coordinator.Log)
	Detach(partition int32)
	Advanced(partition int32)
	Began(partition int32, r coordinator.Reign)
	Ended(partition int32, r coordinator.Reign, held bool)
	Abandoned(partition int32)
	Stats() []coordinator.Stats
	Close()
}

type coordinatorStats = coordinator.Stats

// coordinationRoom bounds the wait for room in the Raft group's queue when a coordinator appends: its worker has other
// partitions, too. What found none is tried again.
const coordinationRoom = 50 * time.Millisecond

// abandonHeld gives up what waited for a reign of this broker in the next generation.
func (p *partition) abandonHeld() {
	p.watches.abandon()
	if p.coord != nil {
		p.coord.Abandoned(p.index)
	}
}

// replicaLog is a partition's log for its coordinator.
type replicaLog struct{ p *partition }

// Read implements coordinator.Log. What the engine reads is in parts that end anywhere.
func (l replicaLog) Read(from, limit ids.Offset, maxBytes int) (batches []byte, next ids.Offset, err error) {
	r, err := l.p.log().Read(engine.ReadOptions{From: from, Limit: limit, MaxBytes: maxBytes, MinOneBatch: true})
	if len(r.Parts) == 1 {
		return r.Parts[0], r.Next, err
	}
	return slices.Concat(r.Parts...), r.Next, err
}

func (l replicaLog) Start() ids.Offset         { return l.p.log().Start() }
func (l replicaLog) End() ids.Offset           { return l.p.log().End() }
func (l replicaLog) HighWatermark() ids.Offset { return l.p.highWatermark() }

func (l replicaLog) EpochBefore(o ids.Offset) ids.LeaderEpoch { return l.p.log().EpochBefore(o) }

// partitionReign is a reign for the partition's coordinator.
type partitionReign struct {
	p *partition
	r *reign
}

func (g partitionReign) Epoch() ids.LeaderEpoch { return g.r.epoch }
func (g partitionReign) Start() ids.Offset      { return g.r.start }
func (g partitionReign) MaxBatchBytes() int     { return g.p.settings.Load().rules.MaxMessageBytes }

// Check implements coordinator.Reign. During a hand-over nothing new begins.
func (g partitionReign) Check() error {
	if g.p.serving() != g.r {
		return coordinator.ErrNotCoordinator
	}
	if err := g.p.checkAppend(g.r, true); err != nil {
		return coordinationError(err)
	}
	return coordinationError(g.p.owner.checkRoom(true))
}

// Append implements coordinator.Reign.
func (g partitionReign) Append(b []byte, done coordinator.Outcome) error {
	h := batch.DecodeHeader(b)
	return g.submit(submission{data: b, kind: engine.KindData, batch: producerBatch(&h), waiter: appendOutcome(done), own: true})
}

// AppendMarker implements coordinator.Reign.
func (g partitionReign) AppendMarker(m coordinator.Marker, done coordinator.Outcome) error {
	own := marker{
		producerID: m.ProducerID, producerEpoch: m.ProducerEpoch, commit: m.Commit,
		coordinatorEpoch: m.CoordinatorEpoch, version: m.TransactionVersion,
	}
	return g.submit(own.submission(own.batch(g.p.owner.cfg.Now()), appendOutcome(done), 0))
}

func (g partitionReign) submit(sub submission) error {
	ctx := &deadlineContext{Context: g.r.ctx, deadline: clock.Now().Add(coordinationRoom)}
	defer ctx.stop()
	_, isDup, err := g.p.seq.submit(ctx, g.r, sub)
	if isDup {
		return fmt.Errorf("%w: the batch repeats another", coordinator.ErrNotCoordinator)
	}
	return coordinationError(err)
}

// Settled implements coordinator.Reign. What the high watermark has passed is committed, however many are in sync now.
func (g partitionReign) Settled(next ids.Offset) (bool, error) {
	done, err := g.p.settle(g.r, next, true)
	if errors.Is(err, errNotEnoughAfterAppend) {
		err = nil
	}
	return done, coordinationError(err)
}

// appendOutcome hears of an append for a coordinator.
type appendOutcome coordinator.Outcome

func (o appendOutcome) appended(_ int, base, next ids.Offset, _ int64) { o(base, next, true) }
func (o appendOutcome) dropped(int)                                    { o(ids.NoOffset, ids.NoOffset, false) }

// coordinationError is what a coordinator is told of an error of its partition. What it does not know is why the partition
// refuses the batch.
func coordinationError(err error) error {
	var as error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errProposeTimeout), errors.Is(err, context.DeadlineExceeded):
		as = coordinator.ErrBusy
	case errors.Is(err, errNotEnoughReplicas), errors.Is(err, errDiskFull):
		as = coordinator.ErrUnavailable
	case errors.Is(err, raftgroup.ErrTooLarge):
		as = coordinator.ErrTooLarge
	case errors.Is(err, errNotLeader), errors.Is(err, raftgroup.ErrNotLeader), errors.Is(err, raftgroup.ErrClosed), errors.Is(err, context.Canceled):
		as = coordinator.ErrNotCoordinator
	default:
		return err
	}
	return fmt.Errorf("%w: %w", as, err)
}
