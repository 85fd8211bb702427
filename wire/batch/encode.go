package batch

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// resettable is what all encoders are: Close ends the compressed stream, Reset starts another.
type resettable interface {
	io.WriteCloser
	Reset(io.Writer)
}

// encoder is a pooled compressor of one codec and level.
type encoder struct {
	resettable
	codec Codec
	level int
}

var encoders [CodecZstd + 1]sync.Pool

// newEncoder returns a compressor that writes to w. The caller gives it back with release.
func newEncoder(c Codec, l Levels, w io.Writer) (*encoder, error) {
	if !c.Known() || c == CodecNone {
		return nil, fmt.Errorf("%w: codec %d", ErrUnsupportedCompression, c)
	}
	level := l.of(c)
	if e, ok := encoders[c].Get().(*encoder); ok && e.level == level {
		e.Reset(w)
		return e, nil
	}
	r, err := makeEncoder(c, level)
	if err != nil {
		return nil, fmt.Errorf("%s, level %d: %w", c, level, err)
	}
	r.Reset(w)
	return &encoder{resettable: r, codec: c, level: level}, nil
}

func (e *encoder) release() {
	e.Reset(io.Discard)
	encoders[e.codec].Put(e)
}

func (l Levels) of(c Codec) int {
	switch c {
	case CodecGzip:
		return l.Gzip
	case CodecLZ4:
		return l.LZ4
	case CodecZstd:
		return l.Zstd
	default:
		return 0
	}
}

// zstdEncodeWindow keeps what we compress cheap to open.
const zstdEncodeWindow = 1 << 20

func makeEncoder(c Codec, level int) (resettable, error) {
	switch c {
	case CodecGzip:
		if level == 0 {
			level = gzip.DefaultCompression
		}
		return gzip.NewWriterLevel(io.Discard, level)
	case CodecSnappy:
		return new(xerialWriter), nil
	case CodecLZ4:
		// Java's reader knows independent blocks only; this is how its writer makes them.
		w := lz4.NewWriter(io.Discard)
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4Level(level)))
		return w, err
	default:
		zl := zstd.SpeedDefault
		if level != 0 {
			zl = zstd.EncoderLevelFromZstd(level)
		}
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zl), zstd.WithWindowSize(zstdEncodeWindow), zstd.WithLowerEncoderMem(true))
	}
}

// lz4Level turns Kafka's level (1..17, 9 by default) into the library's. Up to Kafka's default that is the fast
// compressor: lz4-java uses the high compressor for explicit levels, ours are steps of the same trade.
func lz4Level(level int) lz4.CompressionLevel {
	steps := []lz4.CompressionLevel{lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}
	if level <= 9 {
		return lz4.Fast
	}
	return steps[min(level-9, len(steps))-1]
}

// xerialBlockLen is the block size of snappy-java.
const xerialBlockLen = 32 << 10

// xerialWriter compresses into the framing of snappy-java, which every client reads.
type xerialWriter struct {
	w       io.Writer
	started bool
	pending []byte
	block   []byte // length and compressed block
}

// Reset starts a stream on w.
func (x *xerialWriter) Reset(w io.Writer) {
	x.w, x.started, x.pending = w, false, x.pending[:0]
}

// Write implements io.Writer.
func (x *xerialWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), xerialBlockLen-len(x.pending))
		x.pending = append(x.pending, p[:n]...)
		p = p[n:]
		if len(x.pending) == xerialBlockLen {
			if err := x.flush(); err != nil {
				return total - len(p), err
			}
		}
	}
	return total, nil
}

// Close writes the last block.
func (x *xerialWriter) Close() error { return x.flush() }

func (x *xerialWriter) flush() error {
	if !x.started {
		x.started = true
		header := append(make([]byte, 0, xerialHeaderLen), xerialHeader...)
		header = append(header, 0, 0, 0, 1, 0, 0, 0, 1)
		if _, err := x.w.Write(header); err != nil {
			return err
		}
	}
	if len(x.pending) == 0 {
		return nil
	}
	if x.block == nil {
		x.block = make([]byte, 4+snappy.MaxEncodedLen(xerialBlockLen))
	}
	n := len(snappy.Encode(x.block[4:], x.pending))
	binary.BigEndian.PutUint32(x.block, uint32(n))
	x.pending = x.pending[:0]
	_, err := x.w.Write(x.block[:4+n])
	return err
}
