package bin

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func TestReaderReadsWhatWasAppended(t *testing.T) {
	b := []byte{1}
	b = AppendUvarint(b, uint64(math.MaxUint64))
	b = AppendVarint(b, int64(math.MinInt64))
	b = AppendUvarint(b, uint32(math.MaxUint32))
	b = AppendUvarint(b, uint64(math.MaxInt64))
	b = AppendVarint(b, int32(math.MinInt32))
	b = AppendVarint(b, int16(math.MinInt16))
	b = AppendBool(AppendBool(b, true), false)
	b = AppendBytes(b, "text")
	b = AppendBytes(b, []byte{9})
	b = append(b, 7, 8, 'r')
	r := NewReader(b)
	var fixed [2]byte
	got := []any{r.Version(1), r.Uvarint(), r.Varint(), r.Uint32(), r.Int64(), r.Varint32(), r.Varint16(), r.Bool(), r.Bool(), r.String()}
	want := []any{byte(1), uint64(math.MaxUint64), int64(math.MinInt64), uint32(math.MaxUint32), int64(math.MaxInt64), int32(math.MinInt32), int16(math.MinInt16), true, false, "text"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("value %d is %v, want %v", i, got[i], want[i])
		}
	}
	if v := r.Bytes(); !bytes.Equal(v, []byte{9}) {
		t.Errorf("bytes %v", v)
	}
	r.Fixed(fixed[:])
	if fixed != [2]byte{7, 8} || string(r.Rest()) != "r" {
		t.Errorf("fixed %v or the rest is wrong", fixed)
	}
	if err := r.Done(); err != nil {
		t.Error(err)
	}
}

func TestReaderRefuses(t *testing.T) {
	huge := AppendUvarint(nil, uint64(math.MaxUint64))
	for name, tt := range map[string]struct {
		b    []byte
		read func(r *Reader)
	}{
		"version 0":          {[]byte{0}, func(r *Reader) { r.Version(3) }},
		"newer version":      {[]byte{4}, func(r *Reader) { r.Version(3) }},
		"no version":         {nil, func(r *Reader) { r.Version(3) }},
		"padded varint":      {[]byte{0x80, 0}, func(r *Reader) { r.Uvarint() }},
		"endless varint":     {bytes.Repeat([]byte{0x80}, 20), func(r *Reader) { r.Uvarint() }},
		"overflowing varint": {append(bytes.Repeat([]byte{0xff}, 9), 2), func(r *Reader) { r.Uvarint() }},
		"cut varint":         {[]byte{0x80}, func(r *Reader) { r.Varint() }},
		"32 bits":            {huge, func(r *Reader) { r.Uint32() }},
		"31 bits":            {AppendUvarint(nil, uint32(1<<31)), func(r *Reader) { r.PositiveInt32() }},
		"63 bits":            {huge, func(r *Reader) { r.Int64() }},
		"signed 32 bits":     {AppendVarint(nil, int64(1<<31)), func(r *Reader) { r.Varint32() }},
		"signed 16 bits":     {AppendVarint(nil, int32(1<<15)), func(r *Reader) { r.Varint16() }},
		"flag":               {[]byte{2}, func(r *Reader) { r.Bool() }},
		"length":             {huge, func(r *Reader) { r.Bytes() }},
		"count":              {[]byte{3, 0, 0, 0, 0, 0}, func(r *Reader) { r.Count(2) }},
		"fixed":              {[]byte{3}, func(r *Reader) { r.Fixed(make([]byte, 2)) }},
		"eight bytes":        {make([]byte, 7), func(r *Reader) { r.Uint64() }},
		"bytes left over":    {[]byte{1, 1}, func(r *Reader) { r.Byte() }},
	} {
		r := NewReader(tt.b)
		tt.read(&r)
		if err := r.Done(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestReaderKeepsItsFirstErrorAndReadsZeros(t *testing.T) {
	r := NewReader([]byte{2, 5, 5})
	r.Bool()
	first := r.Err()
	if v := r.Uvarint(); v != 0 {
		t.Errorf("read %d behind an error", v)
	}
	r.Fail("another")
	if r.Err() != first || r.Done() != first {
		t.Errorf("the error became %v, first was %v", r.Err(), first)
	}
}

func TestBytesCannotGrowIntoWhatFollows(t *testing.T) {
	b := append(AppendBytes(nil, "ab"), 'c')
	r := NewReader(b)
	_ = append(r.Bytes(), 'X')
	if b[3] != 'c' {
		t.Error("append to a result wrote over the input")
	}
}
