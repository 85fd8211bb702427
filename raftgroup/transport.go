package raftgroup

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// transport implements raftio.ITransport. It neither listens nor resolves names: connections are dialled by Config.Dial and accepted by
// whoever calls Host.ServeConn. One-way: what a node sends travels on connections it dialled.
type transport struct {
	h          *Host
	process    uint64 // random
	deployment uint64
	deliver    raftio.MessageHandler
	chunk      raftio.ChunkHandler

	ctx    context.Context // ends with shut
	cancel context.CancelFunc

	mu     sync.Mutex
	links  map[ids.NodeID]*link  // guarded by mu
	closed bool                  // guarded by mu
	conns  map[net.Conn]struct{} // every open connection; guarded by mu
	wg     sync.WaitGroup        // ServeConn calls; Add under mu
}

func newTransport(h *Host) *transport {
	t := &transport{h: h, process: rand.Uint64(), links: map[ids.NodeID]*link{}, conns: map[net.Conn]struct{}{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// transportFactory hands dragonboat the host's transport.
type transportFactory struct{ t *transport }

// Create implements config.TransportFactory.
func (f transportFactory) Create(c config.NodeHostConfig, deliver raftio.MessageHandler, chunk raftio.ChunkHandler) raftio.ITransport {
	f.t.deployment, f.t.deliver, f.t.chunk = c.GetDeploymentID(), deliver, chunk
	return f.t
}

// Validate implements config.TransportFactory: Raft addresses are names of nodes.
func (f transportFactory) Validate(addr string) bool {
	_, err := ids.ParseRaftAddress(addr)
	return err == nil
}

// Name implements raftio.ITransport.
func (t *transport) Name() string { return "cairn" }

// Start implements raftio.ITransport.
func (t *transport) Start() error { return nil }

// Close implements raftio.ITransport: it closes all connections and waits for the ServeConn calls.
func (t *transport) Close() error {
	t.shut()
	t.wg.Wait()
	return nil
}

// shut closes all connections and lets no new ones be made. dragonboat waits for its senders before it calls Close, and one of them may
// be in a write to a peer that does not read.
func (t *transport) shut() {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.conns {
		_ = c.Close()
	}
}

// track registers an open connection so that Close can end it. False when closed.
func (t *transport) track(c net.Conn, inbound bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.conns[c] = struct{}{}
	if inbound {
		t.wg.Add(1)
	}
	return true
}

func (t *transport) forget(c net.Conn, inbound bool) {
	_ = c.Close()
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	if inbound {
		t.wg.Done()
	}
}

// dial opens a connection and waits, at most for the given time, until the process at the other end has answered.
// process identifies the Host there.
func (t *transport) dial(ctx context.Context, node ids.NodeID, p purpose, limit time.Duration) (c net.Conn, r *bufio.Reader, process uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err = t.h.cfg.Dial(ctx, node)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("dial node %d: %w", node, err)
	}
	if !t.track(c, false) {
		_ = c.Close()
		return nil, nil, 0, ErrClosed
	}
	r = bufio.NewReaderSize(c, 512)
	process, err = t.greet(ctx, c, r, hello{from: t.h.cfg.NodeID, to: node, purpose: p, process: t.process})
	if err != nil {
		t.forget(c, false)
		return nil, nil, 0, fmt.Errorf("greet node %d: %w", node, err)
	}
	t.link(node).heard(process)
	return c, r, process, nil
}

// dialTimeout bounds the dialling for messages and snapshots. It is longer than what a watcher calls dead: a slow peer is one all the same.
const dialTimeout = 2 * time.Second

func (t *transport) greet(ctx context.Context, c net.Conn, r *bufio.Reader, own hello) (process uint64, err error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(appendHello(append([]byte(nil), Preface[:]...), own)); err != nil {
		return 0, err
	}
	answer, err := readHello(r)
	if err != nil {
		return 0, err
	}
	if answer.from != own.to || answer.to != own.from || answer.purpose != own.purpose {
		return 0, frameErrorf("answer of %v to %v", answer, own)
	}
	if !stop() {
		return 0, ctx.Err()
	}
	return answer.process, c.SetDeadline(time.Time{})
}

// GetConnection implements raftio.ITransport. It never fails and does not connect yet, see messageConn.
func (t *transport) GetConnection(_ context.Context, target string) (raftio.IConnection, error) {
	node, err := ids.ParseRaftAddress(target)
	if err != nil {
		return nil, err
	}
	return &messageConn{t: t, link: t.link(node)}, nil
}

// GetSnapshotConnection implements raftio.ITransport.
func (t *transport) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	node, err := ids.ParseRaftAddress(target)
	if err != nil {
		return nil, err
	}
	c, _, _, err := t.dial(ctx, node, purposeSnapshot, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &snapshotConn{t: t, c: c}, nil
}

// write sends buffers with a deadline that grows with their size. The elements of bufs are consumed.
func (t *transport) write(c net.Conn, bufs net.Buffers) error {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	deadline := t.h.cfg.WriteTimeout + time.Duration(size)*time.Second/(8<<20)
	if err := c.SetWriteDeadline(clock.Now().Add(deadline)); err != nil {
		return err
	}
	_, err := bufs.WriteTo(c)
	return err
}
