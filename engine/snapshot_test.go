package engine

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

func (g *group) configChange(c pb.ConfigChange) pb.Entry {
	e := g.entry(nil)
	e.Type, e.Cmd = pb.ConfigChangeEntry, pb.MustMarshal(&c)
	return e
}

// compactedGroup is a group of three members whose Raft log starts behind the batch that ends at offset 4.
func compactedGroup(t testing.TB, e *Engine, b Binding) *group {
	t.Helper()
	g := bindGroup(t, e, b)
	for i, name := range []string{"node-1", "node-2"} {
		g.save(g.configChange(pb.ConfigChange{Type: pb.AddNode, ReplicaID: uint64(i + 1), Address: name, Initialize: true}))
	}
	g.save(g.noop(), g.genesis(), g.epochStart(0), g.data(2, 100))
	g.save(g.configChange(pb.ConfigChange{Type: pb.AddNonVoting, ReplicaID: 3, Address: "node-3"}))
	g.save(g.epochStart(1), g.data(2, 100), g.data(3, 100), g.configChange(pb.ConfigChange{Type: pb.AddNode, ReplicaID: 3, Address: "node-3"}))
	g.save(g.logStart(5))
	g.commit(g.last)
	compactTo, err := g.log.SetStart(5) // inside the batch of offsets 4 to 6
	if err != nil || compactTo != 9 {
		t.Fatalf("compact to %d, %v", compactTo, err)
	}
	if err := (logDB{e}).RemoveEntriesTo(uint64(b.Shard), uint64(b.Replica), uint64(compactTo)); err != nil {
		t.Fatal(err)
	}
	return g
}

func smallSteps(c *Config) { c.DropStepBytes = 1 }

func TestLogStartMovesBothStarts(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, smallSteps)
	g := bindGroup(t, e, testBinding(1))
	g.save(g.noop(), g.genesis(), g.epochStart(0), g.data(3, 100), g.data(3, 100), g.data(3, 100))
	size := g.log.SizeBytes()
	g.save(g.logStart(4))
	g.commit(g.last)
	compactTo, err := g.log.SetStart(4)
	if err != nil || compactTo != 4 {
		t.Fatalf("compact to %d, %v", compactTo, err)
	}
	if g.log.Start() != 4 || g.log.End() != 9 || g.log.SizeBytes() != size*2/3 {
		t.Errorf("start %d, end %d, %d bytes of %d", g.log.Start(), g.log.End(), g.log.SizeBytes(), size)
	}
	if got := offsetsOf(t, readAll(t, g.log)); !slices.Equal(got, []int64{3, 6}) {
		t.Errorf("batches %v: the one that holds the start is read whole", got)
	}
	if _, err := g.log.Read(ReadOptions{From: 3, Limit: 9, MaxBytes: 1000}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("below the start: %v", err)
	}
	dataRows := func() int {
		return len(storeRows(t, g.e, func(k []byte) bool { return rowKind(k[0]) == rowData }))
	}
	if n := dataRows(); n != 3 {
		t.Errorf("%d data rows: what the Raft log has must stay", n)
	}
	sameEntries(t, iterate(t, g, 4, 5), iterate(t, g, 4, 5))
	if err := (logDB{e}).RemoveEntriesTo(101, 1001, 4); err != nil {
		t.Fatal(err)
	}
	if n := dataRows(); n != 2 {
		t.Errorf("%d data rows behind the new start of the Raft log", n)
	}
	if _, err := g.log.NextAfter(3); !errors.Is(err, ErrNoEntry) {
		t.Errorf("an entry below the start point: %v", err)
	}
	if next, err := g.log.NextAfter(4); err != nil || next != 3 {
		t.Errorf("the start point: %d, %v", next, err)
	}
	want := imageOf(t, g.log)
	g.reopen(fs, smallSteps)
	sameImage(t, imageOf(t, g.log), want)
	// A lower or repeated one changes nothing, one above the end is an error.
	if _, err := g.log.SetStart(2); err != nil || g.log.Start() != 4 {
		t.Errorf("start %d, %v", g.log.Start(), err)
	}
	if _, err := g.log.SetStart(10); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("above the end: %v", err)
	}
	mustPanic(t, "Raft log above the log start", func() { _ = (logDB{g.e}).RemoveEntriesTo(101, 1001, 6) })
	closeEngine(t, g.e)
}

func TestExpiredDataIsDroppedInSteps(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.DropStepBytes = 5000 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 20 {
		g.save(g.data(1, 1000))
	}
	g.commit(g.last)
	steps := 0
	for o := ids.Offset(1); o <= 18; o++ {
		compactTo, err := g.log.SetStart(o)
		if err != nil {
			t.Fatal(err)
		}
		if compactTo > 0 {
			steps++
			if err := (logDB{e}).RemoveEntriesTo(101, 1001, uint64(compactTo)); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := len(storeRows(t, e, func(k []byte) bool { return rowKind(k[0]) == rowData }))
	if steps != 3 || left != 5 {
		t.Errorf("%d steps, %d batches left of 20, expected are 18", steps, left)
	}
}

func TestStartPointKeepsMembershipAndProducers(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, smallSteps)
	g := compactedGroup(t, e, testBinding(1))
	at := g.log.LogStartPoint()
	if at.Index != 9 || at.Next != 4 || at.LeaderEpoch != 1 {
		t.Errorf("start point %+v", at)
	}
	want := pb.Membership{
		ConfigChangeId: 7, Addresses: map[uint64]string{1: "node-1", 2: "node-2"}, NonVotings: map[uint64]string{3: "node-3"},
		Witnesses: map[uint64]string{}, Removed: map[uint64]bool{},
	}
	if !reflect.DeepEqual(at.Membership, want) {
		t.Errorf("membership %+v, want %+v", at.Membership, want)
	}
	ss, err := (logDB{e}).GetSnapshot(101, 1001)
	if err != nil {
		t.Fatal(err)
	}
	made := pb.Snapshot{ShardID: 101, Index: 9, Term: 1, OnDiskIndex: 9, Dummy: true, Type: pb.OnDiskStateMachine, Membership: want}
	if !reflect.DeepEqual(ss, made) {
		t.Errorf("made-up snapshot %+v, want %+v", ss, made)
	}
	state, err := (logDB{e}).ReadRaftState(101, 1001, 9)
	if err != nil || state.FirstIndex != 10 || state.EntryCount != 3 || state.State.Commit != 12 {
		t.Errorf("Raft state %+v, %v", state, err)
	}
	// A real record counts until the next start of the replica.
	real := pb.Snapshot{ShardID: 101, Index: 12, Term: 1, OnDiskIndex: 12, Type: pb.OnDiskStateMachine, Filepath: "f"}
	if err := (logDB{e}).SaveSnapshots([]pb.Update{{ShardID: 101, ReplicaID: 1001, Snapshot: real}}); err != nil {
		t.Fatal(err)
	}
	if ss, err := (logDB{e}).GetSnapshot(101, 1001); err != nil || ss.Index != 12 {
		t.Errorf("snapshot %+v, %v", ss, err)
	}
	g.reopen(fs, smallSteps)
	if ss, err := (logDB{g.e}).GetSnapshot(101, 1001); err != nil || !reflect.DeepEqual(ss, made) {
		t.Errorf("after a restart %+v, %v", ss, err)
	}
	closeEngine(t, g.e)
}

func TestProducersOutliveTheEntriesThatMadeThem(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, smallSteps)
	g := startGroup(t, e, testBinding(1))
	g.save(g.producerData(5, 0, 2), g.producerData(6, 0, 1), g.data(1, 10))
	g.commit(g.last)
	if to, err := g.log.SetStart(3); err != nil || to != 5 {
		t.Fatalf("compact to %d, %v", to, err)
	}
	if err := (logDB{e}).RemoveEntriesTo(101, 1001, 5); err != nil {
		t.Fatal(err)
	}
	want := *mustProducer(t, g.log, 5)
	g.reopen(fs, smallSteps)
	if got := *mustProducer(t, g.log, 5); !reflect.DeepEqual(got, want) {
		t.Errorf("producer %+v, want %+v", got, want)
	}
	closeEngine(t, g.e)
}

// A follower below the leader's log start gets a snapshot at that start and then the rest by ordinary saves.
func TestSnapshotInstallBeginsTheLogAnew(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, smallSteps)
	leader := compactedGroup(t, e, testBinding(1))
	b := testBinding(2)
	b.Info.ID, b.Shard = 2, 202
	follower := bindGroup(t, e, b)
	follower.save(follower.noop(), follower.genesis(), follower.epochStart(0), follower.data(1, 50))
	follower.commit(3)
	obs := follower.obs

	point, frame, ok, err := leader.log.EncodeStartPoint()
	if err != nil || !ok || point.Index != 9 {
		t.Fatalf("start point %+v, %v, %v", point, ok, err)
	}
	ss := pb.Snapshot{ShardID: 202, Index: 9, Term: uint64(point.Term), Membership: point.Membership, OnDiskIndex: 9, Type: pb.OnDiskStateMachine, Filepath: "f"}
	install := pb.Update{ShardID: 202, ReplicaID: 1002, State: pb.State{Term: 1, Commit: 9}, Snapshot: ss}
	mustPanic(t, "a snapshot that nobody announced", func() { _ = (logDB{e}).SaveRaftState([]pb.Update{install}, 1) })
	follower.log.sh.saving.Store(false)
	for range 2 {
		if err := e.ExpectSnapshot(202, 1002, frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.ExpectSnapshot(202, 1002, frame[:len(frame)-1]); err == nil {
		t.Error("a cut start point was taken")
	}
	if err := (logDB{e}).SaveRaftState([]pb.Update{install}, 1); err != nil {
		t.Fatal(err)
	}
	if want := []string{"at 9, next 4"}; !slices.Equal(obs.installed, want) {
		t.Errorf("observer heard %v", obs.installed)
	}
	l := follower.log
	if l.Start() != 4 || l.End() != 4 || l.LastIndex() != 9 || !l.HasGenesis() || l.SizeBytes() != 0 || l.HighWatermark() != 4 {
		t.Errorf("start %d, end %d, last %d, genesis %v, %d bytes, high watermark %d", l.Start(), l.End(), l.LastIndex(), l.HasGenesis(), l.SizeBytes(), l.HighWatermark())
	}
	im := imageOf(t, l)
	if len(im.Batches) != 0 || len(im.Quarantine) != 1 || im.Quarantine[0].Base != 0 {
		t.Errorf("%d batches, quarantine %+v: only what was not committed is kept there", len(im.Batches), im.Quarantine)
	}
	if got, err := (logDB{e}).GetSnapshot(202, 1002); err != nil || got.Index != 9 || got.Filepath != "f" {
		t.Errorf("snapshot %+v, %v", got, err)
	}

	rest := iterate(t, leader, 10, leader.last+1)
	if err := (logDB{e}).SaveRaftState([]pb.Update{{ShardID: 202, ReplicaID: 1002, State: pb.State{Term: 1, Commit: 12}, EntriesToSave: rest}}, 1); err != nil {
		t.Fatal(err)
	}
	follower.reopen(fs, smallSteps)
	l = follower.log
	leader.e = follower.e
	leader.bind()
	if l.Applied() < 9 {
		t.Errorf("applied %d is below the snapshot", l.Applied())
	}
	want := imageOf(t, leader.log)
	got := imageOf(t, l)
	if !reflect.DeepEqual(got.Batches, want.Batches) || !reflect.DeepEqual(got.State, want.State) || !reflect.DeepEqual(got.Rows, want.Rows) || !reflect.DeepEqual(got.Epochs, want.Epochs) {
		t.Errorf("the follower differs from the leader:\n got %+v %+v\nwant %+v %+v", got.State, got.Epochs, want.State, want.Epochs)
	}
	if !bytes.Equal(readAll(t, l)[:61], readAll(t, leader.log)[:61]) {
		t.Error("the first batch differs")
	}
	closeEngine(t, follower.e)
}

// metadata is the replica 4 of the metadata shard on an engine that is reopened.
type metadata struct {
	t  testing.TB
	fs vfs.FS
	e  *Engine
}

func metadataEntry(i, term uint64, cmd string) pb.Entry {
	return pb.Entry{Index: i, Term: term, Type: pb.EncodedEntry, Cmd: append([]byte{0}, cmd...), Key: i}
}

func (m *metadata) save(state pb.State, ss pb.Snapshot, entries ...pb.Entry) {
	m.t.Helper()
	u := pb.Update{ShardID: 1, ReplicaID: 4, State: state, Snapshot: ss, EntriesToSave: entries}
	if err := (logDB{m.e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
		m.t.Fatal(err)
	}
}

// wants checks the Raft state behind an index and the commands of all entries from low on.
func (m *metadata) wants(behind uint64, state raftio.RaftState, low uint64, cmds ...string) {
	m.t.Helper()
	got, err := logDB{m.e}.ReadRaftState(1, 4, behind)
	if err != nil || got != state {
		m.t.Errorf("state %+v, %v, want %+v", got, err, state)
	}
	entries, _, err := logDB{m.e}.IterateEntries(nil, 0, 1, 4, low, low+uint64(len(cmds)), 1<<20)
	if err != nil {
		m.t.Fatal(err)
	}
	var read []string
	for _, e := range entries {
		read = append(read, string(e.Cmd[1:]))
	}
	if !slices.Equal(read, cmds) {
		m.t.Errorf("entries %v, want %v", read, cmds)
	}
}

func (m *metadata) reopen() {
	m.t.Helper()
	closeEngine(m.t, m.e)
	m.e = openMem(m.t, m.fs, nil)
}

func TestMetadataShardIsAnOrdinaryLog(t *testing.T) {
	m := &metadata{t: t, fs: vfs.NewMem()}
	m.e = openMem(t, m.fs, nil)
	if _, err := (logDB{m.e}).ReadRaftState(1, 4, 0); !errors.Is(err, raftio.ErrNoSavedLog) {
		t.Errorf("empty: %v", err)
	}
	none := pb.Snapshot{}
	m.save(pb.State{Term: 1, Commit: 2}, none, metadataEntry(1, 1, "a"), metadataEntry(2, 1, "b"), metadataEntry(3, 1, "c"), metadataEntry(4, 1, "d"))
	m.save(pb.State{Term: 2, Vote: 4, Commit: 2}, none, metadataEntry(3, 2, "C"))
	m.wants(0, raftio.RaftState{State: pb.State{Term: 2, Vote: 4, Commit: 2}, FirstIndex: 1, EntryCount: 3}, 1, "a", "b", "C")

	ss := pb.Snapshot{ShardID: 1, Index: 2, Term: 1, Filepath: "f", Membership: pb.Membership{Addresses: map[uint64]string{4: "node-4"}}}
	if err := (logDB{m.e}).SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 4, Snapshot: ss}}); err != nil {
		t.Fatal(err)
	}
	if err := (logDB{m.e}).RemoveEntriesTo(1, 4, 1); err != nil {
		t.Fatal(err)
	}
	m.reopen()
	if got, err := (logDB{m.e}).GetSnapshot(1, 4); err != nil || got.Index != 2 || got.Filepath != "f" || got.Membership.Addresses[4] != "node-4" {
		t.Errorf("snapshot %+v, %v", got, err)
	}
	m.wants(2, raftio.RaftState{State: pb.State{Term: 2, Vote: 4, Commit: 2}, FirstIndex: 3, EntryCount: 1}, 2, "b", "C")
	if got := m.e.DurableIndex(1); got != 3 {
		t.Errorf("durable index %d", got)
	}

	ss.Index, ss.Term = 10, 3 // from the leader: it replaces the log
	m.save(pb.State{Term: 3, Commit: 10}, ss, metadataEntry(11, 3, "k"))
	m.reopen()
	m.wants(10, raftio.RaftState{State: pb.State{Term: 3, Commit: 10}, FirstIndex: 11, EntryCount: 1}, 11, "k")
	if err := (logDB{m.e}).RemoveNodeData(1, 4); err != nil {
		t.Fatal(err)
	}
	if rows := storeRows(t, m.e, nil); len(rows) != 0 {
		t.Errorf("rows are left: %q", rows)
	}
	if _, err := (logDB{m.e}).ReadRaftState(1, 4, 0); !errors.Is(err, raftio.ErrNoSavedLog) {
		t.Errorf("removed: %v", err)
	}
	closeEngine(t, m.e)
}

func FuzzSnapshotStart(f *testing.F) {
	s := snapshotStart{StartPoint: StartPoint{Index: 9, Term: 2, LogState: LogState{Next: 4, MaxTimestamp: -1, MaxTimestampBase: -1}}, epochs: []EpochStart{{Epoch: 1, Start: 2, Index: 3}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSnapshotStart(b)
		if err != nil {
			return
		}
		if again := s.encode(); !bytes.Equal(again, b) {
			t.Errorf("%x is encoded as %x", b, again)
		}
	})
}
