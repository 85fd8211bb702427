package raftgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// talk opens a raw connection to a node and returns what it answers before it closes.
func talk(t *testing.T, n *testNode, b []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", n.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(append(append([]byte(nil), Preface[:]...), b...)); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("reading the answer: %v", err) // a reset is an answer too
	}
	return answer
}

func TestStrangersAndGarbageDoNotDisturbANode(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	w := m.lead(t)
	chunk := sampleChunk()
	chunk.ShardID = 999
	chunkFrame, err := encodeChunk(&chunk, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	chunk.ShardID, chunk.ReplicaID = uint64(m.Shard()), 1
	ownChunk, err := encodeChunk(&chunk, []byte("garbage"))
	if err != nil {
		t.Fatal(err)
	}
	var enc messageEncoder
	stray := flatten(enc.encode([]raftpb.Message{{Type: raftpb.Replicate, To: 77, From: 5, ShardID: uint64(m.Shard()), Term: 99, LogIndex: 3}}, nil))
	hi := func(h hello) []byte { return appendHello(nil, h) }
	good := len(hi(hello{from: 1, to: 2, purpose: purposeMessages, process: 1}))
	for name, tc := range map[string]struct {
		send    []byte
		answers bool
	}{
		"nothing":               {nil, false},
		"noise":                 {bytes.Repeat([]byte{0xa5}, 300), false},
		"messages before hello": {stray, false},
		"hello for another":     {hi(hello{from: 2, to: 9, purpose: purposeMessages}), false},
		"hello from itself":     {hi(hello{from: 1, to: 1, purpose: purposeMessages}), false},
		"ping among messages":   {append(hi(hello{from: 2, to: 1, purpose: purposeMessages}), appendFrameHeader(nil, frameHeader{kind: framePing})...), true},
		"message for no one":    {append(hi(hello{from: 2, to: 1, purpose: purposeMessages}), stray...), true},
		"unknown shard's chunk": {append(hi(hello{from: 2, to: 1, purpose: purposeSnapshot}), chunkFrame...), true},
		"bad start point":       {append(hi(hello{from: 2, to: 1, purpose: purposeSnapshot}), ownChunk...), true},
	} {
		answer := talk(t, n, tc.send)
		if got := len(answer) >= good; got != tc.answers {
			t.Errorf("%s: answered with %d bytes", name, len(answer))
		}
	}
	w.write(3, 1000)
	w.settled()
	if got := m.Log().End(); got != 3 {
		t.Errorf("log ends at %d", got)
	}
}

// A peer whose kernel accepts, and whose process does not answer, gets no connection.
func TestNoConnectionToAPeerThatDoesNotAnswer(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	c.mu.Lock()
	c.addrs[2] = mute.Addr().String()
	c.mu.Unlock()
	begin := time.Now()
	if _, _, _, err := n.host.transport.dial(testContext(t), 2, purposeMessages, 100*time.Millisecond); err == nil {
		t.Fatal("connected")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("gave up after %v", took)
	}
	n.host.transport.mu.Lock()
	defer n.host.transport.mu.Unlock()
	if left := len(n.host.transport.conns); left != 0 {
		t.Errorf("%d connections are left open", left)
	}
}

func TestWriteToAStuckPeerEndsAtItsDeadline(t *testing.T) {
	h := &Host{cfg: Config{WriteTimeout: 20 * time.Millisecond}}
	tr := &transport{h: h}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	err := tr.write(a, net.Buffers{[]byte("x"), []byte("y")})
	if !isTimeout(err) {
		t.Fatalf("got %v", err)
	}
}

func TestServeConnEndsWithTheHost(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	a, b := net.Pipe()
	defer b.Close()
	done := make(chan error, 1)
	go func() { done <- n.host.ServeConn(a, bufio.NewReader(a)) }()
	if _, err := b.Write(appendHello(nil, hello{from: 2, to: 1, purpose: purposeMessages})); err != nil {
		t.Fatal(err)
	}
	if _, err := readHello(bufio.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	n.stop()
	select {
	case err := <-done:
		if err == nil {
			t.Error("served to an orderly end")
		}
	case <-time.After(patience):
		t.Fatal("ServeConn outlives the host")
	}
	if err := n.host.ServeConn(b, bufio.NewReader(b)); !errors.Is(err, ErrClosed) {
		t.Errorf("on a closed host: %v", err)
	}
}

func TestDroppedMessagesAreInjected(t *testing.T) {
	c := newCluster(t)
	var cut atomic.Bool
	var seen atomic.Int64
	drop := func(c *Config) {
		c.Faults.DropMessage = func(_ ids.ShardID, from, to ids.ReplicaID, kind string) bool {
			if cut.Load() && kind == "Replicate" && to == 3 {
				seen.Add(1)
				return true
			}
			return false
		}
	}
	ms := threeWay(1, c.start(1, nodeOptions{host: drop}), c.start(2, nodeOptions{host: drop}), c.start(3, nodeOptions{host: drop}))
	w := ms[0].lead(t)
	w.settled()
	sameLog(t, ms[0], ms[2])
	cut.Store(true)
	w.write(20, 1000)
	w.settled()
	// The other two suffice to settle it, maybe before the first message for replica 3 is due.
	eventually(t, "a message is dropped", func() bool { return seen.Load() > 0 })
	if end := ms[2].Log().End(); end != 0 {
		t.Fatalf("replica 3 ends at %d", end)
	}
	cut.Store(false)
	w.write(1, 1000)
	sameLog(t, ms[0], ms[2])
}

func TestHostDirectoryOfAnEarlierHostNameIsAdopted(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	meta := n.metadata(1, map[ids.ReplicaID]ids.NodeID{1: 1}, false)
	meta.lead(t)
	for range 120 { // past a snapshot, whose file is in that directory
		if _, _, err := meta.Propose(testContext(t), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := meta.m.all()
	n.stop()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	raft := filepath.Join(n.dir, "raft")
	if err := os.Rename(filepath.Join(raft, host), filepath.Join(raft, "earlier-name")); err != nil {
		t.Fatal(err)
	}
	n = c.start(1, nodeOptions{})
	meta = n.metadata(1, map[ids.ReplicaID]ids.NodeID{1: 1}, false)
	meta.lead(t)
	if err := meta.Barrier(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := meta.m.all(); got != want {
		t.Errorf("machine holds %d bytes, held %d", len(got), len(want))
	}
	if left, _ := filepath.Glob(filepath.Join(raft, "*", deploymentDir)); len(left) != 1 {
		t.Errorf("directories %v", left)
	}
}

func TestMetadataGroup(t *testing.T) {
	c := newCluster(t)
	a, b := c.start(1, nodeOptions{}), c.start(2, nodeOptions{})
	ctx := testContext(t)
	meta := a.metadata(1, map[ids.ReplicaID]ids.NodeID{1: 1}, false)
	meta.lead(t)
	for i := range 200 { // past several snapshots
		index, result, err := meta.Propose(ctx, []byte{byte('a' + i%26)})
		if err != nil {
			t.Fatal(err)
		}
		if index == 0 || len(result) == 0 {
			t.Fatalf("index %d, result %q", index, result)
		}
	}
	for range 2 { // again: nothing to do
		if err := meta.AddNonVoting(ctx, 2, 2); err != nil {
			t.Fatal(err)
		}
	}
	other := b.metadata(2, nil, true)
	if err := other.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := other.m.all(), meta.m.all(); got != want {
		t.Fatalf("member holds %q after a barrier, want %q", got, want)
	}
	if other.Applied() != meta.Applied() {
		t.Errorf("applied %d and %d", other.Applied(), meta.Applied())
	}
	if _, _, err := other.Propose(ctx, []byte("x")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("proposal on a non-voter: %v", err)
	}
	m, err := other.Membership(ctx)
	if err != nil || m.Voters[1] != 1 || m.NonVoting[2] != 2 || len(m.Voters) != 1 {
		t.Fatalf("membership %+v, %v", m, err)
	}
	if err := meta.AddVoter(ctx, 2, 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "leadership moves to the new voter", func() bool {
		_ = meta.TransferLeadership(2)
		pause(ctx, 20*time.Millisecond)
		l, _, _ := other.Leader()
		return l == 2
	})
	if _, _, err := other.Propose(ctx, []byte("y")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := other.Remove(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := other.Propose(ctx, []byte("z")); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := meta.Barrier(gone); err == nil {
		t.Error("a removed member passed a barrier")
	}
	if err := meta.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestConfigValidation(t *testing.T) {
	err := Config{ElectionTicks: 4, HeartbeatTicks: 2, GroupInflightBytes: 10, TotalInflightBytes: 5, MaxSendQueueBytes: 1, WriteTimeout: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"directory", "engine", "dial", "election", "in flight in all", "queues", "timeout"} {
		if !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("not mentioned: %s", want)
		}
	}
}
