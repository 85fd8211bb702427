package engine

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

func TestOffsetsAreGivenOutInLogOrder(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(3, 10), g.data(1, 2000), g.noop(), g.data(5, 10))
	g.save(g.data(2, 10))

	if got, want := offsetsOf(t, readAll(t, g.log)), []int64{0, 3, 4, 9}; !reflect.DeepEqual(got, want) {
		t.Errorf("base offsets %v, want %v", got, want)
	}
	if g.log.End() != 11 || g.log.LastIndex() != 8 {
		t.Errorf("end %d, last index %d", g.log.End(), g.log.LastIndex())
	}
	var kinds []EntryKind
	var spans []string
	for _, s := range g.obs.saved {
		kinds = append(kinds, s.Kind)
		spans = append(spans, fmt.Sprintf("%d-%d", s.Base, s.Next))
	}
	wantKinds := []EntryKind{KindRaft, KindGenesis, KindEpochStart, KindData, KindData, KindRaft, KindData, KindData}
	if !reflect.DeepEqual(kinds, wantKinds) {
		t.Errorf("kinds %v, want %v", kinds, wantKinds)
	}
	if want := "0-0 0-0 0-0 0-3 3-4 4-4 4-9 9-11"; strings.Join(spans, " ") != want {
		t.Errorf("spans %v, want %s", spans, want)
	}
	for i, want := range []ids.Offset{0, 0, 0, 0, 3, 4, 4, 9, 11} {
		if got, err := g.log.NextAfter(ids.RaftIndex(i)); err != nil || got != want {
			t.Errorf("NextAfter(%d) = %d, %v, want %d", i, got, err, want)
		}
	}
	if _, err := g.log.NextAfter(9); !errors.Is(err, ErrNoEntry) {
		t.Errorf("NextAfter behind the log: %v", err)
	}
}

func TestSaveLeavesTheCommandAlone(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	entry := g.data(4, 100)
	before := bytes.Clone(entry.Cmd)
	g.save(entry)
	if !bytes.Equal(entry.Cmd, before) {
		t.Error("the command, which Raft shares, was changed")
	}
	h, err := batch.ParseHeader(readAll(t, g.log))
	if err != nil || h.LeaderEpoch != 0 || h.Size() != len(before)-1 {
		t.Errorf("stored batch %+v, %v", h, err)
	}
}

// voidCase saves proposals behind a started group's and says which kinds come out.
type voidCase struct {
	name    string
	entries func(g *group) []pb.Entry
	want    []EntryKind
	next    ids.Offset
}

// withHeader is a proposal whose header is not what it should be.
func withHeader(g *group, kind EntryKind, change func(*Header)) pb.Entry {
	h := g.header(kind)
	change(&h)
	cmd := g.batch(2, 10, nil)
	PutHeader(cmd, h)
	g.ordinal-- // it will be void
	return g.entry(cmd)
}

var voidOrder = []voidCase{
	{"in order", func(g *group) []pb.Entry { return []pb.Entry{g.data(1, 1), g.data(1, 1)} }, []EntryKind{KindData, KindData}, 2},
	{"ordinal left out", func(g *group) []pb.Entry {
		return []pb.Entry{withHeader(g, KindData, func(h *Header) { h.Ordinal++ }), g.data(1, 1)}
	}, []EntryKind{KindVoid, KindData}, 1},
	{"ordinal repeated", func(g *group) []pb.Entry {
		return []pb.Entry{g.data(1, 1), withHeader(g, KindData, func(h *Header) { h.Ordinal-- }), g.data(1, 1)}
	}, []EntryKind{KindData, KindVoid, KindData}, 2},
	{"all behind a dropped one", func(g *group) []pb.Entry {
		g.ordinal++
		return []pb.Entry{g.data(1, 1), g.data(1, 1)}
	}, []EntryKind{KindVoid, KindVoid}, 0},
	{"term of another leader", func(g *group) []pb.Entry {
		return []pb.Entry{withHeader(g, KindData, func(h *Header) { h.Term++ })}
	}, []EntryKind{KindVoid}, 0},
	{"first ordinal of a new term is 1", func(g *group) []pb.Entry {
		g.newTerm(2)
		return []pb.Entry{g.noop(), g.data(1, 1)}
	}, []EntryKind{KindRaft, KindData}, 1},
	{"ordinal goes on in a new term", func(g *group) []pb.Entry {
		g.hard.Term = 2
		return []pb.Entry{g.data(1, 1)}
	}, []EntryKind{KindVoid}, 0},
}

var voidContent = []voidCase{
	{"second genesis", func(g *group) []pb.Entry { return []pb.Entry{g.genesis()} }, []EntryKind{KindVoid}, 0},
	{"epoch does not rise", func(g *group) []pb.Entry { return []pb.Entry{g.epochStart(0)} }, []EntryKind{KindVoid}, 0},
	{"data of another epoch", func(g *group) []pb.Entry {
		return []pb.Entry{withHeader(g, KindData, func(h *Header) { h.LeaderEpoch = 5 })}
	}, []EntryKind{KindVoid}, 0},
	{"data of the new epoch", func(g *group) []pb.Entry { return []pb.Entry{g.epochStart(4), g.data(1, 1)} }, []EntryKind{KindEpochStart, KindData}, 1},
	{"log start", func(g *group) []pb.Entry { return []pb.Entry{g.data(2, 1), g.logStart(1)} }, []EntryKind{KindData, KindLogStart}, 2},
	{"log start above the end", func(g *group) []pb.Entry { return []pb.Entry{g.logStart(1)} }, []EntryKind{KindVoid}, 0},
	{"no header", func(g *group) []pb.Entry { return []pb.Entry{g.entry([]byte("short"))} }, []EntryKind{KindVoid}, 0},
	{"unknown kind", func(g *group) []pb.Entry { return []pb.Entry{g.entry(make([]byte, 100))} }, []EntryKind{KindVoid}, 0},
	{"short batch", func(g *group) []pb.Entry {
		b := make([]byte, 60)
		PutHeader(b, Header{Ordinal: g.ordinal + 1, Term: 1, Kind: KindData})
		return []pb.Entry{g.entry(b)}
	}, []EntryKind{KindVoid}, 0},
	{"compressed by dragonboat", func(g *group) []pb.Entry {
		e := g.data(1, 1)
		e.Cmd[0] = 2
		return []pb.Entry{e}
	}, []EntryKind{KindVoid}, 0},
}

func TestVoidEntries(t *testing.T) {
	for _, c := range slices.Concat(voidOrder, voidContent) {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			e := openMem(t, fs, nil)
			g := startGroup(t, e, testBinding(1))
			g.obs.saved = nil
			g.save(c.entries(g)...)
			var kinds []EntryKind
			for _, s := range g.obs.saved {
				kinds = append(kinds, s.Kind)
			}
			if !reflect.DeepEqual(kinds, c.want) || g.log.End() != c.next {
				t.Errorf("kinds %v, end %d, want %v, %d", kinds, g.log.End(), c.want, c.next)
			}
			before := imageOf(t, g.log)
			g.reopen(fs, nil)
			sameImage(t, imageOf(t, g.log), before)
			closeEngine(t, g.e)
		})
	}
}

func TestDataBeforeGenesisIsVoid(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := bindGroup(t, e, testBinding(1))
	early := g.data(1, 1)
	g.ordinal--
	epoch := g.epochStart(0)
	g.ordinal--
	g.save(early, epoch)
	if g.log.End() != 0 || g.log.HasGenesis() {
		t.Errorf("end %d, genesis %v", g.log.End(), g.log.HasGenesis())
	}
	g.save(g.genesis(), g.epochStart(0), g.data(1, 1))
	if g.log.End() != 1 || !g.log.HasGenesis() {
		t.Errorf("end %d, genesis %v", g.log.End(), g.log.HasGenesis())
	}
}

// A void entry is replicated as it is stored, cut behind its header: it must be void again on the receiver.
func TestVoidEntriesAreVoidOnFollowersToo(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = -1 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	dropped := func() { g.ordinal++ }
	dropped()
	g.save(g.data(3, 50), g.genesis(), g.logStart(9))
	g.newTerm(2)
	g.save(g.noop(), g.epochStart(0), g.epochStart(3), g.data(2, 30))
	follower := bindGroup(t, e, testBinding(2))
	follower.binding = g.binding
	entries := iterate(t, g, 1, g.last+1)
	for i := range entries {
		follower.e, follower.hard = e, pb.State{Term: 2}
		u := pb.Update{ShardID: 102, ReplicaID: 1002, State: follower.hard, EntriesToSave: entries[i : i+1]}
		if err := (logDB{e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range g.obs.saved {
		if o := follower.obs.saved[i]; o.Kind != s.Kind || o.Base != s.Base || o.Next != s.Next {
			t.Errorf("entry %d: follower has %+v, leader %+v", i+1, o, s)
		}
	}
	if !bytes.Equal(readAll(t, follower.log), readAll(t, g.log)) {
		t.Error("the follower's data differs")
	}
}

func TestOneSaveCarriesManyShards(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	var groups []*group
	var updates []pb.Update
	for i := range 5 {
		g := startGroup(t, e, testBinding(i+1))
		groups = append(groups, g)
		updates = append(updates, g.update(g.data(i+1, 50), g.data(1, 50)))
	}
	before := e.Metrics().Saves
	if err := (logDB{e}).SaveRaftState(updates, 1); err != nil {
		t.Fatal(err)
	}
	if n := e.Metrics().Saves - before; n != 1 {
		t.Errorf("%d commits", n)
	}
	for i, g := range groups {
		if g.log.End() != ids.Offset(i+2) {
			t.Errorf("partition %d ends at %d", i+1, g.log.End())
		}
	}
}

func TestLargeSavesAreSplit(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil) // commits of 256 KiB
	g := startGroup(t, e, testBinding(1))
	var entries []pb.Entry
	for range 40 {
		entries = append(entries, g.data(2, 20_000))
	}
	g.hard.Vote = 9
	g.save(append(entries, g.epochStart(1), g.data(1, 10))...)
	before := imageOf(t, g.log)
	if len(before.Batches) != 41 || g.log.End() != 81 {
		t.Fatalf("%d batches, end %d", len(before.Batches), g.log.End())
	}
	g.reopen(fs, nil)
	sameImage(t, imageOf(t, g.log), before)
	if g.log.sh.hard.Vote != 9 {
		t.Error("the hard state is lost")
	}
	closeEngine(t, g.e)
}

func TestSavesOfStrangersStopTheProcess(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	save := func(change func(*pb.Update)) func() {
		return func() {
			u := g.update(pb.Entry{Index: g.last + 1, Term: 1})
			change(&u)
			_ = (logDB{e}).SaveRaftState([]pb.Update{u}, 1)
		}
	}
	mustPanic(t, "another shard", save(func(u *pb.Update) { u.ShardID++ }))
	mustPanic(t, "another replica", save(func(u *pb.Update) { u.ReplicaID++ }))
	mustPanic(t, "a gap", save(func(u *pb.Update) { u.EntriesToSave[0].Index++ }))
	g.log.sh.saving.Store(false) // the panics left the save open
	e.Release(1)
	mustPanic(t, "released", save(func(*pb.Update) {}))
}

func TestOneSaveOfAShardAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	held := true
	e := openMem(t, vfs.NewMem(), func(c *Config) {
		c.Faults.SaveDelay = func(s ids.ShardID) {
			if s == 101 && held {
				held = false
				close(entered)
				<-leave
			}
		}
	})
	defer closeEngine(t, e)
	b := testBinding(1)
	l, err := e.Bind(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := []pb.Update{{ShardID: 101, ReplicaID: 1001, EntriesToSave: []pb.Entry{{Index: 1, Term: 1}}}}
	var wg sync.WaitGroup
	wg.Go(func() { _ = (logDB{e}).SaveRaftState(u, 1) })
	<-entered
	if l.LastIndex() != 0 {
		t.Error("an entry is visible before its commit")
	}
	mustPanic(t, "second save", func() { _ = (logDB{e}).SaveRaftState(u, 2) })
	close(leave)
	wg.Wait()
	if l.LastIndex() != 1 {
		t.Errorf("last index %d", l.LastIndex())
	}
}

// failingLog makes syncs and writes of write-ahead logs fail once it is switched on.
type failingLog struct {
	on   atomic.Bool
	kind errorfs.OpKind
}

func (f *failingLog) String() string { return "failing log" }

func (f *failingLog) MaybeError(op errorfs.Op) error {
	if f.on.Load() && op.Kind == f.kind && strings.HasSuffix(op.Path, walSuffix) {
		return errors.New("injected")
	}
	return nil
}

func TestFailedLogWriteStopsTheProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		mode FlushMode
		kind errorfs.OpKind
	}{
		{"sync", FlushAlways, errorfs.OpFileSyncData},
		{"write", FlushAlways, errorfs.OpFileWrite},
		{"write without sync", FlushOS, errorfs.OpFileWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			fail := &failingLog{kind: c.kind}
			e := openMem(t, errorfs.Wrap(vfs.NewMem(), fail), func(cfg *Config) { cfg.Flush = c.mode })
			g := startGroup(t, e, testBinding(1))
			end := g.log.End()
			fail.on.Store(true)
			mustPanic(t, c.name, func() { g.save(g.data(1, 10)) })
			if g.log.End() != end {
				t.Error("an entry whose save failed is visible")
			}
		}) // the engine is as dead as its process would be: it cannot be closed
	}
}

// syncCounter counts the real syncs of write-ahead logs.
type syncCounter struct{ n atomic.Int64 }

func (c *syncCounter) String() string { return "sync counter" }

func (c *syncCounter) MaybeError(op errorfs.Op) error {
	if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, walSuffix) {
		c.n.Add(1)
	}
	return nil
}

func TestWhatIsSynced(t *testing.T) {
	for _, mode := range []FlushMode{FlushAlways, FlushOS} {
		var count syncCounter
		e := openMem(t, errorfs.Wrap(vfs.NewMem(), &count), func(c *Config) { c.Flush = mode })
		g := startGroup(t, e, testBinding(1))
		synced := func(what string, want bool, save func()) {
			t.Helper()
			before := count.n.Load()
			save()
			if got := count.n.Load() > before; got != want {
				t.Errorf("mode %d: %s synced: %v, want %v", mode, what, got, want)
			}
		}
		always := mode == FlushAlways
		synced("entries", always, func() { g.save(g.data(1, 10)) })
		synced("commit", false, func() { g.commit(g.last) })
		synced("vote", always, func() { g.hard.Vote = 3; g.save() })
		synced("term", always, func() { g.hard.Term = 3; g.save() })
		metadata := func(commit uint64, entries ...pb.Entry) func() {
			return func() {
				u := pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 1, Commit: commit}, EntriesToSave: entries}
				if err := (logDB{e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		synced("metadata entry", true, metadata(0, pb.Entry{Index: 1, Term: 1}))
		synced("metadata commit", true, metadata(1))
		synced("owner", true, func() { bindGroup(t, e, testBinding(2)) })
		closeEngine(t, e)
	}
}

// With FlushOS a killed process loses nothing that a save returned for: the bytes are in the file.
func TestFlushOSWritesBeforeItReturns(t *testing.T) {
	mem := vfs.NewMem()
	e := openMem(t, mem, func(c *Config) { c.Flush = FlushOS })
	g := startGroup(t, e, testBinding(1))
	for range 20 {
		g.save(g.data(2, 100))
	}
	want := readAll(t, g.log)
	// What the file system holds now, synced or not, is what the next process finds.
	copied := vfs.NewMem()
	if ok, err := vfs.Clone(mem, copied, "broker", "broker"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	closeEngine(t, e)
	e = openMem(t, copied, nil)
	defer closeEngine(t, e)
	g.e = e
	g.bind()
	if got := readAll(t, g.log); !bytes.Equal(got, want) {
		t.Errorf("%d bytes are left of %d", len(got), len(want))
	}
}
