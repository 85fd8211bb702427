//go:build cairn_faults

package engine

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/faults"
)

// faultyFS is a disk that gets full, slow or broken when it is ordered to; see package faults.
type faultyFS struct{ vfs.FS }

func withFaults(fs vfs.FS) vfs.FS { return faultyFS{fs} }

// Create implements vfs.FS.
func (fs faultyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if _, err := faults.Write(name, 1); err != nil { // of the directory
		return nil, err
	}
	f, err := fs.FS.Create(name, category)
	return faulty(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (fs faultyFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return faulty(name, f, err)
}

// OpenDir implements vfs.FS.
func (fs faultyFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return faulty(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs faultyFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return faulty(newname, f, err)
}

// Remove implements vfs.FS.
func (fs faultyFS) Remove(name string) error {
	info, statErr := fs.Stat(name)
	err := fs.FS.Remove(name)
	if err == nil && statErr == nil {
		faults.Removed(info.Size())
	}
	return err
}

// GetDiskUsage implements vfs.FS.
func (fs faultyFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	u, err := fs.FS.GetDiskUsage(path)
	u.AvailBytes = faults.Room(u.AvailBytes)
	return u, err
}

// Unwrap implements vfs.FS.
func (fs faultyFS) Unwrap() vfs.FS { return fs.FS }

type faultyFile struct {
	vfs.File
	name string
}

func faulty(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	return &faultyFile{f, name}, nil
}

// Write implements vfs.File. It writes what there is room for, as a file system does.
func (f *faultyFile) Write(p []byte) (int, error) {
	can, failed := faults.Write(f.name, len(p))
	n, err := 0, error(nil)
	if can > 0 {
		n, err = f.File.Write(p[:can])
	}
	if err == nil {
		err = failed
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	can, failed := faults.Write(f.name, len(p))
	n, err := 0, error(nil)
	if can > 0 {
		n, err = f.File.WriteAt(p[:can], off)
	}
	if err == nil {
		err = failed
	}
	return n, err
}

// Preallocate implements vfs.File. What is reserved counts when it is written.
func (f *faultyFile) Preallocate(offset, length int64) error {
	if left := faults.Room(uint64(length)); left < uint64(length) {
		return syscall.ENOSPC
	}
	return f.File.Preallocate(offset, length)
}

// Sync implements vfs.File.
func (f *faultyFile) Sync() error {
	if err := faults.Sync(f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *faultyFile) SyncData() error {
	if err := faults.Sync(f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *faultyFile) SyncTo(length int64) (fullSync bool, err error) {
	if err := faults.Sync(f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
