package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
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
	flushOS := func(c *Config) { c.Flush, c.BootID = FlushOS, "the first" }
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
	e := openMem(t, disk, func(c *Config) { c.Flush, c.BootID, c.Logger = FlushOS, "the second", zap.New(core) })
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
	e := openMem(t, disk, func(c *Config) { c.Flush, c.BootID, c.Logger = FlushOS, "the first", zap.New(core) })
	defer closeEngine(t, e)
	l, err := e.Bind(testBinding(1), nil)
	if err != nil || l.End() != end {
		t.Errorf("the log ends at %d, %v, want %d", l.End(), err, end)
	}
	if logs.Len() != 0 {
		t.Errorf("logged %v", logs.All())
	}
}

// TestTornLogIsCorruptionWithoutPowerCut: a machine that has run on has lost nothing, so what is missing was damaged.
func TestTornLogIsCorruptionWithoutPowerCut(t *testing.T) {
	disk, _, _ := killedDisk(t)
	tear(t, disk)
	e, err := Open(Config{Dir: "broker", FS: disk, Flush: FlushOS, BootID: "the first", MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20})
	if err == nil {
		closeEngine(t, e)
	}
	if !pebble.IsCorruptionError(err) {
		t.Errorf("error %v", err)
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

// endedLogs are the log files of a store that went on from one to the next, as they were when it had ended them.
func endedLogs(t *testing.T) (logs map[uint64][]byte, numbers []uint64) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	e := openMem(t, fs, func(c *Config) { c.Flush, c.MemTableBytes = FlushOS, 64<<10 })
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	logs = map[uint64][]byte{}
	for i := 0; len(logs) < 5; i++ {
		g.save(g.data(1, 2000))
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, uint64(i)))})
		files := logFiles(t, clone)
		for _, name := range files[:len(files)-1] {
			if n := logNumber(name); logs[n] == nil {
				logs[n] = readFile(t, clone, "broker/store/"+name)
			}
		}
	}
	numbers = slices.Sorted(maps.Keys(logs))[1:] // the first of a new store is in an older format
	return logs, numbers
}

// TestLogIsCutWhereAPowerCutHasTakenSomething: what counts is a beginning of all logs together, and all of them where nothing is missing.
func TestLogIsCutWhereAPowerCutHasTakenSomething(t *testing.T) {
	logs, numbers := endedLogs(t)
	var bounds []int64 // where the records of the second one end
	r := newRecordReader(record.NewReader, bytes.NewReader(logs[numbers[1]]), numbers[1])
	for {
		rec, err := r.Next()
		if err != nil {
			break
		}
		if _, err := io.Copy(io.Discard, rec); err != nil {
			t.Fatal(err)
		}
		bounds = append(bounds, r.Offset())
	}
	middle := bounds[len(bounds)/2]
	for _, c := range []struct {
		what  string
		mode  cutMode
		cut   func(b []byte) []byte // of the second log
		wants map[uint64]int64
	}{
		{"nothing is missing", cutChain, func(b []byte) []byte { return b }, nil},
		{"the end of a record", cutChain, func(b []byte) []byte { return b[:middle-1] }, map[uint64]int64{numbers[1]: bounds[len(bounds)/2-1], numbers[2]: 0, numbers[3]: 0}},
		{"whole records", cutChain, func(b []byte) []byte { return b[:middle] }, map[uint64]int64{numbers[2]: 0, numbers[3]: 0}},
		{"all", cutChain, func([]byte) []byte { return nil }, map[uint64]int64{numbers[2]: 0, numbers[3]: 0}},
		{"a piece in the middle", cutChain, func(b []byte) []byte {
			clear(b[middle : middle+100])
			return b
		}, map[uint64]int64{numbers[1]: middle, numbers[2]: 0, numbers[3]: 0}},
		{"no power cut, so it is damage", cutNothing, func(b []byte) []byte { return b[:middle] }, nil},
	} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("store", 0o755); err != nil {
			t.Fatal(err)
		}
		for i, n := range numbers {
			b := slices.Clone(logs[n])
			if i == 1 {
				b = c.cut(b)
			}
			f, err := fs.Create(fmt.Sprintf("store/%06d.log", n), vfs.WriteCategoryUnspecified)
			if err == nil {
				_, err = f.Write(b)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		soft := &softSyncFS{FS: fs, log: zap.NewNop(), cut: &logCut{mode: c.mode}}
		for _, n := range numbers {
			end, err := soft.endOf(fmt.Sprintf("store/%06d.log", n))
			want, ok := c.wants[n]
			if !ok {
				want = whole
			}
			if err != nil || end != want {
				t.Errorf("%s: log %d of %v counts up to %d, %v; want %d", c.what, n, numbers, end, err, want)
			}
		}
	}
}
