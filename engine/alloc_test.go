//go:build !race

package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// leastAllocs is the least of a few measurements: what Pebble does in the background allocates too.
func leastAllocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// The gates of the two hot paths: what a save and a read may allocate next to the command, which Raft brings along,
// and the copy of what comes from the store.

func TestSaveAllocationGate(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.MemTableBytes = 64 << 20 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	p := newProposals(g, 16<<10)
	const runs = 100
	g.obs.saved = make([]SavedEntry, 0, 10*runs)
	var cmds [][]byte
	for range 5*runs + 10 {
		cmds = append(cmds, p.next().Cmd)
		g.last, g.ordinal = g.last-1, g.ordinal-1
	}
	updates, entries := make([]pb.Update, 1), make([]pb.Entry, 1)
	db := logDB{e}
	n := leastAllocs(runs, func() {
		entries[0], cmds = p.entry(cmds[0]), cmds[1:]
		g.hard.Commit = g.last - 1
		updates[0] = g.update(entries...)
		if err := db.SaveRaftState(updates, 1); err != nil {
			t.Fatal(err)
		}
	})
	if n > 3 { // one for the memory tail, and Pebble's now and then
		t.Errorf("%.1f allocations for a save of one batch", n)
	}
}

func TestReadAllocationGate(t *testing.T) {
	for _, c := range []struct {
		name      string
		tailBytes int64
		most      float64
	}{{"tail", 0, 8}, {"store", -1, storeReadAllocs}} {
		e := openMem(t, vfs.NewMem(), func(cfg *Config) { cfg.TailBytes = c.tailBytes })
		g := startGroup(t, e, testBinding(1))
		p := newProposals(g, 1<<10)
		for range 1024 {
			g.save(p.next())
		}
		if err := e.db.Flush(); err != nil {
			t.Fatal(err)
		}
		n := leastAllocs(50, func() {
			r, err := g.log.Read(ReadOptions{From: 0, Limit: g.log.End(), MaxBytes: 1 << 20})
			if err != nil || r.Next != g.log.End() {
				t.Fatal(r.Next, err)
			}
		})
		if n > c.most {
			t.Errorf("%s: %.1f allocations for a read of 1,024 batches", c.name, n)
		}
		closeEngine(t, e)
	}
}
