package records

import (
	"fmt"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kbin"
)

// The kinds of records of consumer groups (KIP-848).
const (
	KindConsumerGroup      = 3
	KindPartitionMetadata  = 4 // of brokers before 4.1; read only to be deleted
	KindConsumerMember     = 5
	KindTargetAssignment   = 6
	KindTargetMember       = 7
	KindCurrentAssignment  = 8
	KindRegularExpression  = 16
	consumerValueVersion   = 0 // of all values
	tagMetadataHash        = 0
	tagClassicMember       = 0
	tagAssignmentTimestamp = 0
	tagAssignmentEpochs    = 0
)

// ConsumerKey is the key of a record of a consumer group.
type ConsumerKey struct {
	Kind  int16
	Group string
	Name  string // the member id of kinds 5, 7 and 8, the expression of kind 16; else empty
}

// named says whether keys of the kind have a name.
func named(kind int16) bool {
	switch kind {
	case KindConsumerMember, KindTargetMember, KindCurrentAssignment, KindRegularExpression:
		return true
	}
	return false
}

// IsConsumer says whether records of the kind belong to consumer groups.
func IsConsumer(kind int16) bool {
	return kind >= KindConsumerGroup && kind <= KindCurrentAssignment || kind == KindRegularExpression
}

// Encode returns the key's bytes.
func (k ConsumerKey) Encode() []byte {
	dst := kbin.AppendInt16(nil, k.Kind)
	dst = kbin.AppendString(dst, k.Group)
	if named(k.Kind) {
		dst = kbin.AppendString(dst, k.Name)
	}
	return dst
}

// DecodeConsumerKey reads a key for which IsConsumer holds.
func DecodeConsumerKey(key []byte) (ConsumerKey, error) {
	r := kbin.Reader{Src: key}
	k := ConsumerKey{Kind: r.Int16(), Group: r.String()}
	if named(k.Kind) {
		k.Name = r.String()
	}
	if !IsConsumer(k.Kind) {
		return ConsumerKey{}, fmt.Errorf("%w: key of kind %d", ErrUnknown, k.Kind)
	}
	if err := finish("key", &r); err != nil {
		return ConsumerKey{}, err
	}
	return k, nil
}

// ConsumerGroup is the group's own record.
type ConsumerGroup struct {
	Epoch        int32
	MetadataHash int64 // of the topics that it subscribes to; 0: none
}

// Encode returns the value's bytes.
func (g ConsumerGroup) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = kbin.AppendInt32(dst, g.Epoch)
	return appendTag(dst, g.MetadataHash != 0, tagMetadataHash, kbin.AppendInt64(nil, g.MetadataHash))
}

// DecodeConsumerGroup reads a value of KindConsumerGroup.
func DecodeConsumerGroup(value []byte) (g ConsumerGroup, err error) {
	return g, decode("consumer group", value, func(r *kbin.Reader) {
		g.Epoch = r.Int32()
		readTags(r, func(tag uint32, r *kbin.Reader) {
			if tag == tagMetadataHash {
				g.MetadataHash = r.Int64()
			}
		})
	})
}

// TargetAssignment says of which group epoch the target assignment is.
type TargetAssignment struct {
	Epoch     int32
	Timestamp int64 // when it was made, ms since 1970; 0: not known
}

// Encode returns the value's bytes.
func (t TargetAssignment) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = kbin.AppendInt32(dst, t.Epoch)
	return appendTag(dst, t.Timestamp != 0, tagAssignmentTimestamp, kbin.AppendInt64(nil, t.Timestamp))
}

// DecodeTargetAssignment reads a value of KindTargetAssignment.
func DecodeTargetAssignment(value []byte) (t TargetAssignment, err error) {
	return t, decode("target assignment", value, func(r *kbin.Reader) {
		t.Epoch = r.Int32()
		readTags(r, func(tag uint32, r *kbin.Reader) {
			if tag == tagAssignmentTimestamp {
				t.Timestamp = r.Int64()
			}
		})
	})
}

// TargetMember is one member's part of the target assignment.
type TargetMember struct{ Partitions map[ids.UUID][]int32 }

// Encode returns the value's bytes.
func (t TargetMember) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
	for _, id := range sortedIDs(t.Partitions) {
		dst = kbin.AppendUuid(dst, id)
		dst = appendInts(dst, t.Partitions[id])
		dst = kbin.AppendUvarint(dst, 0)
	}
	return kbin.AppendUvarint(dst, 0)
}

// DecodeTargetMember reads a value of KindTargetMember.
func DecodeTargetMember(value []byte) (t TargetMember, err error) {
	t.Partitions = map[ids.UUID][]int32{}
	return t, decode("target assignment of a member", value, func(r *kbin.Reader) {
		for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
			id := ids.UUID(r.Uuid())
			t.Partitions[id] = readInts(r)
			readTags(r, nil)
		}
		readTags(r, nil)
	})
}

// CurrentAssignment is what a member has, and how far it is on its way to the target.
type CurrentAssignment struct {
	Epoch    int32
	Previous int32
	State    int8
	// Assigned and Revoking are topic, partition and the epoch at which the member got it.
	Assigned map[ids.UUID]map[int32]int32
	Revoking map[ids.UUID]map[int32]int32
}

// Encode returns the value's bytes.
func (c CurrentAssignment) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = kbin.AppendInt32(dst, c.Epoch)
	dst = kbin.AppendInt32(dst, c.Previous)
	dst = kbin.AppendInt8(dst, c.State)
	dst = appendEpochs(dst, c.Assigned)
	dst = appendEpochs(dst, c.Revoking)
	return kbin.AppendUvarint(dst, 0)
}

// DecodeCurrentAssignment reads a value of KindCurrentAssignment. Where an older broker has written no epochs, the
// member's own takes their place.
func DecodeCurrentAssignment(value []byte) (c CurrentAssignment, err error) {
	return c, decode("current assignment of a member", value, func(r *kbin.Reader) {
		c.Epoch, c.Previous, c.State = r.Int32(), r.Int32(), r.Int8()
		c.Assigned = readEpochs(r, c.Epoch)
		c.Revoking = readEpochs(r, c.Epoch)
		readTags(r, nil)
	})
}

// RegularExpression is what topics an expression stands for.
type RegularExpression struct {
	Topics    []string
	Version   int64 // of the metadata that it was resolved with
	Timestamp int64 // when, ms since 1970
}

// Encode returns the value's bytes.
func (e RegularExpression) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = appendStrings(dst, e.Topics)
	dst = kbin.AppendInt64(dst, e.Version)
	dst = kbin.AppendInt64(dst, e.Timestamp)
	return kbin.AppendUvarint(dst, 0)
}

// DecodeRegularExpression reads a value of KindRegularExpression.
func DecodeRegularExpression(value []byte) (e RegularExpression, err error) {
	return e, decode("regular expression", value, func(r *kbin.Reader) {
		e.Topics = readStrings(r)
		e.Version, e.Timestamp = r.Int64(), r.Int64()
		readTags(r, nil)
	})
}
