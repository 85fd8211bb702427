package engine

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

// smallDisk is a disk of few bytes, in memory.
type smallDisk struct {
	vfs.FS
	size atomic.Int64
	// full: something else takes all room, but what the ballast gives free.
	full atomic.Bool
	left atomic.Int64
}

func newSmallDisk(size int64) *smallDisk {
	d := &smallDisk{FS: vfs.NewMem()}
	d.size.Store(size)
	return d
}

// used is the size of all files.
func (d *smallDisk) used(dir string) (n int64) {
	names, err := d.List(dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		path := d.PathJoin(dir, name)
		if info, err := d.Stat(path); err == nil && info.IsDir() {
			n += d.used(path)
		} else if err == nil {
			n += info.Size()
		}
	}
	return n
}

func (d *smallDisk) free() int64 {
	if d.full.Load() {
		return max(0, d.left.Load())
	}
	return max(0, d.size.Load()-d.used("broker"))
}

func (d *smallDisk) Remove(name string) error {
	if info, err := d.Stat(name); err == nil && strings.HasSuffix(name, ballastFile) {
		d.left.Add(info.Size())
	}
	return d.FS.Remove(name)
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(d.free()), TotalBytes: uint64(d.size.Load())}, nil
}

func (d *smallDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return &smallFile{f, d}, err
}

func (d *smallDisk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, c)
	return &smallFile{f, d}, err
}

type smallFile struct {
	vfs.File
	d *smallDisk
}

// Write writes what there is room for, as a file system does.
func (f *smallFile) Write(p []byte) (int, error) {
	room := min(f.d.free(), int64(len(p)))
	n, err := f.File.Write(p[:room])
	f.d.left.Add(int64(-n))
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (f *smallFile) WriteAt(p []byte, off int64) (int, error) {
	if f.d.free() < off+int64(len(p)) {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

func TestLevelsOfRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		before SpaceLevel
		free   int64
		want   SpaceLevel
	}{
		{SpaceAmple, 64 * mib, SpaceAmple},
		{SpaceAmple, 64*mib - 1, SpaceLow},
		{SpaceLow, 64 * mib, SpaceLow}, // coming back takes a little more
		{SpaceLow, 68 * mib, SpaceAmple},
		{SpaceLow, 32*mib - 1, SpaceShort},
		{SpaceShort, 33 * mib, SpaceShort},
		{SpaceShort, 34 * mib, SpaceLow},
		{SpaceAmple, 2*mib - 1, SpaceOut},
		{SpaceOut, 2 * mib, SpaceOut},
		{SpaceOut, 3 * mib, SpaceShort},
		{SpaceOut, 0, SpaceOut},
	} {
		if got := levelOf(c.before, c.free, 64*mib); got != c.want {
			t.Errorf("from %v with %d free: %v, want %v", c.before, c.free, got, c.want)
		}
	}
	if got := levelOf(SpaceOut, 0, 0); got != SpaceAmple {
		t.Errorf("with nothing to be kept free: %v", got)
	}
}

// TestFullDiskWaitsAndGoesOn: a disk that is full in spite of all takes the ballast, and then has a save wait. Reads go on meanwhile, the
// save when there is room again, and nothing that was saved is lost.
func TestFullDiskWaitsAndGoesOn(t *testing.T) {
	const ballast = 256 << 10
	disk := newSmallDisk(24 << 20)
	core, logs := observer.New(zap.WarnLevel)
	small := func(c *Config) {
		c.MinFreeBytes, c.BallastBytes, c.Logger = 8<<20, ballast, zap.New(core)
	}
	e := openMem(t, disk, small)
	g := startGroup(t, e, testBinding(1))
	if s := e.CheckSpace(); s.Level != SpaceAmple || s.Ballast != ballast || s.MinFree != 8<<20 {
		t.Fatalf("at first %+v", s)
	}
	for e.SpaceLevel() < SpaceLow { // the save itself has to notice: nobody checks meanwhile
		g.save(g.data(1, 60<<10))
	}
	if free := disk.free(); free < 5<<20 { // a memtable of 1 MiB may be on its way to the disk at the same time
		t.Errorf("only %d bytes were left when it was noticed", free)
	}
	if n := logs.FilterMessageSnippet("records are refused").Len(); n != 1 {
		t.Errorf("told %d times", n)
	}

	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	disk.left.Store(0)
	disk.full.Store(true)
	g.save(g.data(1, 10<<10)) // by the ballast
	if s := e.CheckSpace(); s.Ballast != 0 || s.Level < SpaceShort {
		t.Errorf("after the ballast %+v", s)
	}
	if logs.FilterMessageSnippet("ballast is given up").Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
	disk.left.Store(0)
	end := g.log.End()
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		g.save(g.data(1, 10<<10))
	}()
	eventually(t, func() bool { return logs.FilterMessageSnippet("a write waits").Len() > 0 })
	if r, err := g.log.Read(ReadOptions{From: 0, Limit: end, MaxBytes: 1 << 20, MinOneBatch: true}); err != nil || r.Bytes == 0 {
		t.Errorf("read of %d bytes while the disk is full: %v", r.Bytes, err)
	}
	select {
	case <-saved:
		t.Fatal("a save returned without room")
	default:
	}
	disk.size.Store(64 << 20)
	disk.full.Store(false)
	<-saved
	if g.log.End() <= end {
		t.Errorf("the log ends at %d", g.log.End())
	}
	eventually(t, func() bool { s := e.CheckSpace(); return s.Level == SpaceAmple && s.Ballast == ballast })
	want := readAll(t, g.log)
	closeEngine(t, e)
	g.reopen(disk, small)
	defer closeEngine(t, g.e)
	if got := readAll(t, g.log); string(got) != string(want) {
		t.Errorf("%d bytes after a restart, %d before", len(got), len(want))
	}
	if g.e.CheckSpace().Ballast != ballast {
		t.Error("the ballast was not found again")
	}
}

// TestFullDiskIsOverThoughTheClockWasSetBack: how long a disk counts as full is no matter of the wall clock.
func TestFullDiskIsOverThoughTheClockWasSetBack(t *testing.T) {
	e := openMem(t, newSmallDisk(64<<20), func(c *Config) { c.MinFreeBytes, c.BallastBytes = 8<<20, 0 })
	defer closeEngine(t, e)
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} { // the clock of the time when it was full, compared with that of now
		for _, row := range []struct {
			ago  time.Duration
			want SpaceLevel
		}{{fullHold / 2, SpaceOut}, {fullHold + time.Second, SpaceAmple}} {
			at := clock.Set(time.Now().Add(-row.ago), by)
			e.space.fullAt.Store(&at)
			if s := e.CheckSpace(); s.Level != row.want {
				t.Errorf("full %v ago, by a clock that was %v ahead: %v, want %v", row.ago, by, s.Level, row.want)
			}
		}
	}
}

func eventually(t *testing.T, what func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-deadline:
			t.Fatal("it does not happen")
		case <-tick.C:
		}
	}
}

// TestStoreOpensOnAFullDisk: what a start has to write has the ballast.
func TestStoreOpensOnAFullDisk(t *testing.T) {
	disk := newSmallDisk(16 << 20)
	small := func(c *Config) { c.MinFreeBytes, c.BallastBytes = 1<<20, 1<<20 }
	e := openMem(t, disk, small)
	g := startGroup(t, e, testBinding(1))
	e.CheckSpace()
	g.save(g.data(1, 500<<10))
	want := readAll(t, g.log)
	closeEngine(t, e)
	disk.left.Store(0)
	disk.full.Store(true)
	g.reopen(disk, small)
	defer closeEngine(t, g.e)
	if got := readAll(t, g.log); string(got) != string(want) {
		t.Errorf("%d bytes after a restart, %d before", len(got), len(want))
	}
}

// slowDisk has a sync of the write-ahead log take until it was told of, or 20 s.
type slowDisk struct {
	on   atomic.Bool
	told chan string
	seen string // what was told; valid once the sync has returned
}

func (*slowDisk) String() string { return "slow disk" }

func (d *slowDisk) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, walSuffix) && d.on.Swap(false) {
		select {
		case d.seen = <-d.told:
		case <-time.After(20 * time.Second):
		}
	}
	return nil
}

func TestSlowDiskIsTold(t *testing.T) {
	disk := &slowDisk{told: make(chan string, 1)}
	e := openMem(t, errorfs.Wrap(vfs.NewMem(), disk), func(c *Config) {
		c.OnDiskStall = func(op, file string, _ time.Duration) {
			select {
			case disk.told <- op + " " + file:
			default:
			}
		}
	})
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	disk.on.Store(true)
	g.save(g.data(1, 100))
	if !strings.Contains(disk.seen, "sync") || !strings.Contains(disk.seen, walSuffix) {
		t.Errorf("told of %q", disk.seen)
	}
}

// brokenDisk fails with EIO at operations of one kind on files that end so, once it is switched on.
type brokenDisk struct {
	on     atomic.Bool
	kind   errorfs.OpKind
	suffix string
	// dir: it is the directory itself, which is synced when a log file is made. Pebble ends the process then by a panic on the way of which it
	// unlocks what is not locked, and Go tells of that alone.
	dir bool
}

func (b *brokenDisk) String() string { return "broken disk" }

func (b *brokenDisk) MaybeError(op errorfs.Op) error {
	if b.on.Load() && op.Kind == b.kind && strings.Contains(op.Path, b.suffix) && strings.HasSuffix(op.Path, storeDir) == b.dir {
		return &os.PathError{Op: "fdatasync", Path: op.Path, Err: syscall.EIO}
	}
	return nil
}

// brokenDirEnv has the test binary be the process that TestFailedDiskStopsTheProcess is about.
const brokenDirEnv, brokenKindEnv = "CAIRN_TEST_BROKEN_DIR", "CAIRN_TEST_BROKEN"

// brokenKinds are the failures: of which files, and at what.
var brokenKinds = map[string]*brokenDisk{
	"log sync":    {kind: errorfs.OpFileSyncData, suffix: ".log"},
	"log write":   {kind: errorfs.OpFileWrite, suffix: ".log"},
	"table sync":  {kind: errorfs.OpFileSyncData, suffix: ".sst"},
	"value write": {kind: errorfs.OpFileWrite, suffix: ".blob"},
	"manifest":    {kind: errorfs.OpFileSync, suffix: "MANIFEST"},
	// What makes files, too: Pebble would try again for ever.
	"table create": {kind: errorfs.OpCreate, suffix: ".sst"},
	"value create": {kind: errorfs.OpCreate, suffix: ".blob"},
	"directory":    {kind: errorfs.OpFileSync, suffix: storeDir, dir: true},
}

// TestBrokenDiskProcess saves 20 batches, tells so, and goes on with a disk that fails. It has to be ended by that.
func TestBrokenDiskProcess(t *testing.T) {
	dir := os.Getenv(brokenDirEnv)
	if dir == "" {
		return // it is for TestFailedDiskStopsTheProcess, which runs it in a process of its own
	}
	broken := brokenKinds[os.Getenv(brokenKindEnv)]
	e, err := Open(Config{Dir: dir, FS: errorfs.Wrap(vfs.Default, broken), MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20, Logger: zap.NewExample()})
	if err != nil {
		t.Fatal(err)
	}
	g := startGroup(t, e, testBinding(1))
	for range 20 {
		g.save(g.data(1, 4000))
	}
	broken.on.Store(true)
	for range 2000 {
		g.save(g.data(1, 40_000))
	}
	os.Exit(3) // it was not ended
}

func TestFailedDiskStopsTheProcess(t *testing.T) {
	for name, kind := range brokenKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestBrokenDiskProcess$")
			cmd.Env = append(os.Environ(), brokenDirEnv+"="+dir, brokenKindEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); err == nil || code == 3 || code < 0 {
				t.Fatalf("exit code %d: %v\n%s", code, err, out)
			}
			text, _, _ := strings.Cut(string(out), "\ngoroutine ")
			words := []string{"the disk failed", "panic: engine: ", dir, kind.suffix, "input/output error", "start again"}
			if kind.dir {
				words = slices.Delete(words, 1, 2)
			}
			for _, word := range words {
				if !strings.Contains(text, word) {
					t.Errorf("%q is missing in\n%s", word, text)
				}
			}
			e, err := Open(Config{Dir: dir, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20})
			if err != nil {
				t.Fatal("next start:", err)
			}
			defer closeEngine(t, e)
			l, err := e.Bind(testBinding(1), nil)
			if err != nil || l.End() < ids.Offset(20) {
				t.Errorf("the log ends at %d: %v", l.End(), err)
			}
			if problems, err := e.Verify(1); err != nil || len(problems) > 0 {
				t.Errorf("problems %v: %v", problems, err)
			}
		})
	}
}
