package tools

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"cairn/engine"
)

// storedPartition is one line of ListStored.
type storedPartition struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"logStartOffset"`
	End       int64  `json:"logEndOffset"`
	Bytes     int64  `json:"bytes"`
}

// openStored opens the data directory of a stopped broker.
func openStored(dir string) (*engine.Engine, error) {
	e, err := engine.OpenReadOnly(dir)
	if err != nil {
		return nil, notOpened(dir, err)
	}
	return e, nil
}

// notOpened says what to do about a directory that cannot be read.
func notOpened(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN): // the store is locked
		return fmt.Errorf("%s is in use: stop the broker that runs on it, or ask that broker, without --data-dir (%w)", dir, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; who runs the broker may read it", err)
	default:
		return fmt.Errorf("%w; %s must be the log.dirs of a cairn broker, and the broker stopped", err, dir)
	}
}

// ListStored prints which partitions a data directory has.
func ListStored(dir string, out Output) (err error) {
	e, err := openStored(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := storedPartitions(e)
	if err != nil {
		return err
	}
	list := []storedPartition{}
	for _, i := range infos {
		l, err := e.OpenLog(i.ID)
		if err != nil {
			return fmt.Errorf("%s-%d: %w", i.Topic, i.Partition, err)
		}
		list = append(list, storedPartition{i.Topic, topicIDText(i.TopicID), i.Partition, int64(l.Start()), int64(l.End()), l.SizeBytes()})
	}
	if out.JSON {
		return out.writeJSON(list)
	}
	for _, p := range list {
		if _, err := fmt.Fprintf(out.Out, "%s-%d\tlogStartOffset: %d\tlogEndOffset: %d\tbytes: %d\n", p.Topic, p.Partition, p.Start, p.End, p.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// storedPartitions are the partitions of a store, by topic and number.
func storedPartitions(e *engine.Engine) ([]engine.PartitionInfo, error) {
	infos, err := e.Partitions()
	slices.SortFunc(infos, func(a, b engine.PartitionInfo) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return infos, err
}

func findLog(e *engine.Engine, dir, topic string, partition int32) (*engine.Log, error) {
	infos, err := e.Partitions()
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if i.Topic == topic && i.Partition == partition {
			return e.OpenLog(i.ID)
		}
	}
	return nil, fmt.Errorf("%s has no partition %s-%d; `cairn dump --data-dir %s` lists what it has", dir, topic, partition, dir)
}
