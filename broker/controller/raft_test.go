package controller

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/raftgroup"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// cluster is several nodes in this process, over loopback, with real Raft, stores and connections. Each node has one
// listener for both Raft and requests to the controller.
type cluster struct {
	t      *testing.T
	table  *wire.Table
	dir    string
	voters []ids.NodeID

	mu    sync.Mutex
	addrs map[ids.NodeID]string
	nodes map[ids.NodeID]*raftNode
}

type raftNode struct {
	c     *cluster
	id    ids.NodeID
	ln    net.Listener
	eng   *engine.Engine
	host  *raftgroup.Host
	store *Store
	ctl   *Controller // nil on brokers
	tasks sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once the node is cut off
}

func newCluster(t *testing.T, voters ...ids.NodeID) *cluster {
	table, err := wire.NewTable(PrivateAPIs()...)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, table: table, dir: t.TempDir(), voters: voters, addrs: map[ids.NodeID]string{}, nodes: map[ids.NodeID]*raftNode{}}
	for _, v := range voters {
		c.start(v)
	}
	return c
}

// start starts a node, on its earlier directory if it has run before; a voter gets its controller.
func (c *cluster) start(id ids.NodeID) *raftNode {
	c.t.Helper()
	n := &raftNode{c: c, id: id, store: NewStore(), conns: map[net.Conn]bool{}}
	dir := filepath.Join(c.dir, id.RaftAddress())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	var err error
	if n.eng, err = engine.Open(engine.Config{Dir: filepath.Join(dir, "data"), MemTableBytes: 4 << 20, BlockCacheBytes: 4 << 20, TailBytes: 4 << 20}); err != nil {
		c.t.Fatal(err)
	}
	n.host, err = raftgroup.NewHost(raftgroup.Config{
		NodeID: id, Dir: filepath.Join(dir, "raft"), Engine: n.eng, Dial: n.dialNode,
		TickInterval: 20 * time.Millisecond, ElectionTicks: 20, HeartbeatTicks: 5,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if n.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.addrs[id], c.nodes[id] = n.ln.Addr().String(), n
	c.mu.Unlock()
	if _, voter := VoterMembers(c.voters)[VoterReplica(id)]; voter {
		n.startController()
	}
	n.tasks.Go(n.accept)
	return n
}

func (n *raftNode) startController() {
	var err error
	if n.ctl, err = New(Config{Node: n.id, Voters: n.c.voters, SessionTimeout: 3 * time.Second}, n.store); err != nil {
		n.c.t.Fatal(err)
	}
	group, err := n.host.StartMachine(raftgroup.MachineConfig{
		Replica: VoterReplica(n.id), Members: VoterMembers(n.c.voters), Machine: n.store, LeaderChanged: n.ctl.LeaderChanged,
		SnapshotEntries: 64, CompactionOverhead: 16, // so that restarts and brokers go through snapshots
	})
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.ctl.Start(group)
}

// startBroker registers the broker, starts its metadata replica and unfences it.
func (c *cluster) startBroker(id ids.NodeID) (*raftNode, *Client) {
	c.t.Helper()
	n := c.start(id)
	voters := map[ids.NodeID]string{}
	for _, v := range c.voters {
		voters[v] = v.RaftAddress()
	}
	client, err := NewClient(ClientConfig{
		NodeID: id, Incarnation: newUUID(), Directory: testID(byte(id)), Store: n.store, Voters: voters,
		Endpoints: []Endpoint{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}}, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 3 * time.Second,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			v, err := ids.ParseRaftAddress(address)
			if err != nil {
				return nil, err
			}
			return n.dialNode(ctx, v)
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx := c.context()
	reg, err := client.Register(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := n.host.StartMachine(raftgroup.MachineConfig{Replica: reg.MetadataReplica, Join: true, NonVoting: true, Machine: n.store}); err != nil {
		c.t.Fatal(err)
	}
	client.Start()
	if err := client.Unfence(ctx); err != nil {
		c.t.Fatal(err)
	}
	if n.store.Image().Index < reg.MetadataEnd {
		c.t.Errorf("broker %d was unfenced at index %d, before it reached %d", id, n.store.Image().Index, reg.MetadataEnd)
	}
	return n, client
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func (n *raftNode) dialNode(ctx context.Context, peer ids.NodeID) (net.Conn, error) {
	n.c.mu.Lock()
	addr := n.c.addrs[peer]
	n.c.mu.Unlock()
	if addr == "" {
		return nil, errors.New("no address")
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err == nil && !n.track(nc) {
		err = errors.New("cut off")
	}
	return nc, err
}

// track keeps the connection for cut; it closes it if the node is cut off already.
func (n *raftNode) track(nc net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		nc.Close()
		return false
	}
	n.conns[nc] = true
	return true
}

func (n *raftNode) accept() {
	for {
		nc, err := n.ln.Accept()
		if err != nil {
			return
		}
		if n.track(nc) {
			n.tasks.Go(func() { n.serve(nc) })
		}
	}
}

// serve tells Raft's connections from the others by their first bytes.
func (n *raftNode) serve(nc net.Conn) {
	defer nc.Close()
	r := bufio.NewReader(nc)
	first, err := r.Peek(len(raftgroup.Preface))
	if err != nil {
		return
	}
	if bytes.Equal(first, raftgroup.Preface[:]) {
		if _, err := r.Discard(len(first)); err == nil {
			_ = n.host.ServeConn(nc, r)
		}
		return
	}
	conn := n.ctl.NewConn()
	defer conn.Close()
	for {
		frame, err := wire.ReadFrame(r, 1<<20, nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				n.c.t.Logf("node %d: %v", n.id, err)
			}
			return
		}
		hdr, req, err := n.c.table.ParseRequest(frame)
		if err != nil {
			n.c.t.Errorf("request of a client: %v", err)
			return
		}
		if _, err := nc.Write(wire.AppendResponse(nil, hdr, conn.Handle(context.Background(), req))); err != nil {
			return
		}
	}
}

// kill takes the node away as a crash does: its connections are reset first.
func (n *raftNode) kill() {
	n.ln.Close()
	n.mu.Lock()
	for nc := range n.conns {
		nc.Close()
	}
	n.conns = nil
	n.mu.Unlock()
	if n.ctl != nil {
		n.ctl.Close()
	}
	if err := n.host.Close(); err != nil {
		n.c.t.Error(err)
	}
	n.tasks.Wait()
	if err := n.eng.Close(); err != nil {
		n.c.t.Error(err)
	}
}

// active waits for an active controller among the voters that run.
func (c *cluster) active() (n *raftNode) {
	c.t.Helper()
	eventually(c.t, "an active controller", func() bool {
		for _, v := range c.voters {
			if n = c.nodes[v]; n.ctl.Active() {
				return true
			}
		}
		return false
	})
	return n
}

// work is what a broker does all the time in the test: it takes producer ids and creates topics, and remembers what was
// acknowledged.
type work struct {
	mu     sync.Mutex
	ids    map[int64]int
	topics []string
}

func (w *work) run(t *testing.T, ctx context.Context, c *Client, broker ids.NodeID) {
	for i := 0; ctx.Err() == nil; i++ {
		for range 300 {
			id, err := c.AllocateProducerID(ctx)
			if err == nil {
				w.mu.Lock()
				w.ids[id]++
				w.mu.Unlock()
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		}
		name := fmt.Sprintf("topic-%d-%d", broker, i)
		req := createRequest(newTopic(name, 2, 2, nil))
		req.TimeoutMillis = 30_000
		resp, err := c.Forward(ctx, req)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			continue
		}
		// TOPIC_ALREADY_EXISTS: an earlier attempt, whose answer was lost. REQUEST_TIMED_OUT: who knows.
		if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code == 0 || code == 36 {
			w.mu.Lock()
			w.topics = append(w.topics, name)
			w.mu.Unlock()
		} else if code != 7 {
			t.Errorf("%s: code %d", name, code)
		}
	}
}

func (w *work) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.topics)
}

// TestQuorumOnRaft kills and restarts the active controller under load: brokers stay registered, no acknowledged command
// is lost, no producer id is given out twice, all replicas of the metadata end equal.
func TestQuorumOnRaft(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	defer func() {
		for _, n := range c.nodes {
			n.kill()
		}
	}()
	c.active()
	w := &work{ids: map[int64]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	clients := map[ids.NodeID]*Client{}
	epochs := map[ids.NodeID]int64{}
	for _, id := range []ids.NodeID{11, 12} {
		n, client := c.startBroker(id)
		clients[id], epochs[id] = client, n.store.Image().Brokers[id].Epoch
		defer client.Close()
	}
	for id, client := range clients {
		running.Go(func() { w.run(t, ctx, client, id) })
	}
	for range 3 {
		old := c.active()
		before := w.acknowledged()
		eventually(t, "work under this controller", func() bool { return w.acknowledged() > before+20 })
		old.kill()
		before = w.acknowledged()
		eventually(t, "work under the next controller", func() bool { return w.acknowledged() > before+2 })
		c.start(old.id)
	}
	stop()
	running.Wait()
	c.checkOutcome(t, w, epochs, clients)
}

func (c *cluster) checkOutcome(t *testing.T, w *work, epochs map[ids.NodeID]int64, clients map[ids.NodeID]*Client) {
	t.Helper()
	leader := c.active()
	eventually(t, "equal metadata on all nodes", func() bool {
		want := mustSnapshot(t, leader.store.Image())
		for _, n := range c.nodes {
			if !bytes.Equal(mustSnapshot(t, n.store.Image()), want) {
				return false
			}
		}
		return true
	})
	img := leader.store.Image()
	for _, name := range w.topics {
		if img.Topics[name] == nil {
			t.Errorf("acknowledged topic %s is lost", name)
		}
	}
	for id, times := range w.ids {
		if times > 1 {
			t.Errorf("producer id %d was given out %d times", id, times)
		}
	}
	for id, epoch := range epochs {
		if b := img.Brokers[id]; b.Epoch != epoch || b.Fenced || !clients[id].Lease() {
			t.Errorf("broker %d: %+v, registered as %d, lease %v", id, b, epoch, clients[id].Lease())
		}
	}
	t.Logf("%d topics, %d producer ids, term %d, index %d", len(w.topics), len(w.ids), img.ControllerTerm, img.Index)
}
