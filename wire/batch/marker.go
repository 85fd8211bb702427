package batch

import (
	"encoding/binary"
	"fmt"
)

// Marker ends a transaction of one producer in one partition. On the wire it is a control batch: one record, transactional, without a
// sequence, whose key says what becomes of the transaction and whose value which coordinator said so.
type Marker struct {
	Commit           bool // false: abort
	CoordinatorEpoch int32
}

// Types of control records that end a transaction.
const (
	markerAbort  = 0
	markerCommit = 1

	markerKeyLen   = 4 // version, type
	markerValueLen = 6 // version, coordinator epoch
)

// BuildMarker makes the batch of a marker, with its CRC.
func BuildMarker(producerID int64, producerEpoch int16, m Marker, timestampMs int64) []byte {
	cfg := NewBuilderConfig(CodecNone, timestampMs)
	cfg.ProducerID, cfg.ProducerEpoch = producerID, producerEpoch
	cfg.Transactional, cfg.Control = true, true
	var key [markerKeyLen]byte
	var value [markerValueLen]byte
	if m.Commit {
		binary.BigEndian.PutUint16(key[2:], markerCommit)
	}
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	b, err := NewBuilder(cfg)
	if err == nil {
		err = b.AppendKV(timestampMs, key[:], value[:])
	}
	var raw []byte
	if err == nil {
		raw, err = b.Build()
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: a marker cannot be built: %v", err))
	}
	return raw
}

// ParseMarker reads the marker in a control batch. raw begins with the batch's header, of which neither base offset nor length is looked at.
// ErrInvalidRecord when it is no marker: control records of other types have other uses.
func ParseMarker(raw []byte) (Marker, error) {
	if len(raw) < HeaderLen {
		return Marker{}, fmt.Errorf("%w: %d bytes are no control batch", ErrInvalidRecord, len(raw))
	}
	h := DecodeHeader(raw)
	if !h.IsControl() || h.Codec() != CodecNone || h.RecordCount != 1 {
		return Marker{}, fmt.Errorf("%w: attributes %#x and %d records are no marker", ErrInvalidRecord, h.Attributes, h.RecordCount)
	}
	it := recordReader{count: 1, rest: raw[HeaderLen:]}
	body, err := it.next(0)
	if err != nil {
		return Marker{}, err
	}
	rec, ok := it.parse(body)
	if !ok {
		return Marker{}, recordFormError(0, "field")
	}
	return parseMarker(rec)
}

// parseMarker takes longer keys and values: later versions may add fields behind those that are known.
func parseMarker(rec Record) (Marker, error) {
	if len(rec.Key) < markerKeyLen || len(rec.Value) < markerValueLen {
		return Marker{}, fmt.Errorf("%w: control record with a key of %d and a value of %d bytes", ErrInvalidRecord, len(rec.Key), len(rec.Value))
	}
	kind := binary.BigEndian.Uint16(rec.Key[2:])
	if kind != markerAbort && kind != markerCommit {
		return Marker{}, fmt.Errorf("%w: control record of type %d ends no transaction", ErrInvalidRecord, kind)
	}
	return Marker{Commit: kind == markerCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(rec.Value[2:]))}, nil
}
