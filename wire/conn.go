package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The errors of a Conn, wrapped with the reason.
var (
	// ErrConnClosed: the connection was closed or broke. A request that got it may have been carried out or not.
	ErrConnClosed = errors.New("connection closed")
	// ErrNotSent comes with what else went wrong when no byte of the request has left: it was not carried out.
	ErrNotSent = errors.New("request not sent")
)

// ConnConfig configures a Conn. Zero fields take the defaults.
type ConnConfig struct {
	ClientID    string
	MaxInFlight int   // requests without response; more wait (default 64)
	MaxFrame    int32 // longest response in bytes (default 100 MiB)
	// ResponseTimeout closes the connection when the oldest request has no response for so long (default 30 s).
	// WriteTimeout does when a request cannot be written (default 10 s).
	ResponseTimeout, WriteTimeout time.Duration
}

func (c *ConnConfig) setDefaults() {
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 64
	}
	if c.MaxFrame <= 0 {
		c.MaxFrame = 100 << 20
	}
	if c.ResponseTimeout <= 0 {
		c.ResponseTimeout = 30 * time.Second
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 10 * time.Second
	}
}

// Conn is the client's end of a connection between nodes. Requests go out in the order of their RoundTrip calls without
// waiting for each other, and responses come back in that order. It may be used from any goroutine. Once something
// fails the Conn is closed for good; the caller makes another.
type Conn struct {
	cfg   ConnConfig
	nc    net.Conn
	slots chan struct{} // one taken from RoundTrip to response
	queue chan *call    // as long as slots, so that sending never blocks
	done  chan struct{} // closed with the Conn
	wg    sync.WaitGroup

	mu      sync.Mutex
	pending []*call // guarded by mu: written or about to be, oldest first
	nextID  int32   // guarded by mu
	err     error   // guarded by mu: why the Conn is closed
}

// call is one request under way. The goroutines of the Conn touch nothing of a caller who has gone.
type call struct {
	frame    []byte
	id       int32
	deadline time.Time
	response chan []byte // of size one: the response frame
}

// NewConn takes over nc and starts its two goroutines, which Close ends.
func NewConn(nc net.Conn, cfg ConnConfig) *Conn {
	cfg.setDefaults()
	c := &Conn{
		cfg: cfg, nc: nc,
		slots: make(chan struct{}, cfg.MaxInFlight), queue: make(chan *call, cfg.MaxInFlight), done: make(chan struct{}),
	}
	c.wg.Go(c.writeLoop)
	c.wg.Go(c.readLoop)
	return c
}

// RoundTrip sends req in the version it has set and waits for the response. Byte fields of the response alias memory
// that is the caller's. Errors: ErrConnClosed; the context's; ErrNotSent in addition when the request never left;
// ErrMalformed for a response that cannot be parsed. A request abandoned by its context stays in flight.
func (c *Conn) RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return nil, fmt.Errorf("%w: %w", ErrNotSent, c.Err())
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	cl := &call{frame: appendRequest(nil, c.cfg.ClientID, req), response: make(chan []byte, 1)}
	c.queue <- cl
	select {
	case frame := <-cl.response:
		return resp, parseResponse(resp, frame)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s request: %w", kmsg.NameForKey(req.Key()), context.Cause(ctx))
	case <-c.done:
	}
	select {
	case frame := <-cl.response:
		return resp, parseResponse(resp, frame)
	default:
		return nil, c.Err()
	}
}

// Done is closed when the Conn is.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the Conn is closed, wrapping ErrConnClosed; nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection and waits for the Conn's goroutines. Requests under way get ErrConnClosed.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	c.wg.Wait()
	return nil
}

// fail closes the Conn for the first reason it is given.
func (c *Conn) fail(reason error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = fmt.Errorf("%w: %w", ErrConnClosed, reason)
	}
	c.mu.Unlock()
	if first {
		_ = c.nc.Close() // nothing to do about it: the reason is what counts
		close(c.done)
	}
}

func (c *Conn) writeLoop() {
	for {
		select {
		case cl := <-c.queue:
			c.track(cl)
			_ = c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)) // fails only on a closed connection, as Write will
			if _, err := c.nc.Write(cl.frame); err != nil {
				c.fail(err)
				return
			}
			cl.frame = nil
		case <-c.done:
			return
		}
	}
}

// track gives the call its correlation id and makes it the last of the pending ones.
func (c *Conn) track(cl *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.id = c.nextID
	c.nextID++
	binary.BigEndian.PutUint32(cl.frame[correlationIDPos:], uint32(cl.id))
	cl.deadline = time.Now().Add(c.cfg.ResponseTimeout)
	c.pending = append(c.pending, cl)
	if len(c.pending) == 1 {
		c.setReadDeadlineLocked()
	}
}

// setReadDeadlineLocked lets reading fail when the oldest call is overdue. An idle connection has no deadline.
func (c *Conn) setReadDeadlineLocked() {
	var t time.Time
	if len(c.pending) > 0 {
		t = c.pending[0].deadline
	}
	_ = c.nc.SetReadDeadline(t) // fails only on a closed connection, as reading will
}

func (c *Conn) readLoop() {
	r := bufio.NewReaderSize(c.nc, 16<<10)
	for {
		frame, err := ReadFrame(r, c.cfg.MaxFrame, nil)
		if err != nil {
			c.fail(err)
			return
		}
		cl, err := c.answered(frame)
		if err != nil {
			c.fail(err)
			return
		}
		cl.response <- frame
		<-c.slots
	}
}

// answered takes the oldest pending call, which the frame must belong to.
func (c *Conn) answered(frame []byte) (*call, error) {
	if len(frame) < 4 {
		return nil, fmt.Errorf("response of %d bytes", len(frame))
	}
	id := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 || c.pending[0].id != id {
		return nil, fmt.Errorf("response with correlation id %d out of order", id)
	}
	cl := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	c.setReadDeadlineLocked()
	return cl, nil
}

// correlationIDPos is where a request frame has its correlation id: behind length, key and version.
const correlationIDPos = 8

// appendRequest appends a request frame with length prefix, header version 1 or 2 and correlation id 0.
func appendRequest(dst []byte, clientID string, req kmsg.Request) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = req.AppendTo(dst)
	putFrameLength(dst[start:], len(dst)-start)
	return dst
}

// parseResponse reads a response frame behind its length prefix, whose correlation id was checked.
func parseResponse(resp kmsg.Response, frame []byte) error {
	r := reader{src: frame[4:]}
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		r.skipTags()
	}
	if r.bad {
		return fmt.Errorf("%w: response header", ErrMalformed)
	}
	if err := resp.ReadFrom(r.src); err != nil {
		return fmt.Errorf("%w: %s response: %w", ErrMalformed, kmsg.NameForKey(resp.Key()), err)
	}
	return nil
}
