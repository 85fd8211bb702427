package raftgroup

import (
	"net"
	"sync"
)

// frost makes a node deaf: its kernel accepts connections and bytes, its process reads none, as under SIGSTOP.
type frost struct {
	mu     sync.Mutex
	melted chan struct{} // closed while not frozen; guarded by mu
}

func newFrost() *frost {
	f := &frost{melted: make(chan struct{})}
	close(f.melted)
	return f
}

func (f *frost) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.melted = make(chan struct{})
}

func (f *frost) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.melted)
}

func (f *frost) wrap(c net.Conn) net.Conn {
	return &frozenConn{Conn: c, f: f, gone: make(chan struct{})}
}

type frozenConn struct {
	net.Conn
	f    *frost
	once sync.Once
	gone chan struct{}
}

func (c *frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.mu.Lock()
	melted := c.f.melted
	c.f.mu.Unlock()
	select {
	case <-melted:
	case <-c.gone:
	}
	return n, err
}

func (c *frozenConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}
