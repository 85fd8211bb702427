package batch

import (
	"bytes"
	"sync"
	"testing"
)

// Pooled decoders and encoders do not mix the batches of goroutines that use them at the same time.
func TestValidateFromManyGoroutines(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			source, target := allCodecs[g%len(allCodecs)], allCodecs[(g/2)%len(allCodecs)]
			recs := textRecords(20+g, 700)
			raw := build(t, NewBuilderConfig(source, testNow), recs)
			r := lenient()
			r.TargetCodec = target
			for range 20 {
				res, err := Validate(bytes.Clone(raw), r)
				if err != nil {
					t.Error(err)
					return
				}
				i := 0
				for rec, err := range Records(res.Batch, 0) {
					if err != nil || !bytes.Equal(rec.Value, recs[i].Value) {
						t.Errorf("%s to %s: record %d: %v", source, target, i, err)
						return
					}
					i++
				}
				if i != len(recs) {
					t.Errorf("%s to %s: %d records of %d", source, target, i, len(recs))
				}
			}
		})
	}
	wg.Wait()
}
