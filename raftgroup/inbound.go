package raftgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// helloTimeout bounds how long an accepted connection may stay silent before its hello.
const helloTimeout = 5 * time.Second

// ServeConn serves an inbound connection whose Preface the caller has consumed. It blocks until the connection ends, and closes it.
// The error says why; nil after an orderly end by the peer.
func (h *Host) ServeConn(c net.Conn, r *bufio.Reader) error {
	t := h.transport
	if !t.track(c, true) {
		_ = c.Close()
		return ErrClosed
	}
	defer t.forget(c, true)
	_ = c.SetDeadline(clock.Now().Add(helloTimeout))
	peer, err := readHello(r)
	if err != nil {
		return err
	}
	if peer.to != h.cfg.NodeID || peer.from == h.cfg.NodeID {
		return fmt.Errorf("%w: %v reached node %d", ErrUnknownPeer, peer, h.cfg.NodeID)
	}
	if _, err := c.Write(appendHello(nil, hello{from: h.cfg.NodeID, to: peer.from, purpose: peer.purpose, process: t.process})); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Time{})
	t.link(peer.from).heard(peer.process)
	if err := t.serve(c, r, peer); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// serve reads frames until the connection ends. io.EOF between two frames is the orderly end.
func (t *transport) serve(c net.Conn, r *bufio.Reader, peer hello) error {
	dec := messageDecoder{r: r}
	for {
		h, err := readFrameHeader(r)
		if err != nil {
			return err
		}
		switch {
		case h.kind == frameMessages && peer.purpose == purposeMessages:
			reqs, marks, err := dec.messages(h)
			if err != nil {
				return err
			}
			t.receive(reqs, marks, peer.from)
		case h.kind == frameMarks && peer.purpose == purposeMessages:
			told, err := dec.watermarks(h)
			if err != nil {
				return err
			}
			t.h.hearAll(told)
		case h.kind == frameChunk && peer.purpose == purposeSnapshot:
			b, err := readPayload(r, h)
			if err != nil {
				return err
			}
			if err := t.receiveChunk(b); err != nil {
				return err
			}
		case h.kind == framePing && peer.purpose == purposeWatch:
			_ = c.SetWriteDeadline(clock.Now().Add(t.h.cfg.WriteTimeout))
			if _, err := c.Write(appendFrameHeader(nil, frameHeader{kind: framePong})); err != nil {
				return err
			}
		default:
			return frameErrorf("kind %d on a connection of purpose %d", h.kind, peer.purpose)
		}
	}
}

// receive shows the messages to their replicas and hands them to dragonboat.
func (t *transport) receive(reqs []raftpb.Message, marks []ids.Offset, from ids.NodeID) {
	reqs = t.h.inbound(reqs, marks, from)
	if len(reqs) == 0 {
		return
	}
	t.deliver(raftpb.MessageBatch{
		Requests:      reqs,
		DeploymentId:  t.deployment,
		SourceAddress: from.RaftAddress(),
		BinVer:        raftio.TransportBinVersion,
	})
}
