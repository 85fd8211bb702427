package engine

import (
	"crypto/sha256"
	"errors"
	"io"
	"maps"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
)

// lookAt opens the disk as a dump does, reads and verifies all that is there, and checks that no byte of it has changed.
func (r *crashRun) lookAt() {
	before, err := fileHashes(r.disk, "data")
	if err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
		return
	}
	if err := r.readAll(); err != nil {
		r.t.Errorf("seed %d: read-only: %v", r.seed, err)
	}
	after, err := fileHashes(r.disk, "data")
	if err != nil || !maps.Equal(before, after) {
		r.t.Errorf("seed %d: reading changed the files, %d before, %d after: %v", r.seed, len(before), len(after), err)
	}
}

func (r *crashRun) readAll() (err error) {
	cfg := Config{Dir: "data", FS: r.disk, TailBytes: -1}.withDefaults()
	e, err := open(cfg, true)
	if err != nil {
		for _, s := range r.shards {
			if s.from > 0 {
				return err
			}
		}
		return nil // the crash came before the store was made
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := e.Partitions()
	if err != nil {
		return err
	}
	for _, i := range infos {
		if err := r.readPartition(e, i.ID); err != nil {
			return err
		}
	}
	return nil
}

func (r *crashRun) readPartition(e *Engine, id ids.PartitionID) error {
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
		r.t.Errorf("seed %d: partition %d: the last entry is %d, not %d", r.seed, id, next, view.LastIndex)
	}
	if err == nil && l.Start() < l.End() {
		err = l.ScanBatches(l.Start(), func(ids.Offset, []byte) bool { return true })
	}
	found, verifyErr := e.Inspect(r.t.Context(), id)
	for _, p := range found.Problems {
		r.t.Errorf("seed %d: read-only: partition %d: %v", r.seed, id, p)
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
