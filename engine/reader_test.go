package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

func TestReadKeepsItsLimits(t *testing.T) {
	for name, tailBytes := range map[string]int64{"tail": 0, "store": -1} {
		t.Run(name, func(t *testing.T) {
			e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = tailBytes })
			defer closeEngine(t, e)
			g := startGroup(t, e, testBinding(1))
			g.save(g.data(3, 100), g.noop(), g.data(2, 100), g.data(1, 20_000), g.data(4, 100)) // 0-2 3-4 5 6-9
			sizes := map[int64]int{}
			for rest := readAll(t, g.log); len(rest) > 0; {
				h, one, r, _ := batch.Split(rest)
				sizes[h.BaseOffset], rest = len(one), r
			}
			all := 1 << 30
			for _, c := range []struct {
				o     ReadOptions
				bases []int64
				next  ids.Offset
			}{
				{ReadOptions{From: 0, Limit: 10, MaxBytes: all}, []int64{0, 3, 5, 6}, 10},
				{ReadOptions{From: 0, Limit: 99, MaxBytes: all}, []int64{0, 3, 5, 6}, 10},
				{ReadOptions{From: 2, Limit: 10, MaxBytes: all}, []int64{0, 3, 5, 6}, 10},
				{ReadOptions{From: 3, Limit: 10, MaxBytes: all}, []int64{3, 5, 6}, 10},
				{ReadOptions{From: 8, Limit: 10, MaxBytes: all}, []int64{6}, 10},
				{ReadOptions{From: 10, Limit: 10, MaxBytes: all}, nil, 10},
				{ReadOptions{From: 0, Limit: 9, MaxBytes: all}, []int64{0, 3, 5}, 6},
				{ReadOptions{From: 0, Limit: 5, MaxBytes: all}, []int64{0, 3}, 5},
				{ReadOptions{From: 0, Limit: 4, MaxBytes: all}, []int64{0}, 3},
				{ReadOptions{From: 0, Limit: 2, MaxBytes: all}, nil, 0},
				{ReadOptions{From: 3, Limit: 3, MaxBytes: all}, nil, 3},
				{ReadOptions{From: 0, Limit: 10, MaxBytes: sizes[0] + sizes[3]}, []int64{0, 3}, 5},
				{ReadOptions{From: 0, Limit: 10, MaxBytes: sizes[0] + sizes[3] - 1}, []int64{0}, 3},
				{ReadOptions{From: 0, Limit: 10, MaxBytes: 1}, nil, 0},
				{ReadOptions{From: 0, Limit: 10, MaxBytes: 1, MinOneBatch: true}, []int64{0}, 3},
				{ReadOptions{From: 5, Limit: 10, MaxBytes: 1, MinOneBatch: true}, []int64{5}, 6},
				{ReadOptions{From: 5, Limit: 5, MaxBytes: 1, MinOneBatch: true}, nil, 5},
			} {
				r, err := g.log.Read(c.o)
				if err != nil {
					t.Fatalf("%+v: %v", c.o, err)
				}
				b := slices.Concat(r.Parts...)
				if got := offsetsOf(t, b); !slices.Equal(got, c.bases) || r.Next != c.next || r.Bytes != len(b) {
					t.Errorf("%+v: batches %v, next %d, %d bytes of %d, want %v, %d", c.o, got, r.Next, r.Bytes, len(b), c.bases, c.next)
				}
				if want := ids.NoOffset; len(c.bases) == 0 && r.FirstBase != want || len(c.bases) > 0 && int64(r.FirstBase) != c.bases[0] {
					t.Errorf("%+v: first base %d", c.o, r.FirstBase)
				}
			}
			for _, from := range []ids.Offset{-1, 11} {
				if _, err := g.log.Read(ReadOptions{From: from, Limit: 10, MaxBytes: all}); !errors.Is(err, ErrOffsetOutOfRange) {
					t.Errorf("from %d: %v", from, err)
				}
			}
		})
	}
}

func TestCorruptBatchesAreNotServed(t *testing.T) {
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = -1 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(3))
	g.save(g.data(2, 100), g.data(3, 100), g.data(1, 100))
	damage := func(base ids.Offset, at int) {
		key := appendDataKey(nil, 3, base)
		v, closer, err := e.db.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		v = bytes.Clone(v)
		closer.Close()
		v[at] ^= 1
		if err := e.db.Set(key, v, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []int{0, 8, 16, 17, 61, 200} { // base offset, length, magic, CRC, records
		damage(2, at)
		r, err := g.log.Read(ReadOptions{From: 0, Limit: 6, MaxBytes: 1 << 20})
		if got := offsetsOf(t, slices.Concat(r.Parts...)); err != nil || !slices.Equal(got, []int64{0}) {
			t.Errorf("damage at %d: batches %v, %v", at, got, err)
		}
		_, err = g.log.Read(ReadOptions{From: r.Next, Limit: 6, MaxBytes: 1 << 20})
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Topic != "t" || corrupt.Partition != 3 || corrupt.Offset != 2 {
			t.Errorf("damage at %d: %v", at, err)
		}
		entries, _, err := logDB{e}.IterateEntries(nil, 0, 103, 1003, 4, 7, 1<<20)
		if err != nil || len(entries) != 3 || IsStub(entries[0].Cmd) || !IsStub(entries[1].Cmd) || IsStub(entries[2].Cmd) {
			t.Errorf("damage at %d: replicated %d entries, %v", at, len(entries), err)
		}
		damage(2, at)
	}
	if got := offsetsOf(t, readAll(t, g.log)); len(got) != 3 {
		t.Errorf("batches %v", got)
	}
}

// Whatever was saved and truncated, a log with a tail of any size reads as one without.
func TestTailAndStoreReadAlike(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tailBytes := rapid.Int64Range(1, 4000).Draw(rt, "tailBytes")
		with := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = tailBytes })
		without := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = -1 })
		defer closeEngine(t, with)
		defer closeEngine(t, without)
		a, b := startGroup(t, with, testBinding(1)), startGroup(t, without, testBinding(1))
		both := func(do func(g *group)) { do(a); do(b) }
		for range rapid.IntRange(1, 12).Draw(rt, "saves") {
			if a.last > 3 && rapid.IntRange(0, 5).Draw(rt, "fork") == 0 {
				at := rapid.Uint64Range(3, a.last).Draw(rt, "at")
				both(func(g *group) {
					g.fork(at, g.hard.Term+1)
					epoch := g.epoch + 1
					g.save(g.noop(), g.epochStart(epoch))
				})
			}
			n, bytes := rapid.IntRange(1, 4).Draw(rt, "records"), rapid.IntRange(1, 900).Draw(rt, "bytes")
			both(func(g *group) { g.save(g.data(n, bytes), g.data(1, 1)) })
		}
		end := a.log.End()
		for range 10 {
			from := ids.Offset(rapid.Int64Range(0, int64(end)).Draw(rt, "from"))
			o := ReadOptions{
				From: from, Limit: ids.Offset(rapid.Int64Range(0, int64(end)+1).Draw(rt, "limit")),
				MaxBytes: rapid.IntRange(0, 5000).Draw(rt, "max"), MinOneBatch: rapid.Bool().Draw(rt, "minOne"),
			}
			ra, errA := a.log.Read(o)
			rb, errB := b.log.Read(o)
			if errA != nil || errB != nil || ra.Next != rb.Next || ra.Bytes != rb.Bytes || ra.FirstBase != rb.FirstBase ||
				!bytes.Equal(slices.Concat(ra.Parts...), slices.Concat(rb.Parts...)) {
				rt.Fatalf("%+v: %d bytes to %d, %v with a tail; %d bytes to %d, %v without", o, ra.Bytes, ra.Next, errA, rb.Bytes, rb.Next, errB)
			}
		}
		sameEntries(t, iterate(t, a, 1, a.last+1), iterate(t, b, 1, b.last+1))
	})
}

func TestTailsShareTheirBudget(t *testing.T) {
	const budget = 100_000
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes = budget })
	defer closeEngine(t, e)
	var groups []*group
	for i := range 5 {
		g := startGroup(t, e, testBinding(i+1))
		groups = append(groups, g)
		for range 100 {
			g.save(g.data(1, 2000))
			if total := e.Metrics().TailBytes; total > budget {
				t.Fatalf("%d bytes in all tails", total)
			}
		}
	}
	sum := int64(0)
	for i, g := range groups {
		if fair := int64(budget / len(groups)); g.log.tail.bytes > fair || g.log.tail.bytes < fair/2 {
			t.Errorf("tail %d holds %d bytes, its share is %d", i, g.log.tail.bytes, fair)
		}
		sum += g.log.tail.bytes
	}
	if total := e.Metrics().TailBytes; total != sum {
		t.Errorf("%d bytes counted, %d held", total, sum)
	}
	for _, g := range groups {
		e.Release(g.binding.Info.ID)
	}
	if m := e.Metrics(); m.TailBytes != 0 || e.tails.count.Load() != 0 {
		t.Errorf("%d bytes in %d tails after release", m.TailBytes, e.tails.count.Load())
	}
}
