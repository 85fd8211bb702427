package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// logFiles are the files of the write-ahead log, oldest first.
func logFiles(t *testing.T, disk vfs.FS) []string {
	t.Helper()
	names, err := disk.List("broker/store")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, walSuffix) })
	slices.Sort(names)
	return names
}

// cutLog ends the newest log file that has content at a part of it. It reports false when there is none.
func cutLog(t *testing.T, disk vfs.FS, part float64) {
	t.Helper()
	names := logFiles(t, disk)
	path := "broker/store/" + names[len(names)-1]
	b := readFile(t, disk, path)
	if len(b) == 0 {
		t.Fatal("the log is empty")
	}
	rewriteFile(t, disk, path, b[:int(part*float64(len(b)))])
}

func readFile(t *testing.T, disk vfs.FS, path string) []byte {
	t.Helper()
	info, err := disk.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := disk.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if len(b) > 0 {
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func rewriteFile(t *testing.T, disk vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLogThatEndsEarlyIsDamage: wherever the log is cut, also between two records, where nothing in it tells.
func TestLogThatEndsEarlyIsDamage(t *testing.T) {
	for _, mode := range []FlushMode{FlushAlways, FlushOS} {
		for _, part := range []float64{0, 0.1, 0.5, 0.9, 0.999} {
			running := vfs.NewCrashableMem()
			set := func(c *Config) { c.Flush = mode }
			closeEngine(t, openMem(t, running, set)) // the first log file of a new store is in an older format
			g := startGroup(t, openMem(t, running, set), testBinding(1))
			for range 20 {
				g.save(g.data(1, 4000))
			}
			meta := pb.Update{ShardID: uint64(ids.MetadataShard), ReplicaID: 1, State: pb.State{Term: 1}} // durable in any mode
			if err := (logDB{g.e}).SaveRaftState([]pb.Update{meta}, 1); err != nil {
				t.Fatal(err)
			}
			disk := killed(running) // an orderly end would leave the log empty
			closeEngine(t, g.e)
			cutLog(t, disk, part)
			for range 2 { // a second start does not forget
				refuses(t, disk, mode, fmt.Sprintf("mode %d, cut at %v", mode, part), walSuffix)
			}
		}
	}
}

// refuses opens a store, which is to be refused with the name of such a file.
func refuses(t *testing.T, disk vfs.FS, mode FlushMode, what, file string) {
	t.Helper()
	e, err := Open(Config{Dir: "broker", FS: disk, Flush: mode, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20})
	if err == nil {
		closeEngine(t, e)
	}
	if !errors.Is(err, ErrStoreDamaged) || !strings.Contains(err.Error(), file) {
		t.Errorf("%s: %v", what, err)
	}
}

// TestManifestThatEndsEarlyIsDamage: it would leave out files of the store, without a word.
func TestManifestThatEndsEarlyIsDamage(t *testing.T) {
	for cut := range 40 {
		disk := vfs.NewMem()
		g := startGroup(t, openMem(t, disk, nil), testBinding(1))
		for range 3 {
			g.save(g.data(1, 4000))
			if err := g.e.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		closeEngine(t, g.e)
		names, err := disk.List("broker/store")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if manifestNumber(name) != 0 {
				path := "broker/store/" + name
				b := readFile(t, disk, path)
				rewriteFile(t, disk, path, b[:len(b)*cut/40])
			}
		}
		refuses(t, disk, FlushAlways, fmt.Sprintf("cut at %d of 40", cut), manifestPrefix)
	}
}

// TestNoteOfTheEndThatCannotBeReadIsNoDamage: it is made anew.
func TestNoteOfTheEndThatCannotBeReadIsNoDamage(t *testing.T) {
	disk := vfs.NewMem()
	g := startGroup(t, openMem(t, disk, nil), testBinding(1))
	g.save(g.data(3, 1000))
	want := readAll(t, g.log)
	closeEngine(t, g.e)
	path := "broker/" + durableFile
	whole := readFile(t, disk, path)
	for _, bad := range [][]byte{nil, whole[:5], append(slices.Clone(whole[:7]), whole[7]^1, whole[8], whole[9], whole[10], whole[11])} {
		rewriteFile(t, disk, path, bad)
		g.reopen(disk, nil)
		if got := readAll(t, g.log); string(got) != string(want) {
			t.Errorf("with %x noted %d bytes are read, want %d", bad, len(got), len(want))
		}
		g.save(g.data(1, 10))
		want = readAll(t, g.log)
		closeEngine(t, g.e)
		if b := readFile(t, disk, path); len(b) != durableBytes || string(b) == string(bad) {
			t.Errorf("noted %x", b)
		}
	}
}

// TestFlippedBitInTheLogNamesTheFile: whichever bit it is, what refuses says of which file.
func TestFlippedBitInTheLogNamesTheFile(t *testing.T) {
	running := vfs.NewCrashableMem()
	closeEngine(t, openMem(t, running, nil)) // the first log file of a new store is in an older format
	g := startGroup(t, openMem(t, running, nil), testBinding(1))
	for range 12 { // several blocks of the log
		g.save(g.data(1, 4000))
	}
	disk := killed(running) // an orderly end would leave the log empty
	closeEngine(t, g.e)
	names := logFiles(t, disk)
	path := "broker/store/" + names[len(names)-1]
	whole := readFile(t, disk, path)
	for bit := 3; bit < 8*len(whole); bit += 8*len(whole)/50 + 1 {
		b := slices.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		rewriteFile(t, disk, path, b)
		refuses(t, disk, FlushAlways, fmt.Sprintf("bit %d", bit), path)
	}
}
