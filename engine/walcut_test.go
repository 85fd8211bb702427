package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"cairn/internal/ids"
)

// killedDisk is the disk of a broker that was killed while it had 40 batches in its write-ahead log, and what was
// durable then for sure: the end of the log after a save of the metadata shard.
func killedDisk(t *testing.T) (disk *vfs.MemFS, synced, end ids.Offset) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	flushOS := func(c *Config) { c.Flush = FlushOS }
	closeEngine(t, openMem(t, fs, flushOS)) // the first log file of a new store is in an older format
	e := openMem(t, fs, flushOS)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	for range 20 {
		g.save(g.data(1, 4000))
	}
	meta := modelShard{id: replicaID{ids.MetadataShard, 1}, log: newModelLog(true), versions: []version{{}}, logStarts: map[ids.Offset]bool{}}
	for !meta.newest().durable {
		u := meta.next(rand.New(rand.NewPCG(1, uint64(len(meta.versions)))))
		if err := (logDB{e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
			t.Fatal(err)
		}
	}
	synced = g.log.End()
	for range 20 {
		g.save(g.data(1, 4000))
	}
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}), synced, g.log.End()
}

// tear zeroes a piece of the newest log file, behind what was synced but before its end, as a power cut may.
func tear(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	names, err := fs.List("broker/store")
	if err != nil {
		t.Fatal(err)
	}
	logs := slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, walSuffix) })
	slices.Sort(logs)
	name := "broker/store/" + logs[len(logs)-1]
	info, err := fs.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	from := info.Size() * 6 / 10
	_, err = f.WriteAt(make([]byte, 8<<10), from)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestTornLogEndsAtItsLastWholeRecordUnderFlushOS(t *testing.T) {
	disk, synced, end := killedDisk(t)
	tear(t, disk)
	core, logs := observer.New(zap.WarnLevel)
	e := openMem(t, disk, func(c *Config) { c.Flush, c.Logger = FlushOS, zap.New(core) })
	defer closeEngine(t, e)
	l, err := e.Bind(testBinding(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.End() < synced || l.End() >= end {
		t.Errorf("the log ends at %d, want at least %d, which was synced, and less than %d", l.End(), synced, end)
	}
	if problems, err := e.Verify(1); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, %v", problems, err)
	}
	if logs.FilterMessageSnippet("torn").Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}

func TestKilledProcessLosesNothingAndNothingIsSaidOfATornLog(t *testing.T) {
	disk, _, end := killedDisk(t)
	core, logs := observer.New(zap.WarnLevel)
	e := openMem(t, disk, func(c *Config) { c.Flush, c.Logger = FlushOS, zap.New(core) })
	defer closeEngine(t, e)
	l, err := e.Bind(testBinding(1), nil)
	if err != nil || l.End() != end {
		t.Errorf("the log ends at %d, %v, want %d", l.End(), err, end)
	}
	if logs.Len() != 0 {
		t.Errorf("logged %v", logs.All())
	}
}

func TestTornLogIsCorruptionUnderFlushAlways(t *testing.T) {
	disk, _, _ := killedDisk(t)
	tear(t, disk)
	e, err := Open(Config{Dir: "broker", FS: disk, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20})
	if err == nil {
		closeEngine(t, e)
	}
	if !pebble.IsCorruptionError(err) || !strings.Contains(err.Error(), "log.flush=os") {
		t.Errorf("error %v", err)
	}
}
