package engine

import (
	"errors"
	"fmt"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// QuarantinePos is a place in a partition's quarantine, which is in the order of leader epoch and base offset.
type QuarantinePos struct {
	LeaderEpoch ids.LeaderEpoch
	Base        ids.Offset
}

// QuarantineStart is before all that can be in quarantine.
func QuarantineStart() QuarantinePos { return QuarantinePos{ids.NoEpoch, 0} }

// After is the next possible place behind p.
func (p QuarantinePos) After() QuarantinePos { return QuarantinePos{p.LeaderEpoch, p.Base + 1} }

// QuarantineEntry describes a batch in quarantine without its records: the offsets [Base, Next).
type QuarantineEntry struct {
	QuarantinePos
	Partition ids.PartitionID
	Next      ids.Offset
	AtMs      int64 // when it was put there, ms since 1970
	Bytes     int   // of the batch
}

// ScanQuarantine calls fn with the quarantined batches in the order of leader epoch and offset until it returns false.
func (l *Log) ScanQuarantine(fn func(Quarantined) bool) error {
	return l.ScanQuarantineFrom(QuarantineStart(), fn)
}

// ScanQuarantineFrom is ScanQuarantine from a place on, that place included.
func (l *Log) ScanQuarantineFrom(from QuarantinePos, fn func(Quarantined) bool) error {
	_, hi := partitionBounds(rowQuarantine, l.binding.Info.ID)
	lo := appendQuarantineKey(nil, l.binding.Info.ID, from.LeaderEpoch, from.Base)
	return l.e.scanQuarantine(lo, hi, func(_ ids.PartitionID, q Quarantined) bool { return fn(q) })
}

// Quarantine lists all that is in quarantine here, in the order of partition, leader epoch and offset. It reads each
// batch: not for every day.
func (e *Engine) Quarantine() ([]QuarantineEntry, error) {
	lo, hi := kindBounds(rowQuarantine)
	var list []QuarantineEntry
	err := e.scanQuarantine(lo, hi, func(p ids.PartitionID, q Quarantined) bool {
		list = append(list, q.entry(p))
		return true
	})
	return list, err
}

func (q *Quarantined) entry(p ids.PartitionID) QuarantineEntry {
	x := QuarantineEntry{QuarantinePos: QuarantinePos{q.LeaderEpoch, q.Base}, Partition: p, Next: q.Base, AtMs: q.AtMs, Bytes: len(q.Batch)}
	if h, err := batch.ParseHeader(q.Batch); err == nil {
		x.Next = q.Base + ids.Offset(h.LastOffsetDelta) + 1
	}
	return x
}

func (e *Engine) scanQuarantine(lo, hi []byte, fn func(ids.PartitionID, Quarantined) bool) (err error) {
	it, err := e.newIter(lo, hi)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		p, epoch, base, err := parseQuarantineKey(it.Key())
		if err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		q, err := decodeQuarantineRow(v)
		if err != nil {
			return err
		}
		if !fn(p, Quarantined{LeaderEpoch: epoch, Base: base, Shard: q.Shard, Index: q.Index, Term: q.Term, AtMs: q.AtMs, Batch: q.Batch}) {
			return nil
		}
	}
	return it.Error()
}

// QuarantineUpTo lists what is in quarantine up to and with that place.
func (l *Log) QuarantineUpTo(place QuarantinePos) ([]QuarantineEntry, error) {
	var list []QuarantineEntry
	err := l.ScanQuarantine(func(q Quarantined) bool {
		if q.LeaderEpoch > place.LeaderEpoch || q.LeaderEpoch == place.LeaderEpoch && q.Base > place.Base {
			return false
		}
		list = append(list, q.entry(l.binding.Info.ID))
		return true
	})
	return list, err
}

// RemoveQuarantined deletes these batches from quarantine, durably.
func (e *Engine) RemoveQuarantined(list []QuarantineEntry) error {
	if len(list) == 0 {
		return nil
	}
	b := e.newBatch(0)
	defer b.Close()
	for _, x := range list {
		deleteRow(b, appendQuarantineKey(nil, x.Partition, x.LeaderEpoch, x.Base))
	}
	if err := e.commit(b, flushDurable); err != nil {
		return fmt.Errorf("remove from quarantine: %w", err)
	}
	return nil
}
