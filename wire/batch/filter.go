package batch

import (
	"fmt"
	"math"
)

// Filtering says what Filter makes of a batch.
type Filtering struct {
	// Keep says whether the record at an offset of the log stays; it is asked once for each, in order. The record is valid until it returns.
	Keep func(offset int64, r *Record) bool
	// HorizonMs, unless NoTimestamp, is written as the delete horizon into a batch that has none, if Always or if a record without value stays.
	HorizonMs int64
	Always    bool
	// Pause, unless nil, is called with the size of each record as it is read, and may wait. Its error ends the call.
	Pause func(bytes int) error
	// MaxDecompressedBytes is as in Records.
	MaxDecompressedBytes int
}

// Filter is the batch raw without the records that f does not keep: the same offsets, the same span, compressed with the same
// codec. It returns raw itself when nothing changes, and nil when no record is left. The errors are those of Records, and Pause's.
//
// The largest timestamp is that of what is left, unless it is the leader's. A delete horizon takes the place of the base timestamp,
// from which the records' timestamps count then, as in Kafka.
func Filter(raw []byte, f Filtering) ([]byte, error) {
	h, err := ParseHeader(raw)
	if err != nil {
		return nil, err
	}
	kept, left, tombstone := make([]bool, 0, min(int(h.RecordCount), len(raw))), 0, false
	for rec, err := range Records(raw, f.MaxDecompressedBytes) {
		if err == nil {
			err = f.pause(&rec)
		}
		if err != nil {
			return nil, err
		}
		keep := f.Keep(h.BaseOffset+int64(rec.OffsetDelta), &rec)
		kept = append(kept, keep)
		if keep {
			left++
			tombstone = tombstone || rec.Value == nil
		}
	}
	if left == 0 {
		return nil, nil
	}
	horizon := f.HorizonMs != NoTimestamp && !h.HasDeleteHorizon() && (f.Always || tombstone)
	if left == len(kept) && !horizon {
		return raw, nil
	}
	if horizon {
		h.Attributes |= attrDeleteHorizon
	} else {
		f.HorizonMs = h.BaseTimestamp
	}
	return refill(raw, h, kept, f)
}

func (f *Filtering) pause(r *Record) error {
	if f.Pause == nil {
		return nil
	}
	return f.Pause(len(r.Key) + len(r.Value))
}

// refill makes a batch with the header h of those records of raw that are kept, with f.HorizonMs as its base timestamp.
func refill(raw []byte, h Header, kept []bool, f Filtering) ([]byte, error) {
	out := sliceWriter{b: make([]byte, HeaderLen, len(raw)+HeaderLen), max: math.MaxInt32}
	var enc *encoder
	if h.Codec() != CodecNone {
		var err error
		if enc, err = newEncoder(h.Codec(), Levels{}, &out); err != nil {
			return nil, err
		}
		defer enc.release()
	}
	i, count, maxTimestamp := 0, int32(0), NoTimestamp
	var scratch []byte
	for rec, err := range Records(raw, f.MaxDecompressedBytes) {
		if err == nil {
			err = f.pause(&rec)
		}
		if err != nil {
			return nil, err
		}
		if i++; !kept[i-1] {
			continue
		}
		timestamp := h.BaseTimestamp + rec.TimestampDelta
		maxTimestamp = max(maxTimestamp, timestamp)
		rec.TimestampDelta = timestamp - f.HorizonMs
		scratch = appendRecord(scratch[:0], &rec, int(rec.OffsetDelta))
		if enc != nil {
			_, err = enc.Write(scratch)
		} else {
			_, err = out.Write(scratch)
		}
		if err != nil {
			return nil, err
		}
		count++
	}
	if enc != nil {
		if err := enc.Close(); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
	}
	h.BaseTimestamp, h.RecordCount, h.Length = f.HorizonMs, count, int32(len(out.b)-LengthOverhead)
	if h.TimestampType() == CreateTime {
		h.MaxTimestamp = maxTimestamp
	}
	h.Put(out.b)
	SetCRC(out.b)
	return out.b, nil
}

// Empty is a batch without records that has the offsets, the timestamp, the producer and the place in a transaction of one with the header h.
func Empty(h Header) []byte {
	h.Attributes &= attrLogAppendTime | attrTransactional | attrControl
	h.Magic, h.RecordCount, h.Length, h.BaseTimestamp = Magic, 0, minLength, NoTimestamp
	b := make([]byte, HeaderLen)
	h.Put(b)
	SetCRC(b)
	return b
}

// DeleteHorizon is when what the cleaner has kept for a while may go, ms; false when there is none.
func (h *Header) DeleteHorizon() (ms int64, ok bool) { return h.BaseTimestamp, h.HasDeleteHorizon() }
