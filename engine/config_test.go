package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

func TestConfigNamesEverythingWrong(t *testing.T) {
	if err := (Config{Dir: "d"}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Flush: 7, MemTableBytes: 1, BlockCacheBytes: -1}.Validate()
	for _, word := range []string{"Dir", "Flush", "MemTableBytes", "BlockCacheBytes"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("opened without a directory")
	}
}

func TestSaveHistogram(t *testing.T) {
	var s stats
	for _, d := range []time.Duration{0, 64 * time.Microsecond, 65 * time.Microsecond, time.Hour} {
		s.saved(d, 10, d > 0)
	}
	h := s.histogram()
	if len(h.Bounds)+1 != len(h.Counts) || h.Counts[0] != 2 || h.Counts[1] != 1 || h.Counts[len(h.Counts)-1] != 1 {
		t.Errorf("%+v", h)
	}
	if s.savedBytes.Load() != 40 || s.saves.Load() != 4 || s.synced.Load() != 3 || h.Sum < 3600 {
		t.Errorf("%d bytes, %d saves, %d synced, %v seconds", s.savedBytes.Load(), s.saves.Load(), s.synced.Load(), h.Sum)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	e := openMem(t, vfs.NewMem(), nil)
	g := startGroup(t, e, testBinding(1))
	closeEngine(t, e)
	closeEngine(t, e)
	e.Release(g.binding.Info.ID)
}
