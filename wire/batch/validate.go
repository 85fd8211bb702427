package batch

import "fmt"

// Rules is what a topic demands of the batches that clients send.
type Rules struct {
	MaxMessageBytes int  // largest batch, in bytes as sent
	Compacted       bool // every record needs a key
	TimestampType   TimestampType
	// BeforeMaxMs and AfterMaxMs bound how far a producer's timestamps may lie before and after NowMs, in milliseconds.
	BeforeMaxMs, AfterMaxMs int64
	NowMs                   int64 // the leader's clock, milliseconds since 1970
	// TargetCodec is the codec that stored batches have; CodecProducer keeps the producer's.
	TargetCodec Codec
	Levels      Levels // for TargetCodec
	// MaxDecompressedBytes bounds the records of a compressed batch once opened; 0 stands for DefaultMaxDecompressedBytes.
	// A tighter bound that depends on the compressed size holds as well.
	MaxDecompressedBytes int
}

// Result is what Validate found.
type Result struct {
	// Batch holds the bytes to append: the input, changed in place at most in attributes, max timestamp and CRC, or a
	// batch of its own when the records had to be written anew. Base offset 0, leader epoch as the client sent it.
	Batch  []byte
	Header Header // of Batch
	// LogAppendTime is the leader's time given to the batch, for the produce response; -1 on topics with CreateTime.
	LogAppendTime int64
	// RecordErrors names the records at fault (at most the first 1000) when the error is about records.
	RecordErrors []RecordError
}

// Validate checks a batch that a client sent as the record set of one partition, in Kafka's order: exactly one whole
// batch of magic 2, base offset 0, size, CRC, header, then every record. raw is borrowed until return, and Result.Batch may alias it.
// The errors wrap ErrInvalidRecord, ErrInvalidTimestamp, ErrMessageTooLarge, ErrCorruptMessage or
// ErrUnsupportedCompression; with an error Result holds RecordErrors alone and raw is unchanged.
//
// An uncompressed batch is walked in place without allocation. A compressed one is opened piece by piece, with a
// bound on what may come out, by as many goroutines at a time as there are processors; others wait.
//
// Unlike Kafka it refuses a batch with the delete-horizon bit, which only a log cleaner may set.
func Validate(raw []byte, r Rules) (Result, error) {
	h, err := checkEnvelope(raw, &r)
	if err != nil {
		return Result{}, err
	}
	if err := checkHeader(&h); err != nil {
		return Result{}, err
	}
	walk := newRecordWalk(&h, &r)
	if h.Codec() == CodecNone {
		err = walk.plain(raw[HeaderLen:])
	} else {
		err = walk.compressed(raw[HeaderLen:], h.Codec(), decompressedMax(len(raw)-HeaderLen, r.MaxDecompressedBytes))
	}
	if err == nil {
		err = walk.verdict()
	}
	if err != nil {
		return Result{RecordErrors: walk.errs}, err
	}
	return finish(raw, h, &r, walk.maxTimestamp, walk.inOrder)
}

// checkEnvelope checks what comes before the content: that there is one batch, where it starts, its size, its CRC.
func checkEnvelope(raw []byte, r *Rules) (Header, error) {
	if len(raw) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes where one batch is expected", ErrInvalidRecord, len(raw))
	}
	h := DecodeHeader(raw)
	switch {
	case h.Magic < 0 || h.Magic > Magic:
		return h, fmt.Errorf("%w: magic %d", ErrCorruptMessage, h.Magic)
	case h.Magic != Magic:
		return h, fmt.Errorf("%w: magic %d, only %d is supported", ErrInvalidRecord, h.Magic, Magic)
	case h.Length < minLength:
		return h, fmt.Errorf("%w: batch length %d", ErrCorruptMessage, h.Length)
	case h.Size() > len(raw):
		return h, fmt.Errorf("%w: batch of %d bytes, have %d", ErrInvalidRecord, h.Size(), len(raw))
	case h.Size() < len(raw):
		return h, fmt.Errorf("%w: %d bytes behind the one batch allowed", ErrInvalidRecord, len(raw)-h.Size())
	case h.BaseOffset != 0:
		return h, fmt.Errorf("%w: base offset %d in a client's batch", ErrInvalidRecord, h.BaseOffset)
	case len(raw) > r.MaxMessageBytes:
		return h, fmt.Errorf("%w: batch of %d bytes, limit is %d", ErrMessageTooLarge, len(raw), r.MaxMessageBytes)
	}
	return h, VerifyCRC(raw)
}

// checkHeader checks what the header says of the records.
func checkHeader(h *Header) error {
	switch {
	case h.LastOffsetDelta < 0:
		return fmt.Errorf("%w: last offset delta %d", ErrInvalidRecord, h.LastOffsetDelta)
	case h.RecordCount <= 0:
		return fmt.Errorf("%w: record count %d", ErrInvalidRecord, h.RecordCount)
	case int64(h.LastOffsetDelta)+1 != int64(h.RecordCount):
		return fmt.Errorf("%w: last offset delta %d with %d records", ErrInvalidRecord, h.LastOffsetDelta, h.RecordCount)
	case h.IsControl():
		return fmt.Errorf("%w: clients may not send control batches", ErrInvalidRecord)
	case h.HasDeleteHorizon():
		return fmt.Errorf("%w: clients may not set a delete horizon", ErrInvalidRecord)
	case h.HasProducerID() && h.BaseSequence < 0:
		return fmt.Errorf("%w: base sequence %d with producer id %d", ErrInvalidRecord, h.BaseSequence, h.ProducerID)
	case !h.Codec().Known():
		return fmt.Errorf("%w: codec %d", ErrUnsupportedCompression, h.Codec())
	}
	return nil
}

// finish makes the bytes to append of a batch that passed all checks.
func finish(raw []byte, h Header, r *Rules, maxTimestamp int64, inOrder bool) (Result, error) {
	res := Result{Batch: raw, LogAppendTime: -1}
	attributes := h.Attributes &^ attrLogAppendTime
	if r.TimestampType == LogAppendTime {
		attributes |= attrLogAppendTime
		maxTimestamp = r.NowMs
		res.LogAppendTime = r.NowMs
	}
	if (r.TargetCodec != CodecProducer && r.TargetCodec != h.Codec()) || !inOrder {
		h.Attributes, h.MaxTimestamp = attributes, maxTimestamp
		b, err := rewrite(raw, h, r)
		if err != nil {
			return Result{}, err
		}
		res.Batch = b
	} else if attributes != h.Attributes || maxTimestamp != h.MaxTimestamp {
		setMaxTimestamp(raw, attributes, maxTimestamp)
		SetCRC(raw)
	}
	res.Header = DecodeHeader(res.Batch)
	return res, nil
}
