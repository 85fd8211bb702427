package broker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// The cleaner compacts the logs of topics whose cleanup.policy has compact, those that are led here and those that follow alike: each
// replica at its own time. Which log is next, and when it is worth it, is as in Kafka; there are no segments, so all below the high
// watermark but the last batch may be compacted.

const (
	// cleanerRetry is when a log that could not be compacted is tried again.
	cleanerRetry = 5 * time.Minute
	// heldAfter is how long all replicas must have been in sync before it counts that they hold what was below the high watermark then.
	heldAfter = 10 * time.Second
)

// cleanerSettings are the properties log.cleaner.*, as of now.
type cleanerSettings struct {
	Threads        int
	Backoff        time.Duration // how long to wait when nothing is dirty
	BufferBytes    int64         // of the key tables of all threads
	LoadFactor     float64
	BytesPerSecond float64 // read and written, of all threads
	Entries        int64   // of a Raft log; with more the partition begins its next generation
}

// cleanerSettings reads what is in force.
func (b *Broker) cleanerSettings() cleanerSettings {
	number := func(name string) float64 {
		f, err := strconv.ParseFloat(b.dynamicValue(name), 64)
		if err != nil { // checked on the way in
			panic("BUG: " + name + ": " + err.Error())
		}
		return f
	}
	return cleanerSettings{
		Threads:        int(number("log.cleaner.threads")),
		Backoff:        time.Duration(min(number("log.cleaner.backoff.ms"), 1e9)) * time.Millisecond,
		BufferBytes:    int64(min(number("log.cleaner.dedupe.buffer.size"), 1<<40)),
		LoadFactor:     number("log.cleaner.io.buffer.load.factor"),
		BytesPerSecond: number("log.cleaner.io.max.bytes.per.second"),
		Entries:        int64(number("log.cleaner.generation.entries")),
	}
}

// cleaner is what the cleaner knows from one look to the next. Its maps belong to the goroutine of run.
type cleaner struct {
	m        *replicaManager
	settings func() cleanerSettings
	held     map[ids.PartitionID]heldMark
	failed   sync.Map  // *partition to the time.Time when it is tried again
	begunAt  time.Time // when the controller was last asked for a generation

	passes, readBytes, writtenBytes, removedBytes atomic.Int64
	uncleanable                                   atomic.Int64
	dirtiest                                      atomic.Uint64 // bits of the largest ratio of the last look
}

// heldMark says below which offset all replicas of a partition hold the log.
type heldMark struct {
	p         *partition
	epoch     int32      // of the partition: all replicas are in sync since this one
	confirmed ids.Offset // all hold what is below
	next      ids.Offset // the high watermark at the time at
	at        time.Time
}

// dirtyLog is a log that is worth a pass.
type dirtyLog struct {
	p     *partition
	ratio float64
	held  ids.Offset
}

func newCleaner(m *replicaManager, settings func() cleanerSettings) *cleaner {
	return &cleaner{m: m, settings: settings, held: map[ids.PartitionID]heldMark{}}
}

// run compacts until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	for {
		s := c.settings()
		if s.Threads > 0 && c.round(ctx, s) {
			continue
		}
		timer := time.NewTimer(max(s.Backoff, time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// round makes a pass over each log that is worth it, the dirtiest first, and says whether there was one.
func (c *cleaner) round(ctx context.Context, s cleanerSettings) bool {
	due := c.look(s)
	c.beginAnew(ctx, s)
	queue := make(chan dirtyLog, len(due))
	for _, d := range due {
		queue <- d
	}
	close(queue)
	var cleaned atomic.Bool
	var workers sync.WaitGroup
	for range min(s.Threads, len(due)) {
		workers.Go(func() {
			for d := range queue {
				if ctx.Err() == nil && c.clean(ctx, d, s) {
					cleaned.Store(true)
				}
			}
		})
	}
	workers.Wait()
	return cleaned.Load() && ctx.Err() == nil
}

// look lists the logs that are worth a pass.
func (c *cleaner) look(s cleanerSettings) []dirtyLog {
	now, img := c.m.cfg.Now(), c.m.cfg.Images.Image()
	var due []dirtyLog
	largest, failed := 0.0, int64(0)
	before := c.held
	c.held = map[ids.PartitionID]heldMark{}
	hosted := c.m.partitions()
	for _, p := range hosted {
		if !p.settings.Load().CompactPolicy {
			continue
		}
		mark := before[p.id].look(p, img, now, min(heldAfter, s.Backoff))
		c.held[p.id] = mark
		if until, ok := c.failed.Load(p); ok {
			failed++
			if now.Before(until.(time.Time)) {
				continue
			}
			c.failed.Delete(p)
		}
		ratio, worth, err := p.dirty(now)
		if err != nil {
			c.noteFailure(p, err)
			continue
		}
		largest = max(largest, ratio)
		if worth {
			due = append(due, dirtyLog{p, ratio, mark.confirmed})
		}
	}
	c.failed.Range(func(p, _ any) bool {
		if !slices.Contains(hosted, p.(*partition)) {
			c.failed.Delete(p)
		}
		return true
	})
	c.uncleanable.Store(failed)
	c.dirtiest.Store(math.Float64bits(largest))
	slices.SortStableFunc(due, func(a, b dirtyLog) int { return cmp.Compare(b.ratio, a.ratio) })
	return due
}

// look is the mark as of now. That all replicas are in sync is believed once the metadata still says so a while later.
func (k heldMark) look(p *partition, img *controller.Image, now time.Time, after time.Duration) heldMark {
	state, ok := img.PartitionOf(p.topicID, p.index)
	if !ok || state.Shard != p.shard || !p.owner.leaseValid() || !allIn(state.Replicas, state.InSync) {
		return heldMark{}
	}
	fresh := heldMark{p: p, epoch: state.PartitionEpoch, next: p.highWatermark(), at: now}
	switch {
	case k.p != p || k.epoch != state.PartitionEpoch:
		return fresh
	case now.Sub(k.at) < after:
		return k
	}
	fresh.confirmed = k.next
	return fresh
}

func allIn(replicas, inSync []ids.NodeID) bool {
	return !slices.ContainsFunc(replicas, func(n ids.NodeID) bool { return !slices.Contains(inSync, n) })
}

// compactionBounds are what the topic's settings let be compacted now.
func (p *partition) compactionBounds(now time.Time) engine.CompactionBounds {
	b := engine.CompactionBounds{Limit: p.highWatermark(), YoungMs: -1}
	if lag := p.settings.Load().MinCompactionLagMs; lag > 0 {
		b.YoungMs = max(0, now.UnixMilli()-lag)
	}
	return b
}

// dirty says how dirty the log is, and whether it is worth a pass: by ratio, or because something has waited for max.compaction.lag.ms.
func (p *partition) dirty(now time.Time) (ratio float64, worth bool, err error) {
	s := p.settings.Load()
	d, err := p.log().Dirt(p.compactionBounds(now))
	if err != nil || d.Dirty <= 0 {
		return 0, false, err
	}
	if ratio = d.Ratio(); ratio > s.MinCleanableDirtyRatio || s.MaxCompactionLagMs == math.MaxInt64 {
		return ratio, ratio > s.MinCleanableDirtyRatio, nil
	}
	ms, err := p.log().FirstTimestamp(d.From, d.To)
	return ratio, err == nil && ms >= 0 && now.UnixMilli()-ms > s.MaxCompactionLagMs, err
}

// clean makes one pass.
func (c *cleaner) clean(ctx context.Context, d dirtyLog, s cleanerSettings) bool {
	now, settings := c.m.cfg.Now(), d.p.settings.Load()
	pace := newCleanerPace(ctx, c.m.cfg.Engine.Uses, c.settings)
	began := clock.Now()
	r, err := d.p.log().Compact(engine.Compaction{
		CompactionBounds: d.p.compactionBounds(now),
		NowMs:            now.UnixMilli(), DeleteRetentionMs: settings.DeleteRetentionMs, DiscardBelow: d.held,
		TableBytes: s.BufferBytes / int64(s.Threads), TableLoad: s.LoadFactor,
		Pace: pace.wait,
	})
	c.readBytes.Add(r.Read)
	c.writtenBytes.Add(r.Written)
	c.removedBytes.Add(r.Removed)
	if err != nil {
		c.noteFailure(d.p, err)
		return false
	}
	c.passes.Add(1)
	d.p.debug("compacted", zap.Int64("from", int64(r.From)), zap.Int64("clean", int64(r.Clean)), zap.Int("keys", r.Keys),
		zap.Int64("readBytes", r.Read), zap.Int64("writtenBytes", r.Written), zap.Int64("removedBytes", r.Removed), zap.Duration("took", time.Since(began)))
	return r.Clean > r.From
}

// noteFailure has a log that cannot be compacted left alone for a while. Who stops, or has another owner by now, is no failure.
func (c *cleaner) noteFailure(p *partition, err error) {
	if errors.Is(err, engine.ErrReleased) || errors.Is(err, engine.ErrClosed) || errors.Is(err, context.Canceled) {
		return
	}
	c.failed.Store(p, c.m.cfg.Now().Add(cleanerRetry))
	c.m.cfg.Log.Warn("a log cannot be compacted; it is tried again later", append(p.fields(), zap.Duration("in", cleanerRetry), zap.Error(err))...)
}
