package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// What is deleted gives its room back when the store compacts, which it does as it is written to. On a disk that is nearly full nothing
// is written, so there it is made to.

// spansKept bounds what is remembered of deletions.
const spansKept = 256

// deleted notes that rows between two keys are gone. What is forgotten for lack of place has its turn with ordinary compactions.
func (s *space) deleted(lo, hi []byte) {
	if bytes.Compare(lo, hi) >= 0 {
		return
	}
	s.spansMu.Lock()
	defer s.spansMu.Unlock()
	if n := len(s.spans); n > 0 && string(s.spans[n-1].Start) == string(lo) {
		s.spans[n-1].End = hi // a log start that moves on
		return
	}
	if len(s.spans) == spansKept {
		s.spans = append(s.spans[:0], s.spans[1:]...)
	}
	s.spans = append(s.spans, pebble.KeyRange{Start: lo, End: hi})
}

// Reclaim has the store give back the room of what was deleted, where there is too little. It takes as long as that takes, or until ctx ends.
func (e *Engine) Reclaim(ctx context.Context) error {
	s := e.space
	if e.SpaceLevel() == SpaceAmple {
		return nil
	}
	s.spansMu.Lock()
	spans := s.spans
	s.spans = nil
	s.spansMu.Unlock()
	if len(spans) == 0 {
		return nil
	}
	if err := e.db.Flush(); err != nil {
		return fmt.Errorf("reclaim room: flush: %w", err)
	}
	for _, span := range spans {
		if err := e.db.Compact(ctx, span.Start, span.End, false); err != nil {
			return fmt.Errorf("reclaim room: %w", err)
		}
	}
	return nil
}

// A memtable is flushed while its write-ahead log is still there, and logs are kept to be used again. On a small disk both have to be small.
const (
	smallDiskShare   = 32
	memTableBytesLow = 4 << 20
)

// diskBytes is the size of the disk under the data directory, which need not be there yet; 0: unknown.
func diskBytes(cfg Config) int64 {
	disk := cfg.FS
	if disk == nil {
		disk = vfs.Default
	}
	for dir := cfg.Dir; ; {
		usage, err := disk.GetDiskUsage(dir)
		if err == nil {
			return int64(usage.TotalBytes)
		}
		parent := disk.PathDir(dir)
		if parent == dir || !errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		dir = parent
	}
}

// memTableBytesOn is the default for a disk of that size; 0: unknown.
func memTableBytesOn(total int64) int64 {
	if total == 0 {
		return DefaultMemTableBytes
	}
	return min(DefaultMemTableBytes, max(memTableBytesLow, total/smallDiskShare))
}
