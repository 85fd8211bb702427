package raftgroup

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// await polls cond; the wait is bounded and its failure says what was awaited.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v not yet: %s", patience, what)
		}
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// cluster is several hosts in this process that reach each other over loopback.
type cluster struct {
	t     testing.TB
	mu    sync.Mutex
	addrs map[ids.NodeID]string
	nodes map[ids.NodeID]*testNode
}

type testNode struct {
	c    *cluster
	id   ids.NodeID
	dir  string
	fs   vfs.FS
	eng  *engine.Engine
	host *Host
	ln   net.Listener
	wg   sync.WaitGroup

	mu    sync.Mutex
	cut   bool // no connection in or out
	conns map[net.Conn]bool
	downs []ids.NodeID // peers reported down
	ups   []ids.NodeID
}

type nodeOptions struct {
	fs     vfs.FS
	dir    string
	engine func(*engine.Config)
	host   func(*Config)
	wrap   func(net.Conn) net.Conn // accepted connections
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, addrs: map[ids.NodeID]string{}, nodes: map[ids.NodeID]*testNode{}}
}

// start starts a node, on its earlier directory if it has run before.
func (c *cluster) start(id ids.NodeID, o nodeOptions) *testNode {
	c.t.Helper()
	n := &testNode{c: c, id: id, dir: o.dir, fs: o.fs, conns: map[net.Conn]bool{}}
	if old := c.nodes[id]; old != nil && o.dir == "" {
		n.dir, n.fs = old.dir, old.fs
	}
	if n.dir == "" {
		n.dir = filepath.Join(c.t.TempDir(), fmt.Sprint("node-", id))
	}
	ec := engine.Config{Dir: filepath.Join(n.dir, "data"), FS: n.fs, MemTableBytes: 8 << 20, BlockCacheBytes: 8 << 20, TailBytes: 8 << 20, DropStepBytes: 1}
	if o.engine != nil {
		o.engine(&ec)
	}
	var err error
	if n.eng, err = engine.Open(ec); err != nil {
		c.t.Fatal(err)
	}
	hc := Config{NodeID: id, Dir: filepath.Join(n.dir, "raft"), Engine: n.eng, Dial: n.dial}
	hc.OnPeerDown = func(p ids.NodeID) { n.note(&n.downs, p) }
	hc.OnPeerUp = func(p ids.NodeID) { n.note(&n.ups, p) }
	if o.host != nil {
		o.host(&hc)
	}
	if n.host, err = NewHost(hc); err != nil {
		c.t.Fatal(err)
	}
	if n.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs[id], c.nodes[id] = n.ln.Addr().String(), n
	c.mu.Unlock()
	n.wg.Go(func() { n.accept(o.wrap) })
	c.t.Cleanup(n.stop)
	return n
}

func (n *testNode) note(list *[]ids.NodeID, p ids.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*list = append(*list, p)
}

func (n *testNode) noted(list *[]ids.NodeID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(*list)
}

func (n *testNode) dial(ctx context.Context, peer ids.NodeID) (net.Conn, error) {
	n.c.mu.Lock()
	addr := n.c.addrs[peer]
	n.c.mu.Unlock()
	if addr == "" {
		return nil, errors.New("no address")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !n.track(conn) {
		_ = conn.Close()
		return nil, errors.New("cut off")
	}
	return conn, nil
}

func (n *testNode) track(conn net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return false
	}
	n.conns[conn] = true
	return true
}

func (n *testNode) accept(wrap func(net.Conn) net.Conn) {
	for {
		conn, err := n.ln.Accept()
		if err != nil {
			return
		}
		if !n.track(conn) {
			_ = conn.Close()
			continue
		}
		n.wg.Go(func() {
			if wrap != nil {
				conn = wrap(conn)
			}
			r := bufio.NewReaderSize(conn, 64<<10)
			var p [len(Preface)]byte
			if _, err := io.ReadFull(r, p[:]); err != nil || p != Preface {
				_ = conn.Close()
				return
			}
			_ = n.host.ServeConn(conn, r)
		})
	}
}

// isolate breaks all connections and refuses new ones, as a power cut does.
func (n *testNode) isolate() {
	_ = n.ln.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for conn := range n.conns {
		_ = conn.Close()
	}
}

// stop closes the node; the second call does nothing.
func (n *testNode) stop() {
	n.isolate()
	if err := n.host.Close(); err != nil {
		n.c.t.Error(err)
	}
	n.wg.Wait()
	if n.eng != nil {
		if err := n.eng.Close(); err != nil {
			n.c.t.Error(err)
		}
		n.eng = nil
	}
}

// recorder is a group's Events: it keeps what the tests ask for.
type recorder struct {
	mu         sync.Mutex
	leaders    []leadership
	saved      ids.RaftIndex
	savedNext  ids.Offset
	void       int
	committed  ids.RaftIndex
	progress   map[ids.ReplicaID]ids.RaftIndex
	truncated  int
	logStart   ids.Offset
	heard      ids.Offset
	onSaved    func(engine.SavedEntry)
	onCommit   func(ids.RaftIndex)
	onProgress func(from ids.ReplicaID, index ids.RaftIndex)
}

func (r *recorder) LeaderChanged(leader ids.ReplicaID, term ids.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = append(r.leaders, leadership{leader, term})
}

func (r *recorder) Saved(entries []engine.SavedEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.saved, r.savedNext = e.Index, e.Next
		if e.Kind == engine.KindVoid {
			r.void++
		}
		if r.onSaved != nil {
			r.onSaved(e)
		}
	}
}

func (r *recorder) Truncated(first ids.RaftIndex, next ids.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.truncated++
	r.saved, r.savedNext = first-1, next
}

func (r *recorder) Committed(index ids.RaftIndex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if index < r.committed {
		panic(fmt.Sprintf("committed %d after %d", index, r.committed))
	}
	r.committed = index
	if r.onCommit != nil {
		r.onCommit(index)
	}
}

func (r *recorder) Progress(from ids.ReplicaID, index ids.RaftIndex, _ ids.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == nil {
		r.progress = map[ids.ReplicaID]ids.RaftIndex{}
	}
	r.progress[from] = max(r.progress[from], index)
	if r.onProgress != nil {
		r.onProgress(from, index)
	}
}

func (r *recorder) HighWatermark(hw ids.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = max(r.heard, hw)
}

func (r *recorder) heardOf() ids.Offset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

func (r *recorder) LogStart(o ids.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logStart = o
}

func (r *recorder) committedTo() ids.RaftIndex {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed
}

func (r *recorder) progressOf(id ids.ReplicaID) ids.RaftIndex {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress[id]
}

func (r *recorder) truncations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.truncated
}

func binding(p int, replica ids.ReplicaID) engine.Binding {
	return engine.Binding{
		Info:  engine.PartitionInfo{ID: ids.PartitionID(p), Topic: "t", Partition: int32(p)},
		Shard: ids.ShardID(100 + p), Replica: replica, Generation: 1,
	}
}

// member is a group's replica on one node.
type member struct {
	*Group
	rec  *recorder
	node *testNode
}

func (n *testNode) group(p int, replica ids.ReplicaID, members map[ids.ReplicaID]ids.NodeID, change ...func(*GroupConfig)) *member {
	n.c.t.Helper()
	m := &member{rec: &recorder{}, node: n}
	cfg := GroupConfig{Binding: binding(p, replica), Members: members, Events: m.rec}
	for _, f := range change {
		f(&cfg)
	}
	g, err := n.host.StartGroup(cfg)
	if err != nil {
		n.c.t.Fatal(err)
	}
	m.Group = g
	return m
}

func joining(cfg *GroupConfig) { cfg.Members, cfg.Join, cfg.NonVoting = nil, true, true }

// threeWay starts partition p on three nodes, replica i on node i.
func threeWay(p int, nodes ...*testNode) []*member {
	members := map[ids.ReplicaID]ids.NodeID{}
	for _, n := range nodes {
		members[ids.ReplicaID(n.id)] = n.id
	}
	var all []*member
	for _, n := range nodes {
		all = append(all, n.group(p, ids.ReplicaID(n.id), members))
	}
	return all
}

func (m *member) leads() (ids.Term, bool) {
	l, term, ok := m.Leader()
	return term, ok && l == m.Self()
}

func (m *member) lead(t testing.TB) *writer {
	t.Helper()
	eventually(t, fmt.Sprintf("replica %d leads shard %d", m.Self(), m.Shard()), func() bool {
		if _, ok := m.leads(); !ok {
			m.Campaign()
			time.Sleep(5 * time.Millisecond)
		}
		_, ok := m.leads()
		return ok
	})
	return m.writer(t)
}

// writer proposes as a sequencer does.
type writer struct {
	t       testing.TB
	m       *member
	term    ids.Term
	epoch   ids.LeaderEpoch
	ordinal uint64
}

// writer begins a leader epoch, and the generation if it has not begun.
func (m *member) writer(t testing.TB) *writer {
	t.Helper()
	term, ok := m.leads()
	if !ok {
		t.Fatal("not the leader")
	}
	// A new leader knows the log's last epoch once its own log is applied up to its no-op.
	w := &writer{t: t, m: m, term: term}
	if !m.Log().HasGenesis() {
		w.mustPropose(engine.EncodeGenesis(w.header(engine.KindGenesis), engine.Genesis{Generation: 1}))
		w.epoch = 0
	} else {
		last, _ := m.Log().LatestEpoch()
		w.epoch = last + 1
	}
	w.mustPropose(engine.EncodeEpochStart(w.header(engine.KindEpochStart)))
	return w
}

func (w *writer) header(k engine.EntryKind) engine.Header {
	w.ordinal++
	return engine.Header{Ordinal: w.ordinal, Term: w.term, LeaderEpoch: w.epoch, Kind: k}
}

func (w *writer) propose(ctx context.Context, data []byte) (*Ticket, error) {
	tk, err := w.m.Propose(ctx, data)
	if err != nil {
		w.ordinal--
	}
	return tk, err
}

func (w *writer) mustPropose(data []byte) *Ticket {
	w.t.Helper()
	tk, err := w.propose(testContext(w.t), data)
	if err != nil {
		w.t.Fatal(err)
	}
	return tk
}

// data makes a batch of n records worth size bytes.
func (w *writer) data(size int) []byte {
	b := rawBatch(size)
	engine.PutHeader(b, w.header(engine.KindData))
	return b
}

func (w *writer) logStart(o ids.Offset) *Ticket {
	w.t.Helper()
	return w.mustPropose(engine.EncodeLogStart(w.header(engine.KindLogStart), o))
}

func (w *writer) write(n, size int) {
	w.t.Helper()
	for range n {
		w.mustPropose(w.data(size))
	}
}

// settled waits until the leader has applied all it has saved.
func (w *writer) settled() {
	w.t.Helper()
	if err := w.m.Drained(testContext(w.t)); err != nil {
		w.t.Fatal(err)
	}
}

var templates sync.Map // size → batch of one record

func rawBatch(size int) []byte {
	v, ok := templates.Load(size)
	if !ok {
		b, err := batch.NewBuilder(batch.NewBuilderConfig(batch.CodecNone, 1))
		if err != nil {
			panic(err)
		}
		if err := b.AppendKV(1, nil, make([]byte, max(size-batch.HeaderLen-12, 0))); err != nil {
			panic(err)
		}
		raw, err := b.Build()
		if err != nil {
			panic(err)
		}
		v, _ = templates.LoadOrStore(size, raw)
	}
	return append([]byte(nil), v.([]byte)...)
}

type logRow struct {
	term ids.Term
	kind engine.EntryKind
	next ids.Offset
}

// rows reads a log as it is stored, from its start point.
func (m *member) rows(t testing.TB) map[ids.RaftIndex]logRow {
	t.Helper()
	rows := map[ids.RaftIndex]logRow{}
	err := m.Log().ScanEntries(m.Log().LogStartPoint().Index+1, func(r engine.EntryRow) bool {
		rows[r.Index] = logRow{r.Term, r.Kind, r.Next}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// sameLog waits until b has all of a's log and compares entries and data above both starts.
func sameLog(t testing.TB, a, b *member) {
	t.Helper()
	eventually(t, fmt.Sprintf("replica %d has the log of %d: %d of %d", b.Self(), a.Self(), b.Log().LastIndex(), a.Log().LastIndex()), func() bool {
		return b.Log().LastIndex() == a.Log().LastIndex() && b.Log().End() == a.Log().End()
	})
	ra, rb := a.rows(t), b.rows(t)
	for i, r := range rb {
		if other, ok := ra[i]; ok && other != r {
			t.Fatalf("entry %d is %v on replica %d, %v on %d", i, other, a.Self(), r, b.Self())
		}
	}
	if a.Log().LastIndex() > 0 && len(rb) == 0 && b.Log().LogStartPoint().Index < a.Log().LastIndex() {
		t.Fatal("no entries to compare")
	}
	data := func(m *member, from ids.Offset) map[ids.Offset]uint32 {
		sums := map[ids.Offset]uint32{}
		err := m.Log().ScanBatches(from, func(base ids.Offset, raw []byte) bool {
			sums[base] = binary.BigEndian.Uint32(raw[17:]) ^ uint32(len(raw))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return sums
	}
	from := max(a.Log().Start(), b.Log().Start())
	da, db := data(a, from), data(b, from)
	if len(da) != len(db) {
		t.Fatalf("%d batches on replica %d, %d on %d", len(da), a.Self(), len(db), b.Self())
	}
	for base, sum := range da {
		if db[base] != sum {
			t.Fatalf("batch at %d differs", base)
		}
	}
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
