package raftgroup

import (
	"encoding/binary"
	"fmt"
	"net"
	"regexp"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine"
	"cairn/internal/ids"
)

// A chunk frame carries: length of the start point (uvarint, 0 for the metadata group), start point, raftpb.Chunk.
//
// A partition's snapshot is rewritten to stand at the log start of the sender: dragonboat streams at the applied index and takes the
// receiver's position from it before the content was recovered, so a snapshot that stood there would make a replica count as complete
// that holds nothing yet. The start point (index, term, offset and the state of the log there) is the engine's encoding; the receiver's
// engine has it before the snapshot record is saved. All that is retained then comes by ordinary appends.

// snapshotConn is an outgoing connection for one snapshot.
type snapshotConn struct {
	t     *transport
	c     net.Conn
	start *snapshotStart // of the first chunk; the same for the whole stream
}

type snapshotStart struct {
	at      engine.StartPoint
	encoded []byte
}

// Close implements raftio.ISnapshotConnection.
func (s *snapshotConn) Close() { s.t.forget(s.c, false) }

// SendChunk implements raftio.ISnapshotConnection.
func (s *snapshotConn) SendChunk(ck raftpb.Chunk) error {
	lr := s.t.h.replica(ids.ShardID(ck.ShardID))
	if lr == nil {
		return fmt.Errorf("snapshot of shard %d: %w", ck.ShardID, ErrClosed)
	}
	var start []byte
	if lr.group != nil {
		if s.start == nil {
			var err error
			if s.start, err = lr.group.snapshotStart(); err != nil {
				return err
			}
		}
		s.start.rewrite(&ck)
		start = s.start.encoded
	}
	frame, err := encodeChunk(&ck, start)
	if err != nil {
		return err
	}
	return s.t.write(s.c, net.Buffers{frame})
}

func (s *snapshotStart) rewrite(ck *raftpb.Chunk) {
	index := uint64(s.at.Index)
	ck.Index, ck.OnDiskIndex, ck.Term, ck.Membership = index, index, uint64(s.at.Term), s.at.Membership
	ck.Filepath = fmt.Sprintf("snapshot-%016X.gbsnap", index)
}

func encodeChunk(ck *raftpb.Chunk, start []byte) ([]byte, error) {
	b, err := ck.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode snapshot chunk: %w", err)
	}
	frame := make([]byte, frameHeaderLen, frameHeaderLen+binary.MaxVarintLen32+len(start)+len(b))
	frame = binary.AppendUvarint(frame, uint64(len(start)))
	frame = append(frame, start...)
	frame = append(frame, b...)
	n := len(frame) - frameHeaderLen
	if n > maxChunkBytes {
		return nil, frameErrorf("chunk of %d bytes", n)
	}
	appendFrameHeader(frame[:0], frameHeader{kind: frameChunk, payload: n})
	return frame, nil
}

var snapshotFile = regexp.MustCompile(`^snapshot-[0-9A-F]{16}\.gbsnap$`)

// decodeChunk decodes the payload of a chunk frame; both results alias it or are copies. What dragonboat's receiver would panic on, or
// what would reach outside its directory, is an error.
func decodeChunk(b []byte) (ck raftpb.Chunk, start []byte, err error) {
	defer func() { // the generated decoder slices by lengths it read
		if p := recover(); p != nil {
			err = frameErrorf("snapshot chunk: %v", p)
		}
	}()
	n, l := binary.Uvarint(b)
	if l <= 0 || n > uint64(len(b)-l) {
		return ck, nil, frameErrorf("start point of %d bytes in %d", n, len(b))
	}
	start, b = b[l:l+int(n)], b[l+int(n):]
	if err := ck.Unmarshal(b); err != nil {
		return ck, nil, frameErrorf("snapshot chunk: %v", err)
	}
	switch {
	case ck.ShardID == 0 || ck.ReplicaID == 0 || ck.From == 0 || ck.Index == 0 || ck.Membership.ConfigChangeId == 0 || len(ck.Membership.Addresses) == 0:
		return ck, nil, frameErrorf("snapshot chunk of shard %d at index %d", ck.ShardID, ck.Index)
	case ck.HasFileInfo || ck.Witness || ck.BinVer != raftio.TransportBinVersion:
		return ck, nil, frameErrorf("snapshot chunk of an unknown kind")
	case !snapshotFile.MatchString(baseName(ck.Filepath)):
		return ck, nil, frameErrorf("snapshot file %q", ck.Filepath)
	}
	return ck, start, nil
}

func baseName(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}

// receiveChunk hands a chunk to dragonboat, after the engine has learnt the start point that belongs to it.
func (t *transport) receiveChunk(b []byte) error {
	ck, start, err := decodeChunk(b)
	if err != nil {
		return err
	}
	lr := t.h.replica(ids.ShardID(ck.ShardID))
	if lr == nil || uint64(lr.self) != ck.ReplicaID {
		return fmt.Errorf("snapshot for replica %d of shard %d: %w", ck.ReplicaID, ck.ShardID, ErrNotMember)
	}
	if lr.group != nil {
		if err := t.h.cfg.Engine.ExpectSnapshot(lr.shard, lr.self, start); err != nil {
			return fmt.Errorf("start point of shard %d: %w", ck.ShardID, err)
		}
	}
	if ck.DeploymentId != t.deployment || !t.chunk(ck) {
		return fmt.Errorf("snapshot chunk %d of shard %d at index %d refused", ck.ChunkId, ck.ShardID, ck.Index)
	}
	return nil
}
