package producer

import (
	"errors"
	"fmt"
	"math"

	"cairn/internal/ids"
)

// CachedBatches is how many of its last batches are remembered of each producer. Clients rely on five: it is the
// most they keep in flight while idempotent.
const CachedBatches = 5

var (
	// ErrOutOfOrderSequence refuses a batch that neither follows the last one nor repeats a remembered one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch refuses a batch of an epoch that a newer one has fenced.
	ErrInvalidProducerEpoch = errors.New("invalid producer epoch")
	// ErrInvalidTxnState refuses a plain batch of a producer whose transaction is open.
	ErrInvalidTxnState = errors.New("invalid transaction state")
)

// Batch is what producer state needs to know of one record batch.
type Batch struct {
	ProducerID   int64
	Epoch        int16
	BaseSequence int32 // -1 in a control batch
	Count        int32 // sequence numbers it takes: last offset delta + 1, also when compaction has removed records
	BaseOffset   ids.Offset
	LastOffset   ids.Offset // inclusive
	Timestamp    int64      // largest timestamp in it, ms
	// Transactional and Control are the attribute bits. A control batch (a transaction marker) has no sequence.
	Transactional, Control bool
	// CoordinatorEpoch is that of the marker in a control batch; ignored otherwise.
	CoordinatorEpoch int32
}

// LastSequence is the sequence number of the batch's last record.
func (b Batch) LastSequence() int32 { return NextSequence(b.BaseSequence, b.Count-1) }

// CachedBatch is a remembered batch, enough to answer its duplicate.
type CachedBatch struct {
	FirstSequence, LastSequence int32
	BaseOffset, LastOffset      ids.Offset // LastOffset is inclusive
	Timestamp                   int64      // largest timestamp in it, ms
}

// Entry is the state of one producer on one partition. Copies are independent of each other.
//
// Invariant: ring is never changed in place, only replaced, and holds at most CachedBatches, oldest first.
type Entry struct {
	Epoch            int16
	CoordinatorEpoch int32      // of the last marker; NoCoordinator before one
	LastTimestamp    int64      // of the last batch, ms: decides expiry
	TxnFirstOffset   ids.Offset // first offset of the open transaction; ids.NoOffset: none is open
	ring             []CachedBatch
}

// NoCoordinator is the coordinator epoch of a producer that no marker has been written for.
const NoCoordinator int32 = -1

// NewEntry is the state before the first batch of an epoch.
func NewEntry(epoch int16) Entry {
	return Entry{Epoch: epoch, CoordinatorEpoch: NoCoordinator, LastTimestamp: -1, TxnFirstOffset: ids.NoOffset}
}

// Last is the newest remembered batch; false when none is, as after a change of epoch by a marker.
func (e *Entry) Last() (CachedBatch, bool) {
	if len(e.ring) == 0 {
		return CachedBatch{}, false
	}
	return e.ring[len(e.ring)-1], true
}

// Batches are the remembered batches, oldest first: a copy.
func (e *Entry) Batches() []CachedBatch { return append([]CachedBatch(nil), e.ring...) }

// Find returns the remembered batch with exactly this range of sequence numbers, in the entry's epoch.
func (e *Entry) Find(first, last int32) (CachedBatch, bool) {
	for i := len(e.ring) - 1; i >= 0; i-- {
		if c := e.ring[i]; c.FirstSequence == first && c.LastSequence == last {
			return c, true
		}
	}
	return CachedBatch{}, false
}

// Check decides whether a batch of a client may be appended, by Kafka's rules for batches that are no markers.
// e is nil for a producer without state. With isDup the batch is not to be appended and dup answers it; with an
// error (one of the three sentinels, wrapped) it is refused.
//
// A producer without state may begin with any sequence number: its state may have expired.
func Check(e *Entry, b Batch) (dup CachedBatch, isDup bool, err error) {
	if e == nil {
		return dup, false, nil
	}
	if b.Epoch == e.Epoch {
		if dup, isDup = e.Find(b.BaseSequence, b.LastSequence()); isDup {
			return dup, true, nil
		}
	}
	if err = e.checkSequence(b); err != nil {
		return dup, false, err
	}
	if e.TxnFirstOffset != ids.NoOffset && !b.Transactional {
		return dup, false, fmt.Errorf("%w: producer %d has an open transaction since offset %d and sent a batch outside of it",
			ErrInvalidTxnState, b.ProducerID, e.TxnFirstOffset)
	}
	return dup, false, nil
}

func (e *Entry) checkSequence(b Batch) error {
	if b.Epoch < e.Epoch {
		return fmt.Errorf("%w: producer %d sent epoch %d, the current one is %d", ErrInvalidProducerEpoch, b.ProducerID, b.Epoch, e.Epoch)
	}
	last, known := e.Last()
	want := int32(0)
	switch {
	case b.Epoch != e.Epoch: // a new epoch begins at 0
	case known:
		want = NextSequence(last.LastSequence, 1)
	default: // the epoch came from a marker: nothing of it was appended yet, so it begins at 0 too
	}
	if b.BaseSequence != want {
		return fmt.Errorf("%w: producer %d epoch %d sent sequence %d, expected %d", ErrOutOfOrderSequence, b.ProducerID, b.Epoch, b.BaseSequence, want)
	}
	return nil
}

// Append takes a batch that is in the log into account, without checks: what is in the log has passed them on the
// leader. A change of epoch forgets the batches of the old one.
func (e *Entry) Append(b Batch) {
	if b.Epoch != e.Epoch {
		e.Epoch, e.ring = b.Epoch, nil
	}
	e.LastTimestamp = b.Timestamp
	if b.Control {
		e.CoordinatorEpoch, e.TxnFirstOffset = b.CoordinatorEpoch, ids.NoOffset
		return
	}
	keep := e.ring[max(0, len(e.ring)-CachedBatches+1):]
	ring := make([]CachedBatch, len(keep)+1)
	copy(ring, keep)
	ring[len(keep)] = CachedBatch{
		FirstSequence: b.BaseSequence, LastSequence: b.LastSequence(),
		BaseOffset: b.BaseOffset, LastOffset: b.LastOffset, Timestamp: b.Timestamp,
	}
	e.ring = ring
	if b.Transactional && e.TxnFirstOffset == ids.NoOffset {
		e.TxnFirstOffset = b.BaseOffset
	}
}

// NextSequence is the sequence number n after seq. Sequence numbers are not negative: 0 follows 2147483647.
func NextSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & math.MaxInt32) }
