package raftgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
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

// singleVoter is a metadata group and a partition, each with one voter, on node 1, and two members without a vote, on nodes 2 and 3.
type singleVoter struct {
	t     *testing.T
	ctx   context.Context
	disk  *vfs.MemFS // of the voter
	dir   string
	voter *testNode
	metas []*metadata // the voter's first
	parts []*member

	hold atomic.Bool
	held atomic.Int32
	gate chan struct{}
}

var onlyVoter = map[ids.ReplicaID]ids.NodeID{1: 1}

func newSingleVoter(t *testing.T, c *cluster) (*singleVoter, *writer) {
	s := &singleVoter{t: t, ctx: testContext(t), disk: vfs.NewCrashableMem(), dir: t.TempDir(), gate: make(chan struct{})}
	makeDir(t, s.disk, "data")
	s.voter = c.start(1, nodeOptions{fs: s.disk, dir: s.dir, engine: func(ec *engine.Config) {
		ec.Dir = "data"
		ec.Faults.SaveDelay = func(ids.ShardID) {
			if s.hold.Load() {
				s.held.Add(1)
				<-s.gate
			}
		}
	}})
	t.Cleanup(func() { close(s.gate) }) // before the node's own cleanup: its workers wait there
	meta := s.voter.metadata(1, onlyVoter, false)
	meta.lead(t)
	part := s.voter.group(2, 1, onlyVoter) // shards 1 and 102 have different step workers
	w := part.lead(t)
	s.metas, s.parts = []*metadata{meta}, []*member{part}
	for _, id := range []ids.ReplicaID{2, 3} {
		f := c.start(ids.NodeID(id), nodeOptions{})
		if err := errors.Join(meta.AddNonVoting(s.ctx, id, f.id), part.AddNonVoting(s.ctx, id, f.id)); err != nil {
			t.Fatal(err)
		}
		s.metas = append(s.metas, f.metadata(id, nil, true))
		s.parts = append(s.parts, f.group(2, id, nil, joining))
	}
	return s, w
}

// write adds to both logs, and waits until all members have it.
func (s *singleVoter) write(w *writer, n int) {
	s.t.Helper()
	for i := range n {
		if _, _, err := s.metas[0].Propose(s.ctx, fmt.Appendf(nil, "kept-%d", i)); err != nil {
			s.t.Fatal(err)
		}
	}
	w.write(n, 3000)
	w.settled()
	s.same()
}

func (s *singleVoter) same() {
	s.t.Helper()
	for i, m := range s.parts[1:] {
		sameLog(s.t, s.parts[0], m)
		eventually(s.t, "metadata is the same", func() bool { return s.metas[i+1].m.all() == s.metas[0].m.all() })
	}
}

// sendUnsaved adds an entry to both logs that the members have and the voter has not saved. The command's proposer waits until ctx ends.
func (s *singleVoter) sendUnsaved(ctx context.Context, w *writer, wg *sync.WaitGroup) {
	s.t.Helper()
	s.hold.Store(true)
	w.write(1, 3000)
	wg.Go(func() { _, _, _ = s.metas[0].Propose(ctx, []byte("lost")) })
	saved, command := s.parts[0].Log().LastIndex(), s.voter.eng.DurableIndex(ids.MetadataShard)
	for _, m := range s.parts[1:] {
		eventually(s.t, "members have the entries that their voter lacks", func() bool {
			return m.Log().LastIndex() == saved+1 && m.node.eng.DurableIndex(ids.MetadataShard) == command+1
		})
		if got := m.Log().Commit(); got > saved {
			s.t.Errorf("replica %d was told of commit %d, its voter has saved %d", m.Self(), got, saved)
		}
	}
	if s.held.Load() != 2 {
		s.t.Fatalf("%d saves are held back, want both groups'", s.held.Load())
	}
}

// powerCut restarts the voter with what its disk had been told to keep.
func (s *singleVoter) powerCut(c *cluster) {
	s.t.Helper()
	kept := s.disk.CrashClone(vfs.CrashCloneCfg{})
	s.voter.isolate()
	dir := filepath.Join(s.t.TempDir(), "again")
	copyDir(s.t, s.dir, dir)
	s.voter = c.start(1, nodeOptions{fs: kept, dir: dir, engine: func(ec *engine.Config) { ec.Dir = "data" }})
	s.metas[0] = s.voter.metadata(1, onlyVoter, false)
	s.parts[0] = s.voter.group(2, 1, onlyVoter)
}

// TestSingleVoterCrashBeforeItsSave holds back the save of a single voter, whose commit does not wait for it, until its members have
// the entry, and cuts its power.
func TestSingleVoterCrashBeforeItsSave(t *testing.T) {
	c := newCluster(t)
	s, w := newSingleVoter(t, c)
	s.write(w, 18)
	s.write(w, 1) // now Raft knows that the members have the first, and sends without waiting
	s.write(w, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.sendUnsaved(ctx, w, &wg)
	s.powerCut(c)
	if got := int(s.parts[0].Log().End()); got != 20 {
		t.Fatalf("the voter came back with %d records, had saved 20", got)
	}
	s.metas[0].lead(t)
	w = s.parts[0].lead(t)
	if _, _, err := s.metas[0].Propose(s.ctx, []byte("after")); err != nil {
		t.Fatal(err)
	}
	w.write(3, 2000)
	w.settled()
	s.same()
	for _, m := range s.parts[1:] {
		eventually(t, "member has committed what its voter has", func() bool { return m.Log().Commit() == s.parts[0].Log().LastIndex() })
		if m.rec.truncations() == 0 {
			t.Errorf("replica %d did not truncate", m.Self())
		}
	}
	if got := s.metas[0].m.all(); !strings.HasSuffix(got, "kept-0 after]") {
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
