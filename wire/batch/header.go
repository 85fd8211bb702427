package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Sizes and positions within a batch. All integers of the header are big-endian.
const (
	HeaderLen = 61 // bytes in front of the first record
	Magic     = 2  // the only format version that exists here

	// LengthOverhead is what a batch has in front of what its Length field counts: base offset and the field itself.
	LengthOverhead = 12

	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the CRC covers everything from here on
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posRecordCount     = 57

	minLength = HeaderLen - LengthOverhead
)

// Bits of Header.Attributes.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
	attrDeleteHorizon = 1 << 6
)

// NoTimestamp marks a record or batch without timestamp; NoProducerID a batch of a producer without identity;
// NoSequence is the base sequence of such a batch.
const (
	NoTimestamp  int64 = -1
	NoProducerID int64 = -1
	NoSequence   int32 = -1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says what the timestamps of a batch mean.
type TimestampType int8

// The two timestamp types: set by the producer, or by the leader when it appended the batch.
const (
	CreateTime TimestampType = iota
	LogAppendTime
)

// String gives the name that the topic config message.timestamp.type uses.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Header is the decoded header of a batch. Timestamps are in milliseconds since 1970. Offset and timestamp deltas
// of the records count from BaseOffset and BaseTimestamp.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes behind this field; the whole batch has LengthOverhead more
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32 // CRC-32C of everything behind this field
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64 // NoProducerID: none
	ProducerEpoch   int16
	BaseSequence    int32
	RecordCount     int32
}

// DecodeHeader reads the fields without judging them. It panics when b is shorter than HeaderLen.
func DecodeHeader(b []byte) Header {
	_ = b[HeaderLen-1]
	return Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(b[posBaseOffset:])),
		Length:          int32(binary.BigEndian.Uint32(b[posLength:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])),
		Magic:           int8(b[posMagic]),
		CRC:             binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[posProducerID:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[posBaseSequence:])),
		RecordCount:     int32(binary.BigEndian.Uint32(b[posRecordCount:])),
	}
}

// ParseHeader reads the header at the start of b and checks that it can be one: enough bytes, magic 2, a length
// that holds the header, no negative count or last offset delta. It does not need the records to be in b and does not check the CRC.
// Errors wrap ErrCorruptMessage, or ErrInvalidRecord for another magic.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes are no batch header", ErrCorruptMessage, len(b))
	}
	h := DecodeHeader(b)
	switch {
	case h.Magic < 0 || h.Magic > Magic:
		return h, fmt.Errorf("%w: magic %d", ErrCorruptMessage, h.Magic)
	case h.Magic != Magic:
		return h, fmt.Errorf("%w: magic %d, only %d is supported", ErrInvalidRecord, h.Magic, Magic)
	case h.Length < minLength:
		return h, fmt.Errorf("%w: batch length %d", ErrCorruptMessage, h.Length)
	case h.LastOffsetDelta < 0:
		return h, fmt.Errorf("%w: last offset delta %d", ErrInvalidRecord, h.LastOffsetDelta)
	case h.RecordCount < 0:
		return h, fmt.Errorf("%w: record count %d", ErrInvalidRecord, h.RecordCount)
	}
	return h, nil
}

// Split cuts the first batch off b, a concatenation of batches. batch aliases b. Errors as of ParseHeader, and
// ErrCorruptMessage when b ends inside the batch.
func Split(b []byte) (h Header, batch, rest []byte, err error) {
	h, err = ParseHeader(b)
	if err != nil {
		return h, nil, b, err
	}
	if h.Size() > len(b) {
		return h, nil, b, fmt.Errorf("%w: batch of %d bytes, have %d", ErrCorruptMessage, h.Size(), len(b))
	}
	return h, b[:h.Size():h.Size()], b[h.Size():], nil
}

// Put writes the header, all fields as they are, to the first HeaderLen bytes of b.
func (h *Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[posLength:], uint32(h.Length))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(h.LeaderEpoch))
	b[posMagic] = byte(h.Magic)
	binary.BigEndian.PutUint32(b[posCRC:], h.CRC)
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[posLastOffsetDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[posProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[posRecordCount:], uint32(h.RecordCount))
}

// Size is the length of the whole batch in bytes.
func (h *Header) Size() int { return int(h.Length) + LengthOverhead }

// LastOffset is the offset of the last record (inclusive).
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset behind the batch (exclusive end).
func (h *Header) NextOffset() int64 { return h.LastOffset() + 1 }

// Codec is the compression of the records; it may name none that exists (see Codec.Known).
func (h *Header) Codec() Codec { return Codec(h.Attributes & attrCodecMask) }

// TimestampType says whether timestamps are the producer's or the leader's.
func (h *Header) TimestampType() TimestampType {
	if h.Attributes&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional reports whether the batch belongs to a transaction.
func (h *Header) IsTransactional() bool { return h.Attributes&attrTransactional != 0 }

// IsControl reports whether the batch holds control records, which clients may not send and consumers do not see.
func (h *Header) IsControl() bool { return h.Attributes&attrControl != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is the delete horizon set by the log cleaner.
func (h *Header) HasDeleteHorizon() bool { return h.Attributes&attrDeleteHorizon != 0 }

// HasProducerID reports whether an idempotent or transactional producer sent the batch.
func (h *Header) HasProducerID() bool { return h.ProducerID > NoProducerID }

// Checksum computes the CRC-32C that the header of the batch b should carry. b must hold the whole batch and nothing else.
func Checksum(b []byte) uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }

// VerifyCRC compares the stored CRC-32C with the content. b must hold the whole batch and nothing else. The error wraps ErrCorruptMessage.
func VerifyCRC(b []byte) error {
	if len(b) < HeaderLen {
		return fmt.Errorf("%w: %d bytes are no batch", ErrCorruptMessage, len(b))
	}
	stored := binary.BigEndian.Uint32(b[posCRC:])
	if got := Checksum(b); got != stored {
		return fmt.Errorf("%w: CRC %08x, content has %08x", ErrCorruptMessage, stored, got)
	}
	return nil
}

// SetCRC stores the CRC of the content in the whole batch b.
func SetCRC(b []byte) { binary.BigEndian.PutUint32(b[posCRC:], Checksum(b)) }

// SetBaseOffset changes the base offset in place. The CRC does not cover it.
func SetBaseOffset(b []byte, offset int64) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(offset))
}

// SetLength changes the length field in place. The CRC does not cover it.
func SetLength(b []byte, length int32) {
	binary.BigEndian.PutUint32(b[posLength:], uint32(length))
}

// SetLeaderEpoch changes the partition leader epoch in place. The CRC does not cover it.
func SetLeaderEpoch(b []byte, epoch int32) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}

// setMaxTimestamp changes attributes and max timestamp in place. The caller sets the CRC afterwards.
func setMaxTimestamp(b []byte, attributes int16, ts int64) {
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ts))
}
