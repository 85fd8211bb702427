package batch

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// filterRecord is a record of a test batch. A nil value is a tombstone.
type filterRecord struct {
	offset     int64
	ms         int64
	key, value []byte
}

// filterBatch makes up a batch and says what is in it.
func filterBatch(t *rapid.T, codec Codec) ([]byte, []filterRecord) {
	cfg := NewBuilderConfig(codec, 1_000_000)
	cfg.BaseOffset = rapid.Int64Range(0, 1<<40).Draw(t, "base")
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = 7, 2, 30, rapid.Bool().Draw(t, "transactional")
	if rapid.Bool().Draw(t, "log append time") {
		cfg.LogAppendTime = 2_000_000
	}
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var records []filterRecord
	for i := range rapid.IntRange(1, 20).Draw(t, "records") {
		r := filterRecord{offset: cfg.BaseOffset + int64(i), ms: 1_000_000 + rapid.Int64Range(-500, 500).Draw(t, "ms"), key: fmt.Appendf(nil, "key %d", i)}
		if rapid.Bool().Draw(t, "has value") {
			r.value = bytes.Repeat([]byte{byte(i)}, rapid.IntRange(0, 300).Draw(t, "value"))
		}
		rec := Record{TimestampDelta: r.ms - cfg.BaseTimestamp, Key: r.key, Value: r.value, Headers: []RecordHeader{{Key: []byte("h"), Value: []byte{byte(i)}}, {Key: []byte("null")}}}
		if err := b.Append(rec); err != nil {
			t.Fatal(err)
		}
		if cfg.LogAppendTime != NoTimestamp {
			r.ms = cfg.LogAppendTime
		}
		records = append(records, r)
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw, records
}

// sameRecords fails unless the batch holds the records, as they were written.
func sameRecords(t *rapid.T, raw []byte, want []filterRecord) {
	if err := VerifyCRC(raw); err != nil {
		t.Fatal(err)
	}
	h := DecodeHeader(raw)
	i := 0
	for rec, err := range Records(raw, 0) {
		if err != nil {
			t.Fatal(err)
		}
		w := want[i]
		if h.BaseOffset+int64(rec.OffsetDelta) != w.offset || rec.Timestamp(&h) != w.ms || !bytes.Equal(rec.Key, w.key) || !bytes.Equal(rec.Value, w.value) || (rec.Value == nil) != (w.value == nil) {
			t.Fatalf("record %d is %+v, want %+v", i, rec, w)
		}
		if len(rec.Headers) != 2 || string(rec.Headers[0].Key) != "h" || rec.Headers[1].Value != nil {
			t.Fatalf("record %d has headers %v", i, rec.Headers)
		}
		i++
	}
	if i != len(want) || int(h.RecordCount) != len(want) {
		t.Fatalf("%d records, the header says %d, want %d", i, h.RecordCount, len(want))
	}
}

func TestFilterKeepsWhatIsAskedForAndAllElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
		raw, records := filterBatch(t, codec)
		before, h := bytes.Clone(raw), DecodeHeader(raw)
		for round := range 2 { // what is left is filtered again
			keep := map[int64]bool{}
			var want []filterRecord
			tombstone, latest := false, NoTimestamp
			for _, r := range records {
				if rapid.IntRange(0, 3).Draw(t, "keep") > 0 {
					keep[r.offset] = true
					want = append(want, r)
					tombstone = tombstone || r.value == nil
					latest = max(latest, r.ms)
				}
			}
			f := Filtering{Keep: func(o int64, _ *Record) bool { return keep[o] }, HorizonMs: NoTimestamp}
			if rapid.Bool().Draw(t, "horizon") {
				f.HorizonMs, f.Always = 3_000_000+int64(round), rapid.Bool().Draw(t, "always")
			}
			had := DecodeHeader(raw)
			got, err := Filter(raw, f)
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 && !bytes.Equal(raw, before) {
				t.Fatal("the batch given was changed")
			}
			if len(want) == 0 {
				if got != nil {
					t.Fatal("something is left")
				}
				return
			}
			sets := f.HorizonMs != NoTimestamp && !had.HasDeleteHorizon() && (f.Always || tombstone)
			if unchanged := &got[0] == &raw[0]; unchanged != (len(want) == len(records) && !sets) {
				t.Fatalf("the same batch: %v, %d of %d records stay", unchanged, len(want), len(records))
			}
			sameRecords(t, got, want)
			g := DecodeHeader(got)
			if horizon, ok := g.DeleteHorizon(); ok != (sets || had.HasDeleteHorizon()) || sets && horizon != f.HorizonMs {
				t.Fatalf("horizon %d (%v)", horizon, ok)
			}
			if g.MaxTimestamp != latest && h.TimestampType() == CreateTime || h.TimestampType() == LogAppendTime && g.MaxTimestamp != h.MaxTimestamp {
				t.Fatalf("largest timestamp %d, want %d", g.MaxTimestamp, latest)
			}
			if g.NextOffset() != h.NextOffset() || g.BaseOffset != h.BaseOffset || g.ProducerID != 7 || g.BaseSequence != 30 || g.ProducerEpoch != 2 || g.Codec() != codec || g.IsTransactional() != h.IsTransactional() {
				t.Fatalf("header %+v of what was %+v", g, h)
			}
			raw, records = got, want
		}
	})
}

func TestEmptyKeepsPlaceAndProducer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, _ := filterBatch(t, CodecZstd)
		h := DecodeHeader(raw)
		empty := Empty(h)
		sameRecords(t, empty, nil)
		g, err := ParseHeader(empty)
		if err != nil || g.Size() != len(empty) || g.BaseOffset != h.BaseOffset || g.NextOffset() != h.NextOffset() || g.MaxTimestamp != h.MaxTimestamp ||
			g.ProducerID != h.ProducerID || g.ProducerEpoch != h.ProducerEpoch || g.BaseSequence != h.BaseSequence || g.IsTransactional() != h.IsTransactional() {
			t.Fatalf("%+v of %+v, %v", g, h, err)
		}
		again, err := Filter(empty, Filtering{Keep: func(int64, *Record) bool { return true }, HorizonMs: NoTimestamp})
		if err != nil || again != nil {
			t.Fatalf("of an empty batch %d bytes are left, %v", len(again), err)
		}
	})
}

func FuzzFilter(f *testing.F) {
	marker := BuildMarker(3, 1, Marker{Commit: true}, 1000)
	f.Add(marker, byte(1))
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		b, err := NewBuilder(NewBuilderConfig(codec, 1000))
		if err != nil {
			f.Fatal(err)
		}
		for i := range 5 {
			if err := b.AppendKV(1000+int64(i), []byte{byte(i)}, bytes.Repeat([]byte{1}, i*20)); err != nil {
				f.Fatal(err)
			}
		}
		raw, err := b.Build()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, byte(2))
	}
	f.Fuzz(func(t *testing.T, raw []byte, every byte) {
		n := int64(every)%5 + 1
		got, err := Filter(raw, Filtering{Keep: func(o int64, _ *Record) bool { return o%n == 0 }, HorizonMs: 5000, Always: every%2 == 0, MaxDecompressedBytes: 1 << 20})
		if err != nil || got == nil {
			return
		}
		if h, err := ParseHeader(got); err != nil || h.Size() != len(got) {
			t.Fatalf("what is left is no batch: %+v, %v", h, err)
		}
	})
}
