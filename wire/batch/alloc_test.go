package batch

import "testing"

// The append path checks an uncompressed batch without allocation, and a compressed one with what its decoder needs
// per stream and no more.
func TestValidateAllocations(t *testing.T) {
	limits := map[Codec]float64{CodecNone: 0, CodecGzip: 3, CodecSnappy: 3, CodecLZ4: 3, CodecZstd: 3}
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
