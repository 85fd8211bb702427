package wire

import "encoding/binary"

// reader takes Kafka's primitive types off a byte slice. Once something is missing or impossible it is bad, and all
// further calls return zero values.
type reader struct {
	src []byte
	bad bool
}

func (r *reader) span(n int) []byte {
	if n < 0 || n > len(r.src) {
		r.bad, r.src = true, nil
		return nil
	}
	b := r.src[:n:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.span(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.span(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// uvarint reads an unsigned varint of at most 32 bits.
func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.src[:min(len(r.src), 5)])
	if n <= 0 || v > 1<<32-1 {
		r.bad, r.src = true, nil
		return 0
	}
	r.src = r.src[n:]
	return uint32(v)
}

// length reads a length: compact ones are unsigned varints of the length plus one, others have size bytes.
// It returns -1 for null.
func (r *reader) length(compact bool, size int) int {
	var n int
	switch {
	case compact:
		n = int(r.uvarint()) - 1
		if r.bad {
			return 0
		}
	case size == 2:
		n = int(r.int16())
	default:
		n = int(r.int32())
	}
	if n < -1 {
		r.bad, r.src = true, nil
		return 0
	}
	return n
}

// nullableString copies a string of the older form; null becomes "".
func (r *reader) nullableString() string {
	n := r.length(false, 2)
	if n < 0 {
		return ""
	}
	return string(r.span(n))
}

// skipTags passes over a section of tagged fields.
func (r *reader) skipTags() {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		size := r.uvarint()
		r.span(int(size))
	}
}
