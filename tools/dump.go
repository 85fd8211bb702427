package tools

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"cairn/engine"
	"cairn/internal/ids"
)

// DumpOptions says what to print of a stopped broker's data directory.
type DumpOptions struct {
	DataDir   string
	Topic     string
	Partition int32
	From      int64 // start with the batch that holds this offset
	PrintData bool  // the records too
	Raft      bool  // the entries of the Raft log instead of the batches
	// Quarantine: the batches that were taken out of the log, in the order of leader epoch and offset, instead of it.
	Quarantine bool
	// Decoder prints the records' keys and values as what they mean, and implies PrintData.
	Decoder DumpDecoder
}

// ErrDamaged is returned after a dump that showed damaged batches.
var ErrDamaged = errors.New("damaged batches")

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
		return nil, fmt.Errorf("%w; %s must be the log.dirs of a cairn broker, and the broker stopped", err, dir)
	}
	return e, nil
}

// ListStored prints which partitions a data directory has.
func ListStored(dir string, out Output) (err error) {
	e, err := openStored(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := e.Partitions()
	if err != nil {
		return err
	}
	slices.SortFunc(infos, func(a, b engine.PartitionInfo) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
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

// Dump prints the batches of a partition in the line formats of Kafka's DumpLogSegments, or one JSON object per line; with Raft, the
// entries of its Raft log. Damaged batches are shown as such, and the error is then ErrDamaged.
func Dump(ctx context.Context, o DumpOptions, out Output) (err error) {
	e, err := openStored(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l, err := findLog(e, o)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out.Out, 64<<10)
	defer func() { err = errors.Join(err, w.Flush()) }()
	out.Out = w
	switch {
	case o.Raft && o.Quarantine:
		return errors.New("--raft and --quarantine exclude each other")
	case o.Raft:
		return dumpRaft(ctx, l, out)
	case o.Quarantine:
		return dumpQuarantine(ctx, l, o, out)
	}
	if !out.JSON {
		if _, err := fmt.Fprintf(w, "Dumping %s\nLog starting offset: %d\n", filepath.Join(o.DataDir, fmt.Sprintf("%s-%d", o.Topic, o.Partition)), l.Start()); err != nil {
			return err
		}
	}
	return dumpBatches(ctx, l, o, out)
}

func findLog(e *engine.Engine, o DumpOptions) (*engine.Log, error) {
	infos, err := e.Partitions()
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if i.Topic == o.Topic && i.Partition == o.Partition {
			return e.OpenLog(i.ID)
		}
	}
	return nil, fmt.Errorf("%s has no partition %s-%d; `cairn dump --data-dir %s` lists what it has", o.DataDir, o.Topic, o.Partition, o.DataDir)
}

func dumpBatches(ctx context.Context, l *engine.Log, o DumpOptions, out Output) error {
	d := batchDumper{printData: o.PrintData || o.Decoder != DecodeNothing, decoder: o.Decoder, out: out}
	from := max(l.Start(), ids.Offset(o.From))
	var stop error
	if from < l.End() {
		err := l.ScanBatches(from, func(base ids.Offset, raw []byte) bool {
			if stop = ctx.Err(); stop == nil {
				stop = d.batch(int64(base), raw)
			}
			return stop == nil
		})
		if err := errors.Join(err, stop); err != nil {
			return err
		}
	}
	if d.damaged > 0 {
		return fmt.Errorf("%w: %d", ErrDamaged, d.damaged)
	}
	return nil
}

// dumpQuarantine prints the batches that truncations took out of the log.
func dumpQuarantine(ctx context.Context, l *engine.Log, o DumpOptions, out Output) error {
	if !out.JSON {
		if _, err := fmt.Fprintf(out.Out, "Dumping the quarantine of %s\n", filepath.Join(o.DataDir, fmt.Sprintf("%s-%d", o.Topic, o.Partition))); err != nil {
			return err
		}
	}
	d := batchDumper{printData: o.PrintData || o.Decoder != DecodeNothing, decoder: o.Decoder, out: out}
	var stop error
	err := l.ScanQuarantine(func(q engine.Quarantined) bool {
		d.quarantinedAt = &q.AtMs
		if stop = ctx.Err(); stop == nil && q.Base >= ids.Offset(o.From) {
			stop = d.batch(int64(q.Base), q.Batch)
		}
		return stop == nil
	})
	if err := errors.Join(err, stop); err != nil {
		return err
	}
	if d.damaged > 0 {
		return fmt.Errorf("%w: %d", ErrDamaged, d.damaged)
	}
	return nil
}

// raftEntry is the JSON form of an entry of the Raft log.
type raftEntry struct {
	Index       uint64 `json:"index"`
	Term        uint64 `json:"term"`
	Kind        string `json:"kind"`
	Ordinal     uint64 `json:"ordinal"`     // of the last valid proposal up to here
	OrdinalTerm uint64 `json:"ordinalTerm"` // of that proposal
	LeaderEpoch int32  `json:"leaderEpoch"` // after the entry
	NextOffset  int64  `json:"nextOffset"`  // after the entry
	BaseOffset  *int64 `json:"baseOffset,omitempty"`
	Records     *int32 `json:"records,omitempty"`
	Bytes       *int32 `json:"bytes,omitempty"`
}

func dumpRaft(ctx context.Context, l *engine.Log, out Output) error {
	b, start := l.Binding(), l.LogStartPoint()
	if !out.JSON {
		_, err := fmt.Fprintf(out.Out, "shard: %d replica: %d generation: %d baseOffset: %d logStartIndex: %d lastIndex: %d\n",
			b.Shard, b.Replica, b.Generation, b.BaseOffset, start.Index, l.LastIndex())
		if err != nil {
			return err
		}
	}
	var stop error
	err := l.ScanEntries(start.Index+1, func(e engine.EntryRow) bool {
		if stop = ctx.Err(); stop == nil {
			stop = dumpEntry(e, out)
		}
		return stop == nil
	})
	return errors.Join(err, stop)
}

func dumpEntry(e engine.EntryRow, out Output) error {
	j := raftEntry{
		Index: uint64(e.Index), Term: uint64(e.Term), Kind: e.Kind.String(), Ordinal: e.Ordinal, OrdinalTerm: uint64(e.OrdinalTerm),
		LeaderEpoch: int32(e.LeaderEpoch), NextOffset: int64(e.Next),
	}
	if e.Kind == engine.KindData {
		base := int64(e.Batch.Base)
		j.BaseOffset, j.Records, j.Bytes = &base, &e.Batch.Count, &e.Batch.Size
	}
	if out.JSON {
		return out.writeJSON(j)
	}
	_, err := fmt.Fprintf(out.Out, "index: %d term: %d kind: %s ordinal: %d/%d leaderEpoch: %d nextOffset: %d", j.Index, j.Term, j.Kind, j.OrdinalTerm, j.Ordinal, j.LeaderEpoch, j.NextOffset)
	if err == nil && j.BaseOffset != nil {
		_, err = fmt.Fprintf(out.Out, " baseOffset: %d count: %d size: %d", *j.BaseOffset, *j.Records, *j.Bytes)
	}
	if err == nil {
		_, err = fmt.Fprintln(out.Out)
	}
	return err
}
