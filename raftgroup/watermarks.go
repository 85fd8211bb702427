package raftgroup

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

const (
	// markPause is how long a risen high watermark waits for a Raft message that carries it, before it is sent alone.
	markPause = 2 * time.Millisecond
	// marksPerFrame bounds one frame.
	marksPerFrame = 4096
	// minMarkBytes is the encoded size of a watermark.
	minMarkBytes = 4
)

// watermark tells replica to of a group that the leader from has exposed its log below at.
type watermark struct {
	shard    ids.ShardID
	to, from ids.ReplicaID
	at       ids.Offset
}

// carriesMark reports whether a high watermark travels with messages of this type: what leaders send.
func carriesMark(t raftpb.MessageType) bool { return t == raftpb.Replicate || t == raftpb.Heartbeat }

func appendMarks(dst []byte, told []watermark) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, frameHeaderLen)...)
	dst = binary.AppendUvarint(dst, uint64(len(told)))
	for _, w := range told {
		for _, v := range [...]uint64{uint64(w.shard), uint64(w.to), uint64(w.from), uint64(w.at)} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	appendFrameHeader(dst[:at], frameHeader{kind: frameMarks, meta: len(dst) - at - frameHeaderLen})
	return dst
}

// watermarks reads the rest of a frame of kind frameMarks. The result is owned by the caller.
func (d *messageDecoder) watermarks(h frameHeader) ([]watermark, error) {
	meta, err := readGrowing(d.r, d.meta, h.meta)
	if err != nil {
		return nil, err
	}
	d.meta = meta
	return decodeMarks(meta)
}

func decodeMarks(meta []byte) ([]watermark, error) {
	m := metaReader{b: meta, ok: true}
	n := m.uvarint()
	if !m.ok || n == 0 || n > uint64(len(m.b)/minMarkBytes) {
		return nil, frameErrorf("%d high watermarks in %d bytes", n, len(meta))
	}
	told := make([]watermark, n)
	for i := range told {
		w := &told[i]
		w.shard, w.to, w.from, w.at = ids.ShardID(m.uvarint()), ids.ReplicaID(m.uvarint()), ids.ReplicaID(m.uvarint()), m.mark()
		if !m.ok || w.shard == 0 || w.to == 0 || w.from == 0 || w.at == 0 {
			return nil, frameErrorf("high watermark %+v", *w)
		}
	}
	if len(m.b) != 0 {
		return nil, frameErrorf("%d bytes behind the high watermarks", len(m.b))
	}
	return told, nil
}

// hearAll passes on what came in a frame of its own.
func (h *Host) hearAll(told []watermark) {
	for _, w := range told {
		if f := h.cfg.Faults.DropMessage; f != nil && f(w.shard, w.from, w.to, "HighWatermark") {
			continue
		}
		h.hear(w)
	}
}

func (h *Host) hear(w watermark) {
	lr := h.replica(w.shard)
	if lr == nil || lr.self != w.to || lr.group == nil {
		return
	}
	lr.group.events.HighWatermark(w.at)
}

// ShowHighWatermark tells up to where consumers read. It goes to the other members with what this replica sends them as leader, and at
// once if nothing is sent. A value below an earlier one changes nothing. It does not block.
func (g *Group) ShowHighWatermark(hw ids.Offset) {
	for {
		old := g.lr.hw.Load()
		if int64(hw) <= old {
			return
		}
		if g.lr.hw.CompareAndSwap(old, int64(hw)) {
			break
		}
	}
	g.h.marks.rose(g.lr)
}

// watermarks sends high watermarks that no Raft message carries: one that rises with the last follower's answer has nothing to travel
// with until the next heartbeat. What is sent may get lost; heartbeats repeat it.
type watermarks struct {
	h  *Host
	wg sync.WaitGroup

	mu      sync.Mutex
	senders map[ids.NodeID]*markSender // guarded by mu; as many as there are peers
	closed  bool                       // guarded by mu
}

// markSender is the goroutine for one peer: one that does not read holds up nobody else.
type markSender struct {
	conn *messageConn
	wake chan struct{} // a token: something is due

	mu  sync.Mutex
	due map[ids.ShardID]ids.ReplicaID // guarded by mu; groups with news, and the replica to tell
}

func newWatermarks(h *Host) *watermarks {
	return &watermarks{h: h, senders: map[ids.NodeID]*markSender{}}
}

// close waits for the senders, which end with the transport.
func (w *watermarks) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}

// rose notes that the high watermark of a group has risen.
func (w *watermarks) rose(lr *localReplica) {
	if _, leads := lr.leading(); !leads {
		return
	}
	for r, node := range lr.untold() {
		if s := w.sender(node); s != nil {
			s.add(lr.shard, r)
		}
	}
}

// untold returns the members that follow this replica in its term and do not know its high watermark.
func (lr *localReplica) untold() map[ids.ReplicaID]ids.NodeID {
	term, _ := lr.leading()
	hw := ids.Offset(lr.hw.Load())
	lr.mu.Lock()
	defer lr.mu.Unlock()
	var nodes map[ids.ReplicaID]ids.NodeID
	for r, p := range lr.peers {
		if p.ackedTerm != term || p.node == ids.NoNode || p.told >= hw {
			continue
		}
		if nodes == nil {
			nodes = make(map[ids.ReplicaID]ids.NodeID, len(lr.peers))
		}
		nodes[r] = p.node
	}
	return nodes
}

func (w *watermarks) sender(node ids.NodeID) *markSender {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.senders[node]
	if s == nil && !w.closed {
		t := w.h.transport
		s = &markSender{
			conn: &messageConn{t: t, link: t.link(node)}, wake: make(chan struct{}, 1), due: map[ids.ShardID]ids.ReplicaID{},
		}
		w.senders[node] = s
		w.wg.Go(func() { w.run(s) })
	}
	return s
}

func (s *markSender) add(shard ids.ShardID, r ids.ReplicaID) {
	s.mu.Lock()
	s.due[shard] = r
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (w *watermarks) run(s *markSender) {
	defer s.conn.Close()
	pause := time.NewTimer(0)
	defer pause.Stop()
	done := w.h.transport.ctx.Done()
	for {
		select {
		case <-s.wake:
		case <-done:
			return
		}
		pause.Reset(markPause)
		select {
		case <-pause.C:
		case <-done:
			return
		}
		for told := w.take(s); len(told) > 0; told = told[min(len(told), marksPerFrame):] {
			frame := appendMarks(nil, told[:min(len(told), marksPerFrame)])
			s.conn.send(func() net.Buffers { return net.Buffers{frame} })
		}
	}
}

// take returns what the peer still does not know, and counts it as told.
func (w *watermarks) take(s *markSender) []watermark {
	s.mu.Lock()
	due := s.due
	s.due = map[ids.ShardID]ids.ReplicaID{}
	s.mu.Unlock()
	var told []watermark
	for shard, r := range due {
		if lr := w.h.replica(shard); lr != nil {
			if at, news := lr.tell(r); news {
				told = append(told, watermark{shard, r, lr.self, at})
			}
		}
	}
	return told
}

// tell returns the high watermark for a member that does not know it, while this replica leads.
func (lr *localReplica) tell(r ids.ReplicaID) (hw ids.Offset, news bool) {
	term, leads := lr.leading()
	hw = ids.Offset(lr.hw.Load())
	lr.mu.Lock()
	defer lr.mu.Unlock()
	p := lr.peers[r]
	if !leads || p == nil || p.ackedTerm != term || p.told >= hw {
		return 0, false
	}
	p.told = hw
	return hw, true
}
