package network

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	pieceBytes    = 32 << 10
	piecesWaiting = 16 // on a way, between the node that sends and the one that receives
	dialWithin    = 2 * time.Second
)

// front hands connections on to one node.
type front struct {
	n        *Network
	node     int
	target   string
	listener net.Listener
}

// connected is a connection through the front, with both its ends.
type connected struct {
	n           *Network
	there, back way

	mu   sync.Mutex
	ends []net.Conn // guarded by mu; the caller's first, then the node's
	over bool       // guarded by mu
}

func (f *front) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.n.wg.Go(func() { f.serve(c) })
	}
}

// serve hands one connection on until it ends on both sides.
func (f *front) serve(client net.Conn) {
	c := &connected{n: f.n}
	defer c.reset()
	if !c.add(client) || !f.n.keep(c) {
		return
	}
	defer f.n.forget(c)
	from, known := f.n.owner(client)
	if !known {
		return // its process has ended, or is none of the nodes
	}
	f.n.mu.Lock()
	c.there, c.back = way{from, f.node}, way{f.node, from}
	f.n.mu.Unlock()
	if !f.n.pass(c.there) {
		return
	}
	server, err := net.DialTimeout("tcp", f.target, dialWithin)
	if err != nil {
		f.n.pass(c.back) // a refusal has to get back, too
		return
	}
	if !c.add(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.carry(server, client, c.there) })
	both.Go(func() { c.carry(client, server, c.back) })
	both.Wait()
}

// add takes an end in; false: the connection is over, and so is the end.
func (c *connected) add(end net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = end.Close() // nobody has used it
		return false
	}
	c.ends = append(c.ends, end)
	return true
}

// reset ends the connection at once, on both sides.
func (c *connected) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, end := range c.ends {
		abort(end)
	}
}

// abort closes one end as a broken connection ends: what it did not deliver is gone, and the other side sees a reset.
func abort(end net.Conn) {
	if t, ok := end.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails when closed, which is wanted
	}
	_ = end.Close() // a second time is harmless
}

// piece is what was read at once, or the end of the connection: io.EOF, or an error when it broke.
type piece struct {
	data []byte
	end  error
	due  time.Time
}

// carry brings what src sends to dst over the way, and then the end of the connection.
func (c *connected) carry(dst, src net.Conn, w way) {
	pieces := make(chan piece, piecesWaiting)
	gone := make(chan struct{}) // closed when dst takes no more
	var reader sync.WaitGroup
	reader.Go(func() { c.read(src, w, pieces, gone) })
	c.write(dst, w, pieces)
	close(gone)
	reader.Wait()
}

func (c *connected) read(src net.Conn, w way, pieces chan<- piece, gone <-chan struct{}) {
	for {
		buf := make([]byte, pieceBytes)
		k, err := src.Read(buf)
		speed, _ := c.n.state(w)
		due := time.Now().Add(speed.Delay)
		for _, p := range []piece{{data: buf[:k], due: due}, {end: err, due: due}} {
			if len(p.data) == 0 && p.end == nil {
				continue
			}
			select {
			case pieces <- p:
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write delivers until the end of the connection, which it hands on. When dst is broken, the other direction hears of it.
func (c *connected) write(dst net.Conn, w way, pieces <-chan piece) {
	for p := range pieces {
		if !c.n.pause(time.Until(p.due)) || !c.n.pass(w) {
			return
		}
		if p.end != nil {
			if !errors.Is(p.end, io.EOF) {
				abort(dst)
			}
			_ = dst.Close() // a second time is harmless
			return
		}
		c.n.count(w, len(p.data)) // before the write: who has received it finds it counted
		if k, err := dst.Write(p.data); err != nil {
			c.n.count(w, k-len(p.data))
			return
		}
		if speed, _ := c.n.state(w); speed.BytesPerSecond > 0 && !c.n.pause(time.Second*time.Duration(len(p.data))/time.Duration(speed.BytesPerSecond)) {
			return
		}
	}
}
