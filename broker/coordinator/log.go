package coordinator

import "cairn/internal/ids"

// Log is a replica of a partition on this broker, in one generation. Its methods do not block on other nodes.
type Log interface {
	// Read returns whole batches from offset from on, with last offsets below limit, at least one if there is any and at
	// most about maxBytes, one behind the other. next is where to read on.
	Read(from, limit ids.Offset, maxBytes int) (batches []byte, next ids.Offset, err error)
	Start() ids.Offset
	End() ids.Offset
	HighWatermark() ids.Offset
	// EpochBefore is the leader epoch of the record before offset o. Together they name the log up to o: at one leader epoch
	// there was one leader.
	EpochBefore(o ids.Offset) ids.LeaderEpoch
}

// Outcome hears, exactly once, what became of an appended batch. appended says that it is saved at [base, next); otherwise
// its fate is unknown. It may be called before Append returns; it does not block.
type Outcome func(base, next ids.Offset, appended bool)

// Reign is one time during which this broker leads a partition.
type Reign interface {
	// Epoch is its leader epoch, Start the offset where that begins: what is below was appended by leaders before.
	Epoch() ids.LeaderEpoch
	Start() ids.Offset
	// MaxBatchBytes bounds a batch.
	MaxBatchBytes() int
	// Check says whether operations may run and append now. Errors: ErrNotCoordinator, ErrUnavailable for appends alone.
	Check() error
	// Append hands a batch to the partition; b is borrowed until it returns. On an error nothing was appended and done is
	// not called: ErrBusy for now, ErrNotCoordinator, or why this batch is refused.
	Append(b []byte, done Outcome) error
	// AppendMarker ends a transaction in the partition, as Append.
	AppendMarker(m Marker, done Outcome) error
	// Settled reports whether all below next is committed. ErrNotCoordinator: this broker may not answer for it any more.
	Settled(next ids.Offset) (done bool, err error)
}

// Marker ends a producer's transaction in a partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	Commit           bool
	CoordinatorEpoch int32
	// TransactionVersion is the transaction.version under which the coordinator ends it; the check of the epoch depends on it.
	TransactionVersion int16
}
