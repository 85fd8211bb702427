package engine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// flipByte changes one byte of each file of the store whose name ends so. It returns how many there were.
func flipByte(t *testing.T, fs vfs.FS, dir, suffix string) (n int) {
	return flipByteAt(t, fs, dir, suffix, 1.0/3)
}

// flipByteAt is flipByte with the place, as a part of the file.
func flipByteAt(t *testing.T, fs vfs.FS, dir, suffix string, part float64) (n int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b, at := make([]byte, 1), int64(part*float64(info.Size()))
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x55
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestDamageThatTheStoreFindsNamesTheBatch(t *testing.T) {
	fs := vfs.NewMem()
	var owners []Binding
	noTail := func(c *Config) {
		c.TailBytes = -1
		c.OnDamage = func(owner Binding, _ *CorruptError) { owners = append(owners, owner) }
	}
	g := startGroup(t, openMem(t, fs, noTail), testBinding(1))
	g.save(g.data(1, 3000))
	if err := g.e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	dir := fs.PathJoin(g.e.cfg.Dir, storeDir)
	closeEngine(t, g.e)
	if n := flipByte(t, fs, dir, ".blob"); n == 0 {
		t.Fatal("no value file was written")
	}
	g.reopen(fs, noTail)
	defer closeEngine(t, g.e)
	_, err := g.log.Read(ReadOptions{From: 0, Limit: 1, MaxBytes: 1 << 20, MinOneBatch: true})
	var damage *CorruptError
	if !errors.As(err, &damage) || damage.Offset != 0 || damage.Topic != g.log.Info().Topic {
		t.Errorf("read of a damaged value: %v", err)
	}
	if len(owners) != 1 || owners[0] != g.binding {
		t.Errorf("damage of %+v was reported", owners)
	}
	if !IsDamage(err) || IsDamage(nil) || IsDamage(ErrOffsetOutOfRange) {
		t.Error("what counts as damage")
	}
	// Raft gets a stub in its place, which is never sent, and goes on.
	entries, _, err := logDB{g.e}.IterateEntries(nil, 0, uint64(g.binding.Shard), uint64(g.binding.Replica), 2, g.last+1, math.MaxUint64)
	if err != nil || len(entries) != int(g.last)-1 {
		t.Fatalf("%d of %d entries: %v", len(entries), g.last, err)
	}
	stubs := 0
	for _, e := range entries {
		if !IsStub(e.Cmd) {
			continue
		}
		stubs++
		if h, err := ParseHeader(e.Cmd[1:]); err != nil || h.Kind != KindData || uint64(h.Term) != e.Term {
			t.Errorf("stub with header %+v: %v", h, err)
		}
	}
	if stubs != 1 {
		t.Errorf("%d stubs", stubs)
	}
}

// TestRebaseOfADamagedReplica: whatever byte is damaged, a replica that is made anew ends as its leader, and the store can compact.
func TestRebaseOfADamagedReplica(t *testing.T) {
	const places = 4
	needed := 0 // damage that would have been kept, or in the way
	for _, suffix := range []string{".blob", ".sst"} {
		for i := range places {
			t.Run(fmt.Sprint(suffix, i), func(t *testing.T) {
				if damagedRebase(t, suffix, (float64(i)+0.5)/places) {
					needed++
				}
			})
		}
	}
	if needed == 0 {
		t.Error("no place mattered")
	}
}

// damagedRebase reports whether anything came across the damage on the way.
func damagedRebase(t *testing.T, suffix string, part float64) (found bool) {
	c := newRebaseCase(t)
	defer func() { closeEngine(t, c.leader.e) }()
	fs := vfs.NewMem()
	hear := func(cfg *Config) { cfg.OnDamage = func(Binding, *CorruptError) { found = true } }
	g := startGroup(t, openMem(t, fs, hear), testBinding(1))
	g.save(g.producerData(4, 0, 3), g.data(2, 3000))
	for range 20 { // several blocks of keys, a few values of their own
		var entries []pb.Entry
		for range 40 {
			entries = append(entries, g.data(1, 100))
		}
		g.save(append(entries, g.data(1, 2000))...)
	}
	e := g.e
	e.Release(1)
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	dir := fs.PathJoin(e.cfg.Dir, storeDir)
	closeEngine(t, e)
	if flipByteAt(t, fs, dir, suffix, part) == 0 {
		t.Fatal("no such file")
	}
	e, err := Open(Config{Dir: "broker", FS: fs, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20, OnDamage: func(Binding, *CorruptError) { found = true }})
	if err != nil {
		t.Skip("the store refuses:", err)
	}
	defer closeEngine(t, e)
	if _, _, err := e.owner(1); err != nil {
		t.Skip("the owner cannot be read:", err)
	}
	r := c.rebase()
	r.Damaged = true
	err = e.Rebase(r)
	if errors.Is(err, ErrStoreDamaged) {
		t.Skip("the store gives up:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.finish(e)
	f := bindGroup(t, e, c.next)
	u := f.update(c.entries...)
	u.State = c.leader.hard
	if err := (logDB{e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
		t.Fatal(err)
	}
	got, want := imageOf(t, f.log), imageOf(t, c.leader.log)
	got.Quarantine = want.Quarantine
	sameImage(t, got, want)
	if problems, err := e.Verify(1); err != nil || len(problems) != 0 {
		t.Errorf("problems %v: %v", problems, err)
	}
	lo, hi := partitionBounds(rowData, 1)
	if err := e.db.Compact(t.Context(), lo, hi, false); err != nil {
		t.Errorf("compact: %v", err)
	}
	e.Release(1)
	return found
}
