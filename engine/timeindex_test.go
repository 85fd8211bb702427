package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

type stamped struct {
	offset ids.Offset
	ts     int64
	epoch  ids.LeaderEpoch
}

// recordsOf are all records from the log start on, read one by one.
func recordsOf(t testing.TB, l *Log) (all []stamped) {
	t.Helper()
	for rest := readAll(t, l); len(rest) > 0; {
		h, one, r, err := batch.Split(rest)
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range batch.Records(one, 0) {
			if err != nil {
				t.Fatal(err)
			}
			s := stamped{ids.Offset(h.BaseOffset) + ids.Offset(rec.OffsetDelta), rec.Timestamp(&h), ids.LeaderEpoch(h.LeaderEpoch)}
			if s.offset >= l.Start() {
				all = append(all, s)
			}
		}
		rest = r
	}
	return all
}

func naiveOffsetForTime(all []stamped, ts int64, limit ids.Offset) stamped {
	for _, s := range all {
		if s.offset < limit && s.ts >= ts {
			return s
		}
	}
	return stamped{ids.NoOffset, -1, ids.NoEpoch}
}

func naiveMaxTimestamp(all []stamped, limit ids.Offset) stamped {
	best := stamped{ids.NoOffset, -1, ids.NoEpoch}
	for _, s := range all {
		if s.offset < limit && s.ts > best.ts {
			best = s
		}
	}
	return best
}

func TestTimeLookupsAgreeWithALinearSearch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewMem()
		e := openMem(t, fs, func(c *Config) { c.DropStepBytes = 1 })
		g := startGroup(t, e, testBinding(1))
		valueBytes := rapid.SampledFrom([]int{10, 30_000, 70_000}).Draw(rt, "valueBytes") // few, some, many time rows
		epoch := ids.LeaderEpoch(0)
		var bases []ids.Offset
		for range rapid.IntRange(1, 15).Draw(rt, "batches") {
			g.clock = rapid.Int64Range(100, 160).Draw(rt, "time")
			if rapid.IntRange(0, 4).Draw(rt, "epoch") == 0 {
				epoch++
				g.save(g.epochStart(epoch))
			}
			bases = append(bases, g.log.End())
			g.save(g.data(rapid.IntRange(1, 4).Draw(rt, "records"), valueBytes))
		}
		if rapid.Bool().Draw(rt, "truncate") {
			base := len(bases)/2 + 3
			g.fork(max(3, min(uint64(base), g.last)), 2)
			g.save(g.noop())
		}
		if rapid.Bool().Draw(rt, "raise the start") && g.log.End() > 0 {
			g.commit(g.last)
			if _, err := g.log.SetStart(ids.Offset(rapid.Int64Range(0, int64(g.log.End())-1).Draw(rt, "start"))); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "reopen") {
			g.reopen(fs, nil)
		}
		defer func() { closeEngine(t, g.e) }()
		all := recordsOf(t, g.log)
		// Limits lie between batches, as high watermark and last stable offset do.
		limits := append(bases, g.log.End(), g.log.End()+5)
		for _, limit := range limits {
			if limit < g.log.Start() || limit > g.log.End()+5 {
				continue
			}
			for ts := int64(98); ts < 166; ts += 3 {
				o, at, ep, err := g.log.OffsetForTime(ts, limit)
				if got, want := (stamped{o, at, ep}), naiveOffsetForTime(all, ts, limit); err != nil || got != want {
					rt.Fatalf("time %d below %d: %+v, %v, want %+v", ts, limit, got, err, want)
				}
			}
			o, at, ep, err := g.log.MaxTimestamp(limit)
			if got, want := (stamped{o, at, ep}), naiveMaxTimestamp(all, limit); err != nil || got != want {
				rt.Fatalf("maximum below %d: %+v, %v, want %+v", limit, got, err, want)
			}
		}
	})
}

func TestTimeLookupReadsLittle(t *testing.T) {
	reads := 0
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.Faults.DataRead = func(ids.PartitionID, ids.Offset) { reads++ } })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 1000 {
		g.save(g.data(1, 5000)) // one time row for 13 or 14 of them
	}
	for _, ts := range []int64{1_000_000, 1_000_001, 1_000_499, 1_000_999} {
		reads = 0
		o, at, _, err := g.log.OffsetForTime(ts, g.log.End())
		if err != nil || at != ts || o != ids.Offset(ts-1_000_000) {
			t.Errorf("time %d: offset %d at %d, %v", ts, o, at, err)
		}
		if reads > 15 {
			t.Errorf("time %d: %d batches were read", ts, reads)
		}
	}
	reads = 0
	if o, _, _, err := g.log.OffsetForTime(2_000_000, g.log.End()); o != ids.NoOffset || err != nil {
		t.Errorf("in the future: %d, %v", o, err)
	}
	if o, ts, _, err := g.log.MaxTimestamp(g.log.End()); o != 999 || ts != 1_000_999 || err != nil {
		t.Errorf("maximum: %d at %d, %v", o, ts, err)
	}
	if reads > 20 {
		t.Errorf("%d batches were read", reads)
	}
}
