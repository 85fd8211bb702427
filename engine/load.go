package engine

import (
	"errors"
	"fmt"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// loadLog reads a log's state from its rows, never from its data: a handful of single rows, and the entry rows
// behind the last snapshot of the producer state (at most a few thousand, see producersEvery).
func (e *Engine) loadLog(b Binding) (*Log, error) {
	sh, tip, _, err := e.loadShard(replicaID{b.Shard, b.Replica})
	if err != nil {
		return nil, err
	}
	l := &Log{e: e, binding: b, sh: sh, state: tip}
	sh.log = l
	l.tail.owner = &e.tails
	if err := l.loadMeta(); err != nil {
		return nil, err
	}
	if err := l.loadCheckpoint(); err != nil {
		return nil, err
	}
	if err := l.loadProducers(); err != nil {
		return nil, err
	}
	l.saves.timeBytes = tip.LogBytes
	if err := l.loadDropped(); err != nil {
		return nil, err
	}
	if l.abortedTo, err = l.loadAbortedTo(); err != nil {
		return nil, err
	}
	if l.compaction, err = e.compactionOf(b.Info.ID); err != nil {
		return nil, err
	}
	sh.replayNext, sh.replayUntil = sh.start.Index+1, l.Applied()
	return l, nil
}

func (l *Log) loadMeta() error {
	m := metaRow{Shard: l.binding.Shard}
	if _, err := l.e.get(appendPartitionKey(nil, rowMeta, l.binding.Info.ID), func(v []byte) (err error) {
		m, err = decodeMetaRow(v)
		return err
	}); err != nil {
		return err
	}
	l.logStart, l.startBytes, l.epochs = m.LogStart, m.StartBytes, m.Epochs
	l.genesis = m.GenesisIndex
	if m.Shard != l.binding.Shard {
		return fmt.Errorf("%w: meta row of shard %d, the owner is shard %d", ErrCorruptRow, m.Shard, l.binding.Shard)
	}
	return nil
}

// loadDropped finds what is left of expired data: its deletion is postponed until it is worth it, see drop.
func (l *Log) loadDropped() (err error) {
	l.dropped, l.dropBytes = l.logStart, l.startBytes
	it, err := l.e.newIter(dataBounds(l.binding.Info.ID, 0, l.logStart))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.First() {
		return it.Error()
	}
	_, l.dropped, err = parseDataKey(it.Key())
	l.dropBytes -= l.e.cfg.DropStepBytes
	return err
}

func (l *Log) loadCheckpoint() error {
	var c checkpointRow
	if _, err := l.e.get(appendPartitionKey(nil, rowCheckpoint, l.binding.Info.ID), func(v []byte) (err error) {
		c, err = decodeCheckpointRow(v)
		return err
	}); err != nil {
		return err
	}
	applied := ids.RaftIndex(0)
	if c.Shard == l.binding.Shard {
		applied = min(c.Applied, ids.RaftIndex(l.sh.hard.Commit), l.sh.last)
		l.checkpoint.put(c)
	}
	l.SetApplied(max(applied, l.sh.start.Index))
	l.SetHighWatermark(max(min(c.HighWatermark, l.state.Next), l.logStart))
	return nil
}

// loadProducers builds the producer state from its snapshot and the entry rows behind it, and on the way fills what
// memory keeps of the newest entries.
func (l *Log) loadProducers() error {
	p, err := l.storedProducers()
	if err != nil {
		return err
	}
	now := clock.Now().UnixMilli()
	if err := l.producers.LoadSnapshot(p.Snapshot, now); len(p.Snapshot) > 0 && err != nil {
		return err
	}
	txns := l.producers.Transactions().WithEnded(p.Ended)
	sh := l.sh
	l.saves.producersAt = p.Index
	from := p.Index + 1
	if sh.last > recentKept {
		from = min(from, sh.last-recentKept+1)
	}
	err = l.scanEntries(max(from, sh.start.Index+1), sh.last+1, func(row *EntryRow) bool {
		sh.recent.append(row.Index, recentEntry{term: row.Term, next: row.Next})
		if row.Kind == KindData && row.Index > p.Index {
			b := row.Batch.producerBatch()
			txns.Append(b)
			u := l.producers.Append(b, now)
			if uint64(row.Index) > sh.hard.Commit {
				l.undos = append(l.undos, undo{row.Index, u})
			}
		}
		return true
	})
	txns.Settle(l.HighWatermark())
	l.txns = txns
	return err
}

// storedProducers is the stored snapshot; an empty one at index 0 when there is none. Its Snapshot is a copy.
func (l *Log) storedProducers() (producersRow, error) {
	p := producersRow{}
	if _, err := l.e.get(appendPartitionKey(nil, rowProducers, l.binding.Info.ID), func(v []byte) (err error) {
		p, err = decodeProducersRow(v)
		p.Snapshot = append([]byte(nil), p.Snapshot...)
		return err
	}); err != nil {
		return p, err
	}
	if p.Shard != l.binding.Shard && p.Shard != 0 {
		return p, fmt.Errorf("%w: producer snapshot of shard %d, the owner is shard %d", ErrCorruptRow, p.Shard, l.binding.Shard)
	}
	if p.Index > l.sh.last {
		return p, fmt.Errorf("%w: producer snapshot at index %d, the log ends at %d", ErrCorruptRow, p.Index, l.sh.last)
	}
	return p, nil
}

// scanEntries calls fn with the entry rows in [from, to) until it returns false. The row is borrowed until fn
// returns. A gap ends the scan with an error.
func (l *Log) scanEntries(from, to ids.RaftIndex, fn func(*EntryRow) bool) (err error) {
	if from >= to {
		return nil
	}
	it, err := l.e.newIter(entryBounds(l.sh.id.Shard, l.sh.id.Replica, from, to))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var row EntryRow
	for ok := it.First(); ok; ok = it.Next() {
		_, _, index, err := parseEntryKey(it.Key())
		if err != nil {
			return err
		}
		if index != from {
			return fmt.Errorf("%w: entry %d follows %d", ErrCorruptRow, index, from-1)
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := row.decode(index, v); err != nil {
			return err
		}
		if !fn(&row) {
			return nil
		}
		from++
	}
	return it.Error()
}

// ScanEntries calls fn with the stored entry rows from index from on until it returns false. Cmd of a row is
// borrowed until fn returns.
func (l *Log) ScanEntries(from ids.RaftIndex, fn func(EntryRow) bool) error {
	return l.scanEntries(max(from, l.LogStartPoint().Index+1), l.LastIndex()+1, func(row *EntryRow) bool { return fn(*row) })
}
