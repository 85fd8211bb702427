package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// keyed is a batch with one record for each key; keys that begin with '-' have no value.
func (g *group) keyed(change func(*batch.BuilderConfig), keys ...string) pb.Entry {
	cfg := batch.NewBuilderConfig(batch.CodecNone, g.clock)
	if change != nil {
		change(&cfg)
	}
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, k := range keys {
		value := []byte("value")
		if k[0] == '-' {
			k, value = k[1:], nil
		}
		if err := b.AppendKV(g.clock, []byte(k), value); err != nil {
			g.t.Fatal(err)
		}
		g.clock++
	}
	raw, err := b.Build()
	if err != nil {
		g.t.Fatal(err)
	}
	return g.entry(g.proposal(raw))
}

// settle commits all that is saved and raises the high watermark to it.
func (g *group) settle() {
	g.t.Helper()
	g.commit(g.last)
	g.log.SetHighWatermark(g.log.End())
}

// compact makes a pass at a time (ms); tombstones stay for 1000 ms.
func (g *group) compact(nowMs int64) CompactionResult {
	g.t.Helper()
	r, err := g.log.Compact(g.compaction(nowMs))
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

func (g *group) compaction(nowMs int64) Compaction {
	return Compaction{
		CompactionBounds: CompactionBounds{Limit: g.log.HighWatermark(), YoungMs: -1}, NowMs: nowMs, DeleteRetentionMs: 1000,
		DiscardBelow: math.MaxInt64, TableBytes: 1 << 20, TableLoad: 0.9, Pace: func(int) error { return nil },
	}
}

// contents are the stored batches: base, records as offset:key, M for a marker.
func (g *group) contents() (list []string) {
	g.t.Helper()
	err := g.log.ScanBatches(0, func(base ids.Offset, raw []byte) bool {
		s := fmt.Sprint(base, ":")
		h := batch.DecodeHeader(raw)
		for rec, err := range batch.Records(raw, 0) {
			switch {
			case err != nil:
				g.t.Fatal(err)
			case h.IsControl():
				s += "M"
			default:
				s += fmt.Sprintf(" %s@%d", rec.Key, h.BaseOffset+int64(rec.OffsetDelta))
			}
		}
		list = append(list, s)
		return true
	})
	if err != nil {
		g.t.Fatal(err)
	}
	if problems, err := g.e.Verify(g.binding.Info.ID); err != nil || len(problems) > 0 {
		g.t.Fatalf("%v, %v", problems, err)
	}
	return list
}

func (g *group) wantContents(want ...string) {
	g.t.Helper()
	if got := g.contents(); !slices.Equal(got, want) {
		g.t.Errorf("stored %q, want %q", got, want)
	}
}

func producerOf(id int64, sequence int32, transactional bool) func(*batch.BuilderConfig) {
	return func(c *batch.BuilderConfig) {
		c.ProducerID, c.ProducerEpoch, c.BaseSequence, c.Transactional = id, 0, sequence, transactional
	}
}

func (g *group) marker(id int64, commit bool) pb.Entry {
	return g.entry(g.proposal(batch.BuildMarker(id, 0, batch.Marker{Commit: commit, CoordinatorEpoch: 1}, g.clock)))
}

func TestCompactionKeepsTheLastOfEachKey(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(nil, "a", "b", "c"), g.keyed(nil, "a"), g.keyed(nil, "b", "d"), g.keyed(nil, "a"), g.keyed(nil, "z"))
	g.settle()
	r := g.compact(1)
	g.wantContents("0: c@2", "4: b@4 d@5", "6: a@6", "7: z@7")
	if r.Clean != 7 || r.Keys != 4 || r.BatchesRemoved != 1 || r.More {
		t.Errorf("result %+v", r)
	}
	if d, err := g.log.Dirt(CompactionBounds{Limit: g.log.End(), YoungMs: -1}); err != nil || d.Dirty != 0 {
		t.Errorf("dirt %+v, %v", d, err)
	}
	g.save(g.keyed(nil, "c"), g.keyed(nil, "y"))
	g.settle()
	if d, err := g.log.Dirt(CompactionBounds{Limit: g.log.End(), YoungMs: -1}); err != nil || d.From != 7 || d.To != 9 || d.Ratio() < 0.3 || d.Ratio() > 0.5 {
		t.Errorf("dirt %+v, %v", d, err)
	}
	g.compact(1)
	g.wantContents("4: b@4 d@5", "6: a@6", "7: z@7", "8: c@8", "9: y@9")
}

// A read at any offset gets the next batch there is, from memory or from the store.
func TestReadsGoOnBehindHoles(t *testing.T) {
	for _, tail := range []int64{-1, 1 << 20} {
		g := startGroup(t, openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = tail }), testBinding(1))
		for range 20 {
			g.save(g.keyed(nil, "a", "b"))
		}
		g.settle()
		g.compact(1)
		g.save(g.keyed(nil, "a", "b"))
		for from := range g.log.End() {
			r, err := g.log.Read(ReadOptions{From: from, Limit: g.log.End(), MaxBytes: 1, MinOneBatch: true})
			if err != nil {
				t.Fatal(err)
			}
			if want := max(36, from/2*2); r.FirstBase != want || r.Next != want+2 {
				t.Errorf("read from %d: batch at %d, next %d, want %d", from, r.FirstBase, r.Next, want)
			}
		}
		r, err := g.log.Read(ReadOptions{From: 3, Limit: 20, MaxBytes: 1000, MinOneBatch: true})
		if err != nil || r.Bytes != 0 || r.Next != 20 {
			t.Errorf("in a hole: %d bytes, next %d, %v", r.Bytes, r.Next, err)
		}
		closeEngine(t, g.e)
	}
}

func TestTombstonesStayForAWhile(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(nil, "a", "b"), g.keyed(nil, "-a"), g.keyed(nil, "z"))
	again := func(key string) {
		g.save(g.keyed(nil, key))
		g.settle()
	}
	again("y")
	g.compact(5000)
	g.wantContents("0: b@1", "2: a@2", "3: z@3", "4: y@4")
	again("x")
	g.compact(5999)
	g.wantContents("0: b@1", "2: a@2", "3: z@3", "4: y@4", "5: x@5")
	again("w")
	c := g.compaction(6000)
	c.DiscardBelow = 2 // some replica does not have it
	if _, err := g.log.Compact(c); err != nil {
		t.Fatal(err)
	}
	g.wantContents("0: b@1", "2: a@2", "3: z@3", "4: y@4", "5: x@5", "6: w@6")
	again("v")
	g.compact(6000)
	g.wantContents("0: b@1", "3: z@3", "4: y@4", "5: x@5", "6: w@6", "7: v@7")
}

func TestAbortedRecordsGoFirstAndTheirMarkerLater(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(nil, "a"), g.keyed(producerOf(7, 0, true), "a"), g.marker(7, false), g.keyed(producerOf(7, 1, true), "b"), g.marker(7, true), g.keyed(nil, "z"))
	g.settle()
	g.compact(5000)
	g.wantContents("0: a@0", "2:M", "3: b@3", "4:M", "5: z@5")
	more := func(key string, nowMs int64) {
		g.save(g.keyed(nil, key))
		g.settle()
		g.compact(nowMs)
	}
	more("y", 6000) // now the marker is found without its records, and gets its horizon
	g.wantContents("0: a@0", "2:M", "3: b@3", "4:M", "5: z@5", "6: y@6")
	if list, err := g.log.AbortedTransactions(0, g.log.End()); err != nil || len(list) != 1 {
		t.Errorf("aborted %+v, %v", list, err)
	}
	more("x", 7000)
	g.wantContents("0: a@0", "3: b@3", "4:M", "5: z@5", "6: y@6", "7: x@7")
	if list, err := g.log.AbortedTransactions(0, g.log.End()); err != nil || len(list) != 0 {
		t.Errorf("aborted %+v after the marker went, %v", list, err)
	}
}

func TestTheLastBatchOfAProducerStaysEmpty(t *testing.T) {
	fs := vfs.NewMem()
	g := startGroup(t, openMem(t, fs, nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.keyed(producerOf(7, 0, false), "a"), g.keyed(producerOf(7, 1, false), "a"), g.keyed(nil, "a"), g.keyed(nil, "z"))
	g.settle()
	g.compact(1)
	g.wantContents("1:", "2: a@2", "3: z@3")
	g.e.Release(g.binding.Info.ID)
	l, err := g.e.OpenLog(g.binding.Info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.rebuildProducers(); err != nil { // from the batches alone
		t.Fatal(err)
	}
	p, ok := l.Producer(7)
	if last, has := p.Last(); !ok || !has || last.LastSequence != 1 || last.LastOffset != 1 {
		t.Errorf("producer %+v", p)
	}
}

// What is not settled, too young, or the last batch is left alone.
func TestCompactionStopsWhereTheLogIsNotSettled(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	for range 10 {
		g.save(g.keyed(nil, "a"))
	}
	g.save(g.keyed(producerOf(7, 0, true), "a"), g.keyed(nil, "a"), g.keyed(nil, "a"))
	to := func(b CompactionBounds) ids.Offset {
		t.Helper()
		to, err := g.log.compactableTo(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	all := CompactionBounds{Limit: math.MaxInt64, YoungMs: -1}
	if got := to(all); got != 0 {
		t.Errorf("to %d with nothing committed", got)
	}
	g.commit(g.last - 8)
	if got := to(all); got != 4 {
		t.Errorf("to %d with 5 committed batches", got)
	}
	g.commit(g.last)
	if got := to(all); got != 9 {
		t.Errorf("to %d with a transaction that began at 10", got)
	}
	if got := to(CompactionBounds{Limit: 6, YoungMs: -1}); got != 5 {
		t.Errorf("to %d with the high watermark at 6", got)
	}
	if got := to(CompactionBounds{Limit: math.MaxInt64, YoungMs: 1_000_003}); got != 2 {
		t.Errorf("to %d with all from 1000003 on too young", got)
	}
}

// A table that holds few keys makes several passes of one.
func TestASmallTableTakesSeveralPasses(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	var keys []string
	for i := range 20_000 {
		if keys = append(keys, fmt.Sprint("key ", i%9000)); len(keys) == 500 {
			g.save(g.keyed(nil, keys...))
			keys = keys[:0]
		}
	}
	g.save(g.keyed(nil, "z"), g.keyed(nil, "y"))
	g.settle()
	c := g.compaction(1)
	c.TableBytes = 100 << 10
	passes := 0
	for more := true; more; passes++ {
		r, err := g.log.Compact(c)
		if err != nil || r.Keys > 100<<10/keySlotBytes {
			t.Fatalf("%+v, %v", r, err)
		}
		more = r.More
	}
	if passes < 4 {
		t.Errorf("%d passes", passes)
	}
	seen := map[string]bool{}
	if err := g.log.ScanBatches(0, func(_ ids.Offset, raw []byte) bool {
		for rec, err := range batch.Records(raw, 0) {
			if err != nil || seen[string(rec.Key)] {
				t.Fatalf("%s twice, %v", rec.Key, err)
			}
			seen[string(rec.Key)] = true
		}
		return true
	}); err != nil || len(seen) != 9002 {
		t.Errorf("%d keys, %v", len(seen), err)
	}
}

// A log that was compacted with records which turn out not to be the generation's is of no use below them either.
func TestALogCutBelowItsCompactionIsCopiedAnew(t *testing.T) {
	for _, agreed := range []ids.Offset{4, 8} {
		g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
		for range 4 {
			g.save(g.keyed(nil, "a", "b"))
		}
		g.save(g.keyed(nil, "z"))
		g.settle()
		g.compact(1)
		g.e.Release(g.binding.Info.ID)
		b := g.binding
		b.Shard, b.Replica, b.Generation, b.BaseOffset = 900, 901, 1, agreed
		if err := g.e.Rebase(Rebase{Binding: b, Agreed: agreed}); err != nil {
			t.Fatal(err)
		}
		s, _, err := g.e.Stored(b.Info.ID)
		if want := map[ids.Offset]ids.Offset{4: 0, 8: 8}[agreed]; err != nil || s.End != want {
			t.Errorf("agreed to %d: kept to %d, %v, want %d", agreed, s.End, err, want)
		}
		closeEngine(t, g.e)
	}
}

// Retention by size counts what is stored, not what was saved.
func TestRetentionCountsWhatIsLeft(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	for i := range 50 {
		g.save(g.keyed(nil, "a", "b", "c"), g.keyed(nil, fmt.Sprint("own ", i)))
	}
	g.settle()
	g.compact(1)
	size := g.log.SizeBytes()
	to, more, err := g.log.Expired(Retention{Limit: g.log.End(), MaxBytes: size, OldestMs: -1})
	if err != nil || more || to != g.log.Start() {
		t.Errorf("%d, %v, %v: nothing is beyond the size", to, more, err)
	}
	if to, _, err = g.log.Expired(Retention{Limit: g.log.End(), MaxBytes: size / 2, OldestMs: -1}); err != nil || to == 0 {
		t.Fatalf("%d, %v: half is beyond the size", to, err)
	}
	if _, err := g.log.SetStart(to); err != nil {
		t.Fatal(err)
	}
	if left := g.log.SizeBytes(); left < size/2 || left > size/2+200 {
		t.Errorf("%d bytes are left of %d", left, size)
	}
}

func TestAReleasedLogIsCompactedNoMore(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	for range 5 {
		g.save(g.keyed(nil, "a"))
	}
	g.settle()
	c := g.compaction(1)
	c.Pace = func(int) error {
		g.e.Release(g.binding.Info.ID)
		return nil
	}
	if _, err := g.log.Compact(c); !errors.Is(err, ErrReleased) {
		t.Errorf("error %v", err)
	}
}
