package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decoder opens compressed records. release gives it back for reuse; it must not be read afterwards.
type decoder interface {
	io.Reader
	release()
}

var (
	gzipDecoders   sync.Pool
	snappyDecoders = sync.Pool{New: func() any { return new(snappyDecoder) }}
	lz4Decoders    = sync.Pool{New: func() any { return &lz4Decoder{Reader: lz4.NewReader(nil)} }}
	zstdDecoders   sync.Pool
)

// newDecoder returns a decoder of data. maxBytes is what the caller is going to read at most. Errors wrap
// ErrUnsupportedCompression or ErrCorruptMessage.
func newDecoder(c Codec, data []byte, maxBytes int) (decoder, error) {
	var d decoder
	var err error
	switch c {
	case CodecGzip:
		d, err = newGzipDecoder(data)
	case CodecSnappy:
		d, err = newSnappyDecoder(data)
	case CodecLZ4:
		l := lz4Decoders.Get().(*lz4Decoder)
		l.src.Reset(data)
		l.Reset(&l.src)
		d = l
	case CodecZstd:
		d, err = newZstdDecoder(data, maxBytes)
	default:
		return nil, fmt.Errorf("%w: codec %d", ErrUnsupportedCompression, c)
	}
	if err != nil {
		if errors.Is(err, ErrMessageTooLarge) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrCorruptMessage, c, err)
	}
	return d, nil
}

type gzipDecoder struct {
	gzip.Reader
	src bytes.Reader
}

func newGzipDecoder(data []byte) (decoder, error) {
	d, ok := gzipDecoders.Get().(*gzipDecoder)
	if !ok {
		d = new(gzipDecoder)
	}
	d.src.Reset(data)
	if err := d.Reset(&d.src); err != nil {
		gzipDecoders.Put(d)
		return nil, err
	}
	return d, nil
}

func (d *gzipDecoder) release() {
	d.src.Reset(nil)
	gzipDecoders.Put(d)
}

type lz4Decoder struct {
	*lz4.Reader
	src bytes.Reader
}

func (d *lz4Decoder) release() {
	d.src.Reset(nil)
	d.Reset(&d.src) // gives its block buffers back
	lz4Decoders.Put(d)
}

// zstdWindowMax is the history a streaming decoder keeps; what the format's specification asks every decoder to
// support. A frame that needs more is opened as a whole, within the bound on decompressed bytes.
const zstdWindowMax = 8 << 20

type zstdDecoder struct {
	*zstd.Decoder
	src bytes.Reader
}

func newZstdDecoder(data []byte, maxBytes int) (decoder, error) {
	var h zstd.Header
	if err := h.Decode(data); err != nil {
		return nil, err
	}
	if h.WindowSize > zstdWindowMax || h.SingleSegment && h.FrameContentSize > zstdWindowMax {
		return openLargeZstd(data, &h, maxBytes)
	}
	d, ok := zstdDecoders.Get().(*zstdDecoder)
	if !ok {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindowMax))
		if err != nil {
			return nil, err
		}
		d = &zstdDecoder{Decoder: r}
	}
	d.src.Reset(data)
	if err := d.Reset(&d.src); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *zstdDecoder) release() {
	d.src.Reset(nil)
	zstdDecoders.Put(d)
}

// openLargeZstd opens a frame into a buffer that grows with what comes out of it. The library takes the window that
// the frame asks for as the least it must be allowed to make, so a larger one is first lowered to what suffices for
// maxBytes.
func openLargeZstd(data []byte, h *zstd.Header, maxBytes int) (decoder, error) {
	tooLarge := fmt.Errorf("%w: more than %d bytes in a zstd frame", ErrMessageTooLarge, maxBytes)
	if h.HasFCS && h.FrameContentSize > uint64(maxBytes) {
		return nil, tooLarge
	}
	limit := uint64(maxBytes)
	if !h.SingleSegment {
		descriptor, window := zstdWindow(maxBytes)
		if limit = max(window, zstd.MinWindowSize); h.WindowSize > window {
			data = bytes.Clone(data)
			data[zstdWindowPos] = descriptor
		}
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(limit), zstd.WithDecoderMaxWindow(limit))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := r.DecodeAll(data, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, tooLarge
	}
	if err != nil {
		return nil, err
	}
	return &openedDecoder{*bytes.NewReader(b)}, nil
}

// zstdWindowPos is where a frame that is not of a single segment has its window descriptor: behind magic and flags.
const zstdWindowPos = 5

// zstdWindow is the smallest window of at least n bytes (1 KiB or more) and its descriptor: five bits of exponent, three of mantissa.
func zstdWindow(n int) (descriptor byte, window uint64) {
	for d := range 256 {
		base := uint64(1) << (10 + d>>3)
		if window = base + base/8*uint64(d&7); window >= uint64(n) {
			return byte(d), window
		}
	}
	return 255, window
}

// openedDecoder reads what was opened as a whole.
type openedDecoder struct{ bytes.Reader }

func (*openedDecoder) release() {}

// xerialHeader starts the framing of snappy-java: this magic, a version and a compatible version; then chunks, each
// with its length in front. Clients not in Java send one bare snappy block instead.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderLen = 16
	// snappyRatioMax is beyond what the format can reach: three bytes stand for at most 64.
	snappyRatioMax = 64
	// snappyKeepMax is the largest buffer that goes back to the pool.
	snappyKeepMax = 1 << 20
)

var errSnappyLength = errors.New("impossible length")

// snappyDecoder opens block by block; a block, as the format demands, as a whole.
type snappyDecoder struct {
	src    []byte
	framed bool
	buf    []byte
	opened []byte // unread part of buf
}

func newSnappyDecoder(data []byte) (decoder, error) {
	d := snappyDecoders.Get().(*snappyDecoder)
	d.src, d.framed, d.opened = data, false, nil
	if len(data) >= xerialHeaderLen && bytes.HasPrefix(data, xerialHeader) {
		d.src, d.framed = data[xerialHeaderLen:], true
	}
	return d, nil
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for len(d.opened) == 0 {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.nextBlock(); err != nil {
			d.src = nil
			return 0, err
		}
	}
	n := copy(p, d.opened)
	d.opened = d.opened[n:]
	return n, nil
}

func (d *snappyDecoder) nextBlock() error {
	block := d.src
	if d.framed {
		if len(block) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(block)
		if uint64(n) > uint64(len(block)-4) {
			return errSnappyLength
		}
		block = block[4 : 4+n]
		d.src = d.src[4+n:]
	} else {
		d.src = nil
	}
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if size > len(block)*snappyRatioMax {
		return errSnappyLength
	}
	if cap(d.buf) < size {
		d.buf = make([]byte, size)
	}
	d.opened, err = snappy.Decode(d.buf[:cap(d.buf)], block)
	return err
}

func (d *snappyDecoder) release() {
	d.src, d.opened = nil, nil
	if cap(d.buf) > snappyKeepMax {
		d.buf = nil
	}
	snappyDecoders.Put(d)
}
