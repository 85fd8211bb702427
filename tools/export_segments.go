package tools

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"cairn/engine"
	"cairn/tools/segment"
)

// ExportOptions says what to write as Kafka's segment files, and where to: below Dir each partition has a directory TOPIC-PARTITION.
type ExportOptions struct {
	DataDir   string // of a stopped broker; empty: the leaders of a running cluster are asked
	Topic     string
	Partition int32 // -1: all of the topic
	Filter    DumpFilter
	Dir       string
	Segments  segment.Config
}

// exportedPartition is the JSON form of what was written.
type exportedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Dir       string `json:"dir"`
	Start     int64  `json:"logStartOffset"`
	Next      int64  `json:"nextOffset"` // behind what was written
	Segments  int    `json:"segments"`
	Batches   int64  `json:"batches"`
	Bytes     int64  `json:"bytes"`
	Damaged   int    `json:"damagedBatches"`
}

// ExportSegments writes Kafka's segment files. Batches are written as they are, offsets and transactions included. Damaged ones are left
// out, and the error is then ErrDamaged.
func ExportSegments(ctx context.Context, conn Connection, o ExportOptions, out Output) (err error) {
	if err := errors.Join(o.Filter.validate(), o.Segments.Validate()); err != nil {
		return UsageError{err}
	}
	if o.DataDir == "" {
		return o.live(ctx, conn, out)
	}
	e, err := openStored(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return o.directory(ctx, e, out)
}

func (o ExportOptions) directory(ctx context.Context, e *engine.Engine, out Output) error {
	infos, err := storedPartitions(e)
	if err != nil {
		return err
	}
	found, damaged := false, 0
	for _, i := range infos {
		if i.Topic != o.Topic || o.Partition >= 0 && i.Partition != o.Partition {
			continue
		}
		found = true
		l, err := e.OpenLog(i.ID)
		if err != nil {
			return fmt.Errorf("%s-%d: %w", i.Topic, i.Partition, err)
		}
		n, err := o.export(ctx, i.Partition, storedSource(o.DataDir, l), out)
		if err != nil {
			return fmt.Errorf("%s-%d: %w", i.Topic, i.Partition, err)
		}
		damaged += n
	}
	if !found {
		return fmt.Errorf("%s has nothing of that topic and partition; `cairn dump --data-dir %s` lists what it has", o.DataDir, o.DataDir)
	}
	return damage(damaged)
}

func damage(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d were left out; `cairn dump --verify` says what to do", ErrDamaged, n)
}

func (o ExportOptions) live(ctx context.Context, conn Connection, out Output) error {
	p, err := openLive(ctx, conn, o.Topic, max(o.Partition, 0), out)
	if err != nil {
		return err
	}
	defer p.cl.Close()
	partitions := []int32{o.Partition}
	if o.Partition < 0 {
		if partitions, err = partitionsOf(ctx, p.cl, o.Topic, -1); err != nil {
			return err
		}
	}
	damaged := 0
	for _, n := range partitions {
		if p.tp.Partition = n; n != o.Partition {
			if err := p.findLeader(ctx); err != nil {
				return err
			}
		}
		s, err := p.source(ctx)
		if err != nil {
			return err
		}
		bad, err := o.export(ctx, n, s, out)
		if err != nil {
			return fmt.Errorf("%s: %w", p.tp, err)
		}
		damaged += bad
	}
	return damage(damaged)
}

// export writes one partition and tells how many batches were damaged.
func (o ExportOptions) export(ctx context.Context, partition int32, s batchSource, out Output) (damaged int, err error) {
	tp := topicPartition{o.Topic, partition}
	dir := filepath.Join(o.Dir, tp.String())
	w, err := segment.Create(dir, o.Segments)
	if err != nil {
		return 0, err
	}
	next := s.start
	first, end := max(s.start, o.Filter.From), s.end
	if o.Filter.To >= 0 {
		end = min(end, o.Filter.To)
	}
	bar := out.Progress("Exporting "+tp.String(), end-first, InRecords)
	defer bar.Clear()
	s = s.watched(func(base int64) { bar.Set(base - first) })
	err = s.filtered(ctx, o.Filter, func(base int64, raw []byte) error {
		h, bad := checkBatch(base, raw)
		if bad != nil {
			bar.Clear()
			out.warn("%s: batch at offset %d is left out: %v", tp, base, bad)
			damaged++
			return nil
		}
		next = h.NextOffset()
		return w.Append(raw)
	})
	if err != nil {
		return damaged, errors.Join(err, w.Abandon())
	}
	if err := w.Close(max(s.start, o.Filter.From)); err != nil {
		return damaged, err
	}
	bar.Clear()
	done := exportedPartition{
		Topic: o.Topic, Partition: partition, Dir: dir, Start: s.start, Next: next, Segments: w.Segments, Batches: w.Batches, Bytes: w.Bytes, Damaged: damaged,
	}
	if out.JSON {
		return damaged, out.writeJSON(done)
	}
	_, err = fmt.Fprintf(out.Out, "Exported %s to %s: %d batches, %d bytes, %d segments, up to offset %d\n", tp, dir, w.Batches, w.Bytes, w.Segments, next)
	return damaged, err
}
