package coordinator

import (
	"time"

	"cairn/internal/ids"
)

// Record is one record of an internal topic. Value nil: a tombstone. Nobody changes the bytes; those of a replayed record may
// lie in a large buffer, so that what is kept for long is better copied.
type Record struct{ Key, Value []byte }

// Meta says where a replayed record stands.
type Meta struct {
	// Offset of the record; ids.NoOffset when it was appended by an operation of this leader just now, and its place in
	// the log is not known yet. Records are replayed in the order of their offsets all the same.
	Offset    ids.Offset
	Timestamp int64 // ms
	// ProducerID and ProducerEpoch of a transactional batch; ProducerID -1 of any other.
	ProducerID    int64
	ProducerEpoch int16
}

// Machine is the state of one partition of an internal topic. One goroutine at a time calls its methods, which do no
// I/O, hold no clock and do not block.
//
// A machine that its partition's log has left behind, as after an operation of unknown outcome, is dropped: Resigned is
// called if it led, and a new one is made and fed from the start of the log.
type Machine interface {
	// Replay applies a record that is below the high watermark, that is being loaded, or that an operation of this leader
	// has appended. An error says that the record cannot be understood; it is logged and the record left out.
	Replay(Meta, Record) error
	// ReplayMarker applies the end of a transaction whose records were replayed with this producer id.
	ReplayMarker(producerID int64, epoch int16, commit bool)
	// Elected tells that this replica leads from now on. All of the log is replayed.
	Elected(now time.Time, fx *Effects)
	// Resigned tells that it leads no more. The machine fails what it has kept waiting, with ErrNotCoordinator, and drops
	// what is in memory only; what it has replayed stays.
	Resigned()
	// Expire does what is due by now, and returns when it wants to be called next; zero: nothing is due. It is called
	// after Elected, after each operation and at the time it named last.
	Expire(now time.Time, fx *Effects) (next time.Time)
}

// Effects collect what one operation does: what it appends to the partition, and what follows. An operation decides
// first and appends then; the runtime replays what it appended to the machine right after it has returned.
//
// All records of one operation are appended, or none. What Elected and Expire append are many operations in one: a unit is
// what was appended since the replies before it, together with its own replies; without replies, each Append by itself.
// State that is in memory only, as members who wait, may be changed by the operation itself.
type Effects struct {
	units []unit
	epoch ids.LeaderEpoch
}

// unit is what stands or falls together.
type unit struct {
	batches []Batch
	then    []func(error)
	refused []func(error, *Effects)
}

// Batch is what one Append adds.
type Batch struct {
	ProducerID    int64 // -1: not transactional
	ProducerEpoch int16
	Records       []Record
}

// noProducer is the producer id of what is not transactional.
const noProducer int64 = -1

// NewEffects returns the empty effects of an operation of the leader of that epoch.
func NewEffects(epoch ids.LeaderEpoch) *Effects { return &Effects{epoch: epoch} }

// LeaderEpoch is the epoch in which this replica leads the partition.
func (fx *Effects) LeaderEpoch() ids.LeaderEpoch { return fx.epoch }

// Append adds records to what the operation appends. The records are owned by the runtime from here on.
func (fx *Effects) Append(recs ...Record) { fx.AppendTxn(noProducer, -1, recs...) }

// AppendTxn adds records to what the operation appends within the transaction of a producer. An operation that does so
// appends nothing else. The replies may hear why the partition refuses the producer, beside the errors of this package.
func (fx *Effects) AppendTxn(producerID int64, epoch int16, recs ...Record) {
	if len(recs) == 0 {
		return
	}
	u := fx.last()
	if len(u.then) > 0 || len(u.refused) > 0 {
		fx.units = append(fx.units, unit{})
		u = fx.last()
	}
	u.batches = append(u.batches, Batch{ProducerID: producerID, ProducerEpoch: epoch, Records: recs})
}

// Then has reply run once all that was appended to the partition up to and with this operation is committed (err nil), or
// when that has failed: ErrNotCoordinator, ErrTimeout (both: the outcome is unknown), ErrTooLarge, ErrUnavailable (both:
// nothing of this operation was appended). It runs exactly once, on some goroutine, at the same time as other operations:
// it must not block nor touch the machine; what is to go on with the machine calls Coordinator.Do again.
//
// It is called behind the Append that it is about. A reply may come from an earlier operation that kept it, as that of a
// JoinGroup which waits for the others.
func (fx *Effects) Then(reply func(err error)) {
	u := fx.last()
	u.then = append(u.then, reply)
}

// Refused has undo run, with the machine in hand, when what the operation appends is refused for good and so will not be
// replayed. It runs before the replies of Then, and may itself append; that is not undone in turn.
func (fx *Effects) Refused(undo func(err error, fx *Effects)) {
	u := fx.last()
	u.refused = append(u.refused, undo)
}

// last is the unit that is being collected.
func (fx *Effects) last() *unit {
	if len(fx.units) == 0 {
		fx.units = append(fx.units, unit{})
	}
	return &fx.units[len(fx.units)-1]
}

// merge makes one unit of all.
func (fx *Effects) merge() {
	for len(fx.units) > 1 {
		u, next := &fx.units[0], &fx.units[1]
		u.batches = append(u.batches, next.batches...)
		u.then = append(u.then, next.then...)
		u.refused = append(u.refused, next.refused...)
		fx.units = append(fx.units[:1], fx.units[2:]...)
	}
}

// Batches is what was appended so far, for tests of machines.
func (fx *Effects) Batches() (list []Batch) {
	for _, u := range fx.units {
		list = append(list, u.batches...)
	}
	return list
}

// Replies are what Then was called with so far, for tests of machines.
func (fx *Effects) Replies() (list []func(error)) {
	for _, u := range fx.units {
		list = append(list, u.then...)
	}
	return list
}

// Undos are what Refused was called with so far, for tests of machines.
func (fx *Effects) Undos() (list []func(error, *Effects)) {
	for _, u := range fx.units {
		list = append(list, u.refused...)
	}
	return list
}
