package records

import "github.com/twmb/franz-go/pkg/kbin"

// ConsumerMember is who a member of a consumer group is and what it wants.
type ConsumerMember struct {
	InstanceID             *string
	RackID                 *string
	ClientID               string
	ClientHost             string
	Topics                 []string // subscribed by name
	Regex                  *string  // subscribed by expression
	RebalanceTimeoutMillis int32
	Assignor               *string
	Classic                *ClassicMember // of a member that speaks the classic protocol; nil: it does not
}

// ClassicMember is what a member of the classic protocol said when it joined.
type ClassicMember struct {
	SessionTimeoutMillis int32
	Protocols            []ClassicProtocol // in the order of its preference
}

// ClassicProtocol is one of its assignors, with the subscription as the client encoded it.
type ClassicProtocol struct {
	Name     string
	Metadata []byte
}

// Encode returns the value's bytes.
func (m ConsumerMember) Encode() []byte {
	dst := kbin.AppendInt16(nil, consumerValueVersion)
	dst = kbin.AppendCompactNullableString(dst, m.InstanceID)
	dst = kbin.AppendCompactNullableString(dst, m.RackID)
	dst = kbin.AppendCompactString(dst, m.ClientID)
	dst = kbin.AppendCompactString(dst, m.ClientHost)
	dst = appendStrings(dst, m.Topics)
	dst = kbin.AppendCompactNullableString(dst, m.Regex)
	dst = kbin.AppendInt32(dst, m.RebalanceTimeoutMillis)
	dst = kbin.AppendCompactNullableString(dst, m.Assignor)
	return appendTag(dst, m.Classic != nil, tagClassicMember, m.Classic.encode())
}

// encode is the form of a nullable struct: 1, its fields, its tags.
func (c *ClassicMember) encode() []byte {
	if c == nil {
		return nil
	}
	dst := kbin.AppendInt8(nil, 1)
	dst = kbin.AppendInt32(dst, c.SessionTimeoutMillis)
	dst = kbin.AppendCompactArrayLen(dst, len(c.Protocols))
	for _, p := range c.Protocols {
		dst = kbin.AppendCompactString(dst, p.Name)
		dst = kbin.AppendCompactBytes(dst, p.Metadata)
		dst = kbin.AppendUvarint(dst, 0)
	}
	return kbin.AppendUvarint(dst, 0)
}

// DecodeConsumerMember reads a value of KindConsumerMember.
func DecodeConsumerMember(value []byte) (m ConsumerMember, err error) {
	return m, decode("member of a consumer group", value, func(r *kbin.Reader) {
		m.InstanceID, m.RackID = r.CompactNullableString(), r.CompactNullableString()
		m.ClientID, m.ClientHost = r.CompactString(), r.CompactString()
		m.Topics = readStrings(r)
		m.Regex = r.CompactNullableString()
		m.RebalanceTimeoutMillis = r.Int32()
		m.Assignor = r.CompactNullableString()
		readTags(r, func(tag uint32, r *kbin.Reader) {
			if tag == tagClassicMember {
				m.Classic = readClassicMember(r)
			}
		})
	})
}

func readClassicMember(r *kbin.Reader) *ClassicMember {
	if r.Int8() < 0 {
		return nil
	}
	c := &ClassicMember{SessionTimeoutMillis: r.Int32()}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		p := ClassicProtocol{Name: r.CompactString(), Metadata: append([]byte{}, r.CompactBytes()...)}
		readTags(r, nil)
		c.Protocols = append(c.Protocols, p)
	}
	readTags(r, nil)
	return c
}
