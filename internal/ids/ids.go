// Package ids holds the small value types that every layer of cairn shares, so that a Raft index can never
// be passed for a Kafka offset. It has no behaviour beyond formatting and imports nothing of cairn.
package ids

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Offset is a Kafka record offset. End offsets ("next", "end", "limit") are exclusive, "last" ones inclusive.
type Offset int64

// LeaderEpoch is Kafka's leader epoch of a partition. It only grows, across Raft generations too. NoEpoch means unknown.
type LeaderEpoch int32

// NoEpoch is the leader epoch "unknown" of Kafka's protocol.
const NoEpoch LeaderEpoch = -1

// NoOffset is the offset "unknown" of Kafka's protocol.
const NoOffset Offset = -1

// RaftIndex is a position in the log of one Raft group (one generation of a partition). Index 0 precedes the first entry.
type RaftIndex uint64

// Term is a Raft term.
type Term uint64

// ShardID names a Raft group: one generation of one partition, or the metadata group (MetadataShard). Never reused.
type ShardID uint64

// ReplicaID names one member of a Raft group. Given out by the controller, never reused.
type ReplicaID uint64

// MetadataShard is the Raft group of the controller.
const MetadataShard ShardID = 1

// PartitionID is the storage key of a partition: given out by the controller, never reused, the same on all replicas.
type PartitionID uint64

// NodeID is Kafka's node.id. NoNode stands for "none".
type NodeID int32

// NoNode is the node id "none" of Kafka's protocol (a partition without leader).
const NoNode NodeID = -1

// RaftAddress is the name under which Raft knows the node. It never changes; only the transport turns it into host and port.
func (n NodeID) RaftAddress() string { return "node-" + strconv.Itoa(int(n)) }

// ParseRaftAddress is the inverse of NodeID.RaftAddress.
func ParseRaftAddress(s string) (NodeID, error) {
	num, ok := strings.CutPrefix(s, "node-")
	n, err := strconv.ParseInt(num, 10, 32)
	if !ok || err != nil || n < 0 {
		return NoNode, fmt.Errorf("raft address %q: want node-ID", s)
	}
	return NodeID(n), nil
}

// UUID is a 128-bit id of a topic, cluster or directory, in the byte order of Kafka's protocol.
type UUID [16]byte

// String gives Kafka's text form: 22 characters of unpadded URL-safe base64.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u is Kafka's "no id".
func (u UUID) IsZero() bool { return u == UUID{} }

// ParseUUID reads Kafka's text form.
func ParseUUID(s string) (u UUID, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("id %q: want 22 characters of URL-safe base64", s)
	}
	return UUID(b), nil
}

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUUID(string(b))
	return err
}
