package batch

import (
	"fmt"
	"iter"
)

// Record is one record of a batch. Nil Key and Value are null.
type Record struct {
	Attributes     int8 // unused by the format so far
	TimestampDelta int64
	OffsetDelta    int32
	Key, Value     []byte
	Headers        []RecordHeader
}

// RecordHeader is one header of a record. A nil Value is null.
type RecordHeader struct {
	Key   []byte
	Value []byte
}

// Timestamp is the record's timestamp in its batch, in milliseconds since 1970.
func (r *Record) Timestamp(h *Header) int64 {
	if h.TimestampType() == LogAppendTime {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp + r.TimestampDelta
}

// Records iterates over the records of the whole batch raw and opens it if it is compressed, to at most maxBytes
// (0: DefaultMaxDecompressedBytes). It stops behind the first error, which wraps one of the package's. The CRC is not checked.
//
// The byte slices of an uncompressed batch's records alias raw; those of a compressed one, and Headers always, are
// valid until the next record is taken.
func Records(raw []byte, maxBytes int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		h, b, rest, err := Split(raw)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%w: %d bytes behind the batch", ErrInvalidRecord, len(rest))
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		it := recordReader{count: int(h.RecordCount), rest: b[HeaderLen:]}
		if h.Codec() != CodecNone {
			it.s, err = openStream(b[HeaderLen:], h.Codec(), decompressedMax(len(b)-HeaderLen, maxBytes))
			if err != nil {
				yield(Record{}, err)
				return
			}
			defer it.s.close()
		}
		it.run(yield)
	}
}

// recordReader takes records off rest, or off s for a compressed batch.
type recordReader struct {
	count   int
	rest    []byte
	s       *stream
	scratch []byte
	headers []RecordHeader
}

func (it *recordReader) run(yield func(Record, error) bool) {
	for i := range it.count {
		body, err := it.next(i)
		if err != nil {
			yield(Record{}, err)
			return
		}
		rec, ok := it.parse(body)
		if !ok {
			yield(Record{}, recordFormError(i, "field"))
			return
		}
		if !yield(rec, nil) {
			return
		}
	}
	var err error
	if it.s != nil {
		err = it.s.atEnd()
	} else if len(it.rest) > 0 {
		err = fmt.Errorf("%w: %d bytes behind the last record", ErrInvalidRecord, len(it.rest))
	}
	if err != nil {
		yield(Record{}, err)
	}
}

// next returns the bytes of record i behind its length.
func (it *recordReader) next(i int) ([]byte, error) {
	if it.s == nil {
		size, p := varint(it.rest, 0)
		if p < 0 || size < 0 || size > len(it.rest)-p {
			return nil, recordFormError(i, "length")
		}
		body := it.rest[p : p+size : p+size]
		it.rest = it.rest[p+size:]
		return body, nil
	}
	size, ok := it.s.varint()
	if !ok || size < 0 {
		return nil, it.s.cause(i, "length")
	}
	if it.s.offset()+size > it.s.max {
		return nil, fmt.Errorf("%w: more than %d bytes of records in a compressed batch", ErrMessageTooLarge, it.s.max)
	}
	it.scratch, ok = it.s.take(it.scratch[:0], size)
	if !ok {
		return nil, it.s.cause(i, "length")
	}
	return it.scratch, nil
}

// parse reads the fields of a record, which must fill b.
func (it *recordReader) parse(b []byte) (rec Record, ok bool) {
	f := fields{b: b}
	rec.Attributes = f.int8()
	rec.TimestampDelta = f.varlong()
	rec.OffsetDelta = int32(f.varint())
	rec.Key = f.bytes()
	rec.Value = f.bytes()
	n := f.varint()
	it.headers = it.headers[:0]
	for ; n > 0 && !f.bad; n-- {
		h := RecordHeader{Key: f.bytes(), Value: f.bytes()}
		f.bad = f.bad || h.Key == nil
		it.headers = append(it.headers, h)
	}
	if len(it.headers) > 0 {
		rec.Headers = it.headers
	}
	return rec, !f.bad && n == 0 && f.p == len(b)
}

// fields takes a record's fields off b; once one is missing it is bad.
type fields struct {
	b   []byte
	p   int
	bad bool
}

func (f *fields) int8() int8 {
	if f.p >= len(f.b) {
		f.bad = true
		return 0
	}
	f.p++
	return int8(f.b[f.p-1])
}

func (f *fields) varint() int {
	v, next := varint(f.b, f.p)
	if f.bad || next < 0 {
		f.bad = true
		return 0
	}
	f.p = next
	return v
}

func (f *fields) varlong() int64 {
	v, next := varlong(f.b, f.p)
	if f.bad || next < 0 {
		f.bad = true
		return 0
	}
	f.p = next
	return v
}

// bytes returns nil for null.
func (f *fields) bytes() []byte {
	n := f.varint()
	if f.bad || n < -1 || n > len(f.b)-f.p {
		f.bad = true
		return nil
	}
	if n < 0 {
		return nil
	}
	f.p += n
	return f.b[f.p-n : f.p : f.p]
}
