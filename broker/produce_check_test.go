package broker

import (
	"encoding/binary"
	"errors"
	"testing"

	"cairn/wire/batch"
)

// TestBrokenRecordSets: the codes are those of Kafka 4.3.
func TestBrokenRecordSets(t *testing.T) {
	whole := func(edit func([]byte)) []byte {
		raw := make([]byte, batch.HeaderLen+10)
		binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
		raw[16] = batch.Magic
		edit(raw)
		return raw
	}
	length := func(n int) func([]byte) {
		return func(raw []byte) { binary.BigEndian.PutUint32(raw[8:], uint32(n)) }
	}
	magic := func(m int8) func([]byte) { return func(raw []byte) { raw[16] = byte(m) } }
	for name, tt := range map[string]struct {
		raw  []byte
		want error
	}{
		"whole":            {whole(func([]byte) {}), nil},
		"nothing":          {nil, batch.ErrInvalidRecord},
		"a few bytes":      {make([]byte, 11), batch.ErrInvalidRecord},
		"no length":        {make([]byte, 12), batch.ErrCorruptMessage},
		"garbage":          {[]byte("this is no batch of records at all"), batch.ErrCorruptMessage},
		"length 13":        {whole(length(13)), batch.ErrCorruptMessage},
		"negative length":  {whole(length(-1)), batch.ErrCorruptMessage},
		"too long":         {whole(length(1000)), batch.ErrInvalidRecord},
		"more behind it":   {whole(length(55)), batch.ErrInvalidRecord},
		"half a header":    {whole(func([]byte) {})[:30], batch.ErrInvalidRecord},
		"magic 3":          {whole(magic(3)), batch.ErrCorruptMessage},
		"negative magic":   {whole(magic(-1)), batch.ErrCorruptMessage},
		"magic 1":          {whole(magic(1)), batch.ErrInvalidRecord},
		"magic 3, no more": {whole(magic(3))[:17], batch.ErrCorruptMessage},
	} {
		if _, err := checkOneBatch(tt.raw); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}
