package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Timestamps of batches need not rise with their offsets, but their running maximum does. Time rows hold it, one per
// timeRowEvery bytes of batches, so a search finds the stretch in which a timestamp is first reached. Batches that
// were deleted at the log start still count in the maximum; then the stretch is longer, and reading it slower.

// OffsetForTime is the first record with a timestamp of at least ts (ms) below limit: its offset, its timestamp and
// its leader epoch. NoOffset when there is none.
func (l *Log) OffsetForTime(ts int64, limit ids.Offset) (off ids.Offset, timestamp int64, epoch ids.LeaderEpoch, err error) {
	start, limit := l.Start(), min(limit, l.End())
	from, err := l.lastTimeRowBelow(ts, start, limit)
	if err != nil {
		return ids.NoOffset, -1, ids.NoEpoch, err
	}
	found := timeHit{offset: ids.NoOffset, timestamp: -1}
	err = l.scanHeaders(from, limit, func(h batch.Header, raw []byte) (bool, error) {
		if h.MaxTimestamp < ts {
			return true, nil
		}
		found, err = firstRecord(h, raw, max(start, from), limit, ts)
		return found.offset == ids.NoOffset, err
	})
	if err != nil || found.offset == ids.NoOffset {
		return ids.NoOffset, -1, ids.NoEpoch, err
	}
	return found.offset, found.timestamp, l.epochAt(found.offset), nil
}

// MaxTimestamp is the first record with the largest timestamp below limit, which is a boundary between batches: its offset, its timestamp (ms)
// and its leader epoch. NoOffset when there is none.
func (l *Log) MaxTimestamp(limit ids.Offset) (off ids.Offset, timestamp int64, epoch ids.LeaderEpoch, err error) {
	state, start := l.State(), l.Start()
	best, from := timeRow{MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}, start
	if limit >= state.Next {
		limit = state.Next
		if state.MaxTimestampBase >= start {
			best, from = timeRow{state.MaxTimestamp, state.MaxTimestampBase}, limit
		}
	} else if row, base, ok, err := l.timeRowBefore(start, limit); err != nil {
		return ids.NoOffset, -1, ids.NoEpoch, err
	} else if ok && row.MaxTimestampBase >= start {
		best, from = row, base+1
	}
	found, err := l.latestRecord(best, from, limit)
	if err == nil && found.timestamp < best.MaxTimestamp && l.compacted().Holes > start { // compaction has removed that one
		found, err = l.latestRecord(timeRow{MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}, start, limit)
	}
	if err != nil || found.offset == ids.NoOffset {
		return ids.NoOffset, -1, ids.NoEpoch, err
	}
	return found.offset, found.timestamp, l.epochAt(found.offset), nil
}

// latestRecord is the first record with the largest timestamp in [from, limit) and in the batch that is best so far.
func (l *Log) latestRecord(best timeRow, from, limit ids.Offset) (found timeHit, err error) {
	start := l.Start()
	found = timeHit{offset: ids.NoOffset, timestamp: -1}
	err = l.scanHeaders(from, limit, func(h batch.Header, raw []byte) (bool, error) {
		if h.RecordCount == 0 || h.MaxTimestamp <= best.MaxTimestamp {
			return true, nil
		}
		base, latest := ids.Offset(h.BaseOffset), h.MaxTimestamp
		if base < start {
			if latest, err = latestFrom(h, raw, start); err != nil || latest <= best.MaxTimestamp {
				return err == nil, err
			}
		}
		best = timeRow{latest, base}
		return true, nil
	})
	if err != nil || best.MaxTimestampBase == ids.NoOffset {
		return found, err
	}
	err = l.scanHeaders(best.MaxTimestampBase, best.MaxTimestampBase+1, func(h batch.Header, raw []byte) (bool, error) {
		found, err = firstRecord(h, raw, start, limit, best.MaxTimestamp)
		return false, err
	})
	return found, err
}

// latestFrom is the largest timestamp of a batch's records from an offset on.
func latestFrom(h batch.Header, raw []byte, from ids.Offset) (ms int64, err error) {
	ms = -1
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return ms, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		if ids.Offset(h.BaseOffset)+ids.Offset(rec.OffsetDelta) >= from {
			ms = max(ms, rec.Timestamp(&h))
		}
	}
	return ms, nil
}

type timeHit struct {
	offset    ids.Offset
	timestamp int64
}

// firstRecord is the first record of a batch in [from, limit) with a timestamp of at least ts.
func firstRecord(h batch.Header, raw []byte, from, limit ids.Offset, ts int64) (timeHit, error) {
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return timeHit{offset: ids.NoOffset, timestamp: -1}, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		o := ids.Offset(h.BaseOffset) + ids.Offset(rec.OffsetDelta)
		if t := rec.Timestamp(&h); t >= ts && o >= from && o < limit {
			return timeHit{o, t}, nil
		}
	}
	return timeHit{offset: ids.NoOffset, timestamp: -1}, nil
}

// scanHeaders calls fn with the stored batches from the one that holds from on, checked, until it returns false.
func (l *Log) scanHeaders(from, limit ids.Offset, fn func(h batch.Header, raw []byte) (bool, error)) error {
	if from >= limit {
		return nil
	}
	return l.scanStored(from, limit, func(base ids.Offset, _ int, value func() ([]byte, error)) (bool, error) {
		raw, err := value()
		if err != nil {
			return false, err
		}
		next, err := l.checkStored(base, raw)
		if err != nil || next <= from {
			return err == nil, err
		}
		return fn(batch.DecodeHeader(raw), raw)
	})
}

// timeRowBefore is the last time row with a base offset in [start, limit).
func (l *Log) timeRowBefore(start, limit ids.Offset) (row timeRow, base ids.Offset, ok bool, err error) {
	it, err := l.e.newIter(timeBounds(l.binding.Info.ID, start, limit))
	if err != nil {
		return row, 0, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return row, 0, false, it.Error()
	}
	row, base, err = timeRowAt(it)
	return row, base, err == nil, err
}

func timeRowAt(it *pebble.Iterator) (row timeRow, base ids.Offset, err error) {
	if _, base, err = parseTimeKey(it.Key()); err != nil {
		return row, 0, err
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return row, 0, err
	}
	row, err = decodeTimeRow(v)
	return row, base, err
}

// lastTimeRowBelow is where the search for ts has to begin: behind the last time row in [start, limit) whose running
// maximum is below ts, else start. The binary search is over offsets, not rows.
func (l *Log) lastTimeRowBelow(ts int64, start, limit ids.Offset) (from ids.Offset, err error) {
	it, err := l.e.newIter(timeBounds(l.binding.Info.ID, start, max(start, limit)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	from = start
	for low, high := start, limit; low < high; {
		mid := low + (high-low)/2
		if !it.SeekGE(appendTimeKey(nil, l.binding.Info.ID, mid)) {
			if err := it.Error(); err != nil {
				return 0, err
			}
			high = mid
			continue
		}
		row, base, err := timeRowAt(it)
		if err != nil {
			return 0, err
		}
		if row.MaxTimestamp >= ts {
			high = mid
		} else {
			low, from = base+1, base+1
		}
	}
	return from, nil
}
