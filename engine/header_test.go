package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"cairn/internal/ids"
)

func TestHeaderRoundTripsAndLeavesTheRestAlone(t *testing.T) {
	for _, kind := range []EntryKind{KindData, KindGenesis, KindEpochStart, KindLogStart} {
		h := Header{Ordinal: 1<<63 + 5, Term: math.MaxUint32, LeaderEpoch: math.MaxInt32, Kind: kind}
		b := bytes.Repeat([]byte{0xee}, 61)
		PutHeader(b, h)
		got, err := ParseHeader(b)
		if err != nil || got != h {
			t.Errorf("%v: got %+v, %v", kind, got, err)
		}
		if !bytes.Equal(b[HeaderLen:], bytes.Repeat([]byte{0xee}, 61-HeaderLen)) {
			t.Errorf("%v: PutHeader wrote behind the header", kind)
		}
	}
}

// The header lies over a record batch: its leader epoch and magic are the batch's own.
func TestDataHeaderOverlaysTheRecordBatch(t *testing.T) {
	b := make([]byte, 61)
	PutHeader(b, Header{Ordinal: 1, Term: 2, LeaderEpoch: 77, Kind: KindData})
	if epoch, magic := binary.BigEndian.Uint32(b[12:]), b[16]; epoch != 77 || magic != 2 {
		t.Errorf("partition leader epoch %d, magic %d", epoch, magic)
	}
}

func TestPutHeaderPanicsOnWhatIsNeverProposed(t *testing.T) {
	for name, h := range map[string]Header{
		"raft kind": {Kind: KindRaft}, "void": {Kind: KindVoid}, "unknown kind": {Kind: kindEnd}, "term": {Kind: KindData, Term: math.MaxUint32 + 1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			PutHeader(make([]byte, HeaderLen), h)
		}()
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	good := make([]byte, HeaderLen)
	PutHeader(good, Header{Kind: KindData})
	badKind := bytes.Clone(good)
	badKind[16] = 1 // an old magic
	for name, b := range map[string][]byte{"nothing": nil, "short": good[:16], "kind": badKind} {
		if _, err := ParseHeader(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestDecodersRefuseOtherKindsAndBadTables(t *testing.T) {
	logStart := EncodeLogStart(Header{Kind: KindLogStart}, 5)
	if _, err := DecodeGenesis(logStart); !errors.Is(err, ErrMalformed) {
		t.Errorf("genesis of a log start: %v", err)
	}
	if err := DecodeEpochStart(logStart); !errors.Is(err, ErrMalformed) {
		t.Errorf("epoch start of a log start: %v", err)
	}
	genesis := func(base ids.Offset, epochs ...EpochStart) []byte {
		return EncodeGenesis(Header{Kind: KindGenesis}, Genesis{Generation: 1, BaseOffset: base, Epochs: epochs})
	}
	for name, b := range map[string][]byte{
		"epochs fall":           genesis(10, EpochStart{Epoch: 2}, EpochStart{Epoch: 1}),
		"epoch twice":           genesis(10, EpochStart{Epoch: 2}, EpochStart{Epoch: 2}),
		"offsets fall":          genesis(10, EpochStart{Epoch: 1, Start: 5}, EpochStart{Epoch: 2, Start: 4}),
		"epoch above base":      genesis(10, EpochStart{Epoch: 1, Start: 11}),
		"negative epoch":        genesis(10, EpochStart{Epoch: -1}),
		"negative base":         genesis(-1),
		"newer version":         append(bytes.Clone(genesis(0)[:HeaderLen]), 9, 0, 0, 0),
		"bytes left over":       append(genesis(0), 0),
		"more epochs than fits": append(bytes.Clone(genesis(0)[:HeaderLen]), controlVersion, 0, 0, 0xff, 0xff, 3),
	} {
		if g, err := DecodeGenesis(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

func FuzzProposals(f *testing.F) {
	f.Add(EncodeGenesis(Header{Ordinal: 1, Term: 7, LeaderEpoch: 5, Kind: KindGenesis}, exampleGenesis()))
	f.Add(EncodeEpochStart(Header{Ordinal: 2, Term: 7, LeaderEpoch: 6, Kind: KindEpochStart}))
	f.Add(EncodeLogStart(Header{Ordinal: 3, Term: 7, LeaderEpoch: 6, Kind: KindLogStart}, 500_000))
	data := make([]byte, 61)
	PutHeader(data, Header{Ordinal: 4, Term: 7, LeaderEpoch: 6, Kind: KindData})
	f.Add(data)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		again := bytes.Clone(b)
		PutHeader(again, h)
		if !bytes.Equal(again, b) {
			t.Fatalf("header of %x is written as %x", b, again)
		}
		if g, err := DecodeGenesis(b); err == nil {
			again = EncodeGenesis(h, g)
		} else if o, err := DecodeLogStart(b); err == nil {
			again = EncodeLogStart(h, o)
		} else if DecodeEpochStart(b) == nil {
			again = EncodeEpochStart(h)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x is read, but written as %x", b, again)
		}
	})
}
