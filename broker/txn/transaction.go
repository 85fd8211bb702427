package txn

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// The levels of Kafka's feature transaction.version.
const (
	// Version0 writes the oldest form of records.
	Version0 int16 = 0
	// Version1 writes records with tagged fields.
	Version1 int16 = 1
	// Version2 raises the producer epoch at the end of each transaction (KIP-890).
	Version2 int16 = 2
)

const (
	noProducerID int64 = -1
	noEpoch      int16 = -1
	noTime       int64 = -1
	// epochMax is the last epoch a client is told. One more is kept for fencing its owner.
	epochMax int16 = math.MaxInt16 - 1
)

// Partition is a partition that takes part in a transaction.
type Partition struct {
	Topic string
	Index int32
}

// String is Kafka's form: topic, hyphen, index.
func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Index) }

func comparePartitions(a, b Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
}

// Transaction is what the coordinator knows of one transactional id: its producer and its present or last transaction. It
// is a value; Partitions is shared between copies and never changed.
type Transaction struct {
	State State
	// ProducerID and Epoch are the current ones, of a prepared transaction those that its markers carry.
	ProducerID int64
	Epoch      int16
	// LastEpoch is the epoch before, as long as a repeated request with it may be answered; -1: none is.
	LastEpoch int16
	// PreviousProducerID was the current one before the last change of state, of whatever kind.
	PreviousProducerID int64
	// NextProducerID takes over, with epoch 0, when the prepared transaction completes; -1: the current one goes on.
	NextProducerID int64
	TimeoutMs      int32
	// Partitions of the open or prepared transaction, sorted, each once.
	Partitions []Partition
	// StartMs is when the present or last transaction began, -1 before the first; UpdateMs when the state changed last.
	StartMs, UpdateMs int64
	// ClientVersion is the transaction.version by which the present or last transaction is kept: 0 or 2.
	ClientVersion int16
}

// exhausted: no higher epoch may be told to a client.
func (t *Transaction) exhausted() bool { return t.Epoch >= epochMax }

// transit returns the transaction in another state, as of now, for the caller to change further.
func (t *Transaction) transit(to State, nowMs int64) Transaction {
	next := *t
	next.State, next.PreviousProducerID, next.UpdateMs = to, t.ProducerID, nowMs
	return next
}

// initialized returns the transaction with the epoch and producer id that InitProducerId told.
func (t *Transaction) initialized(id int64, epoch, last int16, timeoutMs int32, nowMs int64) Transaction {
	next := t.transit(Empty, nowMs)
	next.ProducerID, next.Epoch, next.LastEpoch, next.TimeoutMs = id, epoch, last, timeoutMs
	next.NextProducerID = noProducerID
	next.Partitions, next.StartMs = nil, noTime
	return next
}

// withPartitions returns the transaction with more partitions, open.
func (t *Transaction) withPartitions(parts []Partition, clientVersion int16, nowMs int64) Transaction {
	next := t.transit(Ongoing, nowMs)
	if t.State != Ongoing {
		next.StartMs = nowMs
	}
	next.Partitions = union(t.Partitions, parts)
	next.ClientVersion = clientVersion
	return next
}

// prepared returns the transaction with its outcome decided. With Version2 that raises the epoch; nextID is the producer id
// that takes over in place of an exhausted one, or -1.
func (t *Transaction) prepared(to State, clientVersion int16, nextID, nowMs int64) Transaction {
	next := t.transit(to, nowMs)
	if clientVersion >= Version2 {
		next.LastEpoch = t.Epoch
		if t.Epoch < math.MaxInt16 {
			next.Epoch++
		}
	}
	if t.State != Ongoing { // an abort of nothing: it began and ended now
		next.StartMs, next.Partitions = nowMs, nil
	}
	next.NextProducerID, next.ClientVersion = nextID, clientVersion
	return next
}

// fenced returns the open transaction prepared for abort with an epoch that its producer does not know.
func (t *Transaction) fenced(level int16, nowMs int64) Transaction {
	if level >= Version2 {
		return t.prepared(PrepareAbort, Version2, noProducerID, nowMs)
	}
	next := t.prepared(PrepareAbort, Version0, noProducerID, nowMs)
	next.LastEpoch = noEpoch
	if t.Epoch < math.MaxInt16 {
		next.Epoch++
	}
	return next
}

// completed returns the prepared transaction once all its partitions have the marker. LastEpoch stays what the client
// knows: a client sees epoch 32766 followed by 0 of the next producer id.
func (t *Transaction) completed(nowMs int64) Transaction {
	to := CompleteAbort
	if t.State == PrepareCommit {
		to = CompleteCommit
	}
	next := t.transit(to, nowMs)
	if t.ClientVersion >= Version2 && t.NextProducerID != noProducerID {
		next.ProducerID, next.Epoch = t.NextProducerID, 0
	}
	next.NextProducerID, next.Partitions = noProducerID, nil
	return next
}

// contains reports whether all of parts take part already.
func (t *Transaction) contains(parts []Partition) bool {
	return !slices.ContainsFunc(parts, func(p Partition) bool { return !t.has(p) })
}

func (t *Transaction) has(p Partition) bool {
	_, found := slices.BinarySearchFunc(t.Partitions, p, comparePartitions)
	return found
}

// union returns a sorted slice of its own with the partitions of both, each once.
func union(a, b []Partition) []Partition {
	all := slices.Concat(a, b)
	slices.SortFunc(all, comparePartitions)
	return slices.Compact(all)
}
