package batch

import (
	"fmt"
	"testing"
)

// BenchmarkValidate reports bytes and records per second of the leader's check, CRC included.
func BenchmarkValidate(b *testing.B) {
	for _, c := range allCodecs {
		for _, size := range []int{1024, 100} {
			raw := fill(b, c, 1<<20, size)
			h := DecodeHeader(raw)
			b.Run(fmt.Sprintf("%s/record=%d", c, size), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(int(h.RecordCount) * (size + 10)))
				r := lenient()
				for b.Loop() {
					if _, err := Validate(raw, r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(h.RecordCount)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkRecords iterates, as a consumer of our own does.
func BenchmarkRecords(b *testing.B) {
	for _, c := range []Codec{CodecNone, CodecLZ4} {
		raw := fill(b, c, 1<<20, 1024)
		b.Run(c.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(1 << 20)
			for b.Loop() {
				for _, err := range Records(raw, 0) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkCRC is the share of the checksum in BenchmarkValidate.
func BenchmarkCRC(b *testing.B) {
	raw := fill(b, CodecNone, 1<<20, 1024)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if err := VerifyCRC(raw); err != nil {
			b.Fatal(err)
		}
	}
}
