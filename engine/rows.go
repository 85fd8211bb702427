package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Values of rows. Each begins with the version of its encoding, has exactly one encoding, and is read back with
// byte fields that alias the input (borrowed: copy them before the Pebble value is released). A new field means a
// new version, and the reader of the old one stays. docs/formats.md lists the fields; testdata/rows holds an
// example of each, so that no change goes unnoticed.

// ErrCorruptRow is wrapped by the errors of all row decoders.
var ErrCorruptRow = errors.New("corrupt row")

func rowError(kind rowKind, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w of kind %q: %w", ErrCorruptRow, kind, err)
}

const (
	rowVersion = 1
	// rowVersionTxn is the version of rows that say something of a transaction; without that, they stay at rowVersion.
	rowVersionTxn = 2
)

// LogState is what a log knows after an entry. Each entry row carries it, so a truncation to index i reads row
// i-1 and nothing else.
type LogState struct {
	OrdinalTerm      ids.Term // of the last proposal that was not void
	Ordinal          uint64   // of that proposal
	Next             ids.Offset
	LeaderEpoch      ids.LeaderEpoch // the latest one started; ids.NoEpoch before any
	MaxTimestamp     int64           // largest timestamp of all batches so far, ms; -1: none
	MaxTimestampBase ids.Offset      // base offset of the first batch with it; ids.NoOffset: none
	LogBytes         int64           // bytes of all batches so far, as saved, those below the log start included
}

func (s *LogState) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(dst, uint64(s.OrdinalTerm))
	dst = bin.AppendUvarint(dst, s.Ordinal)
	dst = bin.AppendUvarint(dst, uint64(s.Next))
	dst = bin.AppendVarint(dst, s.LeaderEpoch)
	dst = bin.AppendVarint(dst, s.MaxTimestamp)
	dst = bin.AppendVarint(dst, s.MaxTimestampBase)
	return bin.AppendUvarint(dst, uint64(s.LogBytes))
}

func (s *LogState) read(r *bin.Reader) {
	s.OrdinalTerm = ids.Term(r.Uvarint())
	s.Ordinal = r.Uvarint()
	s.Next = ids.Offset(r.Int64())
	s.LeaderEpoch = ids.LeaderEpoch(r.Varint32())
	s.MaxTimestamp = r.Varint()
	s.MaxTimestampBase = ids.Offset(r.Varint())
	s.LogBytes = r.Int64()
}

// BatchInfo is what an entry row keeps of its record batch: enough to rebuild producer state, and to send the span
// of a batch that compaction has emptied, without reading the batch. It describes the batch as it was saved.
type BatchInfo struct {
	Base            ids.Offset
	Size            int32 // bytes of the data row
	LastOffsetDelta int32
	Count           int32 // records
	LeaderEpoch     ids.LeaderEpoch
	Attributes      int16
	MaxTimestamp    int64 // ms
	ProducerID      int64 // -1: none
	ProducerEpoch   int16
	BaseSequence    int32
	IsMarker        bool // a control batch that ends a transaction
	Marker          batch.Marker
}

// Attribute bits of a record batch.
const (
	attributeTransactional = 1 << 4
	attributeControl       = 1 << 5
)

// producerBatch is the batch as producer state sees it: of a producer, unless it is a control batch of another use.
func (b *BatchInfo) producerBatch() producer.Batch {
	pb := producer.Batch{
		ProducerID: b.ProducerID, Epoch: b.ProducerEpoch, BaseSequence: b.BaseSequence, Count: b.LastOffsetDelta + 1,
		BaseOffset: b.Base, LastOffset: b.Base + ids.Offset(b.LastOffsetDelta), Timestamp: b.MaxTimestamp,
		Transactional: b.Attributes&attributeTransactional != 0, Control: b.IsMarker,
		Commit: b.Marker.Commit, CoordinatorEpoch: b.Marker.CoordinatorEpoch,
	}
	if b.Attributes&attributeControl != 0 && !b.IsMarker {
		pb.ProducerID = -1
	}
	return pb
}

// EntryRow is a Raft entry without the payload of its batch.
type EntryRow struct {
	Index                                ids.RaftIndex // from the key
	Term                                 ids.Term
	Type                                 pb.EntryType
	Key, ClientID, SeriesID, RespondedTo uint64 // dragonboat's own
	Kind                                 EntryKind
	LogState                                       // after this entry
	Batch                                BatchInfo // KindData only
	// Cmd is the entry's command as Raft has it, dragonboat's prefix byte included. Of void entries it is cut
	// behind the header. Of data entries it is the prefix byte alone: the rest is in the data row.
	Cmd []byte
}

const (
	entryHasProducer = 1 << iota // producer id, epoch and base sequence follow
	entryHasSession              // series id and responded-to follow
	entryFlagsEnd
)

func (e *EntryRow) appendTo(dst []byte) []byte {
	flags := byte(0)
	if e.Kind == KindData && e.Batch.hasProducer() {
		flags |= entryHasProducer
	}
	if e.SeriesID != 0 || e.RespondedTo != 0 {
		flags |= entryHasSession
	}
	version := byte(rowVersion)
	if e.Kind == KindData && e.Batch.IsMarker {
		version = rowVersionTxn
	}
	dst = append(dst, version, byte(e.Kind), flags)
	dst = bin.AppendUvarint(dst, uint64(e.Term))
	dst = bin.AppendUvarint(dst, uint32(e.Type))
	dst = binary.BigEndian.AppendUint64(dst, e.Key)
	dst = binary.BigEndian.AppendUint64(dst, e.ClientID)
	if flags&entryHasSession != 0 {
		dst = bin.AppendUvarint(dst, e.SeriesID)
		dst = bin.AppendUvarint(dst, e.RespondedTo)
	}
	dst = e.LogState.appendTo(dst)
	if e.Kind == KindData {
		dst = e.Batch.appendTo(dst, flags)
	}
	return append(dst, e.Cmd...)
}

func (b *BatchInfo) hasProducer() bool {
	return b.ProducerID != -1 || b.ProducerEpoch != -1 || b.BaseSequence != -1
}

func (b *BatchInfo) appendTo(dst []byte, flags byte) []byte {
	dst = bin.AppendUvarint(dst, uint64(b.Base))
	dst = bin.AppendUvarint(dst, uint32(b.Size))
	dst = bin.AppendUvarint(dst, uint32(b.LastOffsetDelta))
	dst = bin.AppendUvarint(dst, uint32(b.Count))
	dst = bin.AppendVarint(dst, b.LeaderEpoch)
	dst = bin.AppendVarint(dst, b.Attributes)
	dst = bin.AppendVarint(dst, b.MaxTimestamp)
	if flags&entryHasProducer != 0 {
		dst = bin.AppendVarint(dst, b.ProducerID)
		dst = bin.AppendVarint(dst, b.ProducerEpoch)
		dst = bin.AppendVarint(dst, b.BaseSequence)
	}
	if b.IsMarker {
		dst = bin.AppendBool(dst, b.Marker.Commit)
		dst = bin.AppendVarint(dst, b.Marker.CoordinatorEpoch)
	}
	return dst
}

func (b *BatchInfo) read(r *bin.Reader, version, flags byte) {
	b.Base = ids.Offset(r.Int64())
	b.Size = r.PositiveInt32()
	b.LastOffsetDelta = r.PositiveInt32()
	b.Count = r.PositiveInt32()
	b.LeaderEpoch = ids.LeaderEpoch(r.Varint32())
	b.Attributes = r.Varint16()
	b.MaxTimestamp = r.Varint()
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = -1, -1, -1
	if flags&entryHasProducer != 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = r.Varint(), r.Varint16(), r.Varint32()
		if !b.hasProducer() {
			r.Fail("flag for a producer that is not there")
		}
	}
	if version >= rowVersionTxn {
		b.IsMarker, b.Marker = true, batch.Marker{Commit: r.Bool(), CoordinatorEpoch: r.Varint32()}
	}
}

// decode fills e from the row at index. Cmd aliases b.
func (e *EntryRow) decode(index ids.RaftIndex, b []byte) error {
	r := bin.NewReader(b)
	version := r.Version(rowVersionTxn)
	*e = EntryRow{Index: index, Kind: EntryKind(r.Byte())}
	flags := r.Byte()
	if e.Kind >= kindEnd || flags >= entryFlagsEnd {
		r.Fail("kind %d, flags %#x", e.Kind, flags)
	}
	e.Term = ids.Term(r.Uvarint())
	e.Type = pb.EntryType(r.PositiveInt32())
	e.Key, e.ClientID = r.Uint64(), r.Uint64()
	if flags&entryHasSession != 0 {
		e.SeriesID, e.RespondedTo = r.Uvarint(), r.Uvarint()
		if e.SeriesID == 0 && e.RespondedTo == 0 {
			r.Fail("flag for a session that is not there")
		}
	}
	e.LogState.read(&r)
	if e.Kind == KindData {
		e.Batch.read(&r, version, flags)
	} else if flags&entryHasProducer != 0 || version != rowVersion {
		r.Fail("a producer or a marker in an entry of kind %v", e.Kind)
	}
	e.Cmd = r.Rest()
	return rowError(rowEntry, r.Done())
}

// Header is the header of the entry's proposal as Raft replicates it; false for Raft's own entries and for a void
// entry that had none.
func (e *EntryRow) Header() (Header, bool) {
	switch e.Kind {
	case KindRaft:
		return Header{}, false
	case KindData:
		return Header{Ordinal: e.Ordinal, Term: e.OrdinalTerm, LeaderEpoch: e.Batch.LeaderEpoch, Kind: KindData}, true
	default:
		if len(e.Cmd) == 0 {
			return Header{}, false
		}
		h, err := ParseHeader(e.Cmd[1:])
		return h, err == nil
	}
}

// restoreProposal turns a copy of a data row back into the proposal that Raft replicates: term and ordinal in the
// place of length and base offset.
func restoreProposal(raw []byte, e *EntryRow) {
	h, _ := e.Header()
	binary.BigEndian.PutUint64(raw[headerOrdinal:], h.Ordinal)
	binary.BigEndian.PutUint32(raw[headerTerm:], uint32(h.Term))
}
