package network

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Network is the fronts of all nodes, and the state of the ways between them.
type Network struct {
	wg   sync.WaitGroup
	done chan struct{} // closed with the network

	lookups sync.Mutex // held while a connection's owner is looked up; taken before mu

	mu     sync.Mutex
	closed bool                // guarded by mu
	fronts map[int]*front      // by node id; guarded by mu
	pids   map[int]int         // process ids by node id; guarded by mu
	ways   map[way]*condition  // those that are not whole; guarded by mu
	conns  map[*connected]bool // open ones; guarded by mu
	sent   map[way]int64       // bytes delivered; guarded by mu
}

// All stands for any node that is not the other one.
const All = -1

// way is one direction between two nodes.
type way struct{ from, to int }

// Speed slows a way down. The zero value is as fast as the machine.
type Speed struct {
	Delay          time.Duration // of each piece of data; pieces overtake nothing
	BytesPerSecond int           // 0: no limit
}

// condition is the state of a way.
type condition struct {
	speed Speed
	open  chan struct{} // closed while data gets through
}

// New returns a network without nodes.
func New() *Network {
	return &Network{
		done: make(chan struct{}), fronts: map[int]*front{}, pids: map[int]int{}, ways: map[way]*condition{}, conns: map[*connected]bool{},
		sent: map[way]int64{},
	}
}

// Front makes the front of a node and returns its address; target is the node's own.
func (n *Network) Front(id int, target string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	f := &front{n: n, node: id, target: target, listener: l}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.fronts[id] != nil {
		return "", errors.Join(fmt.Errorf("network: a second front of node %d, or one after Close", id), l.Close())
	}
	n.fronts[id] = f
	n.wg.Go(f.accept)
	return l.Addr().String(), nil
}

// Started tells which process a node is from now on.
func (n *Network) Started(id, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pids[id] = pid
}

// Nodes are the ids of all nodes, in order.
func (n *Network) Nodes() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[int]bool{}
	for id := range n.fronts {
		all[id] = true
	}
	for id := range n.pids {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Cut stops what one node sends to another. The way back is another one.
func (n *Network) Cut(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wayLocked(way{from, to}).shut()
}

// Split cuts, in both directions, all ways between these nodes and the others.
func (n *Network) Split(ids ...int) {
	for _, a := range n.Nodes() {
		for _, b := range n.Nodes() {
			if slices.Contains(ids, a) != slices.Contains(ids, b) {
				n.Cut(a, b)
			}
		}
	}
}

// Sent is how many bytes were delivered from one node to another, or from or to All.
func (n *Network) Sent(from, to int) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum int64
	for w, bytes := range n.sent {
		if (w.from == from || from == All) && (w.to == to || to == All) && w.from != w.to {
			sum += bytes
		}
	}
	return sum
}

// Slow gives a way a speed.
func (n *Network) Slow(from, to int, s Speed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wayLocked(way{from, to}).speed = s
}

// Heal makes all ways whole and fast. With reset, connections over ways that were cut end instead of delivering what waits.
func (n *Network) Heal(reset bool) {
	n.mu.Lock()
	var broken []*connected
	for c := range n.conns {
		if reset && (n.cutLocked(c.there) || n.cutLocked(c.back)) {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken { // while the ways are cut, or what was read just now would still get through
		c.reset()
	}
	n.mu.Lock()
	old := n.ways
	n.ways = map[way]*condition{}
	n.mu.Unlock()
	for _, w := range old {
		w.let()
	}
}

// Close ends all connections and waits for what serves them.
func (n *Network) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	fronts, conns := n.fronts, n.conns
	n.conns = map[*connected]bool{}
	n.mu.Unlock()
	if !first {
		return nil
	}
	close(n.done)
	var err error
	for _, f := range fronts {
		err = errors.Join(err, f.listener.Close())
	}
	for c := range conns {
		c.reset()
	}
	n.wg.Wait()
	return err
}

func (n *Network) wayLocked(w way) *condition {
	c := n.ways[w]
	if c == nil {
		c = &condition{open: make(chan struct{})}
		close(c.open)
		n.ways[w] = c
	}
	return c
}

func (n *Network) cutLocked(w way) bool {
	c := n.ways[w]
	return c != nil && !c.whole()
}

// state returns the speed of a way, and a channel that is closed while it is whole.
func (n *Network) state(w way) (Speed, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.wayLocked(w)
	return c.speed, c.open
}

// pass waits until the way is whole; false: the network was closed.
func (n *Network) pass(w way) bool {
	for {
		_, open := n.state(w)
		select {
		case <-open:
			return true
		default:
		}
		select {
		case <-open: // healed, or cut again since: look
		case <-n.done:
			return false
		}
	}
}

// pause waits; false: the network was closed.
func (n *Network) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.done:
		return false
	}
}

func (n *Network) count(w way, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent[w] += int64(bytes)
}

// keep notes an open connection; false: the network is closed.
func (n *Network) keep(c *connected) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.conns[c] = true
	return true
}

func (n *Network) forget(c *connected) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

func (c *condition) whole() bool {
	select {
	case <-c.open:
		return true
	default:
		return false
	}
}

func (c *condition) shut() {
	if c.whole() {
		c.open = make(chan struct{})
	}
}

// let is called when the condition is nobody's any more.
func (c *condition) let() {
	if !c.whole() {
		close(c.open)
	}
}
