package batch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// The records behind the header are those that Kafka writes: see EndTransactionMarker of its clients.
func TestMarkerIsKafkasControlBatch(t *testing.T) {
	for _, tt := range []struct {
		m       Marker
		records string
	}{
		{Marker{Commit: true, CoordinatorEpoch: 5}, "2000000008000000010c00000000000500"},
		{Marker{Commit: false, CoordinatorEpoch: 0x01020304}, "2000000008000000000c00000102030400"},
	} {
		raw := BuildMarker(7, 3, tt.m, 1000)
		h := DecodeHeader(raw)
		if !h.IsControl() || !h.IsTransactional() || h.ProducerID != 7 || h.ProducerEpoch != 3 || h.BaseSequence != NoSequence || h.RecordCount != 1 || h.MaxTimestamp != 1000 {
			t.Errorf("header %+v", h)
		}
		if err := VerifyCRC(raw); err != nil {
			t.Error(err)
		}
		if got := hex.EncodeToString(raw[HeaderLen:]); got != tt.records {
			t.Errorf("%+v: record %s, want %s", tt.m, got, tt.records)
		}
		if got, err := ParseMarker(raw); err != nil || got != tt.m {
			t.Errorf("read back as %+v, %v, want %+v", got, err, tt.m)
		}
	}
}

func TestParseMarkerRefusesWhatIsNone(t *testing.T) {
	whole := BuildMarker(7, 3, Marker{Commit: true}, 1000)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(whole)
		b[at] = to
		return b
	}
	for name, raw := range map[string][]byte{
		"nothing":       nil,
		"header alone":  whole[:HeaderLen],
		"cut":           whole[:len(whole)-1],
		"data batch":    change(posAttributes+1, 0x10),
		"compressed":    change(posAttributes+1, 0x31),
		"another type":  change(HeaderLen+8, 2),
		"two records":   change(posRecordCount+3, 2),
		"no key":        change(HeaderLen+4, 1),
		"negative size": change(HeaderLen, 1),
	} {
		if m, err := ParseMarker(raw); !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func FuzzParseMarker(f *testing.F) {
	f.Add(BuildMarker(7, 3, Marker{Commit: true, CoordinatorEpoch: 5}, 1000))
	f.Add(BuildMarker(1, 0, Marker{}, -1))
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMarker(b)
		if err != nil {
			if !errors.Is(err, ErrInvalidRecord) {
				t.Fatalf("%v is none of the errors that are documented", err)
			}
			return
		}
		again, err := ParseMarker(BuildMarker(7, 3, m, 0))
		if err != nil || again != m {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
