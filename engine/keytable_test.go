package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"cairn/internal/ids"
)

func TestKeyTableKnowsTheLastOffsetOfEachKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table, want := newKeyTable(1<<20, 0.9), map[string]ids.Offset{}
	for o := range ids.Offset(40_000) {
		key := fmt.Sprint("key ", rng.IntN(20_000))
		if !table.put([]byte(key), o, false) {
			t.Fatalf("full with %d keys", table.len())
		}
		want[key] = o
	}
	for key, o := range want {
		if got, ok := table.last([]byte(key)); !ok || got != o {
			t.Fatalf("%s: %d (%v), want %d", key, got, ok, o)
		}
	}
	for i := range 1000 {
		if _, ok := table.last(fmt.Appendf(nil, "other %d", i)); ok {
			t.Fatal("knows a key that is not there")
		}
	}
	if table.len() != len(want) {
		t.Errorf("%d keys, want %d", table.len(), len(want))
	}
}

func TestKeyTableStaysWithinItsBound(t *testing.T) {
	for _, load := range []float64{0, 0.5, 0.9, 1, 7} {
		table, n := newKeyTable(300<<10, load), 0
		for table.put(fmt.Append(nil, n), ids.Offset(n), false) {
			n++
		}
		if table.slots*keySlotBytes > 300<<10 {
			t.Errorf("load %v: %d slots", load, table.slots)
		}
		if least := int(float64(table.limit) * min(load, 0.9) / 2); n < least {
			t.Errorf("load %v: full with %d keys in %d slots, want at least %d", load, n, table.slots, least)
		}
		if _, ok := table.last(fmt.Append(nil, n)); ok {
			t.Errorf("load %v: has the key that did not fit", load)
		}
		if !table.put(fmt.Append(nil, n), 5, true) {
			t.Errorf("load %v: does not grow when it must", load)
		}
		if o, ok := table.last(fmt.Append(nil, n)); !ok || o != 5 {
			t.Errorf("load %v: %d (%v) for the forced key", load, o, ok)
		}
	}
}

func BenchmarkKeyTable(b *testing.B) {
	b.ReportAllocs()
	table := newKeyTable(64<<20, 0.9)
	key := []byte("key 00000000")
	i := 0
	for b.Loop() {
		i = (i + 7919) % 1_000_000
		key = fmt.Appendf(key[:4], "%08d", i)
		table.put(key, ids.Offset(i), false)
	}
}
