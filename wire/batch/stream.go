package batch

import (
	"fmt"
	"io"
	"runtime"
	"sync"
)

// DefaultMaxDecompressedBytes is the bound on what one compressed batch may hold when opened.
const DefaultMaxDecompressedBytes = 128 << 20

// A batch may always open to ratioFloor bytes, and beyond that to ratioMax times its compressed size, which is as far
// as deflate goes. Nothing that a reader could not handle is refused by this, only what was made to explode.
const (
	ratioFloor = 16 << 20
	ratioMax   = 1024
)

// decompressedMax is the bound for a batch of so many compressed bytes.
func decompressedMax(compressed, limit int) int {
	if limit <= 0 {
		limit = DefaultMaxDecompressedBytes
	}
	return min(limit, max(ratioFloor, compressed*ratioMax))
}

// windowLen is the part of an opened batch that is in memory at a time.
const windowLen = 64 << 10

var windows = sync.Pool{New: func() any { return new([windowLen]byte) }}

// gate lets as many goroutines validate compressed batches as can run.
var gate = make(chan struct{}, runtime.GOMAXPROCS(0))

// stream reads opened records through a window of fixed size.
type stream struct {
	dec      decoder
	window   *[windowLen]byte
	pos, end int // the unread part of the window
	// passed counts the bytes in front of the window; max bounds passed+end.
	passed, max int
	err         error // why no more bytes come: io.EOF, or a wrapped sentinel
}

// openStream starts to open data. The caller calls close.
func openStream(data []byte, c Codec, maxBytes int) (*stream, error) {
	dec, err := newDecoder(c, data, maxBytes)
	if err != nil {
		return nil, err
	}
	return &stream{dec: dec, window: windows.Get().(*[windowLen]byte), max: maxBytes}, nil
}

func (s *stream) close() {
	s.dec.release()
	windows.Put(s.window)
	s.window = nil
}

// offset is the number of bytes taken so far.
func (s *stream) offset() int { return s.passed + s.pos }

// fill tries to have n bytes unread in the window, n being far smaller than it, and returns what is unread.
func (s *stream) fill(n int) []byte {
	if s.end-s.pos < n && s.err == nil {
		copy(s.window[:], s.window[s.pos:s.end])
		s.passed, s.pos, s.end = s.passed+s.pos, 0, s.end-s.pos
		for s.end < n && s.err == nil {
			s.read()
		}
	}
	return s.window[s.pos:s.end]
}

// read takes once from the decoder.
func (s *stream) read() {
	n, err := s.dec.Read(s.window[s.end:])
	s.end += n
	switch {
	case s.passed+s.end > s.max:
		s.err = fmt.Errorf("%w: more than %d bytes of records in a compressed batch", ErrMessageTooLarge, s.max)
	case err == io.EOF:
		s.err = io.EOF
	case err != nil:
		s.err = fmt.Errorf("%w: %w", ErrCorruptMessage, err)
	}
}

// varint takes a 32-bit varint.
func (s *stream) varint() (int, bool) {
	v, next := varint(s.fill(varintMaxLen), 0)
	if next < 0 {
		return 0, false
	}
	s.pos += next
	return v, true
}

// varlong takes a 64-bit varint.
func (s *stream) varlong() (int64, bool) {
	v, next := varlong(s.fill(varlongMaxLen), 0)
	if next < 0 {
		return 0, false
	}
	s.pos += next
	return v, true
}

// skip passes over n bytes.
func (s *stream) skip(n int) bool {
	for n > s.end-s.pos {
		n -= s.end - s.pos
		s.pos = s.end
		if len(s.fill(1)) == 0 {
			return false
		}
	}
	s.pos += n
	return true
}

// take appends n bytes to dst, which grows with what really comes.
func (s *stream) take(dst []byte, n int) ([]byte, bool) {
	for n > 0 {
		b := s.fill(1)
		if len(b) == 0 {
			return dst, false
		}
		b = b[:min(n, len(b))]
		dst = append(dst, b...)
		s.pos += len(b)
		n -= len(b)
	}
	return dst, true
}

// cause turns the end of the bytes into the error of a record that needed more: the decoder's own if it had one.
func (s *stream) cause(i int, what string) error {
	if s.err != nil && s.err != io.EOF {
		return s.err
	}
	return recordFormError(i, what)
}

// atEnd checks that nothing comes behind the last record.
func (s *stream) atEnd() error {
	switch {
	case len(s.fill(1)) > 0:
		return fmt.Errorf("%w: data behind the last record", ErrInvalidRecord)
	case s.err != io.EOF:
		return s.err
	}
	return nil
}

// compressed walks compressed records. At no time is more than a window of them in memory, beside what the codec needs.
func (w *recordWalk) compressed(data []byte, c Codec, maxBytes int) error {
	gate <- struct{}{}
	defer func() { <-gate }()
	s, err := openStream(data, c, maxBytes)
	if err != nil {
		return err
	}
	defer s.close()
	for i := range w.count {
		if err := w.streamed(s, i); err != nil {
			return err
		}
	}
	return s.atEnd()
}

// streamed walks one record. It is the same check as in plain, on a window.
func (w *recordWalk) streamed(s *stream, i int) error {
	size, ok := s.varint()
	if !ok || size < recordMinLen-1 {
		return s.cause(i, "length")
	}
	end := s.offset() + size
	if end > s.max {
		return fmt.Errorf("%w: more than %d bytes of records in a compressed batch", ErrMessageTooLarge, s.max)
	}
	if !s.skip(1) {
		return s.cause(i, "attributes")
	}
	delta, ok := s.varlong()
	if !ok {
		return s.cause(i, "timestamp delta")
	}
	offset, ok := s.varint()
	if !ok {
		return s.cause(i, "offset delta")
	}
	key, ok := s.field(end, -1)
	if !ok {
		return s.cause(i, "key")
	}
	if _, ok := s.field(end, -1); !ok {
		return s.cause(i, "value")
	}
	headers, ok := s.varint()
	if !ok || headers < 0 {
		return s.cause(i, "header count")
	}
	for ; headers > 0 && ok; headers-- {
		if _, ok = s.field(end, 0); ok {
			_, ok = s.field(end, -1)
		}
	}
	if !ok || s.offset() != end {
		return s.cause(i, "headers")
	}
	w.note(i, delta, offset, key)
	return nil
}

// field passes over a length of at least least and as many bytes, which must not reach beyond end. It returns the length.
func (s *stream) field(end, least int) (int, bool) {
	n, ok := s.varint()
	if !ok || n < least || n > end-s.offset() {
		return 0, false
	}
	return n, s.skip(max(n, 0))
}
