package raftgroup

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// peerWatch keeps one connection to each watched peer, for pings only. A peer is down when it has answered before and then either its
// connection broke and a new one could not be made, or no ping was answered for PeerTimeout, or it answers as another process: its
// groups lost their leader all the same. It is only told: a false alarm breaks no connection.
type peerWatch struct {
	h      *Host
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	peers map[ids.NodeID]context.CancelFunc // guarded by mu
}

func newPeerWatch(h *Host) *peerWatch {
	w := &peerWatch{h: h, peers: map[ids.NodeID]context.CancelFunc{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// WatchPeers replaces the set of watched peers. This node itself is left out.
func (h *Host) WatchPeers(nodes []ids.NodeID) { h.watch.set(nodes) }

func (w *peerWatch) set(nodes []ids.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	keep := map[ids.NodeID]bool{}
	for _, n := range nodes {
		if n == w.h.cfg.NodeID {
			continue
		}
		keep[n] = true
		if w.peers[n] == nil {
			ctx, cancel := context.WithCancel(w.ctx)
			w.peers[n] = cancel
			w.wg.Go(func() { w.run(ctx, n) })
		}
	}
	for n, cancel := range w.peers {
		if !keep[n] {
			cancel()
			delete(w.peers, n)
		}
	}
}

func (w *peerWatch) close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
}

// report announces a change, unless the peer is not watched any more.
func (w *peerWatch) report(ctx context.Context, n ids.NodeID, down bool) {
	f := w.h.cfg.OnPeerUp
	if down {
		f = w.h.cfg.OnPeerDown
	}
	if f != nil && ctx.Err() == nil {
		f(n)
	}
}

func (w *peerWatch) run(ctx context.Context, n ids.NodeID) {
	timeout := w.h.cfg.PeerTimeout
	up, again, process := false, false, uint64(0)
	for ctx.Err() == nil {
		began := clock.Now()
		c, r, now, err := w.h.transport.dial(ctx, n, purposeWatch, timeout)
		if err != nil && up && !again && time.Since(began) > timeout+timeout/4 {
			again = true // this process stood still
			continue
		}
		again = false
		if err == nil {
			if up && now != process {
				w.report(ctx, n, true)
				up = false
			}
			if !up {
				w.report(ctx, n, false)
			}
			up, process = true, now
			err = w.ping(ctx, c, r)
			w.h.transport.forget(c, false)
			if !isTimeout(err) {
				continue // broken: one more try decides
			}
		}
		if up {
			up = false
			w.report(ctx, n, true)
		}
		pause(ctx, timeout/4)
	}
}

// ping exchanges pings and answers until the connection breaks or an answer is late.
func (w *peerWatch) ping(ctx context.Context, c net.Conn, r *bufio.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() { _ = c.Close() }) // at the latest on return: it ends the sender's write
	timeout := w.h.cfg.PeerTimeout
	var stalled atomic.Bool
	wg.Go(func() { sendPings(ctx, c, timeout, &stalled) })
	for wait, second := timeout, false; ; {
		deadline := clock.Now().Add(wait)
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		h, err := readFrameHeader(r)
		switch {
		case err == nil && h.kind == framePong:
			wait, second = timeout, false
		case err == nil:
			return frameErrorf("kind %d for a ping", h.kind)
		case !isTimeout(err) || second:
			return err
		default:
			second, wait = true, graceAfter(timeout, time.Since(deadline), stalled.Swap(false))
		}
	}
}

// graceAfter is the time that a late answer gets. When this process stood still itself, the peer is not to blame: then a whole timeout.
// Else a little, for an answer that has arrived while the deadline ran out.
func graceAfter(timeout, woke time.Duration, stalled bool) time.Duration {
	if stalled || woke > timeout/4 {
		return timeout
	}
	return timeout / 10
}

// sendPings sends one every quarter of the timeout, and tells when it woke up so late that the whole process must have stood still.
func sendPings(ctx context.Context, c net.Conn, timeout time.Duration, stalled *atomic.Bool) {
	ping := appendFrameHeader(nil, frameHeader{kind: framePing})
	for ctx.Err() == nil {
		_ = c.SetWriteDeadline(clock.Now().Add(timeout))
		if _, err := c.Write(ping); err != nil {
			return // the reader sees it too, or the answer is late
		}
		slept := clock.Now()
		pause(ctx, timeout/4)
		if time.Since(slept) > timeout/2 {
			stalled.Store(true)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
