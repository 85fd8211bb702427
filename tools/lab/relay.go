package lab

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"cairn/tools/lab/nodes"
)

// relay stands in front of a broker and hands every connection on to it. While it holds, what other brokers send to replicate partitions
// does not get through; clients, the controller and pings do. So the broker answers, but lags.
type relay struct {
	listener net.Listener
	target   string

	wg    sync.WaitGroup
	mu    sync.Mutex
	held  chan struct{}     // closed when nothing is held back; guarded by mu
	conns map[net.Conn]bool // all open ones, of both sides; guarded by mu; nil when closed
}

// relayPrefix opens connections between nodes (docs/formats.md); a format version follows.
const relayPrefix = "CAIRNRF"

// purposeMessages is a connection that carries Raft messages.
const purposeMessages = 1

// maxHello bounds the first frame of a connection between nodes.
const maxHello = 64

// newRelay listens in front of the node, which from its next start on tells others the relay's address as its own.
func newRelay(n *nodes.Node) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	open := make(chan struct{})
	close(open)
	r := &relay{listener: l, target: n.Addr, held: open, conns: map[net.Conn]bool{}}
	n.Props["advertised.listeners"] = "CLIENT://" + l.Addr().String()
	r.wg.Go(r.accept)
	return r, nil
}

// hold begins or ends holding back.
func (r *relay) hold(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
		if on {
			r.held = make(chan struct{})
		}
	default:
		if !on {
			close(r.held)
		}
	}
}

// gate is closed while nothing is held back.
func (r *relay) gate() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// close ends all connections and waits for what serves them.
func (r *relay) close() error {
	r.hold(false)
	err := r.listener.Close()
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	r.mu.Unlock()
	for c := range conns {
		err = errors.Join(err, ignoreClosed(c.Close()))
	}
	r.wg.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// keep notes an open connection; false: the relay is closed.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[c] = true
	return true
}

// drop closes a connection. Which side's end came first does not matter, so neither does the error.
func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_ = c.Close()
}

func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.wg.Go(func() { r.serve(c) })
	}
}

// serve hands one connection on until either side ends it.
func (r *relay) serve(client net.Conn) {
	defer r.drop(client)
	if !r.keep(client) {
		return
	}
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return // the caller sees a closed connection, as it would without a relay
	}
	defer r.drop(server)
	if !r.keep(server) {
		return
	}
	in := bufio.NewReaderSize(client, 4096)
	first, holdable := sniff(in)
	if _, err := server.Write(first); err != nil {
		return
	}
	back := make(chan struct{})
	go func() { // ends when the server side is dropped below
		defer close(back)
		_, _ = io.Copy(client, server)
		r.drop(client)
	}()
	r.forward(server, in, holdable)
	r.drop(server)
	<-back
}

// forward copies until either side ends, waiting at the gate before each write where that is wanted.
func (r *relay) forward(to io.Writer, from io.Reader, holdable bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if holdable {
			<-r.gate()
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sniff reads the hello of a connection between nodes and tells whether it carries replication from a broker. Of any other connection it
// reads at most a few bytes. What it has read is to be handed on.
func sniff(in *bufio.Reader) (first []byte, replication bool) {
	const opening, header = len(relayPrefix) + 1, 12
	for i := range relayPrefix {
		if b, err := in.Peek(i + 1); err != nil || b[i] != relayPrefix[i] {
			return nil, false // what was peeked is still in the reader
		}
	}
	b, err := in.Peek(opening + header)
	if err != nil {
		return nil, false
	}
	size := binary.BigEndian.Uint32(b[opening+4:])
	if size > maxHello {
		return nil, false
	}
	first = make([]byte, opening+header+int(size))
	if n, err := io.ReadFull(in, first); err != nil {
		return first[:n], false
	}
	purpose, from, err := hello(first[opening+header:])
	return first, err == nil && purpose == purposeMessages && from != nodes.ControllerID
}

// hello reads what a hello says: its own version, the purpose, the version of Raft messages, and the sender.
func hello(meta []byte) (purpose byte, from int64, err error) {
	r := bytes.NewReader(meta)
	var fixed [2]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return 0, 0, err
	}
	if _, err := binary.ReadUvarint(r); err != nil {
		return 0, 0, err
	}
	if from, err = binary.ReadVarint(r); err != nil {
		return 0, 0, fmt.Errorf("hello without a sender: %w", err)
	}
	return fixed[1], from, nil
}
