package engine

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// softSyncFS is the file system of a store with FlushOS. A commit must still wait until its bytes are written to the
// file, or a killed process loses what it acknowledged; Pebble only offers that together with an fsync. So commits
// ask for one, and on write-ahead log files it does nothing unless some commit under way needs a real one. A log
// file is synced for real when it is closed, so that no younger one can survive a power cut without it. walcut.go
// has what follows for reading the log after one.
type softSyncFS struct {
	vfs.FS
	log  *zap.Logger
	hard atomic.Int64 // commits under way that need a real sync
}

const walSuffix = ".log"

// Create implements vfs.FS.
func (fs *softSyncFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs *softSyncFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// Unwrap implements vfs.FS.
func (fs *softSyncFS) Unwrap() vfs.FS { return fs.FS }

func (fs *softSyncFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, walSuffix) {
		return f, err
	}
	return &softSyncFile{File: f, fs: fs}, nil
}

type softSyncFile struct {
	vfs.File
	fs *softSyncFS
}

// Sync implements vfs.File.
func (f *softSyncFile) Sync() error {
	if f.fs.hard.Load() == 0 {
		return nil
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *softSyncFile) SyncData() error {
	if f.fs.hard.Load() == 0 {
		return nil
	}
	return f.File.SyncData()
}

// Close implements vfs.File.
func (f *softSyncFile) Close() error { return errors.Join(f.File.SyncData(), f.File.Close()) }
