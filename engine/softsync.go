package engine

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// softSyncFS is the file system of a store with FlushOS. A commit must still wait until its bytes are written to the
// file, or a killed process loses what it acknowledged; Pebble only offers that together with an fsync. So commits
// ask for one, and on write-ahead log files it does nothing unless some commit under way needs a real one. Nor does
// the end of a log file wait for the disk: most are removed, once what they have is in tables, before the operating
// system has written them. A real sync takes the older files along, so that what it promises is a beginning of
// the log. walcut.go has what follows for reading the log after a power cut.
type softSyncFS struct {
	vfs.FS
	log  *zap.Logger
	hard atomic.Int64 // commits under way that need a real sync
	cut  *logCut

	syncing sync.Mutex // held while closed files are synced; before mu
	mu      sync.Mutex
	closed  []*softSyncFile // guarded by mu; log files that Pebble has ended and the disk may lack, oldest first
}

const walSuffix = ".log"

// Create implements vfs.FS.
func (fs *softSyncFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs *softSyncFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.forget(oldname); err != nil {
		return nil, err
	}
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// Remove implements vfs.FS.
func (fs *softSyncFS) Remove(name string) error {
	return errors.Join(fs.forget(name), fs.FS.Remove(name))
}

// Unwrap implements vfs.FS.
func (fs *softSyncFS) Unwrap() vfs.FS { return fs.FS }

func (fs *softSyncFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, walSuffix) {
		return f, err
	}
	return &softSyncFile{File: f, fs: fs, name: name}, nil
}

// forget closes a log file that nobody needs any more.
func (fs *softSyncFS) forget(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	at := slices.IndexFunc(fs.closed, func(f *softSyncFile) bool { return f.name == name })
	if at < 0 {
		return nil
	}
	f := fs.closed[at]
	fs.closed = slices.Delete(fs.closed, at, at+1)
	return f.File.Close()
}

// syncClosed waits until the disk has all log files that Pebble has ended.
func (fs *softSyncFS) syncClosed() error {
	fs.syncing.Lock()
	defer fs.syncing.Unlock()
	fs.mu.Lock()
	files := fs.closed
	fs.closed = nil
	fs.mu.Unlock()
	var errs []error
	for _, f := range files {
		errs = append(errs, f.File.SyncData(), f.File.Close())
	}
	return errors.Join(errs...)
}

type softSyncFile struct {
	vfs.File
	fs   *softSyncFS
	name string
}

// Sync implements vfs.File.
func (f *softSyncFile) Sync() error { return f.ifHard(f.File.Sync) }

// SyncData implements vfs.File.
func (f *softSyncFile) SyncData() error { return f.ifHard(f.File.SyncData) }

func (f *softSyncFile) ifHard(sync func() error) error {
	if f.fs.hard.Load() == 0 {
		return nil
	}
	return errors.Join(f.fs.syncClosed(), sync())
}

// Close implements vfs.File. The file stays open until it is synced or gone.
func (f *softSyncFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.closed = append(f.fs.closed, f)
	return nil
}
