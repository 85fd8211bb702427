package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
)

// lookAtDisk opens the disk as a dump does, reads and verifies all that is there, and checks that no byte of it has changed. Unless something is
// known to be there, the crash may have come before the store was made.
func lookAtDisk(ctx context.Context, disk *vfs.MemFS, known bool) error {
	before, err := fileHashes(disk, "data")
	if err != nil {
		return err
	}
	if err := readAllReadOnly(ctx, disk, known); err != nil {
		return fmt.Errorf("read-only: %w", err)
	}
	after, err := fileHashes(disk, "data")
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("reading changed the files, %d before, %d after", len(before), len(after))
	}
	return err
}

func readAllReadOnly(ctx context.Context, disk *vfs.MemFS, known bool) (err error) {
	cfg := Config{Dir: "data", FS: disk, TailBytes: -1}.withDefaults()
	e, err := open(cfg, true)
	if err != nil && !known {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := e.Partitions()
	if err != nil {
		return err
	}
	for _, i := range infos {
		if err := readPartition(ctx, e, i.ID); err != nil {
			return fmt.Errorf("partition %d: %w", i.ID, err)
		}
	}
	return nil
}

func readPartition(ctx context.Context, e *Engine, id ids.PartitionID) error {
	l, err := e.OpenLog(id)
	if err != nil {
		return err
	}
	view, next := l.ViewRaft(), ids.RaftIndex(0)
	err = l.ScanEntryViews(0, func(v EntryView) bool {
		next = v.Index
		return true
	})
	if err == nil && next != view.LastIndex && next != 0 {
		err = fmt.Errorf("the last entry is %d, not %d", next, view.LastIndex)
	}
	if err == nil && l.Start() < l.End() {
		err = l.ScanBatches(l.Start(), func(ids.Offset, []byte) bool { return true })
	}
	found, verifyErr := e.Inspect(ctx, id)
	if len(found.Problems) > 0 {
		err = errors.Join(err, fmt.Errorf("problems %v", found.Problems))
	}
	return errors.Join(err, verifyErr)
}

// fileHashes are the hashes of all files below a directory, which may be missing.
func fileHashes(fs vfs.FS, dir string) (map[string][sha256.Size]byte, error) {
	hashes := map[string][sha256.Size]byte{}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			sub, err := fileHashes(fs, path)
			if err != nil {
				return nil, err
			}
			maps.Copy(hashes, sub)
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		hashes[path] = sha256.Sum256(b)
	}
	return hashes, nil
}
