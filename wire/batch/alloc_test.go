package batch

import "testing"

// The append path checks an uncompressed batch without allocation, and a compressed one with what its decoder needs
// per stream and no more.
func TestValidateAllocations(t *testing.T) {
	skipUnderRace(t)
	limits := map[Codec]float64{CodecNone: 0, CodecGzip: 5, CodecSnappy: 5, CodecLZ4: 5, CodecZstd: 5}
	for _, c := range allCodecs {
		raw := fill(t, c, 1<<20, 100)
		r := lenient()
		got := testing.AllocsPerRun(20, func() {
			if _, err := Validate(raw, r); err != nil {
				t.Fatal(err)
			}
		})
		if got > limits[c] {
			t.Errorf("%s: %v allocations, limit %v", c, got, limits[c])
		}
	}
}

func TestLogAppendTimeAllocations(t *testing.T) {
	skipUnderRace(t)
	raw := fill(t, CodecNone, 1<<20, 100)
	r := lenient()
	r.TimestampType = LogAppendTime
	now := testNow
	got := testing.AllocsPerRun(20, func() {
		now++
		r.NowMs = now
		b := raw
		setMaxTimestamp(b, 0, 0)
		SetCRC(b)
		if _, err := Validate(b, r); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestRecordsAllocations(t *testing.T) {
	skipUnderRace(t)
	raw := fill(t, CodecNone, 1<<20, 100)
	got := testing.AllocsPerRun(20, func() {
		for _, err := range Records(raw, 0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("memory is not measured under the race detector")
	}
}
