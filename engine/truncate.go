package engine

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// A new leader's entries replace ours from the first index at which the terms differ. The row before that index
// says what the log was there, so nothing is counted back. The batches that go are kept in quarantine, in the same
// commit: an acks=1 record must not vanish without a trace.

// truncation is what a save takes back before it adds its entries.
type truncation struct {
	first ids.RaftIndex // first replaced entry
	state LogState      // after the entry before it
}

// truncate takes the entries from first on out of the log.
func (s *saver) truncate(p *pendingSave, first ids.RaftIndex) error {
	sh := p.sh
	if first <= sh.start.Index || uint64(first) <= sh.hard.Commit {
		panic(fmt.Sprintf("BUG: shard %d: entries from %d on are replaced, the log starts behind %d and %d is committed",
			sh.id.Shard, first, sh.start.Index, sh.hard.Commit))
	}
	before := EntryRow{Index: sh.start.Index, Term: sh.start.Term, LogState: sh.start.LogState}
	if first-1 > sh.start.Index {
		if err := s.e.readEntryRow(sh.id, first-1, &before); err != nil {
			return fmt.Errorf("truncate shard %d to %d: %w", sh.id.Shard, first, err)
		}
	}
	t := &truncation{first: first, state: before.LogState}
	if sh.log != nil {
		if err := s.truncateLog(p, t); err != nil {
			return fmt.Errorf("truncate %s to index %d: %w", sh.log.binding.Info.label(), first, err)
		}
	}
	lo, hi := entryBounds(sh.id.Shard, sh.id.Replica, first, p.last+1)
	deleteRange(s.batch, lo, hi)
	p.truncated = t
	p.state, p.last, p.lastTerm = before.LogState, first-1, before.Term
	return nil
}

func (s *saver) truncateLog(p *pendingSave, t *truncation) error {
	l := p.sh.log
	if err := s.quarantine(l, t.first, p.last+1); err != nil {
		return err
	}
	partition := l.binding.Info.ID
	if t.state.Next < p.state.Next {
		lo, hi := dataBounds(partition, t.state.Next, p.state.Next)
		deleteRange(s.batch, lo, hi)
		lo, hi = timeBounds(partition, t.state.Next, p.state.Next)
		deleteRange(s.batch, lo, hi)
		lo, hi = abortedBounds(partition, t.state.Next, p.state.Next)
		deleteRange(s.batch, lo, hi)
	}
	p.truncateTransactions(l, t)
	p.truncateEpochs(t.first)
	m := &l.saves
	m.timeBytes = min(m.timeBytes, t.state.LogBytes)
	if m.producersReady && m.producers.Index >= t.first {
		m.dropProducers()
	}
	m.producersAt = min(m.producersAt, t.first-1)
	return nil
}

// truncateEpochs forgets the epochs that began at first or behind.
func (p *pendingSave) truncateEpochs(first ids.RaftIndex) {
	n := len(p.epochs)
	for n > 0 && p.epochs[n-1].Index >= first {
		n--
	}
	if n < len(p.epochs) {
		p.epochs, p.metaDirty = p.epochs[:n:n], true
	}
	if p.genesis >= first {
		p.genesis, p.metaDirty = 0, true
	}
}

// quarantine copies the batches of the entries in [from, to).
func (s *saver) quarantine(l *Log, from, to ids.RaftIndex) error {
	now := clock.Now().UnixMilli()
	var failed error
	err := l.scanEntries(from, to, func(row *EntryRow) bool {
		if row.Kind != KindData {
			return true
		}
		var found bool
		found, failed = s.e.get(appendDataKey(nil, l.binding.Info.ID, row.Batch.Base), func(v []byte) error {
			q := quarantineRow{Shard: l.binding.Shard, Index: row.Index, Term: row.Term, AtMs: now, Batch: v}
			s.key = appendQuarantineKey(s.key[:0], l.binding.Info.ID, row.Batch.LeaderEpoch, row.Batch.Base)
			set(s.batch, s.key, q.appendTo(nil))
			return nil
		})
		if IsDamage(failed) { // it cannot be kept; the save must go on, or the process could not start any more
			failed, found = nil, true
			s.e.log.Error("a damaged batch of a truncated tail cannot be kept", zap.String("topic", l.binding.Info.Topic),
				zap.Int32("partition", l.binding.Info.Partition), zap.Int64("offset", int64(row.Batch.Base)))
		}
		if failed == nil && !found {
			failed = fmt.Errorf("%w: entry %d names a batch at offset %d that is not there", ErrCorruptRow, row.Index, row.Batch.Base)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// publishTruncation needs sh.mu. It leaves last, state and epochs to publish, which knows what came after.
func (p *pendingSave) publishTruncation() {
	t, sh := p.truncated, p.sh
	sh.recent.truncate(t.first)
	l := sh.log
	if l == nil {
		return
	}
	l.tail.truncate(t.first)
	n := len(l.undos)
	for n > 0 && l.undos[n-1].index >= t.first {
		n--
		l.producers.Revert(l.undos[n].undo)
	}
	clear(l.undos[n:])
	l.undos = l.undos[:n]
	if l.HighWatermark() > t.state.Next {
		l.SetHighWatermark(t.state.Next)
	}
	if l.Applied() >= t.first {
		l.SetApplied(t.first - 1)
	}
}

// Quarantined is a batch that a truncation took out of a log.
type Quarantined struct {
	LeaderEpoch ids.LeaderEpoch
	Base        ids.Offset
	Shard       ids.ShardID
	Index       ids.RaftIndex
	Term        ids.Term
	AtMs        int64  // when, ms since 1970
	Batch       []byte // the record batch; in ScanQuarantine borrowed until fn returns
}
