package raftgroup

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/lni/dragonboat/v4/raftio"

	"cairn/internal/ids"
)

// purpose says what a connection carries; each kind of traffic has connections of its own, so that pings never wait behind data.
type purpose uint8

const (
	purposeMessages purpose = 1
	purposeSnapshot purpose = 2
	purposeWatch    purpose = 3
)

const formatVersion = 2

// hello is exchanged at the start of a connection, the same frame in both directions. An answer proves that the process at the other
// end runs: the kernel of a frozen one still accepts connections.
type hello struct {
	from, to ids.NodeID
	purpose  purpose
	process  uint64 // random, of one Host: another value means that the peer was restarted
}

func appendHello(dst []byte, h hello) []byte {
	meta := []byte{formatVersion, byte(h.purpose)}
	meta = binary.AppendUvarint(meta, uint64(raftio.TransportBinVersion))
	meta = binary.AppendVarint(meta, int64(h.from))
	meta = binary.AppendVarint(meta, int64(h.to))
	meta = binary.BigEndian.AppendUint64(meta, h.process)
	dst = appendFrameHeader(dst, frameHeader{kind: frameHello, meta: len(meta)})
	return append(dst, meta...)
}

func readHello(r *bufio.Reader) (hello, error) {
	fh, err := readFrameHeader(r)
	if err != nil {
		return hello{}, noEOF(err)
	}
	if fh.kind != frameHello {
		return hello{}, frameErrorf("kind %d before the hello", fh.kind)
	}
	meta := make([]byte, fh.meta)
	if _, err := io.ReadFull(r, meta); err != nil {
		return hello{}, noEOF(err)
	}
	return decodeHello(meta)
}

func decodeHello(meta []byte) (hello, error) {
	if len(meta) < 2 || meta[0] != formatVersion {
		return hello{}, frameErrorf("hello % x", meta)
	}
	h := hello{purpose: purpose(meta[1])}
	m := metaReader{b: meta[2:], ok: true}
	if v := m.uvarint(); m.ok && v != uint64(raftio.TransportBinVersion) {
		return hello{}, frameErrorf("hello of Raft message version %d, want %d", v, raftio.TransportBinVersion)
	}
	nodes := [2]ids.NodeID{}
	for i := range nodes {
		v, n := binary.Varint(m.b)
		if n <= 0 || v < 0 || v > 1<<31-1 {
			return hello{}, frameErrorf("hello % x", meta)
		}
		nodes[i], m.b = ids.NodeID(v), m.b[n:]
	}
	h.process = m.fixed64()
	if !m.ok || len(m.b) != 0 || h.purpose < purposeMessages || h.purpose > purposeWatch {
		return hello{}, frameErrorf("hello % x", meta)
	}
	h.from, h.to = nodes[0], nodes[1]
	return h, nil
}

func (h hello) String() string {
	return fmt.Sprintf("node %d to node %d, purpose %d", h.from, h.to, h.purpose)
}
