package raftgroup

import (
	"context"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

const (
	compactTimeout  = 30 * time.Second
	compactRetry    = 500 * time.Millisecond
	compactAttempts = 20
)

// compactor moves the start of Raft logs: for each group that asked, a snapshot request that names the index. dragonboat takes one
// snapshot (without content) and drops the entries. One goroutine, one request at a time.
type compactor struct {
	h      *Host
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}

	mu      sync.Mutex
	pending map[*Group]*compaction // guarded by mu
}

type compaction struct {
	upTo     ids.RaftIndex
	attempts int
	next     time.Time
}

func newCompactor(h *Host) *compactor {
	c := &compactor{h: h, wake: make(chan struct{}, 1), pending: map[*Group]*compaction{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *compactor) start() { c.wg.Go(c.run) }

func (c *compactor) close() {
	c.cancel()
	c.wg.Wait()
}

func (c *compactor) request(g *Group, upTo ids.RaftIndex) {
	c.mu.Lock()
	if p := c.pending[g]; p == nil || p.upTo < upTo {
		c.pending[g] = &compaction{upTo: upTo}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *compactor) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		g, p, wait := c.next(clock.Now())
		if g != nil {
			c.settle(g, p, c.compact(g, p.upTo))
			continue
		}
		timer.Reset(wait)
		select {
		case <-c.ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// next returns a request that is due, or the time until one is.
func (c *compactor) next(now time.Time) (*Group, *compaction, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Hour
	if c.ctx.Err() != nil {
		return nil, nil, wait
	}
	for g, p := range c.pending {
		if d := p.next.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		return g, p, 0
	}
	return nil, nil, wait
}

// settle forgets a request that is done, and schedules one that was refused (a snapshot was under way, or nothing new was applied since
// the last one) again. After too many attempts the next log-start entry brings a new request.
func (c *compactor) settle(g *Group, p *compaction, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.attempts++
	p.next = clock.Now().Add(compactRetry)
	if (done || p.attempts >= compactAttempts) && c.pending[g] == p {
		delete(c.pending, g)
	}
}

// compact reports whether the group needs no further attempt.
func (c *compactor) compact(g *Group, upTo ids.RaftIndex) bool {
	opt := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: uint64(upTo)}
	rs, err := c.h.nh.RequestSnapshot(uint64(g.lr.shard), opt, compactTimeout)
	if err != nil {
		return fromDragonboat(err) == ErrClosed
	}
	select {
	case r := <-rs.ResultC():
		return r.Completed() || r.Terminated()
	case <-c.ctx.Done():
		return true
	}
}
