package batch

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

const testNow = int64(1_700_000_000_000)

var allCodecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

// lenient are rules under which every well-formed batch passes as it is.
func lenient() Rules {
	return Rules{
		MaxMessageBytes: math.MaxInt32, TimestampType: CreateTime, BeforeMaxMs: math.MaxInt64, AfterMaxMs: math.MaxInt64,
		NowMs: testNow, TargetCodec: CodecProducer,
	}
}

// textRecords are n records of size bytes of compressible text, with a key each and now and then a header.
func textRecords(n, size int) []Record {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	words := []string{"cairn ", "offset ", "batch ", "epoch ", "ledger ", "stone "}
	recs := make([]Record, n)
	for i := range recs {
		var v bytes.Buffer
		for v.Len() < size {
			v.WriteString(words[rng.IntN(len(words))])
		}
		recs[i] = Record{TimestampDelta: int64(i), OffsetDelta: int32(i), Key: fmt.Appendf(nil, "key-%d", i), Value: v.Bytes()[:size]}
		if i%7 == 0 {
			recs[i].Headers = []RecordHeader{{Key: []byte("h"), Value: []byte("v")}, {Key: []byte("null"), Value: nil}}
		}
	}
	return recs
}

func build(t testing.TB, cfg BuilderConfig, recs []Record) []byte {
	t.Helper()
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := b.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// collect deep-copies the records of a batch.
func collect(t testing.TB, raw []byte) []Record {
	t.Helper()
	var recs []Record
	for r, err := range Records(raw, 0) {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, cloneRecord(r))
	}
	return recs
}

func cloneRecord(r Record) Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	var hs []RecordHeader
	for _, h := range r.Headers {
		hs = append(hs, RecordHeader{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
	}
	r.Headers = hs
	return r
}

// fill makes a batch of about total bytes of records with values of size bytes, uncompressed, without keys.
func fill(t testing.TB, c Codec, total, size int) []byte {
	recs := textRecords(total/(size+10), size)
	for i := range recs {
		recs[i].Key, recs[i].Headers = nil, nil
	}
	return build(t, NewBuilderConfig(c, testNow), recs)
}
