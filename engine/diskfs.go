package engine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// DiskError is a write, or a wait for the disk, that failed. It stops the process: afterwards nobody knows what of the
// newest writes is on the disk. The next start reads what is.
type DiskError struct {
	Op   string // as the operating system calls it
	File string
	Err  error
}

func (d *DiskError) Error() string {
	next := "look for what is wrong with the disk, then start again: what it holds is read anew"
	if isFull(d.Err) {
		next = "make room on that disk, then start again"
	}
	return fmt.Sprintf("%s %s: %v; %s", d.Op, d.File, d.Err, next)
}

// Unwrap is what the disk said.
func (d *DiskError) Unwrap() error { return d.Err }

// isFull reports whether an error of a disk says that there is no room on it.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// diskFS is the file system of a store as it fails. What needs room and finds none is tried again once the ballast is given up,
// and then whenever room may have come, see space.go; other failed writes and syncs are told with the file's name. A sync
// is never tried again.
type diskFS struct {
	vfs.FS
	space   *space
	durable *durableEnd
}

// retry runs op, and again as long as it finds no room and that may change. op has to be one that changes nothing when it fails so.
func (fs *diskFS) retry(name string, op func() error) error {
	for tries := 0; ; tries++ {
		err := op()
		if err == nil || !isFull(err) || !fs.space.awaitRoom(name, tries) {
			return err
		}
	}
}

// Create implements vfs.FS.
func (fs *diskFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = fs.retry(name, func() (err error) {
		f, err = fs.FS.Create(name, category)
		return err
	})
	return fs.wrap(name, f, fs.failed("create", name, err))
}

// OpenReadWrite implements vfs.FS.
func (fs *diskFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return fs.wrap(name, f, err)
}

// OpenDir implements vfs.FS.
func (fs *diskFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs *diskFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = fs.retry(newname, func() (err error) {
		f, err = fs.FS.ReuseForWrite(oldname, newname, category)
		return err
	})
	return fs.wrap(newname, f, fs.failed("rename", newname, err))
}

// Link implements vfs.FS.
func (fs *diskFS) Link(oldname, newname string) error {
	return fs.retry(newname, func() error { return fs.FS.Link(oldname, newname) })
}

// Rename implements vfs.FS.
func (fs *diskFS) Rename(oldname, newname string) error {
	return fs.failed("rename", newname, fs.retry(newname, func() error { return fs.FS.Rename(oldname, newname) }))
}

// MkdirAll implements vfs.FS.
func (fs *diskFS) MkdirAll(dir string, perm os.FileMode) error {
	return fs.retry(dir, func() error { return fs.FS.MkdirAll(dir, perm) })
}

// Unwrap implements vfs.FS.
func (fs *diskFS) Unwrap() vfs.FS { return fs.FS }

func (fs *diskFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	base := fs.PathBase(name)
	if n := logNumber(base); n != 0 {
		fs.durable.log.Store(n)
	}
	return &diskFile{File: f, fs: fs, name: name, manifest: manifestNumber(base)}, nil
}

type diskFile struct {
	vfs.File
	fs       *diskFS
	name     string
	manifest uint64 // number of the manifest that it is, 0: it is none
	size     int64  // of a manifest, which is written from its start, by one at a time
}

// Write implements vfs.File. What was written before the room ended is not written again.
func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.fs.retry(f.name, func() error {
		m, err := f.File.Write(p[n:])
		n += m
		return err
	})
	f.size += int64(n)
	return n, f.fs.failed("write", f.name, err)
}

// WriteAt implements vfs.File.
func (f *diskFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fs.retry(f.name, func() error {
		m, err := f.File.WriteAt(p[n:], off+int64(n))
		n += m
		return err
	})
	return n, f.fs.failed("write", f.name, err)
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error { return f.synced("fsync", f.File.Sync()) }

// SyncData implements vfs.File.
func (f *diskFile) SyncData() error { return f.synced("fdatasync", f.File.SyncData()) }

func (f *diskFile) synced(op string, err error) error {
	if err == nil && f.manifest != 0 {
		f.fs.durable.noteManifest(f.manifest, f.size)
	}
	return f.fs.failed(op, f.name, err)
}

// SyncTo implements vfs.File.
func (f *diskFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.fs.failed("sync_file_range", f.name, err)
}

// failed is the error of an operation, named, and told at once: the store ends the process in ways of its own, of which some say nothing of the file.
func (fs *diskFS) failed(op, file string, err error) error {
	err = named(op, file, err)
	if err != nil && !isFull(err) {
		fs.space.log.Error("the disk failed", zap.Error(err))
	}
	return err
}

// named is an error as whoever has to look after the disk needs it.
func named(op, file string, err error) error {
	if err == nil {
		return nil
	}
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err // it names the file as well
	}
	return &DiskError{Op: op, File: file, Err: err}
}
