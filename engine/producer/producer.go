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
	// ErrCoordinatorFenced refuses the marker of a transaction coordinator that another has followed.
	ErrCoordinatorFenced = errors.New("transaction coordinator fenced")
)

// Batch is what producer state needs to know of one record batch.
type Batch struct {
	ProducerID   int64
	Epoch        int16
	BaseSequence int32 // -1 in a control batch, and in what a coordinator writes for a producer
	Count        int32 // sequence numbers it takes: last offset delta + 1, also when compaction has removed records
	BaseOffset   ids.Offset
	LastOffset   ids.Offset // inclusive
	Timestamp    int64      // largest timestamp in it, ms
	// Transactional and Control are the attribute bits. A control batch (a transaction marker) has no sequence.
	Transactional, Control bool
	// Commit and CoordinatorEpoch are those of the marker in a control batch; ignored otherwise.
	Commit           bool
	CoordinatorEpoch int32
	// TransactionVersion is transaction.version as the writer follows it; for Check alone.
	TransactionVersion int16
}

// epochPerTransaction is the first transaction.version in which each end of a transaction raises the producer's epoch (KIP-890).
const epochPerTransaction = 2

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
	seenMs           int64 // when this replica took its last batch, or loaded it, ms; no part of a snapshot
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

// Check decides whether a batch may be appended, by Kafka's rules. e is nil for a producer without state. With isDup the
// batch is not to be appended and dup answers it; with an error (one of the sentinels, wrapped) it is refused.
//
// A producer without state may begin with any sequence number: its state may have expired. Not so in a transaction from
// transaction.version 2 on: each has an epoch of its own, which begins at 0.
func Check(e *Entry, b Batch) (dup CachedBatch, isDup bool, err error) {
	switch {
	case e == nil:
		if b.Transactional && !b.Control && b.TransactionVersion >= epochPerTransaction && b.BaseSequence > 0 {
			err = fmt.Errorf("%w: producer %d epoch %d is not known here and sent sequence %d, expected 0", ErrOutOfOrderSequence, b.ProducerID, b.Epoch, b.BaseSequence)
		}
		return dup, false, err
	case b.Control:
		return dup, false, e.checkMarker(b)
	case b.BaseSequence < 0:
		return dup, false, e.checkEpoch(b)
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
		return dup, false, fmt.Errorf("%w: producer %d has an open transaction and sent a batch outside of it", ErrInvalidTxnState, b.ProducerID)
	}
	return dup, false, nil
}

func (e *Entry) checkEpoch(b Batch) error {
	if b.Epoch < e.Epoch {
		return fmt.Errorf("%w: producer %d sent epoch %d, the current one is %d", ErrInvalidProducerEpoch, b.ProducerID, b.Epoch, e.Epoch)
	}
	return nil
}

// checkMarker lets markers of the current epoch and of later ones in; from transaction.version 2 on, where a marker begins an epoch, only of
// later ones: one of the current epoch is the repetition of a marker that was taken, unless it meets an open transaction.
func (e *Entry) checkMarker(b Batch) error {
	if b.TransactionVersion >= epochPerTransaction && b.Epoch == e.Epoch && e.TxnFirstOffset != ids.NoOffset {
		return fmt.Errorf("%w: the marker of producer %d has epoch %d, in which its transaction is still open", ErrInvalidProducerEpoch, b.ProducerID, b.Epoch)
	}
	if err := e.checkEpoch(b); err != nil {
		return err
	}
	if b.CoordinatorEpoch < e.CoordinatorEpoch {
		return fmt.Errorf("%w: the marker of producer %d has coordinator epoch %d, there was one of %d", ErrCoordinatorFenced, b.ProducerID, b.CoordinatorEpoch, e.CoordinatorEpoch)
	}
	return nil
}

func (e *Entry) checkSequence(b Batch) error {
	if err := e.checkEpoch(b); err != nil {
		return err
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
	if b.BaseSequence >= 0 {
		e.remember(b)
	}
	if b.Transactional && e.TxnFirstOffset == ids.NoOffset {
		e.TxnFirstOffset = b.BaseOffset
	}
}

func (e *Entry) remember(b Batch) {
	keep := e.ring[max(0, len(e.ring)-CachedBatches+1):]
	ring := make([]CachedBatch, len(keep)+1)
	copy(ring, keep)
	ring[len(keep)] = CachedBatch{
		FirstSequence: b.BaseSequence, LastSequence: b.LastSequence(),
		BaseOffset: b.BaseOffset, LastOffset: b.LastOffset, Timestamp: b.Timestamp,
	}
	e.ring = ring
}

// NextSequence is the sequence number n after seq. Sequence numbers are not negative: 0 follows 2147483647.
func NextSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & math.MaxInt32) }
