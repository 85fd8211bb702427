package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"cairn/internal/clock"
	"cairn/raftgroup"
	"cairn/wire"
)

const (
	// frameGrace is how long the bytes of one buffer of a frame may take to arrive, plus one second per frameRate of them.
	frameGrace = 30 * time.Second
	frameRate  = 1 << 20
	// refusedGrace is how long a connection beyond the limits has to show that it is Raft's.
	refusedGrace = 2 * time.Second
)

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
	if err := c.awaitFirstBytes(); err != nil {
		return err
	}
	if head, _ := c.br.Peek(4); string(head) != string(want[:4]) {
		if c.refusal != nil {
			c.server.refused(c.listener, c.refusal)
		}
		return c.refusal
	}
	if err := c.nc.SetReadDeadline(clock.Now().Add(frameGrace)); err != nil {
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
	c.uncount()
	c.raft.Store(true)
	if c.server.draining.Load() { // drain may have looked just before
		return errDraining
	}
	if err := c.server.serveRaft(c.nc, bufio.NewReaderSize(c.br, raftReadBuffer)); err != nil {
		return fmt.Errorf("raft connection: %w", err)
	}
	return io.EOF
}

// awaitFirstBytes waits until it shows whether the connection is Raft's, not long for one beyond the limits.
func (c *conn) awaitFirstBytes() error {
	if c.refusal == nil {
		return c.awaitBytes(4)
	}
	if err := c.nc.SetReadDeadline(clock.Now().Add(refusedGrace)); err != nil {
		return err
	}
	if _, err := c.br.Peek(4); err != nil {
		return c.refusal
	}
	return nil
}

// uncount takes the connection out of the limits' count, once.
func (c *conn) uncount() {
	if c.counted {
		c.counted = false
		c.server.limits.leave(c.host)
	}
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
		case time.Since(c.deadlineSet) >= c.server.maxIdle && c.idleSince(clock.Now().Add(-c.server.maxIdle)):
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
	now := clock.Now()
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
	r := &request{hdr: hdr, msg: msg, conn: c, arrived: clock.Now(), size: int(size), frame: f}
	if !c.push(r) {
		f.release()
		return nil, net.ErrClosed
	}
	return r, nil
}

// readFrame reads size prefix and body into f. Whole frames that are buffered already need no deadline.
func (c *conn) readFrame(f *frame, size int32) error {
	buffered := c.br.Buffered() >= 4+int(size)
	body, err := wire.ReadFrame(c.br, c.server.maxFrame, func(n int) ([]byte, error) {
		buf, err := f.grow(n)
		if err == nil && !buffered { // the wait for memory is not the sender's
			limit := frameGrace + time.Duration(n/frameRate)*time.Second
			err = c.nc.SetReadDeadline(clock.Now().Add(limit))
			c.deadlineSet = time.Time{}
		}
		return buf, err
	})
	if err != nil {
		return fmt.Errorf("frame of %d bytes: %w", size, err)
	}
	f.complete(body)
	return nil
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
