package producer

import (
	"errors"
	"math"
	"testing"

	"cairn/internal/ids"
)

// batch is a plain batch of producer 7 with consecutive offsets, as the sequence says.
func batch(epoch int16, baseSequence, count int32) Batch {
	base := ids.Offset(1000 + int64(baseSequence))
	return Batch{
		ProducerID: 7, Epoch: epoch, BaseSequence: baseSequence, Count: count,
		BaseOffset: base, LastOffset: base + ids.Offset(count) - 1, Timestamp: int64(baseSequence) + 5,
	}
}

func entryOf(batches ...Batch) *Entry {
	e := NewEntry(batches[0].Epoch)
	for _, b := range batches {
		e.Append(b)
	}
	return &e
}

func marker(epoch int16, coordinatorEpoch int32, offset ids.Offset) Batch {
	return Batch{
		ProducerID: 7, Epoch: epoch, BaseSequence: -1, Count: 1, BaseOffset: offset, LastOffset: offset,
		Timestamp: 99, Transactional: true, Control: true, CoordinatorEpoch: coordinatorEpoch,
	}
}

func transactional(b Batch) Batch {
	b.Transactional = true
	return b
}

func TestCheck(t *testing.T) {
	six := entryOf(batch(3, 0, 10), batch(3, 10, 10), batch(3, 20, 10), batch(3, 30, 10), batch(3, 40, 10), batch(3, 50, 10))
	wrapping := entryOf(batch(3, math.MaxInt32-9, 10))
	across := entryOf(batch(3, math.MaxInt32-4, 10)) // takes MaxInt32-4..MaxInt32, 0..4
	inTxn := entryOf(transactional(batch(3, 0, 10)))
	afterMarker := entryOf(transactional(batch(3, 0, 10)), marker(3, 1, 1010))
	bumpedByMarker := entryOf(transactional(batch(3, 0, 10)), marker(4, 1, 1010))
	runChecks(t, []checkCase{
		{name: "no state, sequence 0", batch: batch(0, 0, 1)},
		{name: "no state, any sequence", batch: batch(0, 4711, 1)},
		{name: "next batch", entry: six, batch: batch(3, 60, 10)},
		{name: "duplicate of the last", entry: six, batch: batch(3, 50, 10), dupBase: 1050},
		{name: "duplicate of the fifth from the end", entry: six, batch: batch(3, 10, 10), dupBase: 1010},
		{name: "duplicate older than five", entry: six, batch: batch(3, 0, 10), err: ErrOutOfOrderSequence},
		{name: "gap", entry: six, batch: batch(3, 61, 10), err: ErrOutOfOrderSequence},
		{name: "overlap of the last", entry: six, batch: batch(3, 55, 10), err: ErrOutOfOrderSequence},
		{name: "shorter than the remembered one", entry: six, batch: batch(3, 50, 9), err: ErrOutOfOrderSequence},
		{name: "longer than the remembered one", entry: six, batch: batch(3, 50, 11), err: ErrOutOfOrderSequence},
		{name: "two remembered ones as one", entry: six, batch: batch(3, 40, 20), err: ErrOutOfOrderSequence},
		{name: "sequence 0 in the same epoch", entry: six, batch: batch(3, 0, 1), err: ErrOutOfOrderSequence},
		{name: "old epoch", entry: six, batch: batch(2, 60, 10), err: ErrInvalidProducerEpoch},
		{name: "old epoch with remembered sequences", entry: six, batch: batch(2, 50, 10), err: ErrInvalidProducerEpoch},
		{name: "new epoch from 0", entry: six, batch: batch(4, 0, 10)},
		{name: "new epoch skipped some", entry: six, batch: batch(9, 0, 10)},
		{name: "new epoch not from 0", entry: six, batch: batch(4, 60, 10), err: ErrOutOfOrderSequence},
		{name: "new epoch with remembered sequences", entry: six, batch: batch(4, 50, 10), err: ErrOutOfOrderSequence},
		{name: "wraps between batches", entry: wrapping, batch: batch(3, 0, 10)},
		{name: "does not wrap to 1", entry: wrapping, batch: batch(3, 1, 10), err: ErrOutOfOrderSequence},
		{name: "wraps inside a batch", entry: wrapping, batch: batch(3, 0, 1)},
		{name: "after a wrap inside a batch", entry: across, batch: batch(3, 5, 1)},
		{name: "after a wrap inside a batch, 0 is old", entry: across, batch: batch(3, 0, 1), err: ErrOutOfOrderSequence},
		{name: "duplicate that wraps", entry: across, batch: batch(3, math.MaxInt32-4, 10), dupBase: 1000 + math.MaxInt32 - 4},
		{name: "open transaction goes on", entry: inTxn, batch: transactional(batch(3, 10, 1))},
		{name: "open transaction, plain batch", entry: inTxn, batch: batch(3, 10, 1), err: ErrInvalidTxnState},
		{name: "open transaction, plain batch out of order", entry: inTxn, batch: batch(3, 11, 1), err: ErrOutOfOrderSequence},
		{name: "after a marker the sequence goes on", entry: afterMarker, batch: transactional(batch(3, 10, 1))},
		{name: "after a marker the last batch is remembered", entry: afterMarker, batch: transactional(batch(3, 0, 10)), dupBase: 1000},
		{name: "after a marker of a new epoch it begins at 0", entry: bumpedByMarker, batch: transactional(batch(4, 0, 1))},
		{name: "after a marker of a new epoch no other", entry: bumpedByMarker, batch: transactional(batch(4, 10, 1)), err: ErrOutOfOrderSequence},
		{name: "after a marker of a new epoch the old one is fenced", entry: bumpedByMarker, batch: transactional(batch(3, 10, 1)), err: ErrInvalidProducerEpoch},
	})
}

// checkCase is one question to Check.
type checkCase struct {
	name    string
	entry   *Entry
	batch   Batch
	dupBase ids.Offset // 0: no duplicate
	err     error
}

func runChecks(t *testing.T, tests []checkCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dup, isDup, err := Check(tt.entry, tt.batch)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if isDup != (tt.dupBase != 0) || isDup && dup.BaseOffset != tt.dupBase {
				t.Fatalf("duplicate %v %+v, want base offset %d", isDup, dup, tt.dupBase)
			}
		})
	}
}

func TestCheckOfMarkersAndTransactions(t *testing.T) {
	inTxn := entryOf(transactional(batch(3, 0, 10)))
	afterMarker := entryOf(transactional(batch(3, 0, 10)), marker(3, 1, 1010))
	bumpedByMarker := entryOf(transactional(batch(3, 0, 10)), marker(4, 1, 1010))
	tv2 := func(b Batch) Batch {
		b.TransactionVersion = 2
		return b
	}
	unsequenced := func(epoch int16) Batch { return transactional(batch(epoch, -1, 2)) }
	runChecks(t, []checkCase{
		{name: "no state, version 2, sequence 0", batch: tv2(transactional(batch(4, 0, 1)))},
		{name: "no state, version 2, another sequence", batch: tv2(transactional(batch(4, 7, 1))), err: ErrOutOfOrderSequence},
		{name: "no state, version 2, no transaction", batch: tv2(batch(4, 7, 1))},
		{name: "no state, version 1, another sequence", batch: transactional(batch(4, 7, 1))},
		{name: "no state, marker", batch: marker(4, 7, 1)},
		{name: "no state, coordinator's batch", batch: tv2(unsequenced(4))},
		{name: "marker of the epoch", entry: inTxn, batch: marker(3, 1, 1010)},
		{name: "marker of a later epoch", entry: inTxn, batch: marker(4, 1, 1010)},
		{name: "marker of an old epoch", entry: inTxn, batch: marker(2, 1, 1010), err: ErrInvalidProducerEpoch},
		{name: "marker again", entry: afterMarker, batch: marker(3, 1, 1011)},
		{name: "marker of an old coordinator", entry: afterMarker, batch: marker(3, 0, 1011), err: ErrCoordinatorFenced},
		{name: "marker of an old coordinator and epoch", entry: afterMarker, batch: marker(2, 0, 1011), err: ErrInvalidProducerEpoch},
		{name: "version 2, marker of the epoch that is open", entry: inTxn, batch: tv2(marker(3, 1, 1010)), err: ErrInvalidProducerEpoch},
		{name: "version 2, marker of a later epoch", entry: inTxn, batch: tv2(marker(4, 1, 1010))},
		{name: "version 2, marker again", entry: bumpedByMarker, batch: tv2(marker(4, 1, 1011))},
		{name: "version 2, marker of an old epoch", entry: bumpedByMarker, batch: tv2(marker(3, 1, 1011)), err: ErrInvalidProducerEpoch},
		{name: "coordinator's batch", entry: inTxn, batch: unsequenced(3)},
		{name: "coordinator's batch again is no duplicate", entry: entryOf(unsequenced(3)), batch: unsequenced(3)},
		{name: "coordinator's batch of an old epoch", entry: inTxn, batch: unsequenced(2), err: ErrInvalidProducerEpoch},
	})
}

func TestDuplicateAnswersWithTheFirstAppend(t *testing.T) {
	e := entryOf(batch(1, 0, 3), batch(1, 3, 2))
	dup, isDup, err := Check(e, Batch{ProducerID: 7, Epoch: 1, BaseSequence: 0, Count: 3, BaseOffset: 9000, LastOffset: 9002, Timestamp: 1})
	want := CachedBatch{FirstSequence: 0, LastSequence: 2, BaseOffset: 1000, LastOffset: 1002, Timestamp: 5}
	if err != nil || !isDup || dup != want {
		t.Fatalf("got %+v %v %v, want %+v", dup, isDup, err, want)
	}
}

func TestNextSequence(t *testing.T) {
	for _, tt := range []struct{ seq, n, want int32 }{
		{0, 1, 1},
		{0, 0, 0},
		{-1, 1, 0},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32, 0, math.MaxInt32},
		{math.MaxInt32 - 4, 9, 4},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		if got := NextSequence(tt.seq, tt.n); got != tt.want {
			t.Errorf("NextSequence(%d, %d) = %d, want %d", tt.seq, tt.n, got, tt.want)
		}
	}
}

func TestEntryKeepsTheLastFiveBatches(t *testing.T) {
	e := NewEntry(1)
	if _, ok := e.Last(); ok || len(e.Batches()) != 0 {
		t.Fatal("a new entry remembers a batch")
	}
	for i := range int32(8) {
		e.Append(batch(1, i, 1))
	}
	got := e.Batches()
	if len(got) != CachedBatches {
		t.Fatalf("%d batches remembered, want %d", len(got), CachedBatches)
	}
	for i, c := range got {
		if c.FirstSequence != int32(i+3) {
			t.Errorf("batch %d begins at sequence %d, want %d", i, c.FirstSequence, i+3)
		}
	}
	if last, ok := e.Last(); !ok || last != got[4] {
		t.Errorf("last is %+v, want %+v", last, got[4])
	}
	e.Append(batch(2, 0, 1))
	if got := e.Batches(); len(got) != 1 || got[0].FirstSequence != 0 || e.Epoch != 2 {
		t.Errorf("after a new epoch: epoch %d, batches %+v", e.Epoch, got)
	}
}

func TestEntryCopiesAreIndependent(t *testing.T) {
	a := *entryOf(batch(1, 0, 1), batch(1, 1, 1))
	b := a
	b.Append(batch(1, 2, 1))
	a.Append(batch(1, 2, 9))
	if last, _ := b.Last(); last.LastSequence != 2 {
		t.Errorf("the copy's last batch became %+v", last)
	}
	if len(a.Batches()) != 3 || len(b.Batches()) != 3 {
		t.Errorf("batches %d and %d, want 3 and 3", len(a.Batches()), len(b.Batches()))
	}
	got := a.Batches()
	got[0].BaseOffset = -77
	if again := a.Batches(); again[0].BaseOffset == -77 {
		t.Error("Batches shares memory with the entry")
	}
}

func TestTransactionFieldsFollowBatchesAndMarkers(t *testing.T) {
	e := NewEntry(1)
	if e.TxnFirstOffset != ids.NoOffset || e.CoordinatorEpoch != NoCoordinator {
		t.Fatalf("new entry %+v", e)
	}
	e.Append(transactional(batch(1, 0, 10)))
	e.Append(transactional(batch(1, 10, 10)))
	if e.TxnFirstOffset != 1000 {
		t.Errorf("transaction began at %d, want 1000", e.TxnFirstOffset)
	}
	e.Append(marker(1, 6, 1020))
	if e.TxnFirstOffset != ids.NoOffset || e.CoordinatorEpoch != 6 || e.LastTimestamp != 99 {
		t.Errorf("after the marker: %+v", e)
	}
	if last, ok := e.Last(); !ok || last.LastSequence != 19 {
		t.Errorf("the marker changed the remembered batches: %+v", last)
	}
}
