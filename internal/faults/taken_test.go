//go:build cairn_faults

package faults

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestOrdersAreTaken: a disk that gets full in the middle of a write, gets room back, fails, and is well again.
func TestOrdersAreTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.json")
	b := open(file)
	give := func(o Orders) {
		t.Helper()
		if err := Give(file, o); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(10 * time.Second)
		for *b.orders.Load() != o {
			select {
			case <-deadline:
				t.Fatalf("%+v is not taken", o)
			case <-time.After(time.Millisecond):
			}
		}
	}
	write := func(what string, bytes, want int, wantErr error) {
		t.Helper()
		if can, err := b.write("a", bytes); can != want || !errors.Is(err, wantErr) {
			t.Errorf("%s: %d of %d bytes, %v; want %d, %v", what, can, bytes, err, want, wantErr)
		}
	}
	write("well", 100, 100, nil)
	if _, err := os.Stat(TakenFile(file)); err != nil {
		t.Error(err)
	}
	give(Orders{Disk: Disk{Full: true, LeftBytes: 150}})
	write("with room", 100, 100, nil)
	if free := b.room(1000); free != 1000 {
		t.Errorf("a quota says that %d bytes are free", free)
	}
	write("with room for half of it", 100, 50, syscall.ENOSPC)
	write("without room", 1, 0, syscall.ENOSPC)
	b.left.Add(30)
	write("after a removal", 40, 30, syscall.ENOSPC)
	give(Orders{Disk: Disk{Full: true, Told: true, LeftBytes: 150}})
	if free := b.room(1000); free != 0 {
		t.Errorf("%d bytes are free on a disk that stayed full", free)
	}
	give(Orders{Disk: Disk{SlowMs: 30}})
	for _, op := range []func(){func() { write("slow", 1, 1, nil) }, func() { _ = b.sync("a") }} {
		begun := time.Now()
		if op(); time.Since(begun) < 30*time.Millisecond {
			t.Errorf("it took %v", time.Since(begun))
		}
	}
	give(Orders{Disk: Disk{Fail: FailSync}})
	write("while syncs fail", 1, 1, nil)
	if err := b.sync("dir/b"); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	if hit, err := os.ReadFile(HitFile(file)); err != nil || string(hit) != "sync dir/b\n" {
		t.Errorf("hit %q, %v", hit, err)
	}
	give(Orders{})
	if err := b.sync("a"); err != nil {
		t.Error(err)
	}
	write("well again", 1, 1, nil)
}
