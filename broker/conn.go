package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cairn/broker/controller"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// connReadBuffer is the size of a client's read buffer in bytes. What is larger is read past it, at the price of one more system call, and clients
	// come by the ten thousand: what their buffers take is missing below the limit at which the collector begins to work all the time.
	connReadBuffer = 8 << 10
	// raftReadBuffer is that of another node, which sends many small messages.
	raftReadBuffer = 32 << 10
	// maxInFlight bounds the requests of one connection that are not yet answered. Its reader waits beyond that.
	maxInFlight = 128
	// maxUnsentBytes bounds the ready but unsent answers of one connection: its reader waits beyond that.
	maxUnsentBytes = 16 << 20
)

var (
	errIdle     = errors.New("idle for connections.max.idle.ms")
	errDraining = errors.New("broker is stopping")
	errPreface  = errors.New("raft traffic on a listener that carries none")
)

// request is one request from the moment it was read until its answer is on the way. Exactly one of reply,
// replyBuffers, noReply and closeConnection must be called, once, from any goroutine; none of them blocks.
// closeConnection may also follow noReply. The frame that msg may alias stays valid until then, or until releaseFrame.
type request struct {
	hdr     wire.Header
	msg     kmsg.Request
	conn    *conn
	arrived time.Time
	// size is the length of the request frame in bytes, without the size prefix.
	size int

	frame *frame // nil once released; guarded by conn.mu

	// The answer; guarded by conn.mu until done, then read by the writer alone.
	done   bool
	resp   kmsg.Response
	bufs   net.Buffers
	silent bool
}

// reply answers with resp, which belongs to the connection from here on: it is encoded later, by the writer.
func (r *request) reply(resp kmsg.Response) { r.conn.finish(r, resp, nil, false) }

// replyBuffers answers with a complete frame, size prefix included. The bytes must stay unchanged for ever.
func (r *request) replyBuffers(b net.Buffers) { r.conn.finish(r, nil, b, false) }

// noReply ends a request that gets no answer (acks=0).
func (r *request) noReply() { r.conn.finish(r, nil, nil, true) }

// closeConnection ends the request by closing its connection, which is the answer where Kafka has no other.
func (r *request) closeConnection(reason error) {
	c := r.conn
	c.close(reason)
	c.mu.Lock()
	done := r.done
	r.done = true
	c.mu.Unlock()
	if !done {
		r.releaseFrame()
	}
}

// releaseFrame gives the memory of the request's bytes back before the answer: nothing uses them any more, msg
// included. It lets a request that waits for replication hold no payload.
func (r *request) releaseFrame() {
	r.conn.mu.Lock()
	f := r.frame
	r.frame = nil
	r.conn.mu.Unlock()
	if f != nil {
		f.release()
	}
}

// listenerName is the name of the listener that the request came in on.
func (r *request) listenerName() string { return r.conn.listener.name }

// conn is one client connection: a reader goroutine that also runs handlers, and a writer goroutine.
type conn struct {
	server   *server
	listener *listener
	nc       net.Conn
	br       *bufio.Reader
	host     string
	log      *zap.Logger
	// context ends when the connection does: what runs on its behalf and waits, waits on it.
	context context.Context
	cancel  context.CancelFunc
	// session is what a handler keeps for the connection; touched by the reader goroutine alone.
	session connSession

	// refusal is the limit that the connection breaks: it may go on as Raft's only. Reader goroutine only.
	refusal error
	// counted tells whether it counts for the limits. Reader goroutine, then serve.
	counted bool

	// deadlineSet is when the idle deadline was last armed. Reader goroutine only.
	deadlineSet time.Time

	wake chan struct{} // capacity 1: the head of pending is done, or closed
	room chan struct{} // capacity 1: pending or unsent shrank, or closed

	raft   atomic.Bool // Raft's transport has taken the connection over
	closed atomic.Bool
	mu     sync.Mutex
	// pending has the unanswered requests in arrival order. guarded by mu
	pending []*request
	// answered is when the writer last took answers from pending: they may still be on their way. guarded by mu
	answered time.Time
	// unsent is the size of the ready answers in pending, as far as known before encoding. guarded by mu
	unsent int
	// reason is why the connection was closed. guarded by mu
	reason error
	// ending is set when no more requests will come and the writer ends after the last answer. guarded by mu
	ending bool
}

// connSession is per-connection state of handlers.
type connSession struct {
	// quorum is the controller's view of a connection of its listener; nil before its first request.
	quorum *controller.Conn
}

func newConn(s *server, l *listener, nc net.Conn, host string) *conn {
	ctx, cancel := context.WithCancel(s.ctx)
	return &conn{
		server: s, listener: l, nc: nc, host: host, context: ctx, cancel: cancel,
		br:   bufio.NewReaderSize(nc, connReadBuffer),
		log:  s.log.With(zap.String("client", nc.RemoteAddr().String()), zap.String("listener", l.name)),
		wake: make(chan struct{}, 1),
		room: make(chan struct{}, 1),
	}
}

// serve runs the connection until it ends. It returns after both its goroutines have.
func (c *conn) serve() {
	var writer sync.WaitGroup
	writer.Go(c.writeLoop)
	err := c.readLoop()
	if errors.Is(err, errDraining) {
		c.end()
	} else {
		c.close(err)
	}
	writer.Wait()
	c.close(err)
	c.server.connEnded(c)
}

// push appends r to the unanswered requests; it reports false when the connection is closed.
func (c *conn) push(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.pending = append(c.pending, r)
	return true
}

// idleSince reports whether nothing has been under way since t.
func (c *conn) idleSince(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) == 0 && !c.answered.After(t)
}

// finish stores the answer of r and wakes the writer when r is next in line.
func (c *conn) finish(r *request, resp kmsg.Response, bufs net.Buffers, silent bool) {
	c.mu.Lock()
	if r.done {
		c.mu.Unlock()
		panic(fmt.Sprintf("BUG: request %d of key %d answered twice", r.hdr.CorrelationID, r.hdr.Key))
	}
	r.done, r.resp, r.bufs, r.silent = true, resp, bufs, silent
	for _, b := range bufs {
		c.unsent += len(b)
	}
	closed := c.closed.Load()
	head := len(c.pending) > 0 && c.pending[0] == r
	c.mu.Unlock()
	switch {
	case closed:
		r.releaseFrame() // the writer is gone, or skips it
	case head:
		signal(c.wake)
	}
}

// close ends the connection at once. Only the first reason counts.
func (c *conn) close(reason error) {
	c.mu.Lock()
	if c.closed.Load() {
		c.mu.Unlock()
		return
	}
	c.closed.Store(true)
	c.reason = reason
	var answered []*request
	for _, r := range c.pending {
		if r.done {
			answered = append(answered, r)
		}
	}
	c.pending = nil
	c.mu.Unlock()

	c.cancel()
	_ = c.nc.Close()
	for _, r := range answered {
		r.releaseFrame()
	}
	signal(c.wake)
	signal(c.room)
}

// end lets the writer finish what is pending and stop.
func (c *conn) end() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	signal(c.wake)
}

// signal makes a wake-up pending; one is enough for any number of events.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
