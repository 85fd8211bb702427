package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
	"pgregory.net/rapid"

	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// rowCodec is one kind of value: an example, its encoding, and decoding followed by encoding again.
type rowCodec struct {
	name    string
	example any
	encoded []byte
	recode  func(b []byte) (row any, again []byte, err error)
}

// codec makes a rowCodec of an append and a decode function.
func codec[T any](name string, example T, encode func(T) []byte, decode func([]byte) (T, error)) rowCodec {
	return rowCodec{name, example, encode(example), func(b []byte) (any, []byte, error) {
		row, err := decode(b)
		if err != nil {
			return nil, nil, err
		}
		return row, encode(row), nil
	}}
}

func exampleLogState() LogState {
	return LogState{OrdinalTerm: 7, Ordinal: 300, Next: 1_000_010, LeaderEpoch: 5, MaxTimestamp: 1_760_000_000_123, MaxTimestampBase: 999_000, LogBytes: 5 << 30}
}

func exampleEntry(kind EntryKind) EntryRow {
	e := EntryRow{Index: 42, Term: 7, Type: pb.EncodedEntry, Key: 1 << 60, ClientID: 99, Kind: kind, LogState: exampleLogState(), Cmd: []byte{0}}
	switch kind {
	case KindData:
		e.Batch = BatchInfo{Base: 1_000_000, Size: 16_500, LastOffsetDelta: 9, Count: 10, LeaderEpoch: 5, MaxTimestamp: 1_760_000_000_000, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	case KindRaft:
		e.Type, e.Cmd = pb.ConfigChangeEntry, []byte("a membership change")
	case KindGenesis:
		e.Cmd = append(e.Cmd, EncodeGenesis(Header{Ordinal: 1, Term: 7, LeaderEpoch: 5, Kind: kind}, exampleGenesis())...)
	case KindEpochStart:
		e.Cmd = append(e.Cmd, EncodeEpochStart(Header{Ordinal: 2, Term: 7, LeaderEpoch: 6, Kind: kind})...)
	case KindLogStart:
		e.Cmd = append(e.Cmd, EncodeLogStart(Header{Ordinal: 3, Term: 7, LeaderEpoch: 6, Kind: kind}, 500_000)...)
	case KindVoid:
		e.Cmd = append(e.Cmd, EncodeEpochStart(Header{Ordinal: 9, Term: 6, LeaderEpoch: 4, Kind: KindEpochStart})[:HeaderLen]...)
	}
	return e
}

func exampleProducerEntry() EntryRow {
	e := exampleEntry(KindData)
	e.SeriesID, e.RespondedTo = 3, 4
	e.Batch.Attributes = attributeTransactional | 4
	e.Batch.ProducerID, e.Batch.ProducerEpoch, e.Batch.BaseSequence = 4711, 2, 1<<31-1
	return e
}

func exampleMarkerEntry() EntryRow {
	e := exampleEntry(KindData)
	e.Batch.Attributes = attributeTransactional | attributeControl
	e.Batch.ProducerID, e.Batch.ProducerEpoch, e.Batch.LastOffsetDelta, e.Batch.Count = 4711, 3, 0, 1
	e.Batch.IsMarker, e.Batch.Marker = true, batch.Marker{Commit: true, CoordinatorEpoch: 12}
	return e
}

func exampleProducers() []byte {
	var s producer.State
	b := exampleProducerEntry().Batch
	s.Append(b.producerBatch(), 0)
	return s.AppendSnapshot(nil)
}

func exampleGenesis() Genesis {
	return Genesis{Generation: 3, BaseOffset: 900_000, Epochs: []EpochStart{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 900_000}}}
}

func entryCodec(name string, e EntryRow) rowCodec {
	return codec(name, e, func(e EntryRow) []byte { return e.appendTo(nil) }, func(b []byte) (row EntryRow, err error) {
		err = row.decode(42, b)
		return row, err
	})
}

func rowCodecs(t testing.TB) []rowCodec {
	start := StartPoint{Index: 41, Term: 6, LogState: exampleLogState(), Membership: pb.Membership{
		ConfigChangeId: 40,
		Addresses:      map[uint64]string{1: "node-1", 300: "node-3"},
		NonVotings:     map[uint64]string{301: "node-4"}, Witnesses: map[uint64]string{}, Removed: map[uint64]bool{2: true, 299: true},
	}}
	info := PartitionInfo{ID: 12, Topic: "orders", TopicID: ids.UUID{1, 2, 3, 15: 9}, Partition: 7}
	codecs := []rowCodec{
		entryCodec("entry-producer", exampleProducerEntry()),
		entryCodec("entry-marker", exampleMarkerEntry()),
		codec("state", pb.State{Term: 7, Vote: 3, Commit: 42}, func(s pb.State) []byte { return appendStateRow(nil, s) }, decodeStateRow),
		codec("start", start, func(s StartPoint) []byte { return s.appendTo(nil) }, decodeStartPoint),
		codec("snapshot-start", snapshotStart{StartPoint: start, epochs: []EpochStart{{Epoch: 0, Start: 0}, {Epoch: 5, Start: 900_000, Index: 3}}},
			func(s snapshotStart) []byte { return s.encode() }, decodeSnapshotStart),
		codec("snapshot-start-producers", snapshotStart{StartPoint: start, producers: exampleProducers()},
			func(s snapshotStart) []byte { return s.encode() }, decodeSnapshotStart),
		codec("bootstrap", pb.Bootstrap{Join: true, Type: pb.OnDiskStateMachine, Addresses: map[uint64]string{1: "node-1", 2: "node-2"}},
			func(b pb.Bootstrap) []byte { return appendBootstrapRow(nil, b) }, decodeBootstrapRow),
		codec("owner", ownerRow{Binding: Binding{Info: info, Shard: 50, Replica: 60, Generation: 3, BaseOffset: 900_000}, Old: []replicaID{{20, 30}, {40, 41}}},
			func(o ownerRow) []byte { return o.appendTo(nil) }, func(b []byte) (ownerRow, error) { return decodeOwnerRow(12, b) }),
		codec("meta", metaRow{Shard: 50, LogStart: 100, StartBytes: 12345, GenesisIndex: 2, Epochs: []EpochStart{{Epoch: 0, Start: 0}, {Epoch: 5, Start: 900_000, Index: 3}}},
			func(m metaRow) []byte { return m.appendTo(nil) }, decodeMetaRow),
		codec("checkpoint", checkpointRow{Shard: 50, Applied: 41, HighWatermark: 1_000_000}, func(c checkpointRow) []byte { return c.appendTo(nil) }, decodeCheckpointRow),
		codec("producers", producersRow{Shard: 50, Index: 41, Next: 1_000_000, Snapshot: []byte("a snapshot")}, func(p producersRow) []byte { return p.appendTo(nil) }, decodeProducersRow),
		codec("producers-ended", producersRow{
			Shard: 50, Index: 41, Next: 1_000_000, Snapshot: []byte("a snapshot"),
			Ended: []producer.EndedTransaction{{ProducerID: 4711, First: 999_000, Last: 999_990, Aborted: true}, {ProducerID: 4712, First: 900_000, Last: 999_999}},
		}, func(p producersRow) []byte { return p.appendTo(nil) }, decodeProducersRow),
		codec("compaction", compactionRow{Clean: 999_000, Holes: 999_100, Removed: 5 << 20, CleanBytes: 70_000}, func(c compactionRow) []byte { return c.appendTo(nil) }, decodeCompactionRow),
		codec("aborted", abortedRow{ProducerID: 4711, First: 999_000, Stable: 999_991}, func(a abortedRow) []byte { return a.appendTo(nil) }, decodeAbortedRow),
		codec("time", timeRow{MaxTimestamp: -1, MaxTimestampBase: 7}, func(r timeRow) []byte { return r.appendTo(nil) }, decodeTimeRow),
		codec("quarantine", quarantineRow{Shard: 50, Index: 41, Term: 6, AtMs: 1_760_000_000_000, Batch: []byte("a batch")}, func(q quarantineRow) []byte { return q.appendTo(nil) }, decodeQuarantineRow),
		codec("snapshot", pb.Snapshot{
			Index: 41, Term: 6, ShardID: 1, Filepath: "snapshot-29", FileSize: 100, Checksum: []byte{1}, Type: pb.RegularStateMachine,
			Membership: pb.Membership{Addresses: map[uint64]string{1: "node-1"}},
		},
			func(s pb.Snapshot) []byte { return mustSnapshotRow(t, s) }, decodeSnapshotRow),
		codec("genesis", exampleGenesis(), func(g Genesis) []byte {
			return EncodeGenesis(Header{Ordinal: 1, Term: 7, LeaderEpoch: 5, Kind: KindGenesis}, g)
		}, DecodeGenesis),
		codec("epoch-start", struct{}{}, func(struct{}) []byte {
			return EncodeEpochStart(Header{Ordinal: 2, Term: 7, LeaderEpoch: 6, Kind: KindEpochStart})
		}, func(b []byte) (struct{}, error) { return struct{}{}, DecodeEpochStart(b) }),
		codec("log-start", ids.Offset(500_000), func(o ids.Offset) []byte {
			return EncodeLogStart(Header{Ordinal: 3, Term: 7, LeaderEpoch: 6, Kind: KindLogStart}, o)
		}, DecodeLogStart),
	}
	for kind := KindRaft; kind < kindEnd; kind++ {
		codecs = append(codecs, entryCodec("entry-"+kind.String(), exampleEntry(kind)))
	}
	return codecs
}

func mustSnapshotRow(t testing.TB, s pb.Snapshot) []byte {
	b, err := appendSnapshotRow(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRowsRoundTrip(t *testing.T) {
	for _, c := range rowCodecs(t) {
		row, again, err := c.recode(c.encoded)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !reflect.DeepEqual(row, c.example) {
			t.Errorf("%s: read %+v, wrote %+v", c.name, row, c.example)
		}
		if !bytes.Equal(again, c.encoded) {
			t.Errorf("%s: encoded again %x, first %x", c.name, again, c.encoded)
		}
	}
}

// A store in the field must stay readable: a new field is a new version of the row, and its reader stays.
func TestRowFormatsAreStable(t *testing.T) {
	for _, c := range rowCodecs(t) {
		path := filepath.Join("testdata", "rows", c.name+".golden")
		got := fmt.Sprintf("%+v\n%x\n", c.example, c.encoded)
		if *rewrite {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: the stored form changed. Got:\n%swant:\n%s", c.name, got, want)
		}
	}
}

func TestDamagedRowsAreRefused(t *testing.T) {
	tails := map[string]bool{"quarantine": true, "producers": true, "producers-ended": true} // end in bytes they do not look into
	for _, c := range rowCodecs(t) {
		wholeCmd := len(c.name) > 6 && c.name[:6] == "entry-"
		for n := range c.encoded {
			_, again, err := c.recode(c.encoded[:n])
			if err == nil && canonical(c.name) && !bytes.Equal(again, c.encoded[:n]) {
				t.Errorf("%s: the first %d bytes are read, but as something else", c.name, n)
			}
			if err != nil && !errors.Is(err, ErrCorruptRow) && !errors.Is(err, bin.ErrMalformed) {
				t.Errorf("%s: the first %d bytes: error %v wraps no sentinel", c.name, n, err)
			}
			if err == nil && !tails[c.name] && !wholeCmd && c.name != "epoch-start" && c.name != "snapshot" {
				t.Errorf("%s: the first %d of %d bytes are read", c.name, n, len(c.encoded))
			}
		}
		if c.name == "genesis" || c.name == "epoch-start" || c.name == "log-start" {
			continue
		}
		newer := bytes.Clone(c.encoded)
		newer[0] = rowVersion + 1
		if strings.HasPrefix(c.name, "entry-") || strings.HasPrefix(c.name, "producers") || strings.HasPrefix(c.name, "snapshot-start") {
			newer[0] = rowVersionTxn + 1
		}
		if _, _, err := c.recode(newer); !errors.Is(err, bin.ErrMalformed) {
			t.Errorf("%s: a newer version gives %v", c.name, err)
		}
	}
}

// FuzzRows reads arbitrary bytes as every kind of row. What is read must be written as the same bytes.
func FuzzRows(f *testing.F) {
	codecs := rowCodecs(f)
	for i, c := range codecs {
		f.Add(byte(i), c.encoded)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		c := codecs[int(which)%len(codecs)]
		_, again, err := c.recode(b)
		if err != nil || !canonical(c.name) {
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%s: %x is read, but written as %x", c.name, b, again)
		}
	})
}

// canonical is false where the example's header, or dragonboat's own encoding, stands in for what was read.
func canonical(name string) bool {
	switch name {
	case "snapshot", "genesis", "epoch-start", "log-start":
		return false
	}
	return true
}

func drawLogState(t *rapid.T) LogState {
	return LogState{
		OrdinalTerm: ids.Term(rapid.Uint64().Draw(t, "ordinal term")), Ordinal: rapid.Uint64().Draw(t, "ordinal"),
		Next:         ids.Offset(rapid.Int64Min(0).Draw(t, "next")),
		LeaderEpoch:  ids.LeaderEpoch(rapid.Int32Min(-1).Draw(t, "epoch")),
		MaxTimestamp: rapid.Int64().Draw(t, "max timestamp"), MaxTimestampBase: ids.Offset(rapid.Int64Min(-1).Draw(t, "max timestamp base")),
		LogBytes: rapid.Int64Min(0).Draw(t, "bytes"),
	}
}

func TestEntryRowsRoundTripForAllValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := EntryRow{
			Index: 5, Term: ids.Term(rapid.Uint64().Draw(t, "term")), Type: pb.EntryType(rapid.Int32Range(0, 3).Draw(t, "type")),
			Key: rapid.Uint64().Draw(t, "key"), ClientID: rapid.Uint64().Draw(t, "client"),
			SeriesID: rapid.Uint64().Draw(t, "series"), RespondedTo: rapid.Uint64().Draw(t, "responded"),
			Kind: EntryKind(rapid.IntRange(0, int(kindEnd)-1).Draw(t, "kind")), LogState: drawLogState(t),
			Cmd: rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "cmd"),
		}
		if e.Kind == KindData {
			e.Batch = BatchInfo{
				Base: ids.Offset(rapid.Int64Min(0).Draw(t, "base")), Size: rapid.Int32Min(0).Draw(t, "size"),
				LastOffsetDelta: rapid.Int32Min(0).Draw(t, "delta"), Count: rapid.Int32Min(0).Draw(t, "count"),
				LeaderEpoch: ids.LeaderEpoch(rapid.Int32().Draw(t, "batch epoch")), Attributes: rapid.Int16().Draw(t, "attributes"),
				MaxTimestamp: rapid.Int64().Draw(t, "timestamp"), ProducerID: rapid.Int64Min(-1).Draw(t, "producer"),
				ProducerEpoch: rapid.Int16Min(-1).Draw(t, "producer epoch"), BaseSequence: rapid.Int32Min(-1).Draw(t, "sequence"),
				IsMarker: rapid.Bool().Draw(t, "is marker"),
			}
			if e.Batch.IsMarker {
				e.Batch.Marker = batch.Marker{Commit: rapid.Bool().Draw(t, "commit"), CoordinatorEpoch: rapid.Int32().Draw(t, "coordinator epoch")}
			}
		}
		var got EntryRow
		if err := got.decode(5, e.appendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, e) {
			t.Fatalf("read %+v, wrote %+v", got, e)
		}
	})
}

func TestProducerBatchOfAnEntryRow(t *testing.T) {
	e := exampleProducerEntry()
	want := producer.Batch{
		ProducerID: 4711, Epoch: 2, BaseSequence: 1<<31 - 1, Count: 10, BaseOffset: 1_000_000, LastOffset: 1_000_009,
		Timestamp: 1_760_000_000_000, Transactional: true,
	}
	if got := e.Batch.producerBatch(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	e = exampleMarkerEntry()
	want = producer.Batch{
		ProducerID: 4711, Epoch: 3, BaseSequence: -1, Count: 1, BaseOffset: 1_000_000, LastOffset: 1_000_000,
		Timestamp: 1_760_000_000_000, Transactional: true, Control: true, Commit: true, CoordinatorEpoch: 12,
	}
	e.Batch.BaseSequence = -1
	if got := e.Batch.producerBatch(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	e.Batch.IsMarker = false // another kind of control batch is no producer's
	if got := e.Batch.producerBatch(); got.ProducerID != -1 {
		t.Errorf("a control batch of another use counts as %+v", got)
	}
}

func TestEntryRowHeader(t *testing.T) {
	for kind, want := range map[EntryKind]Header{
		KindData:       {Ordinal: 300, Term: 7, LeaderEpoch: 5, Kind: KindData},
		KindGenesis:    {Ordinal: 1, Term: 7, LeaderEpoch: 5, Kind: KindGenesis},
		KindEpochStart: {Ordinal: 2, Term: 7, LeaderEpoch: 6, Kind: KindEpochStart},
		KindLogStart:   {Ordinal: 3, Term: 7, LeaderEpoch: 6, Kind: KindLogStart},
		KindVoid:       {Ordinal: 9, Term: 6, LeaderEpoch: 4, Kind: KindEpochStart},
	} {
		e := exampleEntry(kind)
		if got, ok := e.Header(); !ok || got != want {
			t.Errorf("%v: got %+v %v, want %+v", kind, got, ok, want)
		}
	}
	e := exampleEntry(KindRaft)
	if h, ok := e.Header(); ok {
		t.Errorf("Raft's own entry has header %+v", h)
	}
}

// An entry row costs little beside its batch, and its encoding nothing on the heap.
func TestEntryRowIsSmall(t *testing.T) {
	e := exampleProducerEntry()
	if n := len(e.appendTo(nil)); n > 100 {
		t.Errorf("an entry row has %d bytes", n)
	}
	buf := make([]byte, 0, 256)
	if allocs := testing.AllocsPerRun(100, func() { buf = e.appendTo(buf[:0]) }); allocs != 0 {
		t.Errorf("encoding an entry row allocates %v times", allocs)
	}
	var row EntryRow
	if allocs := testing.AllocsPerRun(100, func() {
		if row.decode(42, buf) != nil {
			t.Fatal("decode failed")
		}
	}); allocs != 0 {
		t.Errorf("decoding an entry row allocates %v times", allocs)
	}
}
