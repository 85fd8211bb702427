package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// storedBytes are the bytes of the batches from the log start on.
func (g *group) storedBytes() (sum int64) {
	g.t.Helper()
	if err := g.log.ScanBatches(g.log.Start(), func(_ ids.Offset, raw []byte) bool {
		if h := batch.DecodeHeader(raw); ids.Offset(h.NextOffset()) > g.log.Start() {
			sum += int64(len(raw))
		}
		return true
	}); err != nil {
		g.t.Fatal(err)
	}
	return sum
}

func TestSizeOfALogWhoseCompactedPartHasExpired(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(nil, "a", "b"), g.keyed(nil, "a", "b"), g.keyed(nil, "c"), g.keyed(nil, "d"))
	g.settle()
	g.compact(1)
	g.save(g.keyed(nil, "e"), g.keyed(nil, "f"))
	g.settle()
	g.nextGeneration()
	g.save(g.keyed(nil, "g"), g.keyed(nil, "h"))
	g.settle()
	for _, o := range []ids.Offset{6, 7, 9} { // in the part of the former generation, where nothing says how large batches were, and behind it
		if _, err := g.log.SetStart(o); err != nil {
			t.Fatal(err)
		}
		if got, want := g.log.SizeBytes(), g.storedBytes(); got != want {
			t.Errorf("log start %d: size %d, stored are %d bytes", o, got, want)
		}
	}
}

// A replica that has joined a generation does not know which transactions are open before the genesis tells it.
func TestNothingIsCompactedBeforeTheGenesis(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(nil, "a"), g.keyed(producerOf(7, 0, true), "a"), g.keyed(nil, "b"), g.keyed(nil, "c"))
	g.commit(g.last)
	g.e.Release(1)
	g.binding.Shard, g.binding.Replica, g.binding.Generation, g.binding.BaseOffset = 900, 901, 1, 4
	if err := g.e.Rebase(Rebase{Binding: g.binding, Agreed: 4, Epochs: []EpochStart{{}}}); err != nil {
		t.Fatal(err)
	}
	g.bind()
	g.log.SetHighWatermark(4)
	g.compact(1)
	g.wantContents("0: a@0", "1: a@1", "2: b@2", "3: c@3")
}

// A save in several commits may leave a snapshot without the state that came with it.
func TestWhatASnapshotHoldsIsCommitted(t *testing.T) {
	fs := vfs.NewMem()
	g := startGroup(t, openMem(t, fs, nil), testBinding(1))
	g.save(g.data(1, 10))
	old := g.hard
	at := snapshotStart{StartPoint: StartPoint{Index: 9, Term: 1, LogState: g.log.State()}, epochs: g.log.EpochStarts()}
	if err := g.e.ExpectSnapshot(g.binding.Shard, g.binding.Replica, at.encode()); err != nil {
		t.Fatal(err)
	}
	u := g.update()
	u.State.Commit, u.Snapshot = 9, pb.Snapshot{ShardID: u.ShardID, Index: 9, Term: 1, Type: pb.OnDiskStateMachine}
	if err := (logDB{g.e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
		t.Fatal(err)
	}
	b := g.e.newBatch(0)
	set(b, appendReplicaKey(nil, rowState, g.binding.Shard, g.binding.Replica), appendStateRow(nil, old))
	if err := g.e.commit(b, flushDurable); err != nil {
		t.Fatal(err)
	}
	g.reopen(fs, nil)
	defer func() { closeEngine(t, g.e) }()
	if g.log.Commit() != 9 {
		t.Errorf("commit %d, want 9", g.log.Commit())
	}
}
