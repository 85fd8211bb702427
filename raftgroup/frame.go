package raftgroup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// Preface opens every connection between nodes. Its first four bytes, read as the size of a Kafka frame, exceed 1 GiB, so that
// no Kafka request can begin like it; its last byte is the version of the frame format.
var Preface = [8]byte{'C', 'A', 'I', 'R', 'N', 'R', 'F', '2'}

// frameKind is the first byte of a frame.
type frameKind uint8

const (
	frameHello    frameKind = 1 // first frame of either side: who speaks to whom, and what for
	frameMessages frameKind = 2 // Raft messages; commands follow as payload
	frameChunk    frameKind = 3 // one chunk of a snapshot, with the start point of the receiver's log
	framePing     frameKind = 4
	framePong     frameKind = 5
	frameMarks    frameKind = 6 // high watermarks alone
)

// A frame is: kind (1), zero (3), length of meta (4, BE), length of payload (4, BE), meta, payload.
// The meta describes the payload, so that commands leave as they lie and are read into buffers of their own.
const (
	frameHeaderLen  = 12
	maxMetaBytes    = 32 << 20  // messages of 64 MiB of 100-byte entries need half of it
	maxPayloadBytes = 192 << 20 // dragonboat closes a batch at 64 MiB, after the message that crosses the limit
	maxEntryBytes   = 96 << 20
	maxChunkBytes   = 72 << 20
	maxHelloBytes   = 64
	maxMarkBytes    = 256 << 10

	payloadRunBytes  = 1 << 20 // consecutive commands of one message share a buffer up to this size
	firstReadBytes   = 2 << 20 // a longer item grows as its bytes arrive
	inlineCmdBytes   = 2 << 10 // shorter commands are gathered into one buffer: cheaper than an element of writev each
	pooledMetaBytes  = 256 << 10
	minRequestBytes  = 13 // encoded size of a request without entries
	minEntryRowBytes = 22 // encoded size of an entry without its command
)

var errFrame = errors.New("raftgroup: malformed frame")

func frameErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
}

type frameHeader struct {
	kind          frameKind
	meta, payload int
}

func appendFrameHeader(dst []byte, h frameHeader) []byte {
	dst = append(dst, byte(h.kind), 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.meta))
	return binary.BigEndian.AppendUint32(dst, uint32(h.payload))
}

// readFrameHeader reads and bounds the header of the next frame. io.EOF only between frames.
func readFrameHeader(r *bufio.Reader) (frameHeader, error) {
	var b [frameHeaderLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frameHeader{}, err
	}
	if b[1]|b[2]|b[3] != 0 {
		return frameHeader{}, frameErrorf("header % x", b)
	}
	meta, payload := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	h := frameHeader{kind: frameKind(b[0]), meta: int(meta), payload: int(payload)}
	ok := false
	switch h.kind {
	case frameHello:
		ok = meta > 0 && meta <= maxHelloBytes && payload == 0
	case frameMessages:
		ok = meta > 0 && meta <= maxMetaBytes && payload <= maxPayloadBytes
	case frameChunk:
		ok = meta == 0 && payload > 0 && payload <= maxChunkBytes
	case framePing, framePong:
		ok = meta == 0 && payload == 0
	case frameMarks:
		ok = meta > 0 && meta <= maxMarkBytes && payload == 0
	}
	if !ok {
		return h, frameErrorf("kind %d with %d bytes of meta and %d of payload", h.kind, meta, payload)
	}
	return h, nil
}

// readGrowing reads n bytes into buf (grown as needed), never allocating more than twice what has arrived, beyond firstReadBytes.
func readGrowing(r io.Reader, buf []byte, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		if len(buf) == cap(buf) {
			size := max(2*len(buf), min(n, firstReadBytes))
			grown := make([]byte, len(buf), min(size, n))
			copy(grown, buf)
			buf = grown
		}
		part := buf[len(buf):min(cap(buf), n)]
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, noEOF(err)
		}
		buf = buf[:len(buf)+len(part)]
	}
	return buf, nil
}

// noEOF makes the end of a connection inside a frame an error of its own.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// messageEncoder turns Raft messages into one frame. Its buffers are reused, the commands are not copied (save short ones).
type messageEncoder struct {
	meta   []byte
	inline []byte
	bufs   net.Buffers
}

// encode returns the frame as buffers that alias the messages' commands; valid until the next call. marks are the high watermarks that
// travel with the messages, one for each; nil: none does.
func (e *messageEncoder) encode(reqs []raftpb.Message, marks []ids.Offset) net.Buffers {
	m := append(e.meta[:0], make([]byte, frameHeaderLen)...)
	e.inline = e.inline[:0]
	e.bufs = append(e.bufs[:0], nil)
	m = binary.AppendUvarint(m, uint64(len(reqs)))
	run, payload := 0, 0
	for i := range reqs {
		mark := ids.Offset(0)
		if marks != nil {
			mark = marks[i]
		}
		m = appendRequest(m, &reqs[i], mark)
		for j := range reqs[i].Entries {
			ent := &reqs[i].Entries[j]
			m = appendEntryRow(m, ent)
			payload += len(ent.Cmd)
			if len(ent.Cmd) < inlineCmdBytes {
				e.inline = append(e.inline, ent.Cmd...)
				continue
			}
			if run < len(e.inline) {
				e.bufs = append(e.bufs, e.inline[run:])
				run = len(e.inline)
			}
			e.bufs = append(e.bufs, ent.Cmd)
		}
	}
	if run < len(e.inline) {
		e.bufs = append(e.bufs, e.inline[run:])
	}
	appendFrameHeader(m[:0], frameHeader{kind: frameMessages, meta: len(m) - frameHeaderLen, payload: payload})
	e.meta, e.bufs[0] = m, m
	return e.bufs
}

// release forgets the commands, so that an idle connection pins none.
func (e *messageEncoder) release() {
	clear(e.bufs[:cap(e.bufs)])
	if cap(e.meta) > pooledMetaBytes {
		e.meta = nil
	}
	if cap(e.inline) > pooledMetaBytes {
		e.inline = nil
	}
}

func appendRequest(m []byte, r *raftpb.Message, mark ids.Offset) []byte {
	reject := uint64(0)
	if r.Reject {
		reject = 1
	}
	for _, v := range [...]uint64{uint64(r.Type), r.To, r.From, r.ShardID, r.Term, r.LogTerm, r.LogIndex, r.Commit, reject, r.Hint, r.HintHigh, uint64(mark), uint64(len(r.Entries))} {
		m = binary.AppendUvarint(m, v)
	}
	return m
}

func appendEntryRow(m []byte, e *raftpb.Entry) []byte {
	m = binary.AppendUvarint(m, e.Term)
	m = binary.AppendUvarint(m, e.Index)
	m = append(m, byte(e.Type))
	m = binary.BigEndian.AppendUint64(m, e.Key) // random, as is the client id: a varint would be longer
	m = binary.BigEndian.AppendUint64(m, e.ClientID)
	m = binary.AppendUvarint(m, e.SeriesID)
	m = binary.AppendUvarint(m, e.RespondedTo)
	return binary.AppendUvarint(m, uint64(len(e.Cmd)))
}
