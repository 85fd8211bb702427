package controller

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"cairn/internal/ids"
	"cairn/raftgroup"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quorum is a metadata group in memory: one log, whose commands every node applies as soon as they are proposed. The real
// Controller, Store, Client and wire.Conn run on it; only Raft and the network are not there.
type quorum struct {
	t     *testing.T
	table *wire.Table
	nodes []*quorumNode

	mu      sync.Mutex
	index   uint64
	term    ids.Term
	leader  *quorumNode
	members map[ids.ReplicaID]ids.NodeID // non-voting ones
	conns   map[net.Conn]*quorumNode     // server ends that are open
	stuck   chan struct{}                // while not nil, proposals hang until it is closed
	servers sync.WaitGroup
}

type quorumNode struct {
	q     *quorum
	id    ids.NodeID
	store *Store
	ctl   *Controller
}

// newQuorum starts controllers on nodes 1 to n, none of them leading.
func newQuorum(t *testing.T, n int, edit func(*Config)) *quorum {
	q := &quorum{t: t, members: map[ids.ReplicaID]ids.NodeID{}, conns: map[net.Conn]*quorumNode{}}
	var err error
	if q.table, err = wire.NewTable(PrivateAPIs()...); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Seed: 1}
	for i := range n {
		cfg.Voters = append(cfg.Voters, ids.NodeID(i+1))
	}
	if edit != nil {
		edit(&cfg)
	}
	for _, id := range cfg.Voters {
		cfg.Node = id
		node := &quorumNode{q: q, id: id, store: NewStore()}
		if node.ctl, err = New(cfg, node.store); err != nil {
			t.Fatal(err)
		}
		q.nodes = append(q.nodes, node)
	}
	for _, node := range q.nodes {
		node.ctl.Start(node)
	}
	return q
}

// close ends everything; call it inside the synctest bubble.
func (q *quorum) close() {
	for _, n := range q.nodes {
		n.ctl.Close()
	}
	q.cut(nil)
	q.servers.Wait()
}

// elect makes the node the leader of the next term, and waits until it is the active controller.
func (q *quorum) elect(i int) {
	q.t.Helper()
	q.depose()
	node := q.nodes[i]
	q.mu.Lock()
	q.term++
	q.leader = node
	term := q.term
	q.mu.Unlock()
	for _, n := range q.nodes {
		n.ctl.LeaderChanged(VoterReplica(node.id), term)
	}
	eventually(q.t, "active controller", node.ctl.Active)
}

// depose leaves the group without a leader.
func (q *quorum) depose() {
	q.mu.Lock()
	q.leader = nil
	term := q.term
	q.mu.Unlock()
	for _, n := range q.nodes {
		n.ctl.LeaderChanged(0, term)
	}
}

// cut resets the connections to the node, nil for all.
func (q *quorum) cut(node *quorumNode) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c, n := range q.conns {
		if node == nil || n == node {
			c.Close()
		}
	}
}

// Propose implements Group.
func (n *quorumNode) Propose(ctx context.Context, cmd []byte) (uint64, []byte, error) {
	q := n.q
	q.mu.Lock()
	stuck := q.stuck
	q.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leader != n {
		return 0, nil, raftgroup.ErrNotLeader
	}
	q.index += 2 // as if Raft had entries of its own in between
	var result []byte
	for _, other := range q.nodes {
		if r := other.store.Apply(q.index, cmd); other == n {
			result = r
		}
	}
	return q.index, result, nil
}

// AddNonVoting implements Group.
func (n *quorumNode) AddNonVoting(_ context.Context, r ids.ReplicaID, node ids.NodeID) error {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	for other, at := range n.q.members {
		if at == node && other != r {
			return errors.New("that node is a member under another replica id")
		}
	}
	n.q.members[r] = node
	return nil
}

// Remove implements Group.
func (n *quorumNode) Remove(_ context.Context, r ids.ReplicaID) error {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	delete(n.q.members, r)
	return nil
}

// Followers implements Group: all members have everything at once.
func (n *quorumNode) Followers() map[ids.NodeID]ids.RaftIndex {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	at := map[ids.NodeID]ids.RaftIndex{}
	for _, node := range n.q.members {
		at[node] = ids.RaftIndex(n.q.index)
	}
	return at
}

// Campaign implements Group.
func (n *quorumNode) Campaign() {}

// dial opens a connection to the controller listener of the node of that name.
func (q *quorum) dial(_ context.Context, address string) (net.Conn, error) {
	for _, n := range q.nodes {
		if n.id.RaftAddress() == address {
			client, server := net.Pipe()
			q.mu.Lock()
			q.conns[server] = n
			q.mu.Unlock()
			q.servers.Go(func() { n.serve(server) })
			return client, nil
		}
	}
	return nil, errors.New("connection refused")
}

func (n *quorumNode) serve(nc net.Conn) {
	conn := n.ctl.NewConn()
	defer func() {
		nc.Close()
		conn.Close()
		n.q.mu.Lock()
		delete(n.q.conns, nc)
		n.q.mu.Unlock()
	}()
	r := bufio.NewReader(nc)
	for {
		frame, err := wire.ReadFrame(r, 1<<20, nil)
		if err != nil {
			return
		}
		hdr, req, err := n.q.table.ParseRequest(frame)
		if err != nil {
			n.q.t.Errorf("request of a client: %v", err)
			return
		}
		if _, err := nc.Write(wire.AppendResponse(nil, hdr, conn.Handle(context.Background(), req))); err != nil {
			return
		}
	}
}

// client returns a client of broker id that dials the quorum, its metadata replica being that of node 1.
func (q *quorum) client(id ids.NodeID, edit func(*ClientConfig)) *Client {
	q.t.Helper()
	cfg := ClientConfig{
		NodeID: id, Incarnation: newUUID(), Directory: testID(byte(id)), Store: q.nodes[0].store, Dial: q.dial,
		Endpoints: []Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}}, Voters: map[ids.NodeID]string{},
	}
	for _, n := range q.nodes {
		cfg.Voters[n.id] = n.id.RaftAddress()
	}
	if edit != nil {
		edit(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		q.t.Fatal(err)
	}
	return c
}

// startClient returns a client of a broker that is registered and unfenced.
func (q *quorum) startClient(id ids.NodeID) *Client {
	q.t.Helper()
	c := q.client(id, nil)
	if _, err := c.Register(q.t.Context()); err != nil {
		q.t.Fatal(err)
	}
	c.Start()
	if err := c.Unfence(q.t.Context()); err != nil {
		q.t.Fatal(err)
	}
	return c
}

func (q *quorum) image() *Image { return q.nodes[0].store.Image() }

// brokers puts unfenced brokers into the metadata, whose sessions are kept alive by nobody.
func (q *quorum) brokers(conn *Conn, nodes ...ids.NodeID) {
	q.t.Helper()
	for _, n := range nodes {
		r := conn.Handle(q.t.Context(), registrationRequest(n, 1)).(*kmsg.BrokerRegistrationResponse)
		if r.ErrorCode != 0 {
			q.t.Fatalf("registration of %d: %d", n, r.ErrorCode)
		}
		beat(q.t, conn, n, r.BrokerEpoch)
	}
}

func registrationRequest(n ids.NodeID, incarnation byte) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(4)
	req.BrokerID, req.IncarnationID = int32(n), testID(incarnation)
	req.LogDirs = [][16]byte{testID(byte(n))}
	req.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "h", Port: 9092}}
	return req
}

// beat sends a heartbeat that has to be answered without an error.
func beat(t *testing.T, conn *Conn, n ids.NodeID, epoch int64) *kmsg.BrokerHeartbeatResponse {
	t.Helper()
	r := conn.Handle(t.Context(), heartbeatRequest(n, epoch)).(*kmsg.BrokerHeartbeatResponse)
	if r.ErrorCode != 0 {
		t.Fatalf("heartbeat of %d: code %d", n, r.ErrorCode)
	}
	return r
}

func heartbeatRequest(n ids.NodeID, epoch int64) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(1)
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = int32(n), epoch, 1<<40
	return req
}

// eventually waits until ok, in fake or real time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
