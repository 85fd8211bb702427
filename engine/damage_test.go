package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// flipByte changes one byte in the middle of each file of the store whose name ends so. It returns how many there were.
func flipByte(t *testing.T, fs vfs.FS, dir, suffix string) (n int) {
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
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, info.Size()/3); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x55
		if _, err := f.WriteAt(b, info.Size()/3); err != nil {
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
	noTail := func(c *Config) { c.TailBytes = -1 }
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
}
