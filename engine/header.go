package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/ids"
)

// EntryKind says what a Raft entry means to the partition's log. The values are stored.
type EntryKind uint8

const (
	KindRaft       EntryKind = iota // Raft's own: no-op, membership change; and every entry of the metadata shard
	KindData                        // a record batch
	KindGenesis                     // the first proposal of a generation
	KindEpochStart                  // a registered leader begins its leader epoch
	KindLogStart                    // the log start moves up
	KindVoid                        // a proposal that lost its place: takes no offsets, means nothing
	kindEnd
)

var entryKindNames = [...]string{"raft", "data", "genesis", "epoch-start", "log-start", "void"}

// String is the name that dumps show.
func (k EntryKind) String() string {
	if int(k) < len(entryKindNames) {
		return entryKindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// HeaderLen is the length in bytes of a proposal's header.
const HeaderLen = 17

// Offsets inside a header. In a data proposal they overlay fields of the record batch (big-endian both).
const (
	headerOrdinal = 0  // uint64, where the base offset will be
	headerTerm    = 8  // uint32, where the batch length will be
	headerEpoch   = 12 // int32, in the place of the batch's own partition leader epoch
	headerMagic   = 16 // record batch magic 2, or a control kind
)

// The kind byte of a header. Control kinds are no magic that a record batch can have.
const (
	magicData       = 2
	magicGenesis    = 0x81
	magicEpochStart = 0x82
	magicLogStart   = 0x83
)

// ErrMalformed is wrapped by the errors of all proposal decoders.
var ErrMalformed = errors.New("malformed proposal")

// Header stands before every proposal of a partition's group. Term and Ordinal name the proposal: the ordinal
// counts the proposals of one leader in one term from 1. An entry whose header names another term than its own,
// or an ordinal that is not the next one, is void.
//
// A data proposal is the record batch itself. Base offset and length are known only at save, so until then their
// place holds ordinal and term.
type Header struct {
	Ordinal     uint64
	Term        ids.Term // at most 2^32-1
	LeaderEpoch ids.LeaderEpoch
	Kind        EntryKind // KindData or a control kind
}

func (k EntryKind) magic() (byte, bool) {
	switch k {
	case KindData:
		return magicData, true
	case KindGenesis:
		return magicGenesis, true
	case KindEpochStart:
		return magicEpochStart, true
	case KindLogStart:
		return magicLogStart, true
	default:
		return 0, false
	}
}

// PutHeader writes h over the first HeaderLen bytes of b, which for data is a whole record batch. It panics for a
// kind that is never proposed and for a term above 2^32-1.
func PutHeader(b []byte, h Header) {
	magic, ok := h.Kind.magic()
	if !ok || h.Term > math.MaxUint32 {
		panic(fmt.Sprintf("BUG: proposal header %+v", h))
	}
	b[headerMagic] = magic
	binary.BigEndian.PutUint64(b[headerOrdinal:], h.Ordinal)
	binary.BigEndian.PutUint32(b[headerTerm:], uint32(h.Term))
	binary.BigEndian.PutUint32(b[headerEpoch:], uint32(h.LeaderEpoch))
}

// ParseHeader reads the header of a proposal. It looks at nothing behind it.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes, the header has %d", ErrMalformed, len(b), HeaderLen)
	}
	h := Header{
		Ordinal:     binary.BigEndian.Uint64(b[headerOrdinal:]),
		Term:        ids.Term(binary.BigEndian.Uint32(b[headerTerm:])),
		LeaderEpoch: ids.LeaderEpoch(binary.BigEndian.Uint32(b[headerEpoch:])),
	}
	switch b[headerMagic] {
	case magicData:
		h.Kind = KindData
	case magicGenesis:
		h.Kind = KindGenesis
	case magicEpochStart:
		h.Kind = KindEpochStart
	case magicLogStart:
		h.Kind = KindLogStart
	default:
		return Header{}, fmt.Errorf("%w: kind byte %#x", ErrMalformed, b[headerMagic])
	}
	return h, nil
}

// EpochStart is where a leader epoch begins.
type EpochStart struct {
	Epoch ids.LeaderEpoch
	Start ids.Offset
	Index ids.RaftIndex // the entry that began it; 0: it began below this generation's base
}

// Genesis is the content of the first proposal of a generation: what the log below the generation's base offset
// was, so that everything else is a function of the log alone.
type Genesis struct {
	Generation int32
	BaseOffset ids.Offset
	Epochs     []EpochStart // ascending, all at or below BaseOffset; Index is not carried
	// Producers is the producer state at BaseOffset, a snapshot of a producer.State; empty: none. So all replicas have the
	// same, also those that did not have the log below BaseOffset. In what DecodeGenesis returns it aliases the proposal.
	Producers []byte
}

const controlVersion = 1

func appendControl(h Header, kind EntryKind, sizeHint int) []byte {
	if h.Kind != kind {
		panic(fmt.Sprintf("BUG: header of kind %v for a proposal of kind %v", h.Kind, kind))
	}
	b := make([]byte, HeaderLen, HeaderLen+1+sizeHint)
	PutHeader(b, h)
	return append(b, controlVersion)
}

// controlBody checks header and version and returns a reader of the body.
func controlBody(data []byte, kind EntryKind) bin.Reader {
	h, err := ParseHeader(data)
	if err != nil || h.Kind != kind {
		r := bin.NewReader(nil)
		r.Fail("not a %v proposal", kind)
		return r
	}
	r := bin.NewReader(data[HeaderLen:])
	r.Version(controlVersion)
	return r
}

func controlError(kind EntryKind, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %v: %w", ErrMalformed, kind, err)
}

// EncodeGenesis returns the whole proposal. h.Kind must be KindGenesis.
func EncodeGenesis(h Header, g Genesis) []byte {
	b := appendControl(h, KindGenesis, 24+10*len(g.Epochs)+len(g.Producers))
	b = bin.AppendUvarint(b, uint32(g.Generation))
	b = bin.AppendUvarint(b, uint64(g.BaseOffset))
	return append(appendEpochs(b, g.Epochs, false), g.Producers...)
}

// DecodeGenesis reads a whole genesis proposal, header included.
func DecodeGenesis(data []byte) (Genesis, error) {
	r := controlBody(data, KindGenesis)
	g := Genesis{Generation: r.PositiveInt32(), BaseOffset: ids.Offset(r.Int64())}
	g.Epochs = readEpochs(&r, false)
	if rest := r.Rest(); len(rest) > 0 {
		g.Producers = rest
		if err := new(producer.State).LoadSnapshot(rest, 0); err != nil {
			r.Fail("producer state: %v", err)
		}
	}
	if n := len(g.Epochs); n > 0 && g.Epochs[n-1].Start > g.BaseOffset {
		r.Fail("an epoch starts at %d, above the base offset %d", g.Epochs[n-1].Start, g.BaseOffset)
	}
	if err := r.Done(); err != nil {
		return Genesis{}, controlError(KindGenesis, err)
	}
	return g, nil
}

// EncodeEpochStart returns the whole proposal. The header's leader epoch is the one that starts, at the next
// offset. h.Kind must be KindEpochStart.
func EncodeEpochStart(h Header) []byte { return appendControl(h, KindEpochStart, 0) }

// DecodeEpochStart checks a whole epoch-start proposal; all it says is in its header.
func DecodeEpochStart(data []byte) error {
	r := controlBody(data, KindEpochStart)
	return controlError(KindEpochStart, r.Done())
}

// EncodeLogStart returns the whole proposal of a new log start. h.Kind must be KindLogStart.
func EncodeLogStart(h Header, o ids.Offset) []byte {
	return bin.AppendUvarint(appendControl(h, KindLogStart, 10), uint64(o))
}

// DecodeLogStart reads a whole log-start proposal, header included.
func DecodeLogStart(data []byte) (ids.Offset, error) {
	r := controlBody(data, KindLogStart)
	o := ids.Offset(r.Int64())
	if err := r.Done(); err != nil {
		return 0, controlError(KindLogStart, err)
	}
	return o, nil
}

// appendEpochs appends an ascending table of epoch starts, with or without Raft indexes.
func appendEpochs(dst []byte, epochs []EpochStart, withIndex bool) []byte {
	dst = bin.AppendUvarint(dst, uint64(len(epochs)))
	for _, e := range epochs {
		dst = bin.AppendUvarint(dst, uint32(e.Epoch))
		dst = bin.AppendUvarint(dst, uint64(e.Start))
		if withIndex {
			dst = bin.AppendUvarint(dst, uint64(e.Index))
		}
	}
	return dst
}

// readEpochs fails for a table whose epochs do not rise or whose offsets or indexes fall.
func readEpochs(r *bin.Reader, withIndex bool) []EpochStart {
	elementMin := 2
	if withIndex {
		elementMin = 3
	}
	n := r.Count(elementMin)
	if n == 0 {
		return nil
	}
	epochs := make([]EpochStart, n)
	for i := range epochs {
		e := EpochStart{Epoch: ids.LeaderEpoch(r.PositiveInt32()), Start: ids.Offset(r.Int64())}
		if withIndex {
			e.Index = ids.RaftIndex(r.Uvarint())
		}
		if i > 0 && (e.Epoch <= epochs[i-1].Epoch || e.Start < epochs[i-1].Start || e.Index < epochs[i-1].Index) {
			r.Fail("epoch table is not ascending at element %d", i)
		}
		if r.Err() != nil {
			return nil
		}
		epochs[i] = e
	}
	return epochs
}
