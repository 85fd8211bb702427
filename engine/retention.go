package engine

import (
	"cairn/internal/ids"
	"cairn/wire/batch"
)

const (
	// expiryReadBytes is how much of the log one search for what is too old reads at most.
	expiryReadBytes = 8 << 20
	// expiryRows is how many batches below the generation's base one search counts at most.
	expiryRows = 1 << 16
)

// Retention says what of a log is kept.
type Retention struct {
	Limit    ids.Offset // nothing at or above it expires: the high watermark
	MaxBytes int64      // at least so much is kept, if there is so much; negative: all
	OldestMs int64      // batches whose records are all older may go, ms since 1970; negative: none
}

// Expired is up to where the log may be deleted: its start when nothing may. Time ends at the first batch with a record that is young
// enough, as retention does in Kafka at its segment. A batch without timestamps goes with those behind it. What one call
// reads is bounded: with more, it has not seen all, and should be asked again once the log starts at to.
func (l *Log) Expired(r Retention) (to ids.Offset, more bool, err error) {
	to = l.Start()
	limit := min(r.Limit, l.End())
	if to >= limit {
		return to, false, nil
	}
	if r.MaxBytes >= 0 {
		if to, more, err = l.beyondSize(r.MaxBytes, limit); err != nil {
			return l.Start(), false, err
		}
	}
	if r.OldestMs >= 0 {
		old, again, err := l.olderThan(r.OldestMs, limit)
		if err != nil {
			return l.Start(), false, err
		}
		to, more = max(to, old), more || again
	}
	return to, more, nil
}

// beyondSize is the largest boundary between batches behind which at least keep bytes of the log lie.
func (l *Log) beyondSize(keep int64, limit ids.Offset) (to ids.Offset, more bool, err error) {
	l.startMu.Lock() // what is looked at stays
	defer l.startMu.Unlock()
	l.sh.mu.RLock()
	start, below, raft := l.logStart, l.startBytes, l.sh.start
	low, high := raft.Index, min(l.sh.last, ids.RaftIndex(l.sh.hard.Commit))
	goal := l.state.LogBytes - keep // LogBytes at the boundary is at most this
	compaction := l.compaction
	l.sh.mu.RUnlock()
	if goal -= compaction.Removed; goal <= below {
		return start, false, nil
	}
	if compaction.Holes > start { // entries tell how large batches were
		return l.prefixBoundary(start, limit, goal-below)
	}
	if start < raft.Next {
		if raft.LogBytes > goal {
			return l.prefixBoundary(start, min(limit, raft.Next), goal-below)
		}
		start = raft.Next
	}
	to = start
	var row EntryRow
	for low < high { // LogBytes and Next rise with the index
		mid := low + (high-low+1)/2
		if err := l.e.readEntryRow(l.sh.id, mid, &row); err != nil {
			return start, false, err
		}
		if row.LogBytes <= goal && row.Next <= limit {
			low, to = mid, max(to, row.Next)
		} else {
			high = mid - 1
		}
	}
	return min(to, limit), false, nil
}

// prefixBoundary is the largest boundary between batches in [start, limit] such that those between have at most that many bytes. Below the
// base of a generation there are no entries that would tell: rows are counted.
func (l *Log) prefixBoundary(start, limit ids.Offset, bytes int64) (to ids.Offset, more bool, err error) {
	to = start
	rows, sum := 0, int64(0)
	err = l.scanStored(start, limit+1, func(base ids.Offset, size int, _ func() ([]byte, error)) (bool, error) {
		if sum > bytes {
			return false, nil
		}
		to = max(to, base)
		rows++
		sum += int64(size)
		more = rows == expiryRows
		return !more, nil
	})
	return to, more && to > start, err
}

// olderThan is the end of the last batch before the first that has a record of the time cutoff (ms) or later.
func (l *Log) olderThan(cutoff int64, limit ids.Offset) (to ids.Offset, more bool, err error) {
	start := l.Start()
	from, err := l.lastTimeRowBelow(cutoff, start, limit)
	if err != nil {
		return start, false, err
	}
	to, bytes := max(start, from-1), 0
	err = l.scanHeaders(to, limit, func(h batch.Header, raw []byte) (bool, error) {
		next := ids.Offset(h.NextOffset())
		if h.MaxTimestamp >= cutoff || next > limit {
			return false, nil
		}
		if h.MaxTimestamp >= 0 {
			to = max(to, next)
		}
		bytes += len(raw)
		more = bytes >= expiryReadBytes
		return !more, nil
	})
	return to, more && to > start, err
}
