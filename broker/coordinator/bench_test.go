package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/coordinator/coordtest"
)

// BenchmarkLoad replays a partition of a million records of about 120 bytes, a hundred to the batch, into a map.
func BenchmarkLoad(b *testing.B) {
	const records = 1_000_000
	h := coordtest.NewHost(b, 1, newStore)
	h.Elect(0)
	for i := 0; i < records; i += 100 {
		err := coordinator.ErrLoading
		for err != nil { // until the election is through
			err = h.Run("k", func(_ *store, _ time.Time, fx fxs) {
				for j := range 100 {
					fx.Append(rec(fmt.Sprintf("group-%d/topic/%d", (i+j)%10_000, j), fmt.Sprintf("%080d", i)))
				}
			})
		}
	}
	h.Close()
	b.ReportAllocs()
	for b.Loop() {
		other := coordtest.NewHostOver(b, []*coordtest.Replica{h.Replica(0).Clone()}, newStore)
		other.Elect(0)
		for other.Stats()[0].State != "leading" {
			time.Sleep(100 * time.Microsecond)
		}
		other.Close()
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
