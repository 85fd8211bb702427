package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
)

// killed is what a killed process leaves: all that was written, synced or not.
func killed(fs *vfs.MemFS) vfs.FS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

func TestIdleCheckpointsSurviveACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	g := startGroup(t, openMem(t, fs, nil), testBinding(1))
	store := func(want int) {
		t.Helper()
		if n, err := g.e.CheckpointIdle(); err != nil || n != want {
			t.Errorf("%d checkpoints stored, %v; want %d", n, err, want)
		}
	}
	recovered := func() (applied ids.RaftIndex, hw ids.Offset) {
		t.Helper()
		e := openMem(t, killed(fs), nil)
		defer closeEngine(t, e)
		l, err := e.Bind(g.binding, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l.Applied(), l.HighWatermark()
	}
	g.save(g.data(3, 50))
	g.commit(g.last)
	store(0) // it was saved to since
	g.log.SetApplied(ids.RaftIndex(g.last))
	g.log.SetHighWatermark(g.log.End())
	if _, hw := recovered(); hw == g.log.End() {
		t.Fatal("the high watermark is stored without an idle checkpoint: this test proves nothing")
	}
	store(1)
	store(0) // nothing is new
	if applied, hw := recovered(); applied != ids.RaftIndex(g.last) || hw != g.log.End() {
		t.Errorf("applied %d, high watermark %d; want %d and %d", applied, hw, g.last, g.log.End())
	}
	g.save(g.data(1, 50)) // carries no older one, and counts as busy
	g.commit(g.last)
	g.log.SetHighWatermark(g.log.End())
	store(0)
	store(1)
	if _, hw := recovered(); hw != g.log.End() {
		t.Errorf("high watermark %d, want %d", hw, g.log.End())
	}
	g.e.Release(g.binding.Info.ID)
	store(0)
	closeEngine(t, g.e)
	if _, err := g.e.CheckpointIdle(); err != ErrClosed {
		t.Errorf("closed: %v", err)
	}
}

// A save that comes between may leave an older checkpoint in the store, or ours may replace a newer one: the stored one is unknown then, and the
// next call writes it again.
func TestIdleCheckpointsAreWrittenAgainAfterASaveBetween(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	g.save(g.data(3, 50))
	g.commit(g.last)
	g.log.takeIdle()
	g.log.SetHighWatermark(g.log.End())
	c, changes, ok := g.log.takeIdle()
	if !ok || c.HighWatermark != g.log.End() {
		t.Fatalf("%+v, %v", c, ok)
	}
	g.log.SetHighWatermark(g.log.End() - 1) // so that the save has something to say
	g.save(g.data(1, 50))
	g.log.settleIdle(changes)
	if got := g.log.checkpointStored(); got != (checkpointRow{}) {
		t.Errorf("%+v counts as stored", got)
	}
	for _, want := range []int{0, 1, 0} {
		if n, err := g.e.CheckpointIdle(); err != nil || n != want {
			t.Errorf("%d checkpoints stored, %v; want %d", n, err, want)
		}
	}
	closeEngine(t, g.e)
}
