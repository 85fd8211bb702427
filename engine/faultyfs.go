//go:build !cairn_faults

package engine

import "github.com/cockroachdb/pebble/v2/vfs"

// withFaults is the disk as it is. With the tag cairn_faults it gets faults by orders from outside, see faultyfs_ordered.go.
func withFaults(fs vfs.FS) vfs.FS { return fs }
