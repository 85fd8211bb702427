package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// small is a batch of three records of an idempotent producer.
func small(t testing.TB, c Codec) []byte {
	cfg := NewBuilderConfig(c, testNow)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = 7, 1, 20
	return build(t, cfg, textRecords(3, 50))
}

// resealed applies a change to a copy of b and sets the CRC.
func resealed(b []byte, change func(b []byte)) []byte {
	b = bytes.Clone(b)
	change(b)
	SetCRC(b)
	return b
}

func put16(pos int, v int16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[pos:], uint16(v)) }
}

func put32(pos int, v int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[pos:], uint32(v)) }
}

func put64(pos int, v int64) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint64(b[pos:], uint64(v)) }
}

func TestValidateRefusesBadHeaders(t *testing.T) {
	good := small(t, CodecNone)
	tests := []struct {
		name  string
		raw   []byte
		rules func(*Rules)
		want  error
	}{
		{"empty record set", nil, nil, ErrInvalidRecord},
		{"header cut off", good[:HeaderLen-1], nil, ErrInvalidRecord},
		{"batch cut off", good[:len(good)-1], nil, ErrInvalidRecord},
		{"two batches", append(bytes.Clone(good), good...), nil, ErrInvalidRecord},
		{"one byte behind", append(bytes.Clone(good), 0), nil, ErrInvalidRecord},
		{"magic 1", resealed(good, func(b []byte) { b[posMagic] = 1 }), nil, ErrInvalidRecord},
		{"magic 3", resealed(good, func(b []byte) { b[posMagic] = 3 }), nil, ErrCorruptMessage},
		{"negative length", resealed(good, put32(posLength, -1)), nil, ErrCorruptMessage},
		{"length below the header", resealed(good, put32(posLength, minLength-1)), nil, ErrCorruptMessage},
		{"huge length", resealed(good, put32(posLength, math.MaxInt32)), nil, ErrInvalidRecord},
		{"base offset", resealed(good, put64(posBaseOffset, 1)), nil, ErrInvalidRecord},
		{"too large", good, func(r *Rules) { r.MaxMessageBytes = len(good) - 1 }, ErrMessageTooLarge},
		{"size comes before CRC", append(bytes.Clone(good[:len(good)-1]), 99), func(r *Rules) { r.MaxMessageBytes = len(good) - 1 }, ErrMessageTooLarge},
		{"CRC", append(bytes.Clone(good[:len(good)-1]), 99), nil, ErrCorruptMessage},
		{"negative last offset delta", resealed(good, put32(posLastOffsetDelta, -1)), nil, ErrInvalidRecord},
		{"last offset delta too large", resealed(good, put32(posLastOffsetDelta, 3)), nil, ErrInvalidRecord},
		{"last offset delta overflows", resealed(good, func(b []byte) { put32(posLastOffsetDelta, math.MaxInt32)(b); put32(posRecordCount, math.MinInt32)(b) }), nil, ErrInvalidRecord},
		{"count zero", resealed(good, func(b []byte) { put32(posLastOffsetDelta, -1)(b); put32(posRecordCount, 0)(b) }), nil, ErrInvalidRecord},
		{"count too small", resealed(good, func(b []byte) { put32(posLastOffsetDelta, 1)(b); put32(posRecordCount, 2)(b) }), nil, ErrInvalidRecord},
		{"count too large", resealed(good, func(b []byte) { put32(posLastOffsetDelta, 3)(b); put32(posRecordCount, 4)(b) }), nil, ErrInvalidRecord},
		{"count huge", resealed(good, func(b []byte) { put32(posLastOffsetDelta, math.MaxInt32-1)(b); put32(posRecordCount, math.MaxInt32)(b) }), nil, ErrInvalidRecord},
		{"control bit", resealed(good, put16(posAttributes, attrControl)), nil, ErrInvalidRecord},
		{"delete horizon bit", resealed(good, put16(posAttributes, attrDeleteHorizon)), nil, ErrInvalidRecord},
		{"producer id without sequence", resealed(good, put32(posBaseSequence, -1)), nil, ErrInvalidRecord},
		{"codec 5", resealed(good, put16(posAttributes, 5)), nil, ErrUnsupportedCompression},
		{"codec 7", resealed(good, put16(posAttributes, 7)), nil, ErrUnsupportedCompression},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := lenient()
			if tt.rules != nil {
				tt.rules(&r)
			}
			before := bytes.Clone(tt.raw)
			if _, err := Validate(tt.raw, r); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if !bytes.Equal(before, tt.raw) {
				t.Error("a refused batch was changed")
			}
		})
	}
}

// rawBatch makes a batch of count records out of body, which is taken as it is.
func rawBatch(t testing.TB, c Codec, count int, body []byte) []byte {
	t.Helper()
	b, err := NewBuilder(NewBuilderConfig(c, testNow))
	if err != nil {
		t.Fatal(err)
	}
	w := func(p []byte) error { _, err := b.out.Write(p); return err }
	if b.enc != nil {
		w = func(p []byte) error { _, err := b.enc.Write(p); return err }
	}
	if err := w(body); err != nil {
		t.Fatal(err)
	}
	b.count = count
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// record encodes body with its length, which is off by more.
func record(more int, body ...byte) []byte {
	return append(appendVarint(nil, int64(len(body)+more)), body...)
}

func TestValidateRefusesBadRecords(t *testing.T) {
	// attributes, timestamp delta 0, offset delta 0, key "k", value "v", no headers
	good := []byte{0, 0, 0, 2, 'k', 2, 'v', 0}
	tests := []struct {
		name string
		body []byte
	}{
		{"length beyond the batch", record(1, good...)},
		{"length one short", record(-1, good...)},
		{"negative length", append([]byte{1}, good...)},
		{"length of six bytes", append([]byte{0x90, 0x80, 0x80, 0x80, 0x80, 0x00}, good...)},
		{"length above 32 bits", append([]byte{0x90, 0x80, 0x80, 0x80, 0x70}, good...)},
		{"data behind the record", append(record(0, good...), 0)},
		{"a record more than announced", append(record(0, good...), record(0, good...)...)},
		{"empty", record(0)},
		{"key length -2", record(0, 0, 0, 0, 3, 2, 'v', 0)},
		{"key beyond the record", record(0, 0, 0, 0, 40, 'k', 2, 'v', 0)},
		{"value length -2", record(0, 0, 0, 0, 2, 'k', 3, 0)},
		{"value beyond the record", record(0, 0, 0, 0, 2, 'k', 40, 'v', 0)},
		{"negative header count", record(0, 0, 0, 0, 2, 'k', 2, 'v', 1)},
		{"header count without headers", record(0, 0, 0, 0, 2, 'k', 2, 'v', 2)},
		{"huge header count", record(0, 0, 0, 0, 2, 'k', 2, 'v', 0xfe, 0xff, 0xff, 0xff, 0x0f)},
		{"null header key", record(0, 0, 0, 0, 2, 'k', 2, 'v', 2, 1, 0)},
		{"header value beyond the record", record(0, 0, 0, 0, 2, 'k', 2, 'v', 2, 2, 'h', 20)},
		{"header value length -2", record(0, 0, 0, 0, 2, 'k', 2, 'v', 2, 2, 'h', 3)},
		{"byte behind the headers", record(0, 0, 0, 0, 2, 'k', 2, 'v', 0, 0)},
		{"timestamp delta of eleven bytes", record(0, append(append([]byte{0}, bytes.Repeat([]byte{0x80}, 10)...), 0, 0, 1, 1, 0)...)},
		{"offset delta cut off", record(0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0)},
	}
	for _, c := range allCodecs {
		raw := rawBatch(t, c, 1, record(0, good...))
		if _, err := Validate(raw, lenient()); err != nil {
			t.Fatalf("%s: the good record: %v", c, err)
		}
		for _, tt := range tests {
			t.Run(c.String()+"/"+tt.name, func(t *testing.T) {
				raw := rawBatch(t, c, 1, tt.body)
				if _, err := Validate(raw, lenient()); !errors.Is(err, ErrInvalidRecord) {
					t.Errorf("Validate: %v", err)
				}
				if n, err := drain(raw); !errors.Is(err, ErrInvalidRecord) {
					t.Errorf("Records: %d records, %v", n, err)
				}
			})
		}
	}
}

func drain(raw []byte) (n int, err error) {
	for _, err := range Records(raw, 0) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestValidateOfRecordRules(t *testing.T) {
	hour := int64(3_600_000)
	at := func(tss ...int64) []Record {
		recs := textRecords(len(tss), 20)
		for i, ts := range tss {
			recs[i].TimestampDelta = ts - testNow
		}
		return recs
	}
	noKey := textRecords(4, 20)
	noKey[1].Key, noKey[3].Key = nil, nil
	tests := []struct {
		name  string
		recs  []Record
		rules func(*Rules)
		want  error
		bad   []int32
	}{
		{"null keys", noKey, nil, nil, nil},
		{"null keys in a compacted topic", noKey, func(r *Rules) { r.Compacted = true }, ErrInvalidRecord, []int32{1, 3}},
		{"empty keys in a compacted topic", []Record{{Key: []byte{}}}, func(r *Rules) { r.Compacted = true }, nil, nil},
		{"timestamps at the bounds", at(testNow-hour, testNow+hour), func(r *Rules) { r.BeforeMaxMs, r.AfterMaxMs = hour, hour }, nil, nil},
		{"timestamps beyond the bounds", at(testNow-hour-1, testNow, testNow+hour+1), func(r *Rules) { r.BeforeMaxMs, r.AfterMaxMs = hour, hour }, ErrInvalidTimestamp, []int32{0, 2}},
		{"no timestamp", at(NoTimestamp, testNow), func(r *Rules) { r.BeforeMaxMs, r.AfterMaxMs = 0, 0 }, nil, nil},
		{"any timestamp where the leader sets it", at(5), func(r *Rules) { r.BeforeMaxMs, r.AfterMaxMs, r.TimestampType = 0, 0, LogAppendTime }, nil, nil},
		{"timestamp and key", append(at(5), noKey...), func(r *Rules) { r.BeforeMaxMs, r.Compacted = hour, true }, ErrInvalidTimestamp, []int32{0, 2, 4}},
	}
	for _, tt := range tests {
		for _, c := range []Codec{CodecNone, CodecLZ4} {
			t.Run(tt.name+"/"+c.String(), func(t *testing.T) {
				r := lenient()
				if tt.rules != nil {
					tt.rules(&r)
				}
				res, err := Validate(build(t, NewBuilderConfig(c, testNow), tt.recs), r)
				if !errors.Is(err, tt.want) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				var bad []int32
				for _, e := range res.RecordErrors {
					bad = append(bad, e.BatchIndex)
				}
				if !reflect.DeepEqual(bad, tt.bad) {
					t.Errorf("records %v, want %v", bad, tt.bad)
				}
			})
		}
	}
}

func TestValidateRefusesClientsLogAppendTime(t *testing.T) {
	cfg := NewBuilderConfig(CodecNone, testNow)
	cfg.LogAppendTime = testNow
	raw := build(t, cfg, textRecords(2, 20))
	r := lenient()
	r.TimestampType = LogAppendTime
	if _, err := Validate(bytes.Clone(raw), r); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("on a LogAppendTime topic: %v", err)
	}
	none := resealed(raw, put64(posMaxTimestamp, NoTimestamp))
	if _, err := Validate(none, lenient()); !errors.Is(err, ErrInvalidTimestamp) {
		t.Errorf("without timestamp on a CreateTime topic: %v", err)
	}
	res, err := Validate(raw, lenient())
	if err != nil || res.Header.TimestampType() != CreateTime {
		t.Errorf("with timestamp on a CreateTime topic: %v, %v", res.Header.TimestampType(), err)
	}
}

func TestValidateMendsTheMaxTimestamp(t *testing.T) {
	for _, c := range allCodecs {
		raw := resealed(small(t, c), put64(posMaxTimestamp, 99))
		res, err := Validate(raw, lenient())
		if err != nil {
			t.Fatal(err)
		}
		if want := testNow + 2; res.Header.MaxTimestamp != want || VerifyCRC(res.Batch) != nil || res.LogAppendTime != -1 {
			t.Errorf("%s: max timestamp %d, want %d; CRC %v", c, res.Header.MaxTimestamp, want, VerifyCRC(res.Batch))
		}
		if &res.Batch[0] != &raw[0] {
			t.Errorf("%s: batch was copied", c)
		}
	}
}

func TestValidateSetsLogAppendTime(t *testing.T) {
	for _, c := range allCodecs {
		raw := small(t, c)
		want := collect(t, raw)
		r := lenient()
		r.TimestampType, r.NowMs = LogAppendTime, testNow+5000
		res, err := Validate(raw, r)
		if err != nil {
			t.Fatal(err)
		}
		h := res.Header
		if h.TimestampType() != LogAppendTime || h.MaxTimestamp != r.NowMs || res.LogAppendTime != r.NowMs || h.BaseTimestamp != testNow || VerifyCRC(res.Batch) != nil {
			t.Errorf("%s: %+v, append time %d, CRC %v", c, h, res.LogAppendTime, VerifyCRC(res.Batch))
		}
		got := collect(t, res.Batch)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: records changed", c)
		}
		if ts := got[1].Timestamp(&h); ts != r.NowMs {
			t.Errorf("%s: timestamp of a record %d", c, ts)
		}
	}
}

func TestValidateRenumbersOffsetDeltas(t *testing.T) {
	recs := textRecords(4, 30)
	for _, c := range allCodecs {
		var body []byte
		for i := range recs {
			body = append(body, appendRecord(nil, &recs[i], i*3)...)
		}
		raw := resealed(rawBatch(t, c, 4, body), put64(posMaxTimestamp, testNow+3))
		res, err := Validate(raw, lenient())
		if err != nil {
			t.Fatal(err)
		}
		if res.Header.Codec() != c || !reflect.DeepEqual(collect(t, res.Batch), recs) {
			t.Errorf("%s: rewritten batch %+v with %v", c, res.Header, collect(t, res.Batch))
		}
	}
}

func TestValidateKeepsFlagsWhenItRecompresses(t *testing.T) {
	cfg := NewBuilderConfig(CodecGzip, testNow)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = 9, 2, 77, true
	recs := textRecords(50, 200)
	for _, target := range allCodecs {
		r := lenient()
		r.TargetCodec, r.TimestampType = target, LogAppendTime
		r.Levels = Levels{Gzip: 9, LZ4: 12, Zstd: 7}
		res, err := Validate(build(t, cfg, recs), r)
		if err != nil {
			t.Fatal(err)
		}
		h := res.Header
		if h.Codec() != target || !h.IsTransactional() || h.TimestampType() != LogAppendTime || h.ProducerID != 9 || h.ProducerEpoch != 2 || h.BaseSequence != 77 || h.RecordCount != 50 {
			t.Errorf("%s: %+v", target, h)
		}
		if err := VerifyCRC(res.Batch); err != nil || !reflect.DeepEqual(collect(t, res.Batch), recs) {
			t.Errorf("%s: CRC %v, or records changed", target, err)
		}
	}
}

func TestValidateChecksSizeAgainAfterRecompression(t *testing.T) {
	for _, source := range []Codec{CodecGzip, CodecZstd} {
		for _, target := range []Codec{CodecNone, CodecSnappy} {
			raw := build(t, NewBuilderConfig(source, testNow), textRecords(1000, 300))
			r := lenient()
			r.MaxMessageBytes, r.TargetCodec = len(raw), target
			if _, err := Validate(raw, r); !errors.Is(err, ErrMessageTooLarge) {
				t.Errorf("%s to %s: %v", source, target, err)
			}
		}
	}
}

func TestValidateBoundsTheListOfRecordErrors(t *testing.T) {
	raw := build(t, NewBuilderConfig(CodecNone, testNow), make([]Record, 5000))
	r := lenient()
	r.Compacted = true
	res, err := Validate(raw, r)
	if !errors.Is(err, ErrInvalidRecord) || len(res.RecordErrors) != recordErrorsMax {
		t.Errorf("%d record errors, %v", len(res.RecordErrors), err)
	}
}

func TestParseHeaderAndSplit(t *testing.T) {
	a, b := small(t, CodecNone), small(t, CodecZstd)
	SetBaseOffset(b, 3)
	SetLeaderEpoch(b, 8)
	if err := VerifyCRC(b); err != nil {
		t.Errorf("base offset or leader epoch are under the CRC: %v", err)
	}
	h, first, rest, err := Split(append(bytes.Clone(a), b...))
	if err != nil || !bytes.Equal(first, a) || !bytes.Equal(rest, b) || h.NextOffset() != 3 {
		t.Fatalf("first batch: %+v, %v", h, err)
	}
	h, second, rest, err := Split(rest)
	if err != nil || !bytes.Equal(second, b) || len(rest) != 0 || h.BaseOffset != 3 || h.LastOffset() != 5 || h.LeaderEpoch != 8 || h.Codec() != CodecZstd {
		t.Fatalf("second batch: %+v, %v", h, err)
	}
	out := make([]byte, HeaderLen)
	h.Put(out)
	if !bytes.Equal(out, b[:HeaderLen]) {
		t.Error("Put does not undo DecodeHeader")
	}
	for n := range len(a) {
		if _, _, _, err := Split(a[:n]); !errors.Is(err, ErrCorruptMessage) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for name, change := range map[string]func([]byte){
		"length": put32(posLength, 5), "count": put32(posRecordCount, -1), "delta": put32(posLastOffsetDelta, -5), "magic": func(b []byte) { b[posMagic] = 0 },
	} {
		if _, err := ParseHeader(resealed(a, change)); err == nil {
			t.Errorf("bad %s passes", name)
		}
	}
}

func TestCodecNames(t *testing.T) {
	for c := CodecProducer; c <= CodecZstd; c++ {
		if got, err := ParseCodec(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if c, err := ParseCodec("none"); c != CodecNone || err != nil {
		t.Errorf("none: %v, %v", c, err)
	}
	for _, bad := range []string{"", "lzma", "GZIP", "codec(9)"} {
		if _, err := ParseCodec(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
