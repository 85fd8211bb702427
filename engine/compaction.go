package engine

import (
	"errors"
	"fmt"

	"cairn/internal/bin"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Compaction keeps of each key the record with the largest offset. It rewrites and deletes data rows, never entry rows: those keep the
// span of their batch, so a batch that has lost records, or all of them, is still sent to followers with its place in the log. Offsets do
// not change; between stored batches there may be holes.
//
// A pass (compact_pass.go) reads the keys of what is dirty into a bounded table, and then filters the log from its start to there, in
// small commits. A crash leaves some of it done; the next pass does it again, with a table that knows at least as much.
//
// Only what is below the high watermark, the last stable offset and the saved commit is touched, and never the last batch there: so
// nothing that is touched is ever truncated, and whoever reads to the end gets there.

// compactionRow says how far a log is compacted.
type compactionRow struct {
	Clean      ids.Offset // records below have no later record of the same key below
	Holes      ids.Offset // stored batches below may lack records, or be missing
	Removed    int64      // bytes of batches as saved, from the log start on, that are not stored any more; negative when they were compressed worse
	CleanBytes int64      // stored from the log start to Clean, about
}

func (c *compactionRow) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(c.Clean))
	dst = bin.AppendUvarint(dst, uint64(c.Holes))
	dst = bin.AppendVarint(dst, c.Removed)
	return bin.AppendUvarint(dst, uint64(c.CleanBytes))
}

func decodeCompactionRow(b []byte) (compactionRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	c := compactionRow{Clean: ids.Offset(r.Int64()), Holes: ids.Offset(r.Int64()), Removed: r.Varint(), CleanBytes: r.Int64()}
	return c, rowError(rowCompaction, r.Done())
}

// compactionOf is what is stored of a partition's compaction; nothing when it has never been compacted.
func (e *Engine) compactionOf(p ids.PartitionID) (c compactionRow, err error) {
	_, err = e.get(appendPartitionKey(nil, rowCompaction, p), func(v []byte) error {
		c, err = decodeCompactionRow(v)
		return err
	})
	return c, err
}

// below is the row once the log starts at o: of what lay below, removed bytes are not stored, and stored ones are.
func (c compactionRow) below(removed, stored int64) compactionRow {
	c.Removed -= removed
	c.CleanBytes = max(0, c.CleanBytes-stored)
	return c
}

func (l *Log) compacted() compactionRow {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.compaction
}

// Compacted is up to where the log is compacted: each key occurs once below. 0: it never was.
func (l *Log) Compacted() ids.Offset { return l.compacted().Clean }

// CompactionBounds says what of a log may be compacted.
type CompactionBounds struct {
	Limit ids.Offset // nothing at or above: the high watermark
	// YoungMs: nothing from the first record of this time or later on, ms since 1970; negative: whatever its time.
	YoungMs int64
}

// Dirt is what a log has to compact.
type Dirt struct {
	Bytes, Dirty int64      // of all batches that may be compacted, and of those that are not yet
	From, To     ids.Offset // where the latter are
}

// Ratio is the share of what is dirty; 0 when nothing is.
func (d Dirt) Ratio() float64 {
	if d.Dirty <= 0 || d.Bytes <= 0 {
		return 0
	}
	return float64(d.Dirty) / float64(d.Bytes)
}

// Dirt tells what there is to compact. It reads a few rows.
func (l *Log) Dirt(b CompactionBounds) (Dirt, error) {
	c := l.compacted()
	d := Dirt{From: max(c.Clean, l.Start())}
	to, err := l.compactableTo(b, d.From)
	if err != nil || to <= d.From {
		return d, err
	}
	d.To = to
	l.startMu.Lock()
	below, err := l.bytesBelow(to)
	l.startMu.Unlock()
	if err != nil {
		return d, fmt.Errorf("dirt of %s: %w", l.binding.Info.label(), err)
	}
	l.sh.mu.RLock()
	above := l.state.LogBytes - below
	size := l.state.LogBytes - l.startBytes - l.compaction.Removed
	l.sh.mu.RUnlock()
	d.Bytes = max(0, size-above)
	d.Dirty = max(0, d.Bytes-c.CleanBytes)
	return d, nil
}

// compactableTo is up to where the log may be compacted, a boundary between batches; from when there is nothing behind it.
func (l *Log) compactableTo(b CompactionBounds, from ids.Offset) (ids.Offset, error) {
	if !l.HasGenesis() { // it tells a replica that has joined the generation which transactions are open
		return from, nil
	}
	commit, err := l.NextAfter(min(l.Commit(), l.LastIndex()))
	if err != nil {
		return from, err
	}
	limit := min(b.Limit, l.End(), commit)
	limit = min(limit, l.LastStable(limit))
	if limit <= from {
		return from, nil
	}
	if b.YoungMs >= 0 {
		old, _, err := l.olderThan(b.YoungMs, limit)
		if err != nil {
			return from, err
		}
		limit = min(limit, old)
	}
	last, err := l.lastBaseBelow(limit)
	return max(from, last), err
}

// lastBaseBelow is the base offset of the last stored batch that begins below o; 0 when there is none.
func (l *Log) lastBaseBelow(o ids.Offset) (base ids.Offset, err error) {
	it, err := l.e.newIter(dataBounds(l.binding.Info.ID, 0, max(o, 0)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return 0, it.Error()
	}
	_, base, err = parseDataKey(it.Key())
	return base, err
}

// FirstTimestamp is the largest timestamp (ms) of the first batch at from or behind, below to; -1 when there is none.
func (l *Log) FirstTimestamp(from, to ids.Offset) (ms int64, err error) {
	ms = batch.NoTimestamp
	err = l.scanHeaders(from, to, func(h batch.Header, _ []byte) (bool, error) {
		ms = h.MaxTimestamp
		return false, nil
	})
	return ms, err
}

// emptied is the batch of an entry whose data row compaction has deleted, or nil when it should be there. A marker is made again:
// without it a follower would take its transaction for an open one.
func (l *Log) emptied(row *EntryRow) []byte {
	i := &row.Batch
	if i.Base >= l.compacted().Holes {
		return nil
	}
	if i.IsMarker {
		b := batch.BuildMarker(i.ProducerID, i.ProducerEpoch, i.Marker, i.MaxTimestamp)
		batch.SetBaseOffset(b, int64(i.Base))
		batch.SetLeaderEpoch(b, int32(i.LeaderEpoch))
		return b
	}
	return batch.Empty(batch.Header{
		BaseOffset: int64(i.Base), LeaderEpoch: int32(i.LeaderEpoch), Attributes: i.Attributes, LastOffsetDelta: i.LastOffsetDelta,
		MaxTimestamp: i.MaxTimestamp, ProducerID: i.ProducerID, ProducerEpoch: i.ProducerEpoch, BaseSequence: i.BaseSequence,
	})
}

// ReadCommitted is Read, and the aborted transactions that have records or their marker in what was read. Compaction may delete a marker in
// between, and with it the row that says which transaction it aborted: then it is read again.
func (l *Log) ReadCommitted(o ReadOptions) (Records, []AbortedTransaction, error) {
	return l.readWith(o, l.AbortedTransactions)
}

// ReadWithMarkers is Read, and the aborted transactions whose markers are in what was read.
func (l *Log) ReadWithMarkers(o ReadOptions) (Records, []AbortedTransaction, error) {
	return l.readWith(o, l.AbortedBetween)
}

func (l *Log) readWith(o ReadOptions, aborted func(from, to ids.Offset) ([]AbortedTransaction, error)) (Records, []AbortedTransaction, error) {
	for {
		gone := l.markersGone.Load()
		r, err := l.Read(o)
		if err != nil || r.Next <= o.From {
			return r, nil, err
		}
		list, err := aborted(o.From, r.Next)
		if err != nil || l.markersGone.Load() == gone {
			return r, list, err
		}
	}
}
