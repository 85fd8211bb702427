package records

import (
	"bytes"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions that are written, those of Kafka 4.3. All from 0 to 4 are read.
const (
	valueVersionMax     = 4
	offsetVersion       = 4
	offsetVersionExpiry = 1 // the only one that has an expiry timestamp
	groupVersion        = 3
)

// OffsetKey is whose committed offset a record tells.
type OffsetKey struct {
	Group     string
	Topic     string
	Partition int32
}

// Encode returns the key's bytes.
func (k OffsetKey) Encode() []byte {
	return (&kmsg.OffsetCommitKey{Version: KindOffset, Group: k.Group, Topic: k.Topic, Partition: k.Partition}).AppendTo(nil)
}

// DecodeOffsetKey reads a key of KindOffset or KindOffsetOld.
func DecodeOffsetKey(key []byte) (OffsetKey, error) {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return OffsetKey{}, fmt.Errorf("%w: key of an offset: %w", ErrMalformed, err)
	}
	return OffsetKey{k.Group, k.Topic, k.Partition}, nil
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1: not known
	Metadata    string
	Committed   int64    // ms since 1970
	Expires     int64    // ms since 1970, of old clients that ask for it; -1: as the broker is configured
	TopicID     [16]byte // zero: not known
}

// Encode returns the value's bytes.
func (o Offset) Encode() []byte {
	v := kmsg.OffsetCommitValue{
		Version: offsetVersion, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, CommitTimestamp: o.Committed, TopicID: o.TopicID,
	}
	if o.Expires >= 0 {
		v.Version, v.ExpireTimestamp = offsetVersionExpiry, o.Expires
	}
	return v.AppendTo(nil)
}

// DecodeOffset reads the value of an offset record.
func DecodeOffset(value []byte) (Offset, error) {
	if err := checkVersion("offset", value, valueVersionMax); err != nil {
		return Offset{}, err
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return Offset{}, fmt.Errorf("%w: offset: %w", ErrMalformed, err)
	}
	o := Offset{Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata, Committed: v.CommitTimestamp, Expires: -1, TopicID: v.TopicID}
	if v.Version < 3 {
		o.LeaderEpoch = -1
	}
	if v.Version == offsetVersionExpiry {
		o.Expires = v.ExpireTimestamp
	}
	return o, nil
}

// GroupKey returns the key of a classic group's record.
func GroupKey(group string) []byte {
	return (&kmsg.GroupMetadataKey{Version: KindGroup, Group: group}).AppendTo(nil)
}

// DecodeGroupKey reads a key of KindGroup.
func DecodeGroupKey(key []byte) (string, error) {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return "", fmt.Errorf("%w: key of a group: %w", ErrMalformed, err)
	}
	return k.Group, nil
}

// Group is what a classic group's record says.
type Group = kmsg.GroupMetadataValue

// GroupMember is one member of it.
type GroupMember = kmsg.GroupMetadataValueMember

// EncodeGroup returns the value's bytes.
func EncodeGroup(g Group) []byte {
	g.Version = groupVersion
	return g.AppendTo(nil)
}

// DecodeGroup reads the value of a classic group's record.
func DecodeGroup(value []byte) (Group, error) {
	if err := checkVersion("group", value, valueVersionMax); err != nil {
		return Group{}, err
	}
	var v Group
	if err := v.ReadFrom(value); err != nil {
		return Group{}, fmt.Errorf("%w: group: %w", ErrMalformed, err)
	}
	for i := range v.Members {
		m := &v.Members[i]
		m.Subscription, m.Assignment = bytes.Clone(m.Subscription), bytes.Clone(m.Assignment)
		if v.Version < 1 {
			m.RebalanceTimeoutMillis = m.SessionTimeoutMillis // as Kafka takes it
		}
	}
	return v, nil
}
