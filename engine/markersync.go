package engine

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS makes Pebble's marker files safe on any POSIX file system. The marker says by its name which MANIFEST is
// the current one. Pebble creates the new MANIFEST, creates the new marker, removes the old one, and syncs the
// directory once, at the end. A file system that does not keep the order of these (most do; none must) may, after a
// power cut, have the new marker without its MANIFEST, or no marker at all, which Pebble takes for an empty store.
// So the directory is also synced before a marker is created and before one is removed: rare, and cheap.
type markerFS struct{ vfs.FS }

const markerPrefix = "marker."

// Create implements vfs.FS.
func (fs markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.order(name); err != nil {
		return nil, err
	}
	return fs.FS.Create(name, category)
}

// Remove implements vfs.FS.
func (fs markerFS) Remove(name string) error {
	if err := fs.order(name); err != nil {
		return err
	}
	return fs.FS.Remove(name)
}

// Unwrap implements vfs.FS.
func (fs markerFS) Unwrap() vfs.FS { return fs.FS }

// order makes what was done to the directory of a marker durable before what is done to the marker.
func (fs markerFS) order(name string) error {
	if !strings.HasPrefix(fs.PathBase(name), markerPrefix) {
		return nil
	}
	return syncDirOn(fs, fs.PathDir(name))
}
