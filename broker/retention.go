package broker

import (
	"context"
	"sync/atomic"
	"time"

	"cairn/engine"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

const (
	// defaultRetentionCheck is Kafka's log.retention.check.interval.ms.
	defaultRetentionCheck = 5 * time.Minute
	// retentionFirst is the longest wait for the first look.
	retentionFirst = 30 * time.Second
	// retentionAgain is the wait before a partition is looked at again that had more to delete than one look finds.
	retentionAgain = 100 * time.Millisecond
)

// runRetention deletes what has expired until ctx ends.
func (m *replicaManager) runRetention(ctx context.Context) {
	m.everyRetentionCheck(ctx, func() { m.expire(ctx, m.cfg.RetentionCheck) })
}

// everyRetentionCheck calls look until ctx ends.
func (m *replicaManager) everyRetentionCheck(ctx context.Context, look func()) {
	timer := time.NewTimer(min(m.cfg.RetentionCheck, retentionFirst))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			look()
			timer.Reset(m.cfg.RetentionCheck)
		case <-ctx.Done():
			return
		}
	}
}

// expire has the partitions that are led here delete what has expired. Where much has, it comes back, for no longer than within.
func (m *replicaManager) expire(ctx context.Context, within time.Duration) {
	end := time.NewTimer(within)
	defer end.Stop()
	due, now := m.partitions(), m.ageClock.take(m.cfg.Now())
	for {
		more := due[:0]
		for _, p := range due {
			if ctx.Err() != nil {
				return
			}
			if p.expire(now) {
				more = append(more, p)
			}
		}
		if due = more; len(due) == 0 {
			return
		}
		select {
		case <-time.After(retentionAgain):
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// retentionMove is a log start that retention has proposed. It hears as noWaiter does, except of the end.
type retentionMove struct {
	noWaiter
	reign *reign
	to    ids.Offset
	lost  atomic.Bool
}

func (v *retentionMove) dropped(int) { v.lost.Store(true) }

// underWay reports whether the entry may still be committed: nothing else is proposed until then, however long in-sync replicas are missing.
func (v *retentionMove) underWay(p *partition, r *reign) bool {
	return v != nil && v.reign == r && !v.lost.Load() && p.log().Start() < v.to
}

// expire proposes the log start that the topic's retention asks for, if this replica leads and the one proposed before is decided; followers
// hear of it as of any entry. more: there may be more to delete once the log starts there.
func (p *partition) expire(now time.Time) (more bool) {
	r := p.serving()
	if r == nil {
		return false
	}
	if p.retentionMove.Load().underWay(p, r) {
		return true
	}
	retention, limited := p.settings.Load().retention(now)
	if !limited {
		return false
	}
	retention.Limit = p.highWatermark()
	start := p.log().Start()
	to, more, err := p.log().Expired(retention)
	if err == nil && to > start {
		p.debug("retention moves the log start", zap.Int64("from", int64(start)), zap.Int64("to", int64(to)))
		move := &retentionMove{reign: r, to: to}
		if err = p.submitControl(r, engine.KindLogStart, engine.EncodeLogStart(engine.Header{Kind: engine.KindLogStart}, to), move); err == nil {
			p.retentionMove.Store(move)
		}
	}
	if err != nil && p.serving() == r {
		p.owner.cfg.Log.Warn("retention deletes nothing for now", append(p.fields(), zap.Error(err))...)
	}
	return more && err == nil
}

// retention is what the topic keeps; false: everything, as topics do that are only compacted.
func (t *topicSettings) retention(now time.Time) (engine.Retention, bool) {
	r := engine.Retention{MaxBytes: t.RetentionBytes, OldestMs: -1}
	if t.RetentionMs >= 0 {
		r.OldestMs = max(0, now.UnixMilli()-t.RetentionMs)
	}
	return r, t.DeletePolicy && (r.MaxBytes >= 0 || r.OldestMs >= 0)
}
