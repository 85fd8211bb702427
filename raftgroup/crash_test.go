package raftgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/ids"
)

// sumMachine is a metadata machine for tests: it keeps the commands.
type sumMachine struct {
	mu   sync.Mutex
	cmds []string
}

func (m *sumMachine) Apply(index uint64, cmd []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cmds = append(m.cmds, string(cmd))
	return fmt.Appendf(nil, "%d:%s", index, cmd)
}

func (m *sumMachine) Snapshot() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b []byte
	for _, c := range m.cmds {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b, nil
}

func (m *sumMachine) Restore(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cmds = nil
	for len(b) > 0 {
		n, l := binary.Uvarint(b)
		m.cmds = append(m.cmds, string(b[l:l+int(n)]))
		b = b[l+int(n):]
	}
	return nil
}

func (m *sumMachine) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.cmds)
}

type metadata struct {
	*MachineGroup
	m *sumMachine
}

func (n *testNode) metadata(replica ids.ReplicaID, members map[ids.ReplicaID]ids.NodeID, join bool) *metadata {
	n.c.t.Helper()
	m := &sumMachine{}
	g, err := n.host.StartMachine(MachineConfig{Replica: replica, Members: members, Join: join, NonVoting: join, Machine: m, SnapshotEntries: 50, CompactionOverhead: 10})
	if err != nil {
		n.c.t.Fatal(err)
	}
	return &metadata{g, m}
}

func (m *metadata) lead(t testing.TB) {
	t.Helper()
	m.Campaign()
	eventually(t, "the metadata group is led", func() bool { l, _, _ := m.Leader(); return l == m.Self() })
}

// TestSingleVoterCrashBeforeItsSave holds back the save of a single voter, whose commit does not wait for it, until its members have
// the entry, and cuts its power.
func TestSingleVoterCrashBeforeItsSave(t *testing.T) {
	c := newCluster(t)
	var hold atomic.Bool
	gate := make(chan struct{})
	var held atomic.Int32
	disk := vfs.NewCrashableMem()
	makeDir(t, disk, "data")
	dir := t.TempDir()
	slow := func(ec *engine.Config) {
		ec.Dir = "data"
		ec.Faults.SaveDelay = func(ids.ShardID) {
			if hold.Load() {
				held.Add(1)
				<-gate
			}
		}
	}
	voter := c.start(1, nodeOptions{fs: disk, dir: dir, engine: slow})
	t.Cleanup(func() { close(gate) }) // before the node's own cleanup: its workers wait there
	followers := []*testNode{c.start(2, nodeOptions{}), c.start(3, nodeOptions{})}
	ctx := testContext(t)

	first := map[ids.ReplicaID]ids.NodeID{1: 1}
	meta := voter.metadata(1, first, false)
	meta.lead(t)
	part := voter.group(2, 1, first) // shards 1 and 102 have different step workers
	w := part.lead(t)
	metas, parts := []*metadata{meta}, []*member{part}
	for i, f := range followers {
		id := ids.ReplicaID(i + 2)
		if err := meta.AddNonVoting(ctx, id, f.id); err != nil {
			t.Fatal(err)
		}
		if err := part.AddNonVoting(ctx, id, f.id); err != nil {
			t.Fatal(err)
		}
		metas = append(metas, f.metadata(id, nil, true))
		parts = append(parts, f.group(2, id, nil, joining))
	}
	for i := range 19 {
		if _, _, err := meta.Propose(ctx, fmt.Appendf(nil, "kept-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	w.write(18, 3000)
	w.settled()
	for range 2 { // after the second round Raft knows that the members have the first, and sends without waiting
		if _, _, err := meta.Propose(ctx, []byte("kept-19")); err != nil {
			t.Fatal(err)
		}
		w.write(1, 3000)
		w.settled()
		for i, m := range parts[1:] {
			sameLog(t, part, m)
			eventually(t, "metadata is the same", func() bool { return metas[i+1].m.all() == meta.m.all() })
		}
	}

	hold.Store(true)
	w.write(1, 3000)
	lost, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _, _, _ = meta.Propose(lost, []byte("lost")) })
	for _, m := range parts[1:] {
		eventually(t, "members have the entry that their voter lacks", func() bool { return m.Log().LastIndex() == part.Log().LastIndex()+1 })
	}
	last := voter.eng.DurableIndex(ids.MetadataShard)
	for _, f := range followers {
		eventually(t, "members have the command that their voter lacks", func() bool { return f.eng.DurableIndex(ids.MetadataShard) == last+1 })
	}
	if held.Load() < 2 {
		t.Fatalf("%d saves are held back, want both groups'", held.Load())
	}
	for _, m := range parts[1:] {
		if got := m.Log().Commit(); got > part.Log().LastIndex() {
			t.Errorf("replica %d was told of commit %d, its voter has saved %d", m.Self(), got, part.Log().LastIndex())
		}
	}

	survivor := disk.CrashClone(vfs.CrashCloneCfg{})
	voter.isolate()
	dir2 := filepath.Join(t.TempDir(), "again")
	copyDir(t, dir, dir2)
	again := c.start(1, nodeOptions{fs: survivor, dir: dir2, engine: func(ec *engine.Config) { ec.Dir = "data" }})
	meta = again.metadata(1, first, false)
	part2 := again.group(2, 1, first)
	if got := int(part2.Log().End()); got != 20 {
		t.Fatalf("the voter came back with %d records, had saved 20", got)
	}
	meta.lead(t)
	w = part2.lead(t)
	if _, _, err := meta.Propose(ctx, []byte("after")); err != nil {
		t.Fatal(err)
	}
	w.write(3, 2000)
	w.settled()
	for i, m := range parts[1:] {
		sameLog(t, part2, m)
		eventually(t, "member has committed what its voter has", func() bool { return m.Log().Commit() == part2.Log().LastIndex() })
		if m.rec.truncated == 0 {
			t.Errorf("replica %d did not truncate", m.Self())
		}
		eventually(t, "metadata is the same", func() bool { return metas[i+1].m.all() == meta.m.all() })
	}
	want := "kept-19 after]"
	if got := meta.m.all(); got[len(got)-len(want):] != want {
		t.Errorf("metadata ends with %q", got)
	}
}

func TestCommitReachesNonVotersOfASingleVoterAtOnce(t *testing.T) {
	c := newCluster(t)
	a, b := c.start(1, nodeOptions{}), c.start(2, nodeOptions{})
	ctx := testContext(t)
	meta := a.metadata(1, map[ids.ReplicaID]ids.NodeID{1: 1}, false)
	meta.lead(t)
	if err := meta.AddNonVoting(ctx, 2, 2); err != nil {
		t.Fatal(err)
	}
	other := b.metadata(2, nil, true)
	begin := time.Now()
	if err := other.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("first barrier of a new member: %v", time.Since(begin))
	var slowest time.Duration
	for range 10 {
		begin := time.Now()
		index, _, err := meta.Propose(ctx, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the non-voter has applied it", func() bool { return other.Applied() >= index })
		slowest = max(slowest, time.Since(begin))
	}
	t.Logf("slowest of ten: %v", slowest)
	if slowest > 300*time.Millisecond { // a heartbeat comes every 500 ms
		t.Errorf("a non-voter heard of a commit after %v only", slowest)
	}
}

// makeDir makes a directory that survives a crash.
func makeDir(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := fs.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
}
