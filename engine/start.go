package engine

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// A log has two starts. The log start offset is what clients see, and moves when a log-start entry is applied
// (SetStart). The start point is where the Raft log begins; it follows, when Raft compacts its log to an entry at or
// below the log start offset (RemoveEntriesTo). Data goes only when both are past it: what the Raft log has must be
// there to be sent.

// SetStart applies a committed log-start entry: the log start offset moves up to o. A lower one changes nothing.
// compactTo is up to where the Raft log should be compacted now, by a snapshot; 0: it is not worth it yet. It is
// always below what SetApplied said.
func (l *Log) SetStart(o ids.Offset) (compactTo ids.RaftIndex, err error) {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	if err := l.raiseStart(o); err != nil {
		return 0, err
	}
	return l.compactTo()
}

// compactTo needs startMu.
func (l *Log) compactTo() (ids.RaftIndex, error) {
	start := l.Start()
	index, ok, err := l.indexBelow(start)
	if err != nil || !ok || l.Applied() == 0 {
		return 0, err
	}
	index = min(index, l.Applied()-1)
	l.sh.mu.RLock()
	from := l.sh.start
	worth := l.startBytes-from.LogBytes >= l.e.cfg.DropStepBytes || start == l.state.Next
	l.sh.mu.RUnlock()
	if index <= from.Index || !worth {
		return 0, nil
	}
	var row EntryRow
	if err := l.e.readEntryRow(l.sh.id, index, &row); err != nil || row.LeaderEpoch == ids.NoEpoch {
		return 0, err
	}
	return index, nil
}

// raiseStart needs startMu.
func (l *Log) raiseStart(o ids.Offset) error {
	if o <= l.Start() {
		return nil
	}
	if end := l.End(); o > end {
		return fmt.Errorf("%w: log start %d of %s, the log ends at %d", ErrOffsetOutOfRange, o, l.binding.Info.label(), end)
	}
	bytes, err := l.bytesBelow(o)
	if err != nil {
		return fmt.Errorf("log start %d of %s: %w", o, l.binding.Info.label(), err)
	}
	compaction, err := l.compactionFrom(o, bytes)
	if err != nil {
		return fmt.Errorf("log start %d of %s: %w", o, l.binding.Info.label(), err)
	}
	l.sh.mu.RLock()
	meta := metaRow{Shard: l.binding.Shard, LogStart: o, StartBytes: max(bytes, l.startBytes), GenesisIndex: l.genesis, Epochs: l.epochs}
	limit := l.sh.start.LogState
	l.sh.mu.RUnlock()
	b := l.e.newBatch(0)
	defer b.Close()
	set(b, appendPartitionKey(nil, rowMeta, l.binding.Info.ID), meta.appendTo(nil))
	if compaction != l.compacted() {
		set(b, appendPartitionKey(nil, rowCompaction, l.binding.Info.ID), compaction.appendTo(nil))
	}
	dropped, dropBytes, err := l.drop(b, o, meta.StartBytes, limit)
	if err != nil {
		return err
	}
	if err := l.e.commit(b, flushLazy); err != nil { // the log-start entry is durable, and applied again after a crash
		return err
	}
	l.dropped, l.dropBytes = dropped, dropBytes
	l.e.space.deleted(dataBounds(l.binding.Info.ID, 0, l.dropped))
	l.sh.mu.Lock()
	l.logStart, l.startBytes, l.compaction = o, meta.StartBytes, compaction
	l.sh.mu.Unlock()
	if l.HighWatermark() < o {
		l.SetHighWatermark(o)
	}
	return nil
}

// compactionFrom is what is known of the compaction once the log starts at o, where LogBytes is bytes. It needs startMu.
func (l *Log) compactionFrom(o ids.Offset, bytes int64) (compactionRow, error) {
	c := l.compacted()
	start := l.Start()
	if c.Holes <= start && c.Removed == 0 { // below the generation's base there may be some left that no hole is behind
		return c, nil
	}
	stored, err := l.bytesBetween(start, o)
	return c.below(bytes-l.startBytes-stored, stored), err
}

// bytesBelow is LogBytes where the log held all offsets below o, above the log start. It needs startMu.
func (l *Log) bytesBelow(o ids.Offset) (int64, error) {
	index, ok, err := l.indexBelow(o)
	if err != nil {
		return 0, err
	}
	if !ok { // below the generation's base there are no entries to tell
		bytes, err := l.bytesBetween(l.Start(), o)
		return l.startBytes + bytes, err
	}
	if start := l.LogStartPoint(); index == start.Index {
		return start.LogBytes, nil
	}
	var row EntryRow
	err = l.e.readEntryRow(l.sh.id, index, &row)
	return row.LogBytes, err
}

// bytesBetween are the bytes of the batches from the one that holds start on that end at o or below.
func (l *Log) bytesBetween(start, o ids.Offset) (bytes int64, err error) {
	from, err := l.baseOf(start)
	if err != nil {
		return 0, err
	}
	to, err := l.baseOf(o)
	if err != nil {
		return 0, err
	}
	err = l.scanStored(from, to, func(base ids.Offset, size int, _ func() ([]byte, error)) (bool, error) {
		if base >= from {
			bytes += int64(size)
		}
		return true, nil
	})
	return bytes, err
}

// IndexBelow is the largest committed Raft index up to which the log holds only offsets below o: as far as the Raft
// log may be compacted when o is the log start. false when the Raft log starts above.
func (l *Log) IndexBelow(o ids.Offset) (index ids.RaftIndex, ok bool, err error) {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	return l.indexBelow(o)
}

// indexBelow needs startMu: the entries that it looks at, committed and behind the start point, stay.
func (l *Log) indexBelow(o ids.Offset) (index ids.RaftIndex, ok bool, err error) {
	l.sh.mu.RLock()
	low, high, next := l.sh.start.Index, min(l.sh.last, ids.RaftIndex(l.sh.hard.Commit)), l.sh.start.Next
	l.sh.mu.RUnlock()
	if next > o {
		return 0, false, nil
	}
	high = max(low, high)
	for low < high { // next(low) <= o
		mid := low + (high-low+1)/2
		r, err := l.e.entryAt(l.sh, mid)
		if err != nil {
			return 0, false, err
		}
		if r.next <= o {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low, true, nil
}

// drop adds the deletion of what is below both starts to b, when it is worth it. It needs startMu.
func (l *Log) drop(b *pebble.Batch, start ids.Offset, startBytes int64, raft LogState) (ids.Offset, int64, error) {
	floor, bytes := start, startBytes
	if raft.Next < floor {
		floor, bytes = raft.Next, raft.LogBytes
	}
	if floor <= l.dropped || bytes-l.dropBytes < l.e.cfg.DropStepBytes && floor != l.End() {
		return l.dropped, l.dropBytes, nil
	}
	floor, err := l.baseOf(floor)
	if err != nil || floor <= l.dropped {
		return l.dropped, l.dropBytes, err
	}
	lo, hi := dataBounds(l.binding.Info.ID, l.dropped, floor)
	deleteRange(b, lo, hi)
	lo, hi = timeBounds(l.binding.Info.ID, l.dropped, floor)
	deleteRange(b, lo, hi)
	lo, hi = abortedBounds(l.binding.Info.ID, 0, floor)
	deleteRange(b, lo, hi)
	return floor, bytes, nil
}

// baseOf is the base offset of the stored batch that holds o; o itself when none does.
func (l *Log) baseOf(o ids.Offset) (ids.Offset, error) {
	base := o
	err := l.scanStored(o, math.MaxInt64, func(at ids.Offset, _ int, value func() ([]byte, error)) (bool, error) {
		if at > o {
			return false, nil
		}
		b, err := value()
		if err != nil {
			return false, err
		}
		next, err := l.checkStored(at, b)
		if err == nil && next > o {
			base = at
		}
		return false, err
	})
	return base, err
}

// RemoveEntriesTo lets the Raft log start behind index. Of a partition only entry rows go, and the data that is
// below the log start offset as well.
func (d logDB) RemoveEntriesTo(shardID, replicaID, index uint64) error {
	sh, err := d.e.known(key(shardID, replicaID))
	if err != nil {
		return err
	}
	if err := d.e.moveStart(sh, ids.RaftIndex(index)); err != nil {
		return fmt.Errorf("remove entries of shard %d to %d: %w", shardID, index, err)
	}
	return nil
}

func (e *Engine) moveStart(sh *shard, index ids.RaftIndex) error {
	if l := sh.log; l != nil {
		l.startMu.Lock()
		defer l.startMu.Unlock()
	}
	sh.mu.RLock()
	old, last := sh.start, sh.last
	sh.mu.RUnlock()
	if index <= old.Index || index > last {
		return nil
	}
	var row EntryRow
	if err := e.readEntryRow(sh.id, index, &row); err != nil {
		return err
	}
	at := StartPoint{Index: index, Term: row.Term, LogState: row.LogState}
	b := e.newBatch(0)
	defer b.Close()
	if sh.log != nil {
		if row.LeaderEpoch == ids.NoEpoch {
			return nil // nothing to save by starting before the first epoch
		}
		if err := sh.log.moveLogStart(b, old, &at); err != nil {
			return err
		}
	}
	lo, hi := entryBounds(sh.id.Shard, sh.id.Replica, 0, index+1)
	deleteRange(b, lo, hi)
	set(b, appendReplicaKey(nil, rowStart, sh.id.Shard, sh.id.Replica), at.appendTo(nil))
	if err := e.commit(b, flushLazy); err != nil {
		return err
	}
	e.space.deleted(lo, hi)
	if l := sh.log; l != nil {
		e.space.deleted(dataBounds(l.binding.Info.ID, 0, l.dropped))
	}
	sh.mu.Lock()
	sh.start = at
	sh.mu.Unlock()
	return nil
}

// moveLogStart completes the start point and adds the rows that go with it. It needs startMu.
func (l *Log) moveLogStart(b *pebble.Batch, old StartPoint, at *StartPoint) error {
	start := l.Start()
	if at.Next > start {
		panic(fmt.Sprintf("BUG: %s: the Raft log is to start at offset %d, above the log start %d: followers would miss what lies between",
			l.binding.Info.label(), at.Next, start))
	}
	var err error
	if at.Membership, err = l.membershipAt(old, at.Index); err != nil {
		return err
	}
	if err := l.keepProducers(b, old, at); err != nil {
		return err
	}
	l.dropped, l.dropBytes, err = l.drop(b, start, l.startBytes, at.LogState)
	return err
}

// membershipAt is the membership after the entry at index.
func (l *Log) membershipAt(old StartPoint, index ids.RaftIndex) (pb.Membership, error) {
	m := copyMembership(old.Membership)
	var failed error
	err := l.scanEntries(old.Index+1, index+1, func(row *EntryRow) bool {
		if row.Type == pb.ConfigChangeEntry {
			var c pb.ConfigChange
			if failed = c.Unmarshal(row.Cmd); failed == nil {
				applyConfigChange(&m, c, uint64(row.Index))
			}
		}
		return failed == nil
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("%w: membership change: %w", ErrCorruptRow, failed)
	}
	return m, err
}
