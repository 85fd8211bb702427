package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Readers beside saves and compaction, which removes aborted records, then markers and with them the rows that say what was aborted: nobody may get a
// record that was aborted, and a read at the log start that goes on to the end gets the last value of each key.
func TestReadersBesideCompaction(t *testing.T) {
	for _, tail := range []int64{-1, 4 << 10, 1 << 20} {
		t.Run(fmt.Sprint("tail ", tail), func(t *testing.T) { readBesideCompaction(t, tail) })
	}
}

const deadValue, liveValue = "dead", "live"

// txnOf are the entries of one transaction, with a marker.
func (g *group) txnOf(rng *rand.Rand) []pb.Entry {
	id, commit := 1+rng.Int64N(5), rng.IntN(3) == 0
	value := deadValue
	if commit {
		value = liveValue
	}
	cfg := batch.NewBuilderConfig(batch.CodecNone, 1000)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = id, 0, int32(g.last), true
	b, err := batch.NewBuilder(cfg)
	for range 1 + rng.IntN(4) {
		if err == nil {
			err = b.AppendKV(1000, fmt.Appendf(nil, "k%d", rng.IntN(30)), []byte(value))
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
	raw, err := b.Build()
	if err != nil {
		g.t.Fatal(err)
	}
	data := g.entry(g.proposal(raw))
	return []pb.Entry{data, g.marker(id, commit), g.keyed(nil, fmt.Sprint("own", rng.IntN(10)))}
}

func readBesideCompaction(t *testing.T, tail int64) {
	g := startGroup(t, openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = tail }), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	var stop atomic.Bool
	var others sync.WaitGroup
	var passes atomic.Int64
	others.Go(func() {
		for !stop.Load() {
			c := g.compaction(10 * passes.Load())
			c.DeleteRetentionMs = 1 // over with the next pass that does something
			r, err := g.log.Compact(c)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Clean > r.From {
				passes.Add(1)
			}
		}
	})
	for reader := range uint64(2) {
		others.Go(func() {
			rng := rand.New(rand.NewPCG(reader, 3))
			for !stop.Load() && !t.Failed() {
				limit := g.log.LastStable(g.log.HighWatermark())
				if limit > 0 {
					readNoneDead(t, g.log, ids.Offset(rng.Int64N(int64(limit))), limit, 1+rng.IntN(3000))
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(uint64(tail), 1))
	for range 400 {
		g.save(g.txnOf(rng)...)
		g.settle()
	}
	stop.Store(true)
	others.Wait()
	for range 3 {
		g.save(g.keyed(nil, "last"), g.keyed(nil, "last"))
		g.settle()
		g.compact(10_000 + 2000*passes.Add(1))
	}
	left, err := g.log.AbortedTransactions(0, g.log.End())
	if err != nil || len(left) > 20 {
		t.Errorf("%d rows of aborted transactions are left, %v: markers were not removed", len(left), err)
	}
	if problems, err := g.e.Verify(g.binding.Info.ID); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// readNoneDead reads as a consumer of committed records, to a limit.
func readNoneDead(t *testing.T, l *Log, from, limit ids.Offset, maxBytes int) {
	for at := from; at < limit; {
		recs, aborted, err := l.ReadCommitted(ReadOptions{From: at, Limit: limit, MaxBytes: maxBytes, MinOneBatch: true})
		if err != nil || recs.Next <= at {
			t.Errorf("read at %d below %d: next %d, %v", at, limit, recs.Next, err)
			return
		}
		slices.SortFunc(aborted, func(a, b AbortedTransaction) int { return int(a.First - b.First) })
		gone := map[int64]bool{}
		for b := slices.Concat(recs.Parts...); len(b) > 0; {
			h, raw, rest, err := batch.Split(b)
			if err != nil {
				t.Error(err)
				return
			}
			b = rest
			for ; len(aborted) > 0 && aborted[0].First <= ids.Offset(h.LastOffset()); aborted = aborted[1:] {
				gone[aborted[0].ProducerID] = true
			}
			if m, err := batch.ParseMarker(raw); err == nil && !m.Commit {
				delete(gone, h.ProducerID)
			}
			if h.IsControl() || gone[h.ProducerID] && h.IsTransactional() {
				continue
			}
			for rec, err := range batch.Records(raw, 0) {
				if err != nil || string(rec.Value) == deadValue {
					t.Errorf("an aborted record at %d, %v", h.BaseOffset, err)
					return
				}
			}
		}
		at = recs.Next
	}
}
