package bin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is wrapped by every error of a Reader.
var ErrMalformed = errors.New("malformed value")

// AppendUvarint appends v as an unsigned varint.
func AppendUvarint[T ~uint8 | ~uint32 | ~uint64](dst []byte, v T) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

// AppendVarint appends v as a zigzag varint.
func AppendVarint[T ~int8 | ~int16 | ~int32 | ~int64](dst []byte, v T) []byte {
	return binary.AppendVarint(dst, int64(v))
}

// AppendBytes appends the length of v as an unsigned varint, then v.
func AppendBytes[T ~string | ~[]byte](dst []byte, v T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// Reader takes values off the front of a byte slice. Byte results alias the input.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads from b, which is borrowed as long as the Reader or any byte result of it is in use.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Fail makes the Reader fail with the formatted message unless it has failed before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

// Version reads the version byte and fails unless it is between 1 and newest.
func (r *Reader) Version(newest byte) byte {
	v := r.Byte()
	if r.err == nil && (v == 0 || v > newest) {
		r.Fail("version %d, this program knows 1 to %d", v, newest)
	}
	return v
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.b) == 0 {
		r.Fail("ends early")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Bool reads one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("flag byte %d", v)
	}
	return v == 1
}

// Uint64 reads eight bytes, big-endian.
func (r *Reader) Uint64() uint64 {
	if len(r.b) < 8 {
		r.Fail("ends early")
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// Uvarint reads an unsigned varint of the shortest form.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.Fail("bad varint")
		return 0
	}
	if n > 1 && r.b[n-1] == 0 {
		r.Fail("varint longer than need be")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint reads a zigzag varint of the shortest form.
func (r *Reader) Varint() int64 {
	u := r.Uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// Uint32 reads an unsigned varint that fits in 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uvarint()
	if v > math.MaxUint32 {
		r.Fail("%d does not fit in 32 bits", v)
		return 0
	}
	return uint32(v)
}

// PositiveInt32 reads an unsigned varint that fits in a non-negative int32: a count, a size or a small id.
func (r *Reader) PositiveInt32() int32 {
	v := r.Uvarint()
	if v > math.MaxInt32 {
		r.Fail("%d does not fit in 31 bits", v)
		return 0
	}
	return int32(v)
}

// Int64 reads an unsigned varint that fits in a non-negative int64: an offset or a size.
func (r *Reader) Int64() int64 {
	v := r.Uvarint()
	if v > math.MaxInt64 {
		r.Fail("%d does not fit in 63 bits", v)
		return 0
	}
	return int64(v)
}

// Varint32 reads a zigzag varint that fits in an int32.
func (r *Reader) Varint32() int32 {
	v := r.Varint()
	if v != int64(int32(v)) {
		r.Fail("%d does not fit in 32 bits", v)
		return 0
	}
	return int32(v)
}

// Varint16 reads a zigzag varint that fits in an int16.
func (r *Reader) Varint16() int16 {
	v := r.Varint()
	if v != int64(int16(v)) {
		r.Fail("%d does not fit in 16 bits", v)
		return 0
	}
	return int16(v)
}

// Bytes reads a length and that many bytes. The result aliases the input.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.b)) {
		r.Fail("length %d with %d bytes left", n, len(r.b))
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// String reads a length and that many bytes, copied.
func (r *Reader) String() string { return string(r.Bytes()) }

// Fixed fills dst with the next bytes.
func (r *Reader) Fixed(dst []byte) {
	if len(r.b) < len(dst) {
		r.Fail("ends early")
		return
	}
	r.b = r.b[copy(dst, r.b):]
}

// Rest takes all that is left. The result aliases the input.
func (r *Reader) Rest() []byte {
	v := r.b
	r.b = nil
	return v
}

// Count reads the number of elements that follow and fails if they cannot fit in what is left, given that each
// takes at least elementMin bytes. So an allocation of Count elements is bounded by the input.
func (r *Reader) Count(elementMin int) int {
	n := r.Uvarint()
	if n > uint64(len(r.b)/elementMin) {
		r.Fail("%d elements with %d bytes left", n, len(r.b))
		return 0
	}
	return int(n)
}

// Err is the first error so far.
func (r *Reader) Err() error { return r.err }

// Done is the first error; bytes that are left over are one.
func (r *Reader) Done() error {
	if len(r.b) > 0 {
		r.Fail("%d bytes left over", len(r.b))
	}
	return r.err
}
