package records

import (
	"encoding/binary"
	"errors"
	"fmt"

	"cairn/broker/coordinator"
)

// The kinds of records of classic groups and of offsets, which are the versions of their keys.
const (
	KindOffsetOld = 0 // as KindOffset; read only
	KindOffset    = 1
	KindGroup     = 2
)

// The errors of the decoders, wrapped with the reason.
var (
	ErrMalformed = errors.New("malformed record of __consumer_offsets")
	ErrUnknown   = errors.New("record of __consumer_offsets of an unknown kind or version")
)

// Kind reads what kind of record a key is of.
func Kind(key []byte) (int16, error) {
	if len(key) < 2 {
		return 0, fmt.Errorf("%w: key of %d bytes", ErrMalformed, len(key))
	}
	return int16(binary.BigEndian.Uint16(key)), nil
}

// checkVersion refuses a value's version above most: a newer broker's.
func checkVersion(what string, value []byte, most int16) error {
	if len(value) < 2 {
		return fmt.Errorf("%w: %s of %d bytes", ErrMalformed, what, len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > most {
		return fmt.Errorf("%w: %s version %d, known are 0 to %d", ErrUnknown, what, v, most)
	}
	return nil
}

// Encode makes a record of a key and a value.
func Encode(key, value []byte) coordinator.Record { return coordinator.Record{Key: key, Value: value} }

// Tombstone deletes what a key stands for.
func Tombstone(key []byte) coordinator.Record { return coordinator.Record{Key: key} }
