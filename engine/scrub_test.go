package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestScrubFindsDamageThatNobodyReads: in one partition of two, and nothing in the other; before, it finds nothing.
func TestScrubFindsDamageThatNobodyReads(t *testing.T) {
	disk := vfs.NewMem()
	found := map[Binding]int{}
	hear := func(c *Config) {
		c.TailBytes = -1
		c.OnDamage = func(b Binding, _ *CorruptError) { found[b]++ }
	}
	e := openMem(t, disk, hear)
	one, two := startGroup(t, e, testBinding(1)), startGroup(t, e, testBinding(2))
	for range 10 {
		one.save(one.data(1, 3000))
		two.save(two.data(1, 100)) // too small for a file of values
	}
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	n, err := e.Scrub(func(bytes int) bool {
		seen += bytes
		return true
	})
	if err != nil || int64(seen) != n || n < one.log.SizeBytes()+two.log.SizeBytes() || len(found) != 0 {
		t.Errorf("%d bytes, %d told of, of %d: %v, damage in %v", n, seen, one.log.SizeBytes()+two.log.SizeBytes(), err, found)
	}
	if n, err := e.Scrub(func(int) bool { return false }); err != nil || n == 0 || n >= int64(seen) {
		t.Errorf("ended early: %d bytes, %v", n, err)
	}
	closeEngine(t, e)
	if flipByte(t, disk, "broker/store", ".blob") == 0 {
		t.Fatal("no value file was written")
	}
	one.e = openMem(t, disk, hear)
	two.e = one.e
	one.bind()
	two.bind()
	defer closeEngine(t, one.e)
	if _, err := one.e.Scrub(func(int) bool { return true }); err != nil {
		t.Error(err)
	}
	if found[one.binding] == 0 || len(found) != 1 {
		t.Errorf("damage in %v", found)
	}
}
