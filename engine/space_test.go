package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
)

// A blob file holds what was written to all partitions at its time. Busy partitions expire soon, a slow one keeps its
// few batches for ever: they must not keep the files of all.
func TestDiskSpaceComesBack(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) {
		c.MemTableBytes, c.DropStepBytes, c.blobRewriteMinAge = 1<<20, 1<<20, time.Millisecond
	})
	defer closeEngine(t, e)
	busy := newProposals(startGroup(t, e, testBinding(1)), 16<<10)
	slow := newProposals(startGroup(t, e, testBinding(2)), 16<<10)
	const rounds, busyPerRound, kept = 128, 16, 256 // 32 MiB written, 2 MiB of it slow, 4 MiB of busy retained
	for range rounds {
		for range busyPerRound {
			busy.g.save(busy.next())
		}
		slow.g.save(slow.next())
		g := busy.g
		g.commit(g.last)
		to, err := g.log.SetStart(max(0, g.log.End()-kept))
		if err == nil && to > 0 {
			err = (logDB{e}).RemoveEntriesTo(uint64(g.binding.Shard), uint64(g.binding.Replica), uint64(to))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	live := busy.g.log.SizeBytes() + slow.g.log.SizeBytes()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for m := e.Metrics(); m.DiskBytes > 3*live; m = e.Metrics() {
		select {
		case <-deadline:
			t.Fatalf("the store has %d bytes for %d live ones:\n%s", m.DiskBytes, live, e.db.Metrics())
		case <-tick.C:
		}
	}
	m := e.Metrics()
	t.Logf("%d MiB on disk for %d MiB live; %d MiB written for %d MiB saved", m.DiskBytes>>20, live>>20,
		(m.WALBytes+m.FlushedBytes+m.CompactedBytes)>>20, m.SavedBytes>>20)
	if got := len(readAll(t, slow.g.log)); got != rounds*slow.size {
		t.Errorf("%d bytes of the slow partition, want %d", got, rounds*slow.size)
	}
	if end := busy.g.log.End(); busy.g.log.Start() != end-kept || end != ids.Offset(rounds*busyPerRound) {
		t.Errorf("busy partition from %d to %d", busy.g.log.Start(), end)
	}
}
