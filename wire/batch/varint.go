package batch

import (
	"encoding/binary"
	"math"
)

// Records use zigzag varints of 32 and 64 bits. The readers below take them at position p of b and return the
// position behind, or a negative one when b ends before the varint does or its value does not fit.

const (
	varintMaxLen  = 5
	varlongMaxLen = 10
)

// varint reads a 32-bit varint. Its one-byte case is inlined into the callers.
func varint(b []byte, p int) (v, next int) {
	if uint(p) < uint(len(b)) && b[p] < 0x80 {
		return int(b[p]>>1) ^ -int(b[p]&1), p + 1
	}
	return varintLong(b, p)
}

func varintLong(b []byte, p int) (v, next int) {
	if uint(p) >= uint(len(b)) {
		return 0, -1
	}
	if p+1 < len(b) && b[p+1] < 0x80 {
		u := uint(b[p]&0x7f) | uint(b[p+1])<<7
		return int(u>>1) ^ -int(u&1), p + 2
	}
	u, n := binary.Uvarint(b[p:min(len(b), p+varintMaxLen)])
	if n <= 0 || u > math.MaxUint32 {
		return 0, -1
	}
	return int(u>>1) ^ -int(u&1), p + n
}

// varlong reads a 64-bit varint.
func varlong(b []byte, p int) (v int64, next int) {
	if uint(p) < uint(len(b)) && b[p] < 0x80 {
		return int64(b[p]>>1) ^ -int64(b[p]&1), p + 1
	}
	return varlongLong(b, p)
}

func varlongLong(b []byte, p int) (v int64, next int) {
	if uint(p) >= uint(len(b)) {
		return 0, -1
	}
	u, n := binary.Uvarint(b[p:])
	if n <= 0 {
		return 0, -1
	}
	return int64(u>>1) ^ -int64(u&1), p + n
}

// varintLen is the number of bytes that v takes.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func appendVarint(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }
