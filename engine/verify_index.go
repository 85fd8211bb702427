package engine

import (
	"errors"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// indexWalk goes along the time rows and the rows of aborted transactions, in the order of offsets, while the verifier goes along the
// batches: so it needs no memory, however many there are.
type indexWalk struct {
	times, aborted         *pebble.Iterator
	moreTimes, moreAborted bool

	before  timeRow // the time row before
	highest int64   // timestamp of the batches without an entry so far
}

func (w *indexWalk) open(r pebble.Reader, p ids.PartitionID) (err error) {
	w.before, w.highest = timeRow{MaxTimestamp: math.MinInt64}, math.MinInt64
	lo, hi := partitionBounds(rowTime, p)
	if w.times, err = r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
		return err
	}
	w.moreTimes = w.times.First()
	lo, hi = partitionBounds(rowAborted, p)
	if w.aborted, err = r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
		return err
	}
	w.moreAborted = w.aborted.First()
	return nil
}

func (w *indexWalk) close() error {
	var errs []error
	for _, it := range []*pebble.Iterator{w.times, w.aborted} {
		if it != nil {
			errs = append(errs, it.Close())
		}
	}
	return errors.Join(errs...)
}

// storedInfo describes the batch that data stands on as an entry row would, as far as it can be read.
func (v *verifier) storedInfo() (BatchInfo, error) {
	_, base, err := parseDataKey(v.data.Key())
	if err != nil {
		return BatchInfo{}, err
	}
	raw, err := v.data.ValueAndErr()
	if err != nil {
		return BatchInfo{}, err
	}
	h, err := batch.ParseHeader(raw)
	if err != nil { // batch tells of it
		return BatchInfo{Base: base, LeaderEpoch: ids.LeaderEpoch(h.LeaderEpoch), MaxTimestamp: math.MinInt64, ProducerID: -1}, nil
	}
	info := batchInfo(&h, base, ids.LeaderEpoch(h.LeaderEpoch), raw)
	info.Size = int32(h.Size())
	return info, nil
}

// indexed checks the rows up to a batch, in the order of batches. state is what the log knows with that batch, nil for one that has no entry.
func (v *verifier) indexed(i *BatchInfo, state *LogState) error {
	if state == nil {
		v.index.highest = max(v.index.highest, i.MaxTimestamp)
	}
	for v.index.moreTimes {
		row, base, err := timeRowAt(v.index.times)
		if err != nil {
			return err
		}
		if base > i.Base {
			break
		}
		v.timeRow(row, base, i, state)
		v.index.moreTimes = v.index.times.Next()
	}
	last := i.Base + ids.Offset(i.LastOffsetDelta)
	for v.index.moreAborted {
		row, marker, err := v.abortedRowHere()
		if err != nil {
			return err
		}
		if marker > last {
			break
		}
		v.abortedRow(row, marker, i)
		v.index.moreAborted = v.index.aborted.Next()
	}
	return errors.Join(v.index.times.Error(), v.index.aborted.Error())
}

func (v *verifier) abortedRowHere() (row abortedRow, marker ids.Offset, err error) {
	if _, marker, err = parseAbortedKey(v.index.aborted.Key()); err != nil {
		return row, marker, err
	}
	value, err := v.index.aborted.ValueAndErr()
	if err != nil {
		return row, marker, err
	}
	row, err = decodeAbortedRow(value)
	return row, marker, err
}

// timeRow checks a time row at or below the batch. Too low a maximum hides records from a lookup by time. A batch without an entry may have
// been taken away by compaction, one with an entry leaves that.
func (v *verifier) timeRow(row timeRow, base ids.Offset, i *BatchInfo, state *LogState) {
	v.found.TimeRows++
	before := v.index.before
	v.index.before = row
	switch {
	case base < i.Base && base >= v.start.Next:
		v.problemOf(ProblemIndex, base, 0, "a time row, but no batch begins here")
	case row.MaxTimestamp < before.MaxTimestamp || row.MaxTimestampBase < before.MaxTimestampBase || row.MaxTimestampBase > base:
		v.problemOf(ProblemIndex, base, 0, "time row %+v behind %+v", row, before)
	case base < i.Base:
	case state == nil && row.MaxTimestamp < v.index.highest:
		v.problemOf(ProblemIndex, base, 0, "time row %+v, but a timestamp up to here is %d", row, v.index.highest)
	case state != nil && (row.MaxTimestamp != state.MaxTimestamp || row.MaxTimestampBase != state.MaxTimestampBase):
		v.problemOf(ProblemIndex, base, 0, "time row %+v, but the largest timestamp up to here is %d, at offset %d", row, state.MaxTimestamp, state.MaxTimestampBase)
	}
}

// abortedRow checks the row of a transaction whose marker is at or below the end of the batch.
func (v *verifier) abortedRow(row abortedRow, marker ids.Offset, i *BatchInfo) {
	v.found.AbortedRows++
	switch {
	case row.First > marker:
		v.problemOf(ProblemIndex, marker, 0, "aborted transaction %+v begins behind its marker", row)
	case marker < i.Base && (marker < v.start.Next || marker < v.meta.LogStart): // deleted or taken away by compaction
	case marker != i.Base || !i.IsMarker || i.Marker.Commit || i.ProducerID != row.ProducerID:
		v.problemOf(ProblemIndex, marker, 0, "the row of an aborted transaction of producer %d, but its marker is not here", row.ProducerID)
	}
}

// restOfIndexes: behind the last batch there is nothing to be found.
func (v *verifier) restOfIndexes() error {
	if v.full() { // the walk ended before the log did
		return nil
	}
	for ; v.index.moreTimes; v.index.moreTimes = v.index.times.Next() {
		row, base, err := timeRowAt(v.index.times)
		if err != nil {
			return err
		}
		v.found.TimeRows++
		v.problemOf(ProblemIndex, base, 0, "time row %+v, but no batch begins here or behind", row)
	}
	for ; v.index.moreAborted; v.index.moreAborted = v.index.aborted.Next() {
		row, marker, err := v.abortedRowHere()
		if err != nil {
			return err
		}
		v.found.AbortedRows++
		v.problemOf(ProblemIndex, marker, 0, "the row of an aborted transaction of producer %d, but there is no batch here or behind", row.ProducerID)
	}
	return errors.Join(v.index.times.Error(), v.index.aborted.Error())
}
