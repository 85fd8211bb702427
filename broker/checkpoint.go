package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"cairn/engine"
	"cairn/internal/clock"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// partSuffix is behind the name of a checkpoint that is not whole yet.
const partSuffix = ".part"

// handleCheckpoint makes a copy of the data directory. It keeps its connection waiting, and is asked for by one client at a time.
func handleCheckpoint(b *Broker, r *request) {
	resp := &private.CheckpointResponse{}
	dir := r.msg.(*private.CheckpointRequest).Body.Dir
	begun := clock.Now()
	if err := b.checkpoint(dir); err != nil {
		resp.Body.Status = private.Status{Code: kerr.InvalidRequest.Code, Message: err.Error()}
		b.log.Warn("no checkpoint was made", zap.String("dir", dir), zap.Error(err))
	} else {
		b.log.Info("checkpoint was made", zap.String("dir", dir), zap.Duration("took", time.Since(begun)))
	}
	r.reply(resp)
}

// checkpoint copies the data directory to one that is not there yet.
func (b *Broker) checkpoint(dir string) error {
	if !b.checkpointing.CompareAndSwap(false, true) {
		return errors.New("another checkpoint is being made: try again when that is done")
	}
	defer b.checkpointing.Store(false)
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is no absolute path: it is one on the broker's machine", dir)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: name a directory that is not", dir)
	}
	part := dir + partSuffix
	if err := os.Mkdir(part, 0o755); err != nil {
		return fmt.Errorf("%w: make the directory above it, or remove what an earlier attempt has left", err)
	}
	err := b.copyTo(part)
	if err == nil {
		err = errors.Join(syncDir(part), os.Rename(part, dir), syncDir(filepath.Dir(dir)))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return nil
}

func (b *Broker) copyTo(part string) error {
	if err := b.dir.CopyRaftFiles(part); err != nil {
		return fmt.Errorf("copy Raft's files: %w", err)
	}
	if err := b.engine.Checkpoint(part); err != nil {
		return err
	}
	if err := b.dir.CopyRaftFiles(part); err != nil {
		return fmt.Errorf("copy Raft's files: %w", err)
	}
	if text, err := os.ReadFile(filepath.Join(b.cfg.DataDir, metadataReplicaFile)); err == nil {
		if err := writeFileDurably(filepath.Join(part, metadataReplicaFile), string(text)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.dir.WriteCheckpoint(part, engine.CheckpointInfo{Made: clock.Now(), Controller: b.cfg.ControllerRole})
}
