package raftgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cairn/internal/ids"
)

// Forget removes the files that dragonboat keeps for a partition group of this node: directories without content, as the data
// is the engine's. The replica must have been stopped and must never start again.
func (h *Host) Forget(s ids.ShardID) error {
	if s == ids.MetadataShard || h.replica(s) != nil {
		return fmt.Errorf("raftgroup: shard %d is in use", s)
	}
	dirs, err := filepath.Glob(filepath.Join(h.cfg.Dir, "*", "*", fmt.Sprintf("snapshot-part-%d", s)))
	errs := []error{err}
	for _, d := range dirs {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}
