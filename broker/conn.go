package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cairn/broker/controller"
	"cairn/raftgroup"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// connReadBuffer is the size of a connection's read buffer in bytes.
	connReadBuffer = 32 << 10
	// maxInFlight bounds the requests of one connection that are not yet answered. Its reader waits beyond that.
	maxInFlight = 128
	// maxUnsentBytes bounds the ready but unsent answers of one connection: its reader waits beyond that.
	maxUnsentBytes = 16 << 20
	// frameGrace is how long a frame may take to arrive completely, plus one second per frameRate bytes of it.
	frameGrace = 30 * time.Second
	frameRate  = 1 << 20
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

// clientHost is the address of the client without its port.
func (r *request) clientHost() string { return r.conn.host }

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

	// deadlineSet is when the idle deadline was last armed. Reader goroutine only.
	deadlineSet time.Time

	wake chan struct{} // capacity 1: the head of pending is done, or closed
	room chan struct{} // capacity 1: pending or unsent shrank, or closed

	raft   atomic.Bool // Raft's transport has taken the connection over
	closed atomic.Bool
	mu     sync.Mutex
	// pending has the unanswered requests in arrival order. guarded by mu
	pending []*request
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

// readLoop reads and handles requests until the connection is to end. It never returns nil.
func (c *conn) readLoop() error {
	if err := c.maybeServeRaft(); err != nil {
		return err
	}
	if err := c.awaitOpen(); err != nil {
		return err
	}
	for {
		if err := c.waitRoom(); err != nil {
			return err
		}
		size, err := c.awaitSize()
		if err != nil {
			return err
		}
		r, err := c.readRequest(size)
		if err != nil {
			return err
		}
		if r != nil {
			c.server.dispatch(r)
		}
	}
}

// maybeServeRaft hands the connection to Raft's transport when it begins with the preface, and returns what that
// returns; nil means that a Kafka client is at the other end.
func (c *conn) maybeServeRaft() error {
	want := raftgroup.Preface
	if err := c.awaitBytes(4); err != nil {
		return err
	}
	if head, _ := c.br.Peek(4); string(head) != string(want[:4]) {
		return nil
	}
	if err := c.nc.SetReadDeadline(time.Now().Add(frameGrace)); err != nil {
		return err
	}
	head, err := c.br.Peek(len(want))
	if err != nil {
		return fmt.Errorf("raft preface: %w", err)
	}
	if !c.listener.raft || string(head) != string(want[:]) {
		return errPreface
	}
	if _, err := c.br.Discard(len(want)); err != nil {
		return err
	}
	if err := c.nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.raft.Store(true)
	if c.server.draining.Load() { // drain may have looked just before
		return errDraining
	}
	if err := c.server.serveRaft(c.nc, c.br); err != nil {
		return fmt.Errorf("raft connection: %w", err)
	}
	return io.EOF
}

// awaitOpen holds clients back until the broker is ready to serve them. They are connected early, since Raft comes in on
// the same listeners before that.
func (c *conn) awaitOpen() error {
	if c.listener.controller {
		return nil
	}
	select {
	case <-c.server.opened:
		return nil
	case <-c.server.stopping:
		return errDraining
	case <-c.context.Done():
		return errDraining
	}
}

// waitRoom blocks while the connection has too many unanswered requests or unsent bytes.
func (c *conn) waitRoom() error {
	for {
		c.mu.Lock()
		full := len(c.pending) >= maxInFlight || c.unsent >= maxUnsentBytes
		err := c.reason
		c.mu.Unlock()
		switch {
		case c.closed.Load():
			return errors.Join(net.ErrClosed, err)
		case !full:
			return nil
		}
		<-c.room
	}
}

// awaitSize waits for the next frame and returns its size, checked against the limits.
func (c *conn) awaitSize() (int32, error) {
	if err := c.awaitBytes(4); err != nil {
		return 0, err
	}
	head, err := c.br.Peek(4)
	if err != nil {
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(head))
	if size < 0 || int64(size) > int64(c.server.maxFrame) {
		return 0, fmt.Errorf("frame size %d: %w", size, wire.ErrFrameLength)
	}
	return size, nil
}

// awaitBytes waits until n bytes are buffered, at most connections.max.idle.ms beyond the last activity. A partly
// sent size does not count as activity.
func (c *conn) awaitBytes(n int) error {
	for c.br.Buffered() < n {
		c.armIdle()
		_, err := c.br.Peek(n)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err):
			return err
		case c.server.draining.Load():
			return errDraining
		case c.inFlight() == 0 && time.Since(c.deadlineSet) >= c.server.maxIdle:
			return errIdle
		}
		c.deadlineSet = time.Time{}
	}
	if c.server.draining.Load() {
		return errDraining
	}
	return nil
}

// armIdle sets the read deadline for idle connections. A timer per request would cost more than it tells, so it is
// renewed at a tenth of the idle time at the earliest.
func (c *conn) armIdle() {
	now := time.Now()
	if now.Sub(c.deadlineSet) < c.server.maxIdle/10 {
		return
	}
	c.deadlineSet = now
	_ = c.nc.SetReadDeadline(now.Add(c.server.maxIdle))
	if c.server.draining.Load() { // stop has set its own deadline, perhaps just before ours
		_ = c.nc.SetReadDeadline(now)
	}
}

// readRequest takes a frame of the given size off the connection, waiting first for room in the request memory, and
// queues the request. A nil request without an error was answered already.
func (c *conn) readRequest(size int32) (*request, error) {
	f, err := c.server.memory.acquire(c.context, int(size))
	if err != nil {
		return nil, err
	}
	if err := c.readFrame(f, size); err != nil {
		f.release()
		return nil, err
	}
	c.server.metrics.requestBytes.Add(float64(4 + int(size)))
	hdr, msg, err := c.server.apis.ParseRequest(f.bytes)
	if err != nil && !(errors.Is(err, wire.ErrUnsupportedVersion) && hdr.Key == apiVersionsKey) {
		f.release()
		return nil, fmt.Errorf("request: %w", err)
	}
	r := &request{hdr: hdr, msg: msg, conn: c, arrived: time.Now(), size: int(size), frame: f}
	if !c.push(r) {
		f.release()
		return nil, net.ErrClosed
	}
	return r, nil
}

// readFrame reads size prefix and body into f. Whole frames that are buffered already need no deadline.
func (c *conn) readFrame(f *frame, size int32) error {
	if c.br.Buffered() < 4+int(size) {
		limit := frameGrace + time.Duration(size/frameRate)*time.Second
		if err := c.nc.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		c.deadlineSet = time.Time{}
	}
	body, err := wire.ReadFrame(c.br, c.server.maxFrame, f.grow)
	if err != nil {
		return fmt.Errorf("frame of %d bytes: %w", size, err)
	}
	f.bytes = body
	return nil
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

func (c *conn) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
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

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
