package engine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/properties"
)

// A checkpoint is a copy of the data directory of a running node, of hard links where possible. It is made under another name and
// renamed when it is whole. What tells it from a data directory is checkpointFile: no node starts on it before Restore has removed that, since a
// replica that has forgotten what it had saved must not come back under its old id while others remember.

const checkpointFile = "checkpoint.properties"

// ErrCheckpoint refuses to start on a checkpoint as it is.
var ErrCheckpoint = errors.New("a checkpoint")

// CheckpointInfo is what a checkpoint says about itself.
type CheckpointInfo struct {
	Made       time.Time
	Controller bool // the node was one
}

const (
	madeKey       = "made.ms"
	controllerKey = "controller"
)

// Checkpoint copies the store into an empty directory: all that was saved before the call, whole.
func (e *Engine) Checkpoint(dir string) error {
	if s := e.Space(); s.Level > SpaceAmple {
		return fmt.Errorf("checkpoint: the disk is nearly full, %d bytes are free: it would keep what is deleted from giving room back", s.Free)
	}
	if err := e.db.Checkpoint(e.cfg.FS.PathJoin(dir, storeDir), pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("checkpoint of the store: %w", err)
	}
	return nil
}

// WriteCheckpoint makes the directory, into which the store was copied, a checkpoint of this one.
func (d *DataDir) WriteCheckpoint(dir string, info CheckpointInfo) error {
	text := fmt.Sprintf("# A copy of the data directory of node %d. `cairn restore` makes a data directory of it.\n%s=%d\n%s=%t\n",
		d.Identity().NodeID, madeKey, info.Made.UnixMilli(), controllerKey, info.Controller)
	if err := writeSynced(filepath.Join(dir, checkpointFile), properties.Seal(text)); err != nil {
		return err
	}
	return writeIdentity(dir, d.Identity())
}

// ReadCheckpoint reads what a checkpoint says about itself. fs.ErrNotExist when the directory is none.
func ReadCheckpoint(dir string) (info CheckpointInfo, err error) {
	path := filepath.Join(dir, checkpointFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return info, err
	}
	body, _, err := properties.Unseal(string(text))
	if err != nil {
		return info, fmt.Errorf("%w: %s is damaged, or was changed by hand: %w; copy the checkpoint again, or take another one", ErrDataDirBad, path, err)
	}
	list, err := properties.Parse(body)
	if err != nil {
		return info, fmt.Errorf("%s: %w", path, err)
	}
	m := list.Map()
	ms, err := strconv.ParseInt(m[madeKey], 10, 64)
	if err != nil || m[controllerKey] != "true" && m[controllerKey] != "false" {
		return info, fmt.Errorf("%w: %s is damaged: it has %s=%q and %s=%q", ErrDataDirBad, path, madeKey, m[madeKey], controllerKey, m[controllerKey])
	}
	return CheckpointInfo{Made: time.UnixMilli(ms), Controller: m[controllerKey] == "true"}, nil
}

// refuseCheckpoint returns an error if the directory is a checkpoint that nobody has restored.
func refuseCheckpoint(dir string) error {
	info, err := ReadCheckpoint(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is a copy as of %s; `cairn restore %s` makes it a data directory of a broker that comes back with new replicas, `cairn restore --whole-cluster %s` one of a cluster of which every node is restored",
		ErrCheckpoint, dir, info.Made.UTC().Format(time.RFC3339), dir, dir)
}

// Restore makes a checkpoint a data directory. Its replicas are to be strangers to their Raft groups, with new ids, unless the whole cluster is
// restored: then nobody remembers more than they do.
func Restore(dir string, wholeCluster bool) (Identity, error) {
	info, err := ReadCheckpoint(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fmt.Errorf("%w: %s has no %s, so it is no checkpoint, or was restored already", ErrDataDirBad, dir, checkpointFile)
	}
	if err != nil {
		return Identity{}, err
	}
	identity, err := ReadIdentity(dir)
	if err != nil {
		return Identity{}, err
	}
	if !wholeCluster {
		if info.Controller {
			return Identity{}, fmt.Errorf("%w: %s is of a controller, which must not come back with less than it had: restore the whole cluster (--whole-cluster), or let the other controllers go on without it", ErrCheckpoint, dir)
		}
		if err := estrange(dir, &identity); err != nil {
			return Identity{}, err
		}
	}
	if err := os.Remove(filepath.Join(dir, checkpointFile)); err != nil {
		return Identity{}, err
	}
	return identity, syncDir(dir)
}

// estrange gives the directory an id of its own, as if it were new, and forgets who it was to the metadata group.
func estrange(dir string, identity *Identity) error {
	if _, err := rand.Read(identity.DirectoryID[:]); err != nil {
		return fmt.Errorf("make a directory id: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, RaftDir)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, MetadataReplicaFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeIdentity(dir, *identity)
}

// What others keep in a data directory.
const (
	RaftDir             = "raft"
	MetadataReplicaFile = "metadata-replica.properties"
)

// CopyRaftFiles adds to a checkpoint what Raft keeps in files of its own, the snapshots of the metadata group, as far as it is not there
// already. Done before and after the store's copy it has the one that the copy names: the next one comes thousands of entries later.
func (d *DataDir) CopyRaftFiles(to string) error {
	root := filepath.Join(d.path, RaftDir)
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(d.path, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir() && isTemporary(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case !entry.Type().IsRegular() || entry.Name() == "LOCK":
			return nil
		}
		if _, err := os.Stat(target); err == nil {
			return nil
		}
		return linkOrCopy(path, target)
	})
}

// isTemporary reports whether Raft still writes into a directory of that name.
func isTemporary(name string) bool {
	return strings.Contains(name, ".generating") || strings.Contains(name, ".receiving") || strings.Contains(name, ".streaming")
}

// linkOrCopy links snapshots, which never change, and copies other files.
func linkOrCopy(path, target string) error {
	if strings.HasSuffix(path, ".gbsnap") && os.Link(path, target) == nil {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return writeSynced(target, string(text))
}
