package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A store can be opened after a power cut at any write of its creation or of a later start, also where unsynced
// entries of a directory survive one by one and in any order.
func TestPowerCutWhileOpeningLeavesAStoreThatOpens(t *testing.T) {
	crashes := 0
	for at := int64(1); ; at++ {
		disk := vfs.NewCrashableMem()
		dir, err := disk.OpenDir("")
		if err == nil {
			err = disk.MkdirAll("broker", 0o755)
		}
		if err == nil {
			err = dir.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		f := &freezer{disk: disk, before: func() {}, after: func() {}}
		f.cfg.UnsyncedDataPercent, f.cfg.RNG = 50, rand.New(rand.NewPCG(uint64(at), 5))
		f.left.Store(at)
		for range 2 { // the second start writes a new MANIFEST
			g := bindGroup(t, openMem(t, errorfs.Wrap(disk, f), nil), testBinding(1))
			g.save(g.noop(), g.genesis(), g.epochStart(0), g.data(1, 100))
			closeEngine(t, g.e)
			if f.stopped.Load() {
				break
			}
		}
		if !f.stopped.Load() {
			break
		}
		crashes++
		e, err := Open(Config{Dir: "broker", FS: f.frozen, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("crash before write %d: %v", at, err)
		}
		closeEngine(t, e)
	}
	if crashes < 50 {
		t.Errorf("%d crashes", crashes)
	}
}
