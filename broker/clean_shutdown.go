package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"cairn/internal/properties"
)

// cleanShutdownFile says that the broker of that epoch was stopped in order: all that it held is on the disk. It is written last
// at a stop and removed first at a start, so that it is there only for what nothing was written behind.
const cleanShutdownFile = "clean-shutdown.properties"

const brokerEpochKey = "broker.epoch"

// noBrokerEpoch: the last run was not closed in order, or there was none.
const noBrokerEpoch = -1

// takeCleanShutdown returns the broker epoch of a run that was closed in order, and forgets it, durably.
func takeCleanShutdown(dir string) (epoch int64, err error) {
	path := filepath.Join(dir, cleanShutdownFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noBrokerEpoch, nil
	}
	if err != nil {
		return noBrokerEpoch, err
	}
	if err := errors.Join(os.Remove(path), syncDir(dir)); err != nil {
		return noBrokerEpoch, err
	}
	list, err := properties.Parse(string(text))
	if err != nil {
		return noBrokerEpoch, nil //nolint:nilerr // what cannot be read proves no orderly stop
	}
	if epoch, err = strconv.ParseInt(list.Map()[brokerEpochKey], 10, 64); err != nil {
		return noBrokerEpoch, nil //nolint:nilerr // as above
	}
	return epoch, nil
}

// noteCleanShutdown is called when everything else is closed.
func noteCleanShutdown(dir string, epoch int64) error {
	text := fmt.Sprintf("# The last run was stopped in order. Do not edit.\n%s=%d\n", brokerEpochKey, epoch)
	return writeFileDurably(filepath.Join(dir, cleanShutdownFile), text)
}

// writeFileDurably replaces a file: after a crash the old or the new one is there, whole.
func writeFileDurably(path, text string) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
