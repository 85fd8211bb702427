package broker

import (
	"net"

	"cairn/internal/clock"
	"cairn/wire"
)

const (
	// maxCoalesced is how many bytes of ready answers are sent with one system call, roughly.
	maxCoalesced = 1 << 20
	// maxScratch is the largest encode buffer a connection keeps, in bytes.
	maxScratch = 64 << 10
)

// responseWriter encodes and sends answers. It belongs to the writer goroutine.
type responseWriter struct {
	c       *conn
	scratch []byte
	// cuts are the pieces of the frame sequence to send: spans of scratch, or ready buffers.
	cuts []cut
	vec  net.Buffers
}

// cut is one piece: ready bytes, or scratch[from:to] (scratch may move while it grows, hence the offsets).
type cut struct {
	ready    []byte
	from, to int
}

// writeLoop sends answers in request order until the connection is closed, or has ended and all are sent.
func (c *conn) writeLoop() {
	w := &responseWriter{c: c}
	var batch []*request
	for {
		var open bool
		batch, open = c.takeReady(batch[:0])
		if len(batch) > 0 {
			if err := w.send(batch); err != nil {
				c.close(err)
			}
			continue
		}
		if !open {
			_ = c.nc.Close()
			return
		}
		<-c.wake
	}
}

// takeReady moves the answered requests at the head of the line to batch, as many as are worth one write. open tells
// whether more may come.
func (c *conn) takeReady(batch []*request) (_ []*request, open bool) {
	c.mu.Lock()
	n, size := 0, 0
	for n < len(c.pending) && c.pending[n].done && size < maxCoalesced {
		for _, b := range c.pending[n].bufs {
			size += len(b)
		}
		batch = append(batch, c.pending[n])
		n++
	}
	if n > 0 {
		c.answered = clock.Now()
	}
	kept := copy(c.pending, c.pending[n:])
	clear(c.pending[kept:])
	c.pending = c.pending[:kept]
	open = !c.closed.Load() && !(c.ending && kept == 0)
	c.mu.Unlock()
	return batch, open
}

// send encodes and writes the answers of batch, then gives back what the requests held.
func (w *responseWriter) send(batch []*request) error {
	w.scratch, w.cuts = w.scratch[:0], w.cuts[:0]
	now := clock.Now()
	for _, r := range batch {
		w.add(r)
		w.c.server.metrics.answered(r.hdr.Key, now.Sub(r.arrived))
	}
	n, err := w.flush()
	w.settle(batch, n)
	return err
}

// add appends the frame of r.
func (w *responseWriter) add(r *request) {
	switch {
	case r.silent:
	case r.resp != nil:
		from := len(w.scratch)
		w.scratch = wire.AppendResponse(w.scratch, r.hdr, r.resp)
		if last := len(w.cuts) - 1; last >= 0 && w.cuts[last].ready == nil {
			w.cuts[last].to = len(w.scratch)
			return
		}
		w.cuts = append(w.cuts, cut{from: from, to: len(w.scratch)})
	default:
		for _, b := range r.bufs {
			w.cuts = append(w.cuts, cut{ready: b})
		}
	}
}

// flush writes the pieces with as few system calls as possible.
func (w *responseWriter) flush() (int64, error) {
	w.vec = w.vec[:0]
	for _, p := range w.cuts {
		if p.ready != nil {
			w.vec = append(w.vec, p.ready)
		} else {
			w.vec = append(w.vec, w.scratch[p.from:p.to])
		}
	}
	if len(w.vec) == 0 {
		return 0, nil
	}
	if err := w.c.nc.SetWriteDeadline(clock.Now().Add(w.c.server.maxIdle)); err != nil {
		return 0, err
	}
	if len(w.vec) == 1 {
		n, err := w.c.nc.Write(w.vec[0])
		return int64(n), err
	}
	v := w.vec // WriteTo consumes its receiver
	return v.WriteTo(w.c.nc)
}

// settle records and releases what was sent.
func (w *responseWriter) settle(batch []*request, written int64) {
	c := w.c
	sent := 0
	for _, r := range batch {
		for _, b := range r.bufs {
			sent += len(b)
		}
		r.releaseFrame()
		r.resp, r.bufs, r.msg = nil, nil, nil
	}
	c.server.metrics.responseBytes.Add(float64(written))
	clear(w.vec[:cap(w.vec)])
	clear(w.cuts)
	if cap(w.scratch) > maxScratch {
		w.scratch = nil
	}
	c.mu.Lock()
	c.unsent -= sent
	c.mu.Unlock()
	signal(c.room)
}
