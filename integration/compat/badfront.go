package main

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// badFront is a listener that hands connections on to a broker, badly once it is told to: each ends after a random number of bytes in one
// direction, and answers come late.
type badFront struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu   sync.Mutex
	rng  *rand.Rand            // guarded by mu
	bad  bool                  // guarded by mu
	cut  int                   // guarded by mu; connections ended by force
	open map[net.Conn]struct{} // guarded by mu
}

func openBadFront(target string, seed uint64) (*badFront, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &badFront{target: target, listener: l, rng: rand.New(rand.NewPCG(seed, seed)), open: map[net.Conn]struct{}{}}
	f.running.Go(f.accept)
	return f, nil
}

func (f *badFront) address() string { return f.listener.Addr().String() }

// worsen has connections break from now on, heal ends that.
func (f *badFront) worsen() { f.set(true) }
func (f *badFront) heal()   { f.set(false) }

func (f *badFront) set(bad bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = bad
	for c := range f.open { // what is open knows nothing of it
		_ = c.Close()
	}
}

func (f *badFront) cuts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

func (f *badFront) close() error {
	err := f.listener.Close()
	f.set(false)
	f.running.Wait()
	return err
}

func (f *badFront) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.running.Go(func() { f.serve(client) })
	}
}

func (f *badFront) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	broker, err := net.DialTimeout("tcp", f.target, 2*time.Second)
	if err != nil {
		return // its process has ended
	}
	defer func() { _ = broker.Close() }()
	there, back, delay := f.fate()
	f.mu.Lock()
	f.open[client] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.open, client)
		f.mu.Unlock()
	}()
	var both sync.WaitGroup
	carry := func(dst, src net.Conn, limit int64, delay time.Duration) {
		n, _ := io.CopyN(slow{dst, delay}, src, limit) // an error ends it as a cut does
		if n == limit {
			f.mu.Lock()
			f.cut++
			f.mu.Unlock()
		}
		_, _ = client.Close(), broker.Close()
	}
	both.Go(func() { carry(broker, client, there, 0) })
	both.Go(func() { carry(client, broker, back, delay) })
	both.Wait()
}

// fate is after how many bytes a connection ends, there and back, and how late what comes back is.
func (f *badFront) fate() (there, back int64, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.bad {
		return 1 << 60, 1 << 60, 0
	}
	return 5_000 + f.rng.Int64N(120_000), 1_500 + f.rng.Int64N(6_000), time.Duration(f.rng.Int64N(int64(3 * time.Millisecond)))
}

// slow writes late.
type slow struct {
	net.Conn
	delay time.Duration
}

// Write implements io.Writer.
func (s slow) Write(b []byte) (int, error) {
	if s.delay > 0 {
		<-time.After(s.delay)
	}
	return s.Conn.Write(b)
}
