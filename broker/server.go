package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cairn/internal/clock"
	"cairn/wire"

	"go.uber.org/zap"
)

// acceptRetry is how long accepting pauses after an error such as too many open files.
const acceptRetry = 50 * time.Millisecond

// serverConfig is what a server needs of the process around it.
type serverConfig struct {
	// Dispatch handles one request on the goroutine of its connection.
	Dispatch func(r *request)
	// APIs parses requests.
	APIs *wire.Table
	// ServeRaft takes over a connection whose preface was read; it blocks until the connection has ended.
	ServeRaft     func(nc net.Conn, br *bufio.Reader) error
	Bounds        func() connBounds
	Memory        *memory
	Metrics       *metrics
	MaxFrame      int32         // bytes, socket.request.max.bytes
	MaxIdle       time.Duration // connections.max.idle.ms
	SendBuffer    int           // bytes, socket.send.buffer.bytes; -1 leaves it to the system
	ReceiveBuffer int
	Log           *zap.Logger
}

// server accepts connections on its listeners and runs them.
type server struct {
	dispatch      func(r *request)
	apis          *wire.Table
	serveRaft     func(nc net.Conn, br *bufio.Reader) error
	memory        *memory
	metrics       *metrics
	limits        *connLimits
	maxFrame      int32
	maxIdle       time.Duration
	sendBuffer    int
	receiveBuffer int
	log           *zap.Logger
	noise         *logLimiter

	ctx    context.Context
	cancel context.CancelFunc
	// opened is closed when clients of broker listeners are to be served.
	opened   chan struct{}
	draining atomic.Bool
	stopping chan struct{} // closed with draining
	wg       sync.WaitGroup

	mu        sync.Mutex
	listeners []*listener        // guarded by mu
	conns     map[*conn]struct{} // guarded by mu
}

// listener is one bound address.
type listener struct {
	name string
	// controller marks a listener of controller.listener.names: it serves the controller's requests only.
	controller bool
	// raft tells whether other nodes' Raft traffic comes in here.
	raft bool
	net.Listener
}

func newServer(cfg serverConfig) *server {
	ctx, cancel := context.WithCancel(context.Background())
	return &server{
		dispatch: cfg.Dispatch, apis: cfg.APIs, opened: make(chan struct{}), stopping: make(chan struct{}), serveRaft: cfg.ServeRaft,
		memory: cfg.Memory, metrics: cfg.Metrics, limits: newConnLimits(cfg.Bounds),
		maxFrame: cfg.MaxFrame, maxIdle: cfg.MaxIdle, sendBuffer: cfg.SendBuffer, receiveBuffer: cfg.ReceiveBuffer,
		log: cfg.Log, noise: newLogLimiter(time.Second),
		ctx: ctx, cancel: cancel, conns: map[*conn]struct{}{},
	}
}

// listen binds address ("host:port", port 0 for any) without accepting yet.
func (s *server) listen(name, address string, controller, raft bool) (*listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", name, err)
	}
	l := &listener{name: name, controller: controller, raft: raft, Listener: ln}
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	return l, nil
}

// bound returns the listeners in the order they were bound. The caller owns the slice.
func (s *server) bound() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.listeners)
}

// port is the bound port.
func (l *listener) port() int32 { return int32(l.Addr().(*net.TCPAddr).Port) }

// accept starts taking connections of l.
func (s *server) accept(l *listener) { s.wg.Go(func() { s.acceptLoop(l) }) }

func (s *server) acceptLoop(l *listener) {
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.admit(l, nc)
		case s.draining.Load() || errors.Is(err, net.ErrClosed):
			return
		default:
			s.noise.warn(s.log, "accept failed", zap.String("listener", l.name), zap.Error(err))
			select {
			case <-time.After(acceptRetry):
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// admit starts a connection, or closes it at once when a limit is reached. Connections between nodes are not limited:
// those of controller listeners at all, those that carry Raft once their preface has shown it.
func (s *server) admit(l *listener, nc net.Conn) {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	var refusal error
	if !l.controller {
		refusal = s.limits.admit(host)
	}
	if refusal != nil && !l.raft {
		s.refused(l, refusal)
		_ = nc.Close()
		return
	}
	s.tune(nc)
	c := newConn(s, l, nc, host)
	c.refusal, c.counted = refusal, !l.controller && refusal == nil
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		c.uncount()
		c.cancel()
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(c.serve)
	s.mu.Unlock()
	s.metrics.connections.Inc()
	s.metrics.connectionsOpened.Inc()
}

// refused records a connection that a limit refused.
func (s *server) refused(l *listener, err error) {
	s.metrics.connectionsRefused.Inc()
	s.noise.warn(s.log, "connection refused", zap.String("listener", l.name), zap.Error(err))
}

// tune sets the socket's options. Go sets TCP_NODELAY by itself. An error shows when the connection is used.
func (s *server) tune(nc net.Conn) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if s.sendBuffer >= 0 {
		_ = tc.SetWriteBuffer(s.sendBuffer)
	}
	if s.receiveBuffer >= 0 {
		_ = tc.SetReadBuffer(s.receiveBuffer)
	}
}

// connEnded is called once by a connection whose goroutines have ended.
func (s *server) connEnded(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.uncount()
	s.metrics.connections.Dec()
	if c.session.quorum != nil {
		c.session.quorum.Close()
	}
	c.mu.Lock()
	reason := c.reason
	c.mu.Unlock()
	switch {
	case reason == nil || ordinaryEnd(reason):
		c.log.Debug("connection closed", zap.Error(reason))
	default:
		s.metrics.connectionsAborted.Inc()
		s.noise.warn(c.log, "connection closed", zap.Error(reason))
	}
}

// ordinaryEnd tells the ends that happen all day: the client went away, was idle, or the broker stops.
func ordinaryEnd(err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, wire.ErrMalformed) {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errIdle) ||
		errors.Is(err, errDraining) || errors.Is(err, errLimit) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.Canceled)
}

// stopAccepting closes the listeners. Connections go on.
func (s *server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// drain takes no more requests, waits until those under way are answered and sent, or ctx ends, and closes all
// connections. It returns when every goroutine of the server has ended.
func (s *server) drain(ctx context.Context) {
	s.stopAccepting()
	s.mu.Lock()
	if s.draining.CompareAndSwap(false, true) {
		close(s.stopping)
	}
	var raft []*conn
	for c := range s.conns {
		if c.raft.Load() {
			raft = append(raft, c)
			continue
		}
		_ = c.nc.SetReadDeadline(clock.Now())
		signal(c.room)
	}
	s.mu.Unlock()
	for _, c := range raft { // they never end by themselves
		c.close(errDraining)
	}

	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.closeAll()
		<-done
	}
	s.cancel()
}

func (s *server) closeAll() {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.close(errDraining)
	}
}
