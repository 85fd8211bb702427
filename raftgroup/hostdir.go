package raftgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dragonboat keeps its files in DIR/<host name>/<deployment> and refuses to start under another host name, or with another number of
// workers, by a flag file there. A container gets a new host name with each start; which data belongs to whom is settled by the
// directory's own identity file. So before dragonboat starts, a directory left under an earlier host name is renamed and the flag file,
// which dragonboat writes anew, is removed.
const (
	deploymentDir = "00000000000000000001"
	flagFile      = "dragonboat.ds"
)

func adoptHostDir(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("raftgroup: host name: %w", err)
	}
	own := filepath.Join(dir, host)
	if _, err := os.Stat(own); errors.Is(err, fs.ErrNotExist) {
		if err := renameEarlier(dir, own); err != nil {
			return err
		}
	}
	for _, flag := range []string{filepath.Join(own, deploymentDir, flagFile), filepath.Join(dir, flagFile)} {
		if err := os.Remove(flag); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("raftgroup: %w", err)
		}
	}
	return nil
}

func renameEarlier(dir, own string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("raftgroup: %w", err)
	}
	var earlier []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), deploymentDir)); err == nil {
			earlier = append(earlier, filepath.Join(dir, e.Name()))
		}
	}
	switch len(earlier) {
	case 0:
		return nil
	case 1:
		if err := os.Rename(earlier[0], own); err != nil {
			return fmt.Errorf("raftgroup: adopt the directory of an earlier host name: %w", err)
		}
		return nil
	}
	return fmt.Errorf("raftgroup: directories of several earlier host names, keep one: %v", earlier)
}
