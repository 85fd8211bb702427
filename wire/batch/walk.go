package batch

import "fmt"

// recordMinLen is the least a record takes: length, attributes, two deltas, key and value length, header count.
const recordMinLen = 7

// recordWalk is one pass over the records of a batch which checks their form and what the topic demands of each.
// It stops at the first breach of form, and notes records that break a rule of the topic.
type recordWalk struct {
	count int   // records the header announces
	base  int64 // base timestamp
	// fixed: the batch has the leader's timestamp type, so that its records all have the timestamp base.
	fixed     bool
	compacted bool // every record needs a key
	// oldest and newest bound the timestamps, where createTime says that they are to be checked.
	createTime     bool
	oldest, newest int64

	maxTimestamp int64
	inOrder      bool // offset deltas are 0..n-1
	badTimestamp bool
	errs         []RecordError
}

func newRecordWalk(h *Header, r *Rules) recordWalk {
	w := recordWalk{
		count: int(h.RecordCount), base: h.BaseTimestamp, compacted: r.Compacted, createTime: r.TimestampType == CreateTime,
		oldest: saturatingSub(r.NowMs, r.BeforeMaxMs), newest: saturatingAdd(r.NowMs, r.AfterMaxMs),
		maxTimestamp: NoTimestamp, inOrder: true,
	}
	if h.TimestampType() == LogAppendTime {
		w.fixed, w.base = true, h.MaxTimestamp
	}
	return w
}

// plain walks uncompressed records, which must fill b. It allocates only for errors.
func (w *recordWalk) plain(b []byte) error {
	if w.count > len(b)/recordMinLen {
		return fmt.Errorf("%w: %d records in %d bytes", ErrInvalidRecord, w.count, len(b))
	}
	p := 0
	for i := range w.count {
		size, body := varint(b, p)
		if body < 0 || size < recordMinLen-1 || size > len(b)-body {
			return recordFormError(i, "length")
		}
		end := body + size
		rec := b[:end]
		delta, p2 := varlong(rec, body+1)
		if p2 < 0 {
			return recordFormError(i, "timestamp delta")
		}
		offset, p3 := varint(rec, p2)
		if p3 < 0 {
			return recordFormError(i, "offset delta")
		}
		key, p4 := varint(rec, p3)
		if p4 < 0 || key < -1 || key > end-p4 {
			return recordFormError(i, "key length")
		}
		value, p5 := varint(rec, p4+max(key, 0))
		if p5 < 0 || value < -1 || value > end-p5 {
			return recordFormError(i, "value length")
		}
		headers, p6 := varint(rec, p5+max(value, 0))
		if p6 < 0 || headers < 0 {
			return recordFormError(i, "header count")
		}
		if headers > 0 {
			p6 = skipHeaders(rec, p6, headers)
		}
		if p6 != end {
			return recordFormError(i, "headers")
		}
		p = end
		w.note(i, delta, offset, key)
	}
	if p != len(b) {
		return fmt.Errorf("%w: %d bytes behind the last record", ErrInvalidRecord, len(b)-p)
	}
	return nil
}

// skipHeaders passes over n record headers and returns the position behind, or a negative one.
func skipHeaders(rec []byte, p, n int) int {
	for range n {
		key, p1 := varint(rec, p)
		if p1 < 0 || key < 0 || key > len(rec)-p1 {
			return -1
		}
		value, p2 := varint(rec, p1+key)
		if p2 < 0 || value < -1 || value > len(rec)-p2 {
			return -1
		}
		p = p2 + max(value, 0)
	}
	return p
}

// note takes the fields of record i into account. keyLen is -1 for a null key.
func (w *recordWalk) note(i int, delta int64, offset, keyLen int) {
	ts := w.base
	if !w.fixed {
		ts += delta
	}
	w.maxTimestamp = max(w.maxTimestamp, ts)
	if offset != i {
		w.inOrder = false
	}
	inRange := ts >= w.oldest && ts <= w.newest
	if !inRange || w.fixed || keyLen < 0 && w.compacted {
		w.judge(i, ts, keyLen)
	}
}

// judge is the part of note for records that may break a rule.
func (w *recordWalk) judge(i int, ts int64, keyLen int) {
	switch {
	case keyLen < 0 && w.compacted:
		w.fail(i, "a record of a compacted topic needs a key")
	case w.createTime && ts != NoTimestamp:
		if ts < w.oldest || ts > w.newest {
			w.badTimestamp = true
			w.fail(i, fmt.Sprintf("timestamp %d is out of range, it should be within [%d, %d]", ts, w.oldest, w.newest))
		}
	case w.fixed:
		w.badTimestamp = true
		w.fail(i, "the timestamp type of a client's batch should not be LogAppendTime")
	}
}

func (w *recordWalk) fail(i int, msg string) {
	if len(w.errs) < recordErrorsMax {
		w.errs = append(w.errs, RecordError{BatchIndex: int32(i), Message: msg})
	}
}

// verdict is the error for the batch once all records were walked.
func (w *recordWalk) verdict() error {
	switch {
	case w.badTimestamp:
		return fmt.Errorf("%w: %s", ErrInvalidTimestamp, w.errs[0].Message)
	case len(w.errs) > 0:
		return fmt.Errorf("%w: %s", ErrInvalidRecord, w.errs[0].Message)
	}
	return nil
}

func recordFormError(i int, what string) error {
	return fmt.Errorf("%w: record %d: bad %s", ErrInvalidRecord, i, what)
}

func saturatingSub(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	return -1 << 63
}

func saturatingAdd(a, b int64) int64 {
	if s := a + b; (s > a) == (b > 0) {
		return s
	}
	return 1<<63 - 1
}
