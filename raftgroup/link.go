package raftgroup

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

const (
	firstRedial = 20 * time.Millisecond
	lastRedial  = 500 * time.Millisecond
)

// link is what is known of the way to one peer.
type link struct {
	node ids.NodeID

	mu       sync.Mutex
	process  uint64                // of the peer, as it last introduced itself; guarded by mu
	failures int                   // dials in a row; guarded by mu
	retryAt  time.Time             // no dial before; guarded by mu
	streams  map[*messageConn]bool // with an open connection; guarded by mu
}

func (t *transport) link(n ids.NodeID) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[n]
	if l == nil {
		l = &link{node: n, streams: map[*messageConn]bool{}}
		t.links[n] = l
	}
	return l
}

// heard takes note that the peer runs and can be reached again. Connections to an earlier process of it are dead, whether the kernel
// has told so or not.
func (l *link) heard(process uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures, l.retryAt = 0, time.Time{}
	if l.process == process {
		return
	}
	l.process = process
	for m := range l.streams {
		if m.process != process {
			m.broken.Store(true)
		}
	}
}

func (l *link) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retryAt = clock.Now().Add(min(firstRedial<<min(l.failures, 10), lastRedial))
	l.failures++
}

func (l *link) open(m *messageConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[m] = true
	if m.process != l.process {
		m.broken.Store(true)
	}
}

func (l *link) close(m *messageConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, m)
}

func (l *link) mayDial() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !clock.Now().Before(l.retryAt)
}

// messageConn is one of dragonboat's streams of messages to a peer, used by one goroutine of it. It connects when there is something to
// send, and again when the connection broke, and drops what it can't send: Raft repeats what matters. It reports no failure, because
// dragonboat would then send nothing to the peer for up to a second, votes included, even when it is back already.
type messageConn struct {
	t    *transport
	link *link
	enc  messageEncoder
	// marks are the high watermarks that travel with the messages of the batch in hand.
	marks []ids.Offset

	c       net.Conn // nil: none
	process uint64   // of the peer at the other end
	broken  atomic.Bool
	ended   chan struct{} // closed when the reader of c has ended
}

var errNoWay = errors.New("raftgroup: peer can't be reached")

// SendMessageBatch implements raftio.IConnection.
func (m *messageConn) SendMessageBatch(b raftpb.MessageBatch) error {
	var reqs []raftpb.Message
	reqs, m.marks = m.t.h.outbound(m.link.node, b.Requests, m.marks[:0])
	if len(reqs) > 0 {
		m.send(func() net.Buffers { return m.enc.encode(reqs, m.marks) })
		m.enc.release()
	}
	if m.t.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// send writes a frame, or drops it when there is no way to the peer. frame is called again for another attempt, as buffers are consumed.
func (m *messageConn) send(frame func() net.Buffers) {
	for {
		fresh, err := m.connect()
		if err != nil {
			return
		}
		if err = m.t.write(m.c, frame()); err == nil {
			return
		}
		m.disconnect()
		if fresh || isTimeout(err) { // else it broke while idle: once more
			m.link.failed()
			return
		}
	}
}

// connect makes sure that there is a connection; fresh says that it is new.
func (m *messageConn) connect() (fresh bool, err error) {
	if m.c != nil && !m.broken.Load() {
		return false, nil
	}
	m.disconnect()
	if !m.link.mayDial() {
		return false, errNoWay
	}
	c, _, process, err := m.t.dial(m.t.ctx, m.link.node, purposeMessages, dialTimeout)
	if err != nil {
		m.link.failed()
		return false, err
	}
	m.c, m.process, m.ended = c, process, make(chan struct{})
	m.broken.Store(false)
	m.link.open(m)
	go m.read(c, m.ended)
	return true, nil
}

// read waits for the end of a connection on which the peer says nothing: its death is known before the next message is lost to it.
func (m *messageConn) read(c net.Conn, ended chan struct{}) {
	defer close(ended)
	var b [1]byte
	_, _ = c.Read(b[:])
	m.broken.Store(true)
}

func (m *messageConn) disconnect() {
	if m.c == nil {
		return
	}
	m.link.close(m)
	m.t.forget(m.c, false)
	<-m.ended
	m.c = nil
}

// Close implements raftio.IConnection.
func (m *messageConn) Close() { m.disconnect() }
