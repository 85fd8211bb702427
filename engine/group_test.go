package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// openMem opens an engine in memory; change alters its configuration.
func openMem(t testing.TB, fs vfs.FS, change func(*Config)) *Engine {
	t.Helper()
	cfg := Config{Dir: "broker", FS: fs, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20}
	if change != nil {
		change(&cfg)
	}
	e, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func closeEngine(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func testBinding(n int) Binding {
	return Binding{
		Info:  PartitionInfo{ID: ids.PartitionID(n), Topic: "t", TopicID: ids.UUID{15: byte(n)}, Partition: int32(n)},
		Shard: ids.ShardID(100 + n), Replica: ids.ReplicaID(1000 + n),
	}
}

// recorder is an Observer that remembers what it heard.
type recorder struct {
	saved     []SavedEntry
	truncated []string
	installed []string
}

func (r *recorder) Saved(entries []SavedEntry) { r.saved = append(r.saved, entries...) }
func (r *recorder) Truncated(first ids.RaftIndex, next ids.Offset) {
	r.truncated = append(r.truncated, fmt.Sprintf("from %d, next %d", first, next))
	r.saved = append(r.saved, SavedEntry{Kind: kindEnd, Index: first, Next: next})
}

func (r *recorder) SnapshotInstalled(index ids.RaftIndex, next ids.Offset) {
	r.installed = append(r.installed, fmt.Sprintf("at %d, next %d", index, next))
}

// group drives the saves of one replica as Raft and a leader's sequencer would.
type group struct {
	t       testing.TB
	e       *Engine
	log     *Log
	binding Binding
	obs     *recorder

	hard    pb.State
	last    uint64
	ordinal uint64
	epoch   ids.LeaderEpoch
	clock   int64
}

func bindGroup(t testing.TB, e *Engine, b Binding) *group {
	t.Helper()
	g := &group{t: t, e: e, binding: b, obs: &recorder{}, hard: pb.State{Term: 1}, epoch: ids.NoEpoch, clock: 1_000_000}
	g.bind()
	return g
}

func (g *group) bind() {
	g.t.Helper()
	l, err := g.e.Bind(g.binding, g.obs)
	if err != nil {
		g.t.Fatal(err)
	}
	g.log = l
}

// startGroup is a bound group whose leader, of term 1 and epoch 0, may take data.
func startGroup(t testing.TB, e *Engine, b Binding) *group {
	t.Helper()
	g := bindGroup(t, e, b)
	g.save(g.noop(), g.genesis(), g.epochStart(0))
	return g
}

func (g *group) entry(cmd []byte) pb.Entry {
	g.last++
	e := pb.Entry{Index: g.last, Term: g.hard.Term, Key: 7, ClientID: 8}
	if cmd != nil {
		e.Type, e.Cmd = pb.EncodedEntry, append([]byte{0}, cmd...)
	}
	return e
}

func (g *group) header(kind EntryKind) Header {
	g.ordinal++
	return Header{Ordinal: g.ordinal, Term: ids.Term(g.hard.Term), LeaderEpoch: g.epoch, Kind: kind}
}

func (g *group) noop() pb.Entry { return g.entry(nil) }

func (g *group) genesis(epochs ...EpochStart) pb.Entry {
	gen := Genesis{Generation: g.binding.Generation, BaseOffset: g.binding.BaseOffset, Epochs: epochs}
	return g.entry(EncodeGenesis(g.header(KindGenesis), gen))
}

func (g *group) epochStart(epoch ids.LeaderEpoch) pb.Entry {
	g.epoch = epoch
	return g.entry(EncodeEpochStart(g.header(KindEpochStart)))
}

func (g *group) logStart(o ids.Offset) pb.Entry {
	return g.entry(EncodeLogStart(g.header(KindLogStart), o))
}

// data is a batch of n records with the given bytes of value each; every record's timestamp is 1 ms later.
func (g *group) data(n, valueBytes int) pb.Entry {
	return g.entry(g.proposal(g.batch(n, valueBytes, nil)))
}

// proposal puts the leader's header over a batch.
func (g *group) proposal(b []byte) []byte {
	PutHeader(b, g.header(KindData))
	return b
}

func (g *group) batch(n, valueBytes int, change func(*batch.BuilderConfig)) []byte {
	cfg := batch.NewBuilderConfig(batch.CodecNone, g.clock)
	if change != nil {
		change(&cfg)
	}
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	value := bytes.Repeat([]byte{'v'}, valueBytes)
	for i := range n {
		copy(value, fmt.Sprintf("%d/%d", g.last, i))
		if err := b.AppendKV(g.clock, []byte("k"), value); err != nil {
			g.t.Fatal(err)
		}
		g.clock++
	}
	raw, err := b.Build()
	if err != nil {
		g.t.Fatal(err)
	}
	return raw
}

// newTerm is a new leader at the replica's own log end.
func (g *group) newTerm(term uint64) {
	g.hard.Term, g.ordinal = term, 0
}

// fork is a new leader whose log agrees up to index.
func (g *group) fork(index, term uint64) {
	g.newTerm(term)
	g.last = index
}

func (g *group) update(entries ...pb.Entry) pb.Update {
	return pb.Update{
		ShardID: uint64(g.binding.Shard), ReplicaID: uint64(g.binding.Replica),
		State: g.hard, EntriesToSave: entries,
	}
}

func (g *group) save(entries ...pb.Entry) {
	g.t.Helper()
	if err := (logDB{g.e}).SaveRaftState([]pb.Update{g.update(entries...)}, 1); err != nil {
		g.t.Fatal(err)
	}
}

// commit saves that Raft has committed up to index, and tells what is applied.
func (g *group) commit(index uint64) {
	g.t.Helper()
	g.hard.Commit = index
	g.log.SetApplied(ids.RaftIndex(index))
	g.save()
}

// reopen closes the engine and opens it again on the same file system, with the group bound.
func (g *group) reopen(fs vfs.FS, change func(*Config)) {
	g.t.Helper()
	closeEngine(g.t, g.e)
	g.e = openMem(g.t, fs, change)
	g.bind()
}

// image is all that a log knows, for comparison.
type image struct {
	State      LogState
	Last       ids.RaftIndex
	LastTerm   ids.Term
	Commit     ids.RaftIndex
	Start, End ids.Offset
	Size       int64
	Genesis    bool
	Epochs     []EpochStart
	Point      string
	Producers  []byte
	Rows       []EntryRow
	Batches    [][]byte
	Bases      []ids.Offset
	Nexts      []ids.Offset
	Quarantine []Quarantined
}

func imageOf(t testing.TB, l *Log) image {
	t.Helper()
	im := image{
		State: l.State(), Last: l.LastIndex(), LastTerm: l.LastTerm(), Commit: l.Commit(), Start: l.Start(), End: l.End(),
		Size: l.SizeBytes(), Genesis: l.HasGenesis(), Epochs: l.EpochStarts(), Point: fmt.Sprintf("%+v", l.LogStartPoint()),
	}
	im.Producers = l.producers.AppendSnapshot(nil)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(l.ScanEntries(0, func(r EntryRow) bool {
		r.Cmd = bytes.Clone(r.Cmd)
		im.Rows = append(im.Rows, r)
		next, err := l.NextAfter(r.Index)
		check(err)
		im.Nexts = append(im.Nexts, next)
		return true
	}))
	check(l.ScanBatches(0, func(base ids.Offset, raw []byte) bool {
		im.Bases, im.Batches = append(im.Bases, base), append(im.Batches, bytes.Clone(raw))
		return true
	}))
	check(l.ScanQuarantine(func(q Quarantined) bool {
		q.Batch = bytes.Clone(q.Batch)
		im.Quarantine = append(im.Quarantine, q)
		return true
	}))
	return im
}

func sameImage(t testing.TB, got, want image) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s:\n got %.2000s\nwant %.2000s", g.Type().Field(i).Name, fmt.Sprint(g.Field(i)), fmt.Sprint(w.Field(i)))
		}
	}
}

// readAll is the whole log as clients get it.
func readAll(t testing.TB, l *Log) []byte {
	t.Helper()
	r, err := l.Read(ReadOptions{From: l.Start(), Limit: l.End(), MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if r.Next != l.End() {
		t.Fatalf("read to %d, the log ends at %d", r.Next, l.End())
	}
	return slices.Concat(r.Parts...)
}

// offsetsOf are the base offsets of concatenated batches.
func offsetsOf(t testing.TB, b []byte) (bases []int64) {
	t.Helper()
	for len(b) > 0 {
		h, one, rest, err := batch.Split(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.VerifyCRC(one); err != nil {
			t.Fatal(err)
		}
		bases, b = append(bases, h.BaseOffset), rest
	}
	return bases
}

func mustPanic(t testing.TB, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
