package batch

import (
	"errors"
	"fmt"
	"math"
)

// BuilderConfig describes the batch to build. Its zero value makes an uncompressed batch of producer id 0: start
// from NewBuilderConfig.
type BuilderConfig struct {
	Codec         Codec
	Levels        Levels
	BaseOffset    int64
	LeaderEpoch   int32
	BaseTimestamp int64
	// LogAppendTime, when not NoTimestamp, becomes the timestamp of all records, with the timestamp type to say so.
	LogAppendTime          int64
	ProducerID             int64
	ProducerEpoch          int16
	BaseSequence           int32
	Transactional, Control bool
	// MaxBytes bounds the finished batch; 0 means only the format does.
	MaxBytes int
}

// NewBuilderConfig describes a batch of a producer without identity.
func NewBuilderConfig(c Codec, baseTimestamp int64) BuilderConfig {
	return BuilderConfig{
		Codec: c, LeaderEpoch: -1, BaseTimestamp: baseTimestamp, LogAppendTime: NoTimestamp,
		ProducerID: NoProducerID, ProducerEpoch: -1, BaseSequence: NoSequence,
	}
}

// Builder makes one batch: Append records, then Build. It is for one goroutine.
type Builder struct {
	cfg          BuilderConfig
	out          sliceWriter // header and finished records
	enc          *encoder    // nil if uncompressed
	scratch      []byte
	count        int
	maxTimestamp int64
}

// sliceWriter appends what is written, up to max bytes.
type sliceWriter struct {
	b   []byte
	max int
}

func (s *sliceWriter) Write(p []byte) (int, error) {
	if len(s.b)+len(p) > s.max {
		return 0, fmt.Errorf("%w: batch above %d bytes", ErrMessageTooLarge, s.max)
	}
	s.b = append(s.b, p...)
	return len(p), nil
}

// NewBuilder starts a batch. It fails with ErrUnsupportedCompression or for a compression level that does not exist.
// Build or Abort ends it.
func NewBuilder(cfg BuilderConfig) (*Builder, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = math.MaxInt32
	}
	b := &Builder{cfg: cfg, maxTimestamp: NoTimestamp}
	b.out = sliceWriter{b: make([]byte, HeaderLen, 4<<10), max: cfg.MaxBytes}
	if cfg.Codec != CodecNone {
		var err error
		if b.enc, err = newEncoder(cfg.Codec, cfg.Levels, &b.out); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Append adds a record with the next offset delta; OffsetDelta of rec is not used. Key, value and headers are copied.
// It fails with ErrMessageTooLarge, after which only Abort may follow.
func (b *Builder) Append(rec Record) error {
	if b.count == math.MaxInt32 {
		return fmt.Errorf("%w: too many records", ErrMessageTooLarge)
	}
	b.scratch = appendRecord(b.scratch[:0], &rec, b.count)
	var err error
	if b.enc != nil {
		_, err = b.enc.Write(b.scratch)
	} else {
		_, err = b.out.Write(b.scratch)
	}
	if err != nil {
		return err
	}
	b.count++
	b.maxTimestamp = max(b.maxTimestamp, b.cfg.BaseTimestamp+rec.TimestampDelta)
	return nil
}

// AppendKV adds a record of the given timestamp without headers.
func (b *Builder) AppendKV(timestamp int64, key, value []byte) error {
	return b.Append(Record{TimestampDelta: timestamp - b.cfg.BaseTimestamp, Key: key, Value: value})
}

// Len is the number of records so far.
func (b *Builder) Len() int { return b.count }

// Build finishes the batch, CRC included, and returns it; the caller owns it. The Builder must not be used afterwards.
func (b *Builder) Build() ([]byte, error) {
	defer b.Abort()
	if b.count == 0 {
		return nil, errors.New("batch without records")
	}
	if b.enc != nil {
		if err := b.enc.Close(); err != nil {
			return nil, err
		}
	}
	out := b.out.b
	h := b.header(len(out))
	h.Put(out)
	SetCRC(out)
	return out, nil
}

func (b *Builder) header(size int) Header {
	h := Header{
		BaseOffset: b.cfg.BaseOffset, Length: int32(size - LengthOverhead), LeaderEpoch: b.cfg.LeaderEpoch, Magic: Magic,
		Attributes: int16(b.cfg.Codec), LastOffsetDelta: int32(b.count - 1), BaseTimestamp: b.cfg.BaseTimestamp, MaxTimestamp: b.maxTimestamp,
		ProducerID: b.cfg.ProducerID, ProducerEpoch: b.cfg.ProducerEpoch, BaseSequence: b.cfg.BaseSequence, RecordCount: int32(b.count),
	}
	if b.cfg.LogAppendTime != NoTimestamp {
		h.Attributes |= attrLogAppendTime
		h.MaxTimestamp = b.cfg.LogAppendTime
	}
	if b.cfg.Transactional {
		h.Attributes |= attrTransactional
	}
	if b.cfg.Control {
		h.Attributes |= attrControl
	}
	return h
}

// Abort gives up the batch and what it holds. It may follow Build and may be called twice.
func (b *Builder) Abort() {
	if b.enc != nil {
		b.enc.release()
		b.enc = nil
	}
	b.out.b = nil
}

// appendRecord encodes a record with its length in front.
func appendRecord(dst []byte, r *Record, offsetDelta int) []byte {
	dst = appendVarint(dst, int64(recordLen(r, offsetDelta)))
	dst = append(dst, byte(r.Attributes))
	dst = appendVarint(dst, r.TimestampDelta)
	dst = appendVarint(dst, int64(offsetDelta))
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = appendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = appendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// recordLen is the number of bytes of a record behind its length.
func recordLen(r *Record, offsetDelta int) int {
	n := 1 + varintLen(r.TimestampDelta) + varintLen(int64(offsetDelta)) + bytesLen(r.Key) + bytesLen(r.Value) + varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	return n
}

func bytesLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return appendVarint(dst, -1)
	}
	dst = appendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// rewrite makes a new batch of the records of raw, which were checked: compressed as the rules say, with offset
// deltas 0..n-1 and the attributes and max timestamp of h. Memory: the new batch, and one record at a time of the old.
func rewrite(raw []byte, h Header, r *Rules) ([]byte, error) {
	cfg := BuilderConfig{
		Codec: r.TargetCodec, Levels: r.Levels, LeaderEpoch: h.LeaderEpoch, BaseTimestamp: h.BaseTimestamp, LogAppendTime: NoTimestamp,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		Transactional: h.IsTransactional(), MaxBytes: r.MaxMessageBytes,
	}
	if cfg.Codec == CodecProducer {
		cfg.Codec = h.Codec()
	}
	gate <- struct{}{}
	defer func() { <-gate }()
	b, err := NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	defer b.Abort()
	for rec, err := range Records(raw, r.MaxDecompressedBytes) {
		if err != nil {
			return nil, err
		}
		if err := b.Append(rec); err != nil {
			return nil, err
		}
	}
	out, err := b.Build()
	if err != nil {
		return nil, err
	}
	setMaxTimestamp(out, int16(cfg.Codec)|h.Attributes&^attrCodecMask, h.MaxTimestamp)
	SetCRC(out)
	return out, nil
}
