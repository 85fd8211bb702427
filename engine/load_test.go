package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"cairn/internal/ids"
)

// Whatever happened to a log, after a restart it knows what it knew before.
func TestRestartChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewMem()
		e := openMem(t, fs, smallSteps)
		g := startGroup(t, e, testBinding(1))
		g.commit(g.last)
		sequences := map[int64]int32{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"data", "producer", "void", "epoch", "commit", "fork", "start", "reopen", "release"}).Draw(rt, "step") {
			case "data":
				g.save(g.data(rapid.IntRange(1, 5).Draw(rt, "n"), rapid.SampledFrom([]int{5, 3000, 66_000}).Draw(rt, "bytes")))
			case "producer":
				id := rapid.Int64Range(1, 3).Draw(rt, "id")
				n := rapid.IntRange(1, 3).Draw(rt, "n")
				g.save(g.noop(), g.producerData(id, sequences[id], n))
				sequences[id] += int32(n)
			case "void":
				g.ordinal += 3
				g.save(g.data(2, 10))
				g.ordinal -= 4
			case "epoch":
				g.save(g.epochStart(g.epoch + 1))
			case "commit":
				g.commit(rapid.Uint64Range(g.hard.Commit, g.last).Draw(rt, "commit"))
				next, err := g.log.NextAfter(ids.RaftIndex(g.hard.Commit))
				if err != nil {
					rt.Fatal(err)
				}
				g.log.SetHighWatermark(next)
			case "fork":
				g.fork(rapid.Uint64Range(g.hard.Commit, g.last).Draw(rt, "at"), g.hard.Term+1)
				epoch := g.epoch
				g.save(g.noop(), g.epochStart(epoch+1))
			case "start":
				o := ids.Offset(rapid.Int64Range(0, int64(g.log.HighWatermark())).Draw(rt, "start"))
				to, err := g.log.SetStart(o)
				if err == nil && to > 0 {
					err = (logDB{g.e}).RemoveEntriesTo(uint64(g.binding.Shard), uint64(g.binding.Replica), uint64(to))
				}
				if err != nil {
					rt.Fatal(err)
				}
			case "reopen":
				g.reopen(fs, smallSteps)
			case "release":
				g.e.Release(g.binding.Info.ID)
				g.bind()
			}
		}
		want, applied, hw := imageOf(t, g.log), g.log.Applied(), g.log.HighWatermark()
		g.reopen(fs, smallSteps)
		sameImage(t, imageOf(t, g.log), want)
		if g.log.Applied() != applied || g.log.HighWatermark() != hw {
			rt.Errorf("applied %d, high watermark %d, want %d, %d", g.log.Applied(), g.log.HighWatermark(), applied, hw)
		}
		closeEngine(t, g.e)
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func TestAppliedIsAtMostTheSavedCommit(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(1, 10))
	g.commit(3)
	g.log.SetApplied(4) // Raft has applied what is committed and not yet saved as such
	g.log.SetHighWatermark(99)
	g.reopen(fs, nil)
	if g.log.Applied() != 3 || g.log.HighWatermark() != 1 {
		t.Errorf("applied %d, high watermark %d", g.log.Applied(), g.log.HighWatermark())
	}
	closeEngine(t, g.e)
}

func TestProducerSnapshotsBoundWhatARestartReads(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	const batches = 3*producersEvery + 100
	for i := range int32(batches) {
		g.save(g.producerData(int64(i%3), i/3, 1))
		if i%100 == 99 {
			g.commit(g.last)
		}
	}
	want := imageOf(t, g.log)
	closeEngine(t, g.e)
	g.e = openMem(t, fs, nil)
	g.bind()
	sameImage(t, imageOf(t, g.log), want)
	p, err := g.log.storedProducers()
	if err != nil {
		t.Fatal(err)
	}
	if behind := g.log.LastIndex() - p.Index; behind > 2*producersEvery || uint64(p.Index) > g.hard.Commit {
		t.Errorf("the stored producer state is %d entries behind, at %d of commit %d", behind, p.Index, g.hard.Commit)
	}
	if got := len(g.log.sh.recent.items); got < recentKept {
		t.Errorf("%d newest entries are remembered", got)
	}
	closeEngine(t, g.e)
}
