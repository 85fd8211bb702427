package engine

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// TestCloseLeavesNothingToReplay: a start after an orderly end reads no write-ahead log of records, however much the last memtable had.
func TestCloseLeavesNothingToReplay(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, func(c *Config) { c.MemTableBytes = 16 << 20 })
	g := startGroup(t, e, testBinding(1))
	for range 8 {
		g.save(g.data(1, 100_000))
	}
	want := readAll(t, g.log)
	closeEngine(t, e)

	note, err := readDurable(fs, fs.PathJoin("broker", durableFile), zap.NewNop())
	if err != nil || note.next == 0 || note.log != 0 {
		t.Errorf("noted is %+v (%v): log %d is read to its end by the next start", note, err, note.log)
	}
	// A store that is read only keeps in memtables what it has replayed.
	ro, err := open(Config{Dir: "broker", FS: fs, TailBytes: -1}.withDefaults(), true)
	if err != nil {
		t.Fatal(err)
	}
	if n := ro.db.Metrics().MemTable.Size; n > 500_000 { // an empty one has a quarter of a megabyte
		t.Errorf("%d bytes are replayed from the write-ahead log", n)
	}
	closeEngine(t, ro)

	e = openMem(t, fs, nil)
	defer closeEngine(t, e)
	again, err := e.OpenLog(g.binding.Info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, again); string(got) != string(want) {
		t.Errorf("%d bytes are read after the start, %d before", len(got), len(want))
	}
}

// TestOrderlyEndOutlivesAPowerCut: under FlushOS, too, and also where there is no room for a last flush. What was stopped in order counts as whole.
func TestOrderlyEndOutlivesAPowerCut(t *testing.T) {
	for name, free := range map[string]uint64{"room": 1 << 40, "no room": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			if err := errors.Join(fs.MkdirAll("broker", 0o755), syncDirOn(fs, "")); err != nil { // as OpenDataDir does
				t.Fatal(err)
			}
			e := openMem(t, fs, func(c *Config) {
				c.Flush, c.BootID, c.MinFreeBytes = FlushOS, "the first", 2<<20
				c.Faults.Room = func() (uint64, uint64) { return free, 1 << 41 }
			})
			g := startGroup(t, e, testBinding(1))
			for range 30 { // several log files
				g.save(g.data(1, 100_000))
			}
			want := readAll(t, g.log)
			closeEngine(t, e)

			after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 2))})
			e = openMem(t, after, func(c *Config) { c.Flush, c.BootID = FlushOS, "the second" })
			defer closeEngine(t, e)
			again, err := e.OpenLog(g.binding.Info.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, again); string(got) != string(want) {
				t.Errorf("%d bytes are read after the power cut, %d before", len(got), len(want))
			}
		})
	}
}
