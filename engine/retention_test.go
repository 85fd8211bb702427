package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// storedBatch is what the naive retention sees of a batch.
type storedBatch struct {
	base, next ids.Offset
	bytes      int64
	maxMs      int64
}

func batchesOf(t testing.TB, l *Log) (all []storedBatch) {
	t.Helper()
	for rest := readAll(t, l); len(rest) > 0; {
		h, one, r, err := batch.Split(rest)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, storedBatch{ids.Offset(h.BaseOffset), ids.Offset(h.NextOffset()), int64(len(one)), h.MaxTimestamp})
		rest = r
	}
	return all
}

func bytesOf(all []storedBatch) (n int64) {
	for _, b := range all {
		n += b.bytes
	}
	return n
}

// naiveExpired goes from batch to batch.
func naiveExpired(all []storedBatch, start ids.Offset, r Retention) ids.Offset {
	bySize, byTime := start, start
	for left, i := bytesOf(all), 0; r.MaxBytes >= 0 && i < len(all) && all[i].next <= r.Limit; i++ {
		if left -= all[i].bytes; left < r.MaxBytes {
			break
		}
		bySize = all[i].next
	}
	for i := 0; r.OldestMs >= 0 && i < len(all) && all[i].next <= r.Limit && all[i].maxMs < r.OldestMs; i++ {
		if all[i].maxMs >= 0 {
			byTime = all[i].next
		}
	}
	return max(bySize, byTime)
}

// nextGeneration makes the whole log the prefix of another generation.
func (g *group) nextGeneration() {
	g.t.Helper()
	g.commit(g.last)
	g.e.Release(g.binding.Info.ID)
	epochs := g.log.EpochStarts()
	g.binding.Shard, g.binding.Replica = g.binding.Shard+1000, g.binding.Replica+1000
	g.binding.Generation, g.binding.BaseOffset = g.binding.Generation+1, g.log.End()
	g.last, g.ordinal = 0, 0
	g.hard.Commit = 0
	g.bind()
	g.save(g.noop(), g.genesis(epochs...), g.epochStart(g.epoch+1))
}

func TestRetentionAgreesWithGoingThroughAllBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewMem()
		g := startGroup(t, openMem(t, fs, func(c *Config) { c.DropStepBytes = 1 }), testBinding(1))
		defer func() { closeEngine(t, g.e) }()
		valueBytes := rapid.SampledFrom([]int{10, 30_000, 70_000}).Draw(rt, "valueBytes")
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				g.nextGeneration()
			case 1:
				g.commit(g.last)
				o := ids.Offset(rapid.Int64Range(int64(g.log.Start()), int64(g.log.End())).Draw(rt, "start"))
				checkMove(rt, g, o)
			case 2:
				g.reopen(fs, nil)
			case 3:
				g.commit(g.last)
				checkExpired(rt, g)
			default:
				g.clock = rapid.Int64Range(100, 160).Draw(rt, "time")
				if rapid.IntRange(0, 5).Draw(rt, "no timestamps") == 0 {
					g.clock = -1000
				}
				g.save(g.data(rapid.IntRange(1, 4).Draw(rt, "records"), rapid.IntRange(0, valueBytes).Draw(rt, "bytes")))
			}
		}
		g.commit(g.last)
		checkExpired(rt, g)
	})
}

// checkMove moves the log start, and sees that the log's size is that of the batches which are left.
func checkMove(rt *rapid.T, g *group, o ids.Offset) {
	g.log.SetApplied(ids.RaftIndex(g.hard.Commit))
	to, err := g.log.SetStart(o)
	if err == nil && to > 0 {
		err = logDB{g.e}.RemoveEntriesTo(uint64(g.binding.Shard), uint64(g.binding.Replica), uint64(to))
	}
	if err != nil {
		rt.Fatal(err)
	}
	if got, want := g.log.SizeBytes(), bytesOf(batchesOf(g.t, g.log)); got != want {
		rt.Fatalf("after the log start %d: %d bytes, %d are left", o, got, want)
	}
}

func checkExpired(rt *rapid.T, g *group) {
	all := batchesOf(g.t, g.log)
	r := Retention{MaxBytes: -1, OldestMs: -1, Limit: g.log.End()}
	if len(all) > 0 && rapid.Bool().Draw(rt, "limited") {
		r.Limit = all[rapid.IntRange(0, len(all)-1).Draw(rt, "limit")].next
	}
	if rapid.Bool().Draw(rt, "by size") {
		r.MaxBytes = rapid.Int64Range(0, bytesOf(all)+10).Draw(rt, "keep")
	}
	if rapid.Bool().Draw(rt, "by time") {
		r.OldestMs = rapid.Int64Range(90, 170).Draw(rt, "oldest")
	}
	want := naiveExpired(all, g.log.Start(), r)
	got, more, err := g.log.Expired(r)
	if err != nil || more || got != want {
		rt.Fatalf("%+v of %v from %d: %d, %v, %v, want %d", r, all, g.log.Start(), got, more, err, want)
	}
	if got > g.log.Start() {
		checkMove(rt, g, got)
	}
}

func TestRetentionReadsLittle(t *testing.T) {
	reads := 0
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.Faults.DataRead = func(ids.PartitionID, ids.Offset) { reads++ } })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 1000 {
		g.save(g.data(1, 5000))
	}
	g.commit(g.last)
	to, more, err := g.log.Expired(Retention{Limit: g.log.End(), MaxBytes: g.log.SizeBytes() / 2, OldestMs: -1})
	if to != 500 || more || err != nil || reads > 0 {
		t.Errorf("by size: %d, %v, %v, %d batches were read", to, more, err, reads)
	}
	to, more, err = g.log.Expired(Retention{Limit: g.log.End(), MaxBytes: -1, OldestMs: 1_000_700})
	if to != 700 || more || err != nil || reads > 20 {
		t.Errorf("by time: %d, %v, %v, %d batches were read", to, more, err, reads)
	}
}

// A timestamp in the future, deleted long ago, stays the running maximum: what is too old is then found piece by piece.
func TestRetentionGoesOnBehindAStrayTimestamp(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.DropStepBytes = 1 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	g.clock = 1 << 40
	g.save(g.data(1, 10))
	g.clock = 100
	for range 40 {
		g.save(g.data(1, 1<<20))
	}
	g.commit(g.last)
	g.log.SetApplied(ids.RaftIndex(g.hard.Commit))
	r := Retention{Limit: g.log.End(), MaxBytes: -1, OldestMs: 500}
	if to, more, err := g.log.Expired(r); to != 0 || more || err != nil {
		t.Fatalf("behind a young record: %d, %v, %v", to, more, err)
	}
	to, more, err := ids.Offset(1), true, error(nil)
	calls := 0
	for ; more && err == nil; calls++ {
		if _, err = g.log.SetStart(to); err == nil {
			to, more, err = g.log.Expired(r)
		}
	}
	if err != nil || to != g.log.End() || calls < 4 || calls > 8 {
		t.Errorf("%d of %d after %d calls, %v", to, g.log.End(), calls, err)
	}
}

// The space of what was deleted comes back although nothing is written any more.
func TestDiskSpaceComesBackToAnIdleStore(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) {
		c.MemTableBytes, c.DropStepBytes = 64<<20, 1<<20
		c.blobRewriteMinAge, c.deletionFlushAfter = time.Millisecond, time.Millisecond
	})
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 512 {
		g.save(g.data(1, 64<<10))
	}
	g.commit(g.last)
	g.log.SetApplied(ids.RaftIndex(g.hard.Commit))
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	full := e.Metrics().DiskBytes
	to, _, err := g.log.Expired(Retention{Limit: g.log.End(), MaxBytes: 1 << 20, OldestMs: -1})
	if err != nil {
		t.Fatal(err)
	}
	index, err := g.log.SetStart(to)
	if err == nil {
		err = logDB{e}.RemoveEntriesTo(uint64(g.binding.Shard), uint64(g.binding.Replica), uint64(index))
	}
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for m := e.Metrics(); m.DiskBytes > full/4; m = e.Metrics() {
		select {
		case <-deadline:
			t.Fatalf("%d bytes of %d for %d live ones:\n%s", m.DiskBytes, full, g.log.SizeBytes(), e.db.Metrics())
		case <-tick.C:
		}
	}
}
