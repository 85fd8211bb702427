package batch

import "fmt"

// Codec is the compression of the records of a batch, as the low three bits of the attributes name it.
type Codec int8

// The codecs, and CodecProducer, which as a topic's compression.type keeps what the producer chose.
const (
	CodecProducer Codec = iota - 1
	CodecNone
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

// Known reports whether c can be the codec of a batch.
func (c Codec) Known() bool { return c >= CodecNone && c <= CodecZstd }

// String gives the name that the config compression.type uses.
func (c Codec) String() string {
	switch c {
	case CodecProducer:
		return "producer"
	case CodecNone:
		return "uncompressed"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	default:
		return fmt.Sprintf("codec(%d)", int8(c))
	}
}

// ParseCodec reads a value of the config compression.type; "none", the name producers use, is taken as well.
func ParseCodec(s string) (Codec, error) {
	if s == "none" {
		return CodecNone, nil
	}
	for c := CodecProducer; c <= CodecZstd; c++ {
		if c.String() == s {
			return c, nil
		}
	}
	return CodecNone, fmt.Errorf("compression.type %q: want producer, uncompressed, gzip, snappy, lz4 or zstd", s)
}

// Levels are the compression levels used when a batch must be compressed anew. 0 stands for the codec's default.
type Levels struct {
	Gzip int // 1..9
	LZ4  int // 1..17
	Zstd int // 1..22; negative levels count as 1
}
