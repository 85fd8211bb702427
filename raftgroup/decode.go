package raftgroup

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// messageDecoder reads the frames of one inbound connection. Meta is read into a buffer that is reused. Commands are read into buffers
// that belong to the garbage collector: dragonboat keeps Cmd until the entry is applied and sent on. A buffer holds commands of one
// message only, so that a short command of one group never pins the long ones of another.
type messageDecoder struct {
	r    *bufio.Reader
	meta []byte
	// lens are the lengths of all commands of the frame, marks the high watermarks of its messages, in order.
	lens  []int
	marks []ids.Offset
}

// messages reads the rest of a frame of kind frameMessages. The messages are owned by the caller; the high watermark that came with
// each, 0 for none, is valid until the next call.
func (d *messageDecoder) messages(h frameHeader) ([]raftpb.Message, []ids.Offset, error) {
	meta, err := readGrowing(d.r, d.meta, h.meta)
	if err != nil {
		return nil, nil, err
	}
	reqs, lens, marks, err := decodeMeta(meta, d.lens[:0], d.marks[:0], h.payload)
	if cap(meta) <= pooledMetaBytes {
		d.meta = meta
	} else {
		d.meta = nil
	}
	d.lens = lens[:0]
	if cap(lens)*8 > pooledMetaBytes {
		d.lens = nil
	}
	d.marks = marks[:0]
	if cap(marks)*8 > pooledMetaBytes {
		d.marks = nil
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range reqs {
		n := len(reqs[i].Entries)
		if err := d.commands(reqs[i].Entries, lens[:n]); err != nil {
			return nil, nil, err
		}
		lens = lens[n:]
		if err := checkCommands(&reqs[i]); err != nil {
			return nil, nil, err
		}
	}
	return reqs, marks, nil
}

// commands reads the commands of one message.
func (d *messageDecoder) commands(entries []raftpb.Entry, lens []int) error {
	for len(entries) > 0 {
		n, size := 1, lens[0]
		for n < len(entries) && size+lens[n] <= payloadRunBytes {
			size += lens[n]
			n++
		}
		if size > 0 {
			buf, err := readGrowing(d.r, nil, size)
			if err != nil {
				return err
			}
			for i := range n {
				if l := lens[i]; l > 0 {
					entries[i].Cmd, buf = buf[:l:l], buf[l:]
				}
			}
		}
		entries, lens = entries[n:], lens[n:]
	}
	return nil
}

// metaReader consumes varints; ok turns false at the first one that is not there.
type metaReader struct {
	b  []byte
	ok bool
}

func (m *metaReader) uvarint() uint64 {
	v, n := binary.Uvarint(m.b)
	if n <= 0 {
		m.b, m.ok = nil, false
		return 0
	}
	m.b = m.b[n:]
	return v
}

func (m *metaReader) fixed64() uint64 {
	if len(m.b) < 8 {
		m.b, m.ok = nil, false
		return 0
	}
	v := binary.BigEndian.Uint64(m.b)
	m.b = m.b[8:]
	return v
}

// mark reads a high watermark.
func (m *metaReader) mark() ids.Offset {
	v := m.uvarint()
	if v > math.MaxInt64 {
		m.b, m.ok = nil, false
		return 0
	}
	return ids.Offset(v)
}

func (m *metaReader) byte() byte {
	if len(m.b) == 0 {
		m.ok = false
		return 0
	}
	v := m.b[0]
	m.b = m.b[1:]
	return v
}

// decodeMeta decodes the messages without their commands and appends the commands' lengths to lens and the messages' high watermarks to
// marks. Nothing is allocated that the
// length of the meta does not justify. The sum of the lengths is exactly payload.
func decodeMeta(meta []byte, lens []int, marks []ids.Offset, payload int) ([]raftpb.Message, []int, []ids.Offset, error) {
	m := metaReader{b: meta, ok: true}
	n := m.uvarint()
	if !m.ok || n == 0 || n > uint64(len(m.b)/minRequestBytes) {
		return nil, lens, marks, frameErrorf("%d messages in %d bytes", n, len(meta))
	}
	reqs := make([]raftpb.Message, n)
	for i := range reqs {
		entries, mark, err := decodeRequest(&m, &reqs[i])
		if err != nil {
			return nil, lens, marks, err
		}
		marks = append(marks, mark)
		if entries == 0 {
			continue
		}
		reqs[i].Entries = make([]raftpb.Entry, entries)
		for j := range reqs[i].Entries {
			l := decodeEntryRow(&m, &reqs[i].Entries[j])
			if !m.ok || l > uint64(payload) || l > maxEntryBytes {
				return nil, lens, marks, frameErrorf("command of %d bytes, %d left", l, payload)
			}
			payload -= int(l)
			lens = append(lens, int(l))
		}
	}
	if len(m.b) != 0 || payload != 0 {
		return nil, lens, marks, frameErrorf("%d bytes of meta and %d of payload too many", len(m.b), payload)
	}
	return reqs, lens, marks, nil
}

func decodeRequest(m *metaReader, r *raftpb.Message) (entries uint64, mark ids.Offset, err error) {
	kind := m.uvarint()
	r.To, r.From, r.ShardID, r.Term = m.uvarint(), m.uvarint(), m.uvarint(), m.uvarint()
	r.LogTerm, r.LogIndex, r.Commit = m.uvarint(), m.uvarint(), m.uvarint()
	reject := m.uvarint()
	r.Hint, r.HintHigh = m.uvarint(), m.uvarint()
	mark = m.mark()
	entries = m.uvarint()
	if !m.ok || kind > uint64(raftpb.LogQuery) || reject > 1 {
		return 0, 0, frameErrorf("message of type %d", kind)
	}
	r.Type, r.Reject = raftpb.MessageType(kind), reject == 1
	if !fromPeers(r.Type) || r.To == 0 || r.From == 0 || r.ShardID == 0 {
		return 0, 0, frameErrorf("%s from replica %d to %d of shard %d", r.Type, r.From, r.To, r.ShardID)
	}
	carries := r.Type == raftpb.Replicate || r.Type == raftpb.Propose
	if entries > 0 && !carries || entries > uint64(len(m.b)/minEntryRowBytes) {
		return 0, 0, frameErrorf("%s with %d entries", r.Type, entries)
	}
	if mark > 0 && !carriesMark(r.Type) {
		return 0, 0, frameErrorf("%s with a high watermark", r.Type)
	}
	return entries, mark, nil
}

func decodeEntryRow(m *metaReader, e *raftpb.Entry) (cmdLen uint64) {
	e.Term, e.Index = m.uvarint(), m.uvarint()
	e.Type = raftpb.EntryType(m.byte())
	e.Key, e.ClientID = m.fixed64(), m.fixed64()
	e.SeriesID, e.RespondedTo = m.uvarint(), m.uvarint()
	return m.uvarint()
}

// fromPeers reports whether a message of this type may come from another node; dragonboat panics on its local ones.
// Snapshots arrive as chunks.
func fromPeers(t raftpb.MessageType) bool {
	switch t {
	case raftpb.NoOP, raftpb.Propose, raftpb.Replicate, raftpb.ReplicateResp, raftpb.RequestVote, raftpb.RequestVoteResp,
		raftpb.Heartbeat, raftpb.HeartbeatResp, raftpb.ReadIndex, raftpb.ReadIndexResp, raftpb.SnapshotReceived,
		raftpb.LeaderTransfer, raftpb.TimeoutNow, raftpb.RequestPreVote, raftpb.RequestPreVoteResp:
		return true
	}
	return false
}

// checkCommands refuses entries that dragonboat would panic on, and gaps in what a leader sends.
func checkCommands(r *raftpb.Message) error {
	for i := range r.Entries {
		e := &r.Entries[i]
		switch e.Type {
		case raftpb.ApplicationEntry:
		case raftpb.EncodedEntry:
			if len(e.Cmd) < 1 || e.Cmd[0] != 0 {
				return frameErrorf("encoded entry %d of shard %d without a plain payload", e.Index, r.ShardID)
			}
		case raftpb.ConfigChangeEntry:
			var cc raftpb.ConfigChange
			if err := cc.Unmarshal(e.Cmd); err != nil {
				return frameErrorf("membership entry %d of shard %d: %v", e.Index, r.ShardID, err)
			}
		default:
			return frameErrorf("entry %d of shard %d has type %d", e.Index, r.ShardID, e.Type)
		}
		if r.Type == raftpb.Replicate && e.Index != r.LogIndex+1+uint64(i) {
			return frameErrorf("entry %d of shard %d follows %d", e.Index, r.ShardID, r.LogIndex+uint64(i))
		}
	}
	return nil
}

// readPayload reads a payload that is handled as a whole (a snapshot chunk). Owned by the caller.
func readPayload(r io.Reader, h frameHeader) ([]byte, error) {
	return readGrowing(r, nil, h.payload)
}
