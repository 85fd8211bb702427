package integration

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// unreliable makes a client's connections bad: answers come late, or not at all although the broker has done what it was asked, and
// connections end at any byte.
type unreliable struct {
	mu   sync.Mutex
	rng  *rand.Rand // guarded by mu
	cuts int        // guarded by mu; connections ended
	lost int        // guarded by mu; of these, how many withheld what the broker had answered
}

// fate is what befalls one connection.
type fate struct {
	written, read int // bytes after which it ends; the read ones withhold what comes behind them
	delay         time.Duration
}

func (u *unreliable) draw() fate {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := fate{written: 1 << 30, read: 1 << 30, delay: time.Duration(u.rng.Int64N(int64(3 * time.Millisecond)))}
	switch u.rng.IntN(3) {
	case 0:
		f.written = 2_000 + u.rng.IntN(60_000)
	case 1:
		f.read = 400 + u.rng.IntN(2_000)
	default:
		f.written, f.read = 2_000+u.rng.IntN(120_000), 400+u.rng.IntN(4_000)
	}
	return f
}

// dial is for kgo.Dialer.
func (u *unreliable) dial(ctx context.Context, network, host string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &unreliableConn{Conn: c, u: u, fate: u.draw()}, nil
}

func (u *unreliable) counts() (cuts, lost int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.cuts, u.lost
}

type unreliableConn struct {
	net.Conn
	u    *unreliable
	fate fate
	once sync.Once

	readSoFar, writtenSoFar int // each belongs to the one goroutine that reads, or writes
}

func (c *unreliableConn) cut(withheld bool) error {
	c.once.Do(func() {
		c.u.mu.Lock()
		c.u.cuts++
		if withheld {
			c.u.lost++
		}
		c.u.mu.Unlock()
	})
	_ = c.Close()
	return net.ErrClosed
}

func (c *unreliableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	time.Sleep(c.fate.delay) // a slow way back
	if c.readSoFar += n; c.readSoFar > c.fate.read {
		return 0, c.cut(true)
	}
	return n, nil
}

func (c *unreliableConn) Write(b []byte) (int, error) {
	left := c.fate.written - c.writtenSoFar
	if len(b) <= left {
		n, err := c.Conn.Write(b)
		c.writtenSoFar += n
		return n, err
	}
	n, _ := c.Conn.Write(b[:max(0, left)]) // part of a request
	c.writtenSoFar += n
	return n, c.cut(false)
}
