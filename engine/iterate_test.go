package engine

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// iterate reads entries as dragonboat does: it asks again where an answer was cut, and drops what stands behind the cut.
func iterate(t testing.TB, g *group, low, high uint64) []pb.Entry {
	t.Helper()
	var all []pb.Entry
	for low < high {
		got, size, err := (logDB{g.e}).IterateEntries(nil, 0, uint64(g.binding.Shard), uint64(g.binding.Replica), low, high, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if size > 64<<20 && len(got) > 1 {
			got = got[:len(got)-1]
		}
		if len(got) == 0 {
			t.Fatalf("nothing at %d", low)
		}
		all = append(all, got...)
		low = got[len(got)-1].Index + 1
	}
	return all
}

func sameEntries(t testing.TB, got, want []pb.Entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if !bytes.Equal(g.Cmd, w.Cmd) {
			t.Errorf("entry %d: command of %d bytes differs from %d bytes", w.Index, len(g.Cmd), len(w.Cmd))
		}
		g.Cmd, w.Cmd = nil, nil
		if !reflect.DeepEqual(g, w) {
			t.Errorf("entry %+v, want %+v", g, w)
		}
	}
}

func TestEntriesComeBackAsTheyWereSaved(t *testing.T) {
	for name, tailBytes := range map[string]int64{"from the tail": 0, "from the store": -1, "from both": 3000} {
		t.Run(name, func(t *testing.T) {
			change := func(c *Config) { c.TailBytes = tailBytes }
			fs := vfs.NewMem()
			e := openMem(t, fs, change)
			g := bindGroup(t, e, testBinding(1))
			var entries []pb.Entry
			add := func(e pb.Entry) { entries = append(entries, e) }
			add(g.noop())
			add(g.genesis(EpochStart{Epoch: 2}))
			g.epoch = 2
			add(g.epochStart(3))
			for i := range 30 {
				add(g.data(1+i%3, 50*i))
			}
			session := g.entry(nil)
			session.Type, session.SeriesID, session.RespondedTo, session.Cmd = pb.ConfigChangeEntry, 5, 6, []byte("change")
			add(session)
			add(g.logStart(1))
			g.save(entries...)
			sameEntries(t, iterate(t, g, 1, g.last+1), entries)
			sameEntries(t, iterate(t, g, 7, 12), entries[6:11])
			g.reopen(fs, change)
			sameEntries(t, iterate(t, g, 2, g.last+1), entries[1:])
			closeEngine(t, g.e)
		})
	}
}

func TestReplicationReadsAreCutAtTwoMiB(t *testing.T) {
	for name, tailBytes := range map[string]int64{"from the tail": 0, "from the store": -1} {
		t.Run(name, func(t *testing.T) {
			e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = tailBytes })
			defer closeEngine(t, e)
			g := startGroup(t, e, testBinding(1))
			for range 10 {
				g.save(g.data(1, 500_000))
			}
			got, size, err := (logDB{e}).IterateEntries(nil, 0, 101, 1001, 4, g.last+1, 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, e := range got {
				bytes += len(e.Cmd)
			}
			if size <= 64<<20 || bytes < iterateBytesMax || bytes > iterateBytesMax+600_000 {
				t.Errorf("%d entries, %d bytes, reported as %d", len(got), bytes, size)
			}
			if stub := got[len(got)-1]; stub.Cmd != nil || stub.Index != got[len(got)-2].Index+1 {
				t.Errorf("behind the cut stands %+v", stub)
			}
			sameEntries(t, iterate(t, g, 1, g.last+1)[3:], iterate(t, g, 4, g.last+1))
		})
	}
}

func TestIterateKeepsDragonboatsLimit(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 10 {
		g.save(g.data(1, 1000))
	}
	before := []pb.Entry{{Index: 3}}
	got, size, err := (logDB{e}).IterateEntries(before, 100, 101, 1001, 4, g.last+1, 3000)
	if err != nil || size <= 3000 || len(got) != 1+3 {
		t.Errorf("%d entries of size %d, %v: want one more than fits", len(got), size, err)
	}
	term, _, err := (logDB{e}).IterateEntries(nil, 0, 101, 1001, 5, 6, 0)
	if err != nil || len(term) != 1 || term[0].Term != 1 || term[0].Index != 5 || term[0].Cmd != nil {
		t.Errorf("question for a term: %+v, %v", term, err)
	}
	if none, _, err := (logDB{e}).IterateEntries(nil, 0, 101, 1001, 50, 60, math.MaxUint64); err != nil || len(none) != 0 {
		t.Errorf("behind the log: %v, %v", none, err)
	}
}

// At start Raft walks over what is applied already; that must read no record batch.
func TestRestartReadsNoPayload(t *testing.T) {
	fs := vfs.NewMem()
	reads := 0
	change := func(c *Config) { c.Faults.DataRead = func(ids.PartitionID, ids.Offset) { reads++ } }
	e := openMem(t, fs, change)
	g := startGroup(t, e, testBinding(1))
	for range 100 {
		g.save(g.data(2, 30), g.data(1, 30_000))
	}
	g.commit(g.last - 10)
	want := imageOf(t, g.log)
	wantEntries := iterate(t, g, 1, g.last+1)
	g.reopen(fs, change)
	reads = 0
	if g.log.Applied() != ids.RaftIndex(g.last-10) {
		t.Fatalf("applied %d", g.log.Applied())
	}
	// First chunks as dragonboat asks for them, then the rest.
	low := uint64(1)
	for _, high := range []uint64{50, 51, g.last - 10 + 1} {
		for i, e := range iterate(t, g, low, high) {
			if kind, err := g.log.EntryKindAt(ids.RaftIndex(e.Index)); err != nil || kind == KindData && len(e.Cmd) != 1 {
				t.Fatalf("entry %d (%v, %v): %d bytes", low+uint64(i), kind, err, len(e.Cmd))
			}
		}
		low = high
	}
	if reads != 0 {
		t.Errorf("%d batches were read", reads)
	}
	sameEntries(t, iterate(t, g, low, g.last+1), wantEntries[low-1:])
	if reads != 10 {
		t.Errorf("%d batches were read for the 10 not applied", reads)
	}
	// Once the walk is over, the same entries have payload: they are for followers.
	sameEntries(t, iterate(t, g, 1, g.last+1), wantEntries)
	sameImage(t, imageOf(t, g.log), want)
	closeEngine(t, g.e)
}

// A read that is not the walk of a starting replica has payload, even before the walk.
func TestOnlyTheWalkIsWithoutPayload(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	for range 20 {
		g.save(g.data(2, 30))
	}
	g.commit(g.last)
	want := iterate(t, g, 1, g.last+1)
	g.reopen(fs, nil)
	sameEntries(t, iterate(t, g, 5, 9), want[4:8])
	if got := iterate(t, g, 1, g.last+1); len(got[10].Cmd) != 1 {
		t.Error("the walk from the start has payload")
	}
	sameEntries(t, iterate(t, g, 1, g.last+1), want)
	closeEngine(t, g.e)
}
