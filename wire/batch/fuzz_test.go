package batch

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func addSeeds(f *testing.F) {
	for _, c := range allCodecs {
		f.Add(small(f, c))
	}
	paths, err := filepath.Glob("testdata/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if len(raw) < 10_000 {
			f.Add(raw)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, batch, rest, err := Split(b)
		if err != nil {
			return
		}
		if len(batch)+len(rest) != len(b) || len(batch) != h.Size() || h.Size() < HeaderLen {
			t.Fatalf("%d + %d of %d bytes, header %+v", len(batch), len(rest), len(b), h)
		}
		out := make([]byte, HeaderLen)
		h.Put(out)
		if !bytes.Equal(out, b[:HeaderLen]) {
			t.Fatal("header does not survive")
		}
	})
}

// FuzzValidate holds Validate against Records: what one accepts the other reads, with the same count, and what was
// accepted once is accepted again unchanged. The CRC and envelope are mended first, so that the fuzzer gets past them.
func FuzzValidate(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderLen {
			return
		}
		b = bytes.Clone(b)
		SetBaseOffset(b, 0)
		SetLength(b, int32(len(b)-LengthOverhead))
		b[posMagic] = Magic
		SetCRC(b)
		r := lenient()
		r.MaxDecompressedBytes = 4 << 20
		n, readErr := drain(b)
		before := records(b)
		res, err := Validate(b, r)
		if err != nil {
			return
		}
		if readErr != nil || n != int(res.Header.RecordCount) {
			t.Fatalf("valid, but Records gives %d records and %v", n, readErr)
		}
		if got := records(res.Batch); !reflect.DeepEqual(withoutOffsets(got), withoutOffsets(before)) {
			t.Fatalf("records changed: %v, were %v", got, before)
		}
		again, err := Validate(bytes.Clone(res.Batch), r)
		if err != nil || !bytes.Equal(again.Batch, res.Batch) {
			t.Fatalf("second pass: %v, or another batch", err)
		}
	})
}

// records reads what it can.
func records(raw []byte) (recs []Record) {
	for r, err := range Records(raw, 4<<20) {
		if err != nil {
			return recs
		}
		recs = append(recs, cloneRecord(r))
	}
	return recs
}

// withoutOffsets is for comparing batches of which one had its offset deltas made anew.
func withoutOffsets(recs []Record) []Record {
	recs = append([]Record(nil), recs...)
	for i := range recs {
		recs[i].OffsetDelta = 0
	}
	return recs
}

func FuzzRecords(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for r, err := range Records(b, 1<<20) {
			if err != nil {
				return
			}
			if total += len(r.Key) + len(r.Value); total > 1<<20 && total > len(b) {
				t.Fatalf("%d bytes of records from %d", total, len(b))
			}
		}
	})
}
