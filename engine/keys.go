package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"cairn/internal/ids"
)

// rowKind is the first byte of every key: it says what the rest of the key and the value are. The values are
// stored. docs/formats.md has the table of all rows.
type rowKind byte

const (
	// Keyed by partition and offset: they outlive the Raft groups that wrote them.
	rowData       rowKind = 'd' // partition | base offset: the record batch as a client fetches it
	rowTime       rowKind = 't' // partition | base offset: running maximum of timestamps, sparse
	rowQuarantine rowKind = 'q' // partition | leader epoch | base offset: a replaced batch
	rowAborted    rowKind = 'a' // partition | offset of the marker: an aborted transaction

	// Keyed by partition alone.
	rowOwner      rowKind = 'o' // who may write the partition
	rowMeta       rowKind = 'm' // log start, epochs
	rowCheckpoint rowKind = 'c' // applied index, high watermark
	rowProducers  rowKind = 'r' // producer-state snapshot
	rowStartState rowKind = 'u' // producer state where the Raft log starts
	rowCompaction rowKind = 'k' // how far the log is compacted

	// Keyed by shard and replica, so that a replica that comes back under a new id never sees the old id's rows.
	rowEntry     rowKind = 'e' // shard | replica | Raft index
	rowState     rowKind = 's' // hard state
	rowStart     rowKind = 'l' // where the Raft log starts
	rowBootstrap rowKind = 'b' // initial members
	rowSnapshot  rowKind = 'p' // snapshot record
)

const (
	dataKeyLen       = 1 + 8 + 8
	timeKeyLen       = dataKeyLen
	quarantineKeyLen = 1 + 8 + 4 + 8
	entryKeyLen      = 1 + 8 + 8 + 8
	replicaKeyLen    = 1 + 8 + 8
	partitionKeyLen  = 1 + 8
)

// errBadKey is wrapped by the errors of all key parsers.
var errBadKey = errors.New("malformed key")

func appendKey(dst []byte, kind rowKind, parts ...uint64) []byte {
	dst = append(dst, byte(kind))
	for _, part := range parts {
		dst = binary.BigEndian.AppendUint64(dst, part)
	}
	return dst
}

func appendDataKey(dst []byte, p ids.PartitionID, base ids.Offset) []byte {
	return appendKey(dst, rowData, uint64(p), uint64(base))
}

func appendTimeKey(dst []byte, p ids.PartitionID, base ids.Offset) []byte {
	return appendKey(dst, rowTime, uint64(p), uint64(base))
}

// appendQuarantineKey keeps epochs in order, NoEpoch (-1) first: the sign bit is flipped.
func appendQuarantineKey(dst []byte, p ids.PartitionID, epoch ids.LeaderEpoch, base ids.Offset) []byte {
	dst = appendKey(dst, rowQuarantine, uint64(p))
	dst = binary.BigEndian.AppendUint32(dst, uint32(epoch)^1<<31)
	return binary.BigEndian.AppendUint64(dst, uint64(base))
}

func appendEntryKey(dst []byte, s ids.ShardID, r ids.ReplicaID, i ids.RaftIndex) []byte {
	return appendKey(dst, rowEntry, uint64(s), uint64(r), uint64(i))
}

// appendReplicaKey is for rowState, rowStart, rowBootstrap and rowSnapshot.
func appendReplicaKey(dst []byte, kind rowKind, s ids.ShardID, r ids.ReplicaID) []byte {
	return appendKey(dst, kind, uint64(s), uint64(r))
}

func appendAbortedKey(dst []byte, p ids.PartitionID, marker ids.Offset) []byte {
	return appendKey(dst, rowAborted, uint64(p), uint64(marker))
}

// appendPartitionKey is for rowOwner, rowMeta, rowCheckpoint, rowProducers, rowStartState and rowCompaction.
func appendPartitionKey(dst []byte, kind rowKind, p ids.PartitionID) []byte {
	return appendKey(dst, kind, uint64(p))
}

// parseKey checks kind and length and returns what follows the kind byte.
func parseKey(k []byte, length int, kinds ...rowKind) ([]byte, error) {
	if len(k) != length {
		return nil, fmt.Errorf("%w: %x has %d bytes, not %d", errBadKey, k, len(k), length)
	}
	for _, kind := range kinds {
		if rowKind(k[0]) == kind {
			return k[1:], nil
		}
	}
	return nil, fmt.Errorf("%w: %x is none of the kinds %q", errBadKey, k, append([]rowKind(nil), kinds...)) // a copy: kinds stays on the stack
}

func parseOffset(k, at []byte) (ids.Offset, error) {
	o := ids.Offset(binary.BigEndian.Uint64(at))
	if o < 0 {
		return 0, fmt.Errorf("%w: %x has a negative offset", errBadKey, k)
	}
	return o, nil
}

func parseDataKey(k []byte) (p ids.PartitionID, base ids.Offset, err error) {
	return parseOffsetKey(k, rowData)
}

func parseTimeKey(k []byte) (p ids.PartitionID, base ids.Offset, err error) {
	return parseOffsetKey(k, rowTime)
}

func parseAbortedKey(k []byte) (p ids.PartitionID, marker ids.Offset, err error) {
	return parseOffsetKey(k, rowAborted)
}

func parseOffsetKey(k []byte, kind rowKind) (p ids.PartitionID, base ids.Offset, err error) {
	b, err := parseKey(k, dataKeyLen, kind)
	if err != nil {
		return 0, 0, err
	}
	base, err = parseOffset(k, b[8:])
	return ids.PartitionID(binary.BigEndian.Uint64(b)), base, err
}

func parseQuarantineKey(k []byte) (p ids.PartitionID, epoch ids.LeaderEpoch, base ids.Offset, err error) {
	b, err := parseKey(k, quarantineKeyLen, rowQuarantine)
	if err != nil {
		return 0, 0, 0, err
	}
	base, err = parseOffset(k, b[12:])
	return ids.PartitionID(binary.BigEndian.Uint64(b)), ids.LeaderEpoch(binary.BigEndian.Uint32(b[8:]) ^ 1<<31), base, err
}

func parseEntryKey(k []byte) (s ids.ShardID, r ids.ReplicaID, i ids.RaftIndex, err error) {
	b, err := parseKey(k, entryKeyLen, rowEntry)
	if err != nil {
		return 0, 0, 0, err
	}
	return ids.ShardID(binary.BigEndian.Uint64(b)), ids.ReplicaID(binary.BigEndian.Uint64(b[8:])), ids.RaftIndex(binary.BigEndian.Uint64(b[16:])), nil
}

func parseReplicaKey(k []byte) (kind rowKind, s ids.ShardID, r ids.ReplicaID, err error) {
	b, err := parseKey(k, replicaKeyLen, rowState, rowStart, rowBootstrap, rowSnapshot)
	if err != nil {
		return 0, 0, 0, err
	}
	return rowKind(k[0]), ids.ShardID(binary.BigEndian.Uint64(b)), ids.ReplicaID(binary.BigEndian.Uint64(b[8:])), nil
}

func parsePartitionKey(k []byte) (kind rowKind, p ids.PartitionID, err error) {
	b, err := parseKey(k, partitionKeyLen, rowOwner, rowMeta, rowCheckpoint, rowProducers, rowStartState, rowCompaction)
	if err != nil {
		return 0, 0, err
	}
	return rowKind(k[0]), ids.PartitionID(binary.BigEndian.Uint64(b)), nil
}

// Bounds are half-open, [lo, hi), as Pebble takes them. Ids are below 2^64-1, so hi never wraps.

func dataBounds(p ids.PartitionID, from, to ids.Offset) (lo, hi []byte) {
	return appendDataKey(nil, p, from), appendDataKey(nil, p, to)
}

func timeBounds(p ids.PartitionID, from, to ids.Offset) (lo, hi []byte) {
	return appendTimeKey(nil, p, from), appendTimeKey(nil, p, to)
}

func abortedBounds(p ids.PartitionID, from, to ids.Offset) (lo, hi []byte) {
	return appendAbortedKey(nil, p, from), appendAbortedKey(nil, p, to)
}

func entryBounds(s ids.ShardID, r ids.ReplicaID, from, to ids.RaftIndex) (lo, hi []byte) {
	return appendEntryKey(nil, s, r, from), appendEntryKey(nil, s, r, to)
}

// replicaEntryBounds cover all entry rows of a replica.
func replicaEntryBounds(s ids.ShardID, r ids.ReplicaID) (lo, hi []byte) {
	return appendKey(nil, rowEntry, uint64(s), uint64(r)), appendKey(nil, rowEntry, uint64(s), uint64(r)+1)
}

// partitionBounds cover all rows of a kind whose key begins with the partition.
func partitionBounds(kind rowKind, p ids.PartitionID) (lo, hi []byte) {
	return appendKey(nil, kind, uint64(p)), appendKey(nil, kind, uint64(p)+1)
}

// kindBounds cover all rows of a kind.
func kindBounds(kind rowKind) (lo, hi []byte) {
	return []byte{byte(kind)}, []byte{byte(kind) + 1}
}
