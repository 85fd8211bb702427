package tools

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"cairn/engine"
	"cairn/internal/ids"
)

// DumpOptions says what to print of a partition.
type DumpOptions struct {
	DataDir   string // of a stopped broker; empty: a running broker is asked
	Topic     string
	Partition int32
	Broker    int32 // the running broker to ask with Raft or Quarantine; -1: the leader
	Filter    DumpFilter
	PrintData bool // the records too
	Raft      bool // the state and the entries of the Raft log instead of the batches
	// Quarantine: the batches that were taken out of the log, in the order of leader epoch and offset, instead of it.
	Quarantine bool
	// Decoder prints the records' keys and values as what they mean, and implies PrintData.
	Decoder DumpDecoder
}

// ErrDamaged is returned after a dump that showed damaged batches.
var ErrDamaged = errors.New("damaged batches")

// Dump prints the batches of a partition in the line formats of Kafka's DumpLogSegments, or one JSON object per line; with Raft, the
// entries of its Raft log. Damaged batches are shown as such, and the error is then ErrDamaged.
func Dump(ctx context.Context, conn Connection, o DumpOptions, out Output) (err error) {
	if err := o.Filter.validate(); err != nil {
		return UsageError{err}
	}
	if o.Raft && o.Quarantine {
		return UsageError{errors.New("--raft and --quarantine exclude each other")}
	}
	w := bufio.NewWriterSize(out.Out, 64<<10)
	defer func() { err = errors.Join(err, w.Flush()) }()
	out.Out = w
	if o.DataDir == "" {
		return dumpLive(ctx, conn, o, out)
	}
	e, err := openStored(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l, err := findLog(e, o.DataDir, o.Topic, o.Partition)
	if err != nil {
		return err
	}
	name := filepath.Join(o.DataDir, fmt.Sprintf("%s-%d", o.Topic, o.Partition))
	switch {
	case o.Raft:
		return dumpStoredRaft(ctx, l, o.Filter, out)
	case o.Quarantine:
		return dumpQuarantine(ctx, name, storedQuarantine(l), o, out)
	}
	return dumpBatches(ctx, storedSource(name, l), o, out)
}

// batchSource is where the batches of a partition come from.
type batchSource struct {
	name       string
	start, end int64 // of the log; end is exclusive
	// scan calls fn with the batches from the one that holds from on, unchecked and borrowed until fn returns, until it fails.
	scan func(ctx context.Context, from int64, fn func(base int64, raw []byte) error) error
}

// storedSource reads the log of a stopped broker.
func storedSource(name string, l *engine.Log) batchSource {
	return batchSource{name: name, start: int64(l.Start()), end: int64(l.End()), scan: func(ctx context.Context, from int64, fn func(int64, []byte) error) error {
		at := max(l.Start(), ids.Offset(from))
		if at >= l.End() {
			return nil
		}
		var stop error
		err := l.ScanBatches(at, func(base ids.Offset, raw []byte) bool {
			if stop = ctx.Err(); stop == nil {
				stop = fn(int64(base), raw)
			}
			return stop == nil
		})
		return errors.Join(err, stop)
	}}
}

// watched is the source with seen told of the base offset of each batch that is read.
func (s batchSource) watched(seen func(base int64)) batchSource {
	scan := s.scan
	s.scan = func(ctx context.Context, from int64, fn func(int64, []byte) error) error {
		return scan(ctx, from, func(base int64, raw []byte) error {
			seen(base)
			return fn(base, raw)
		})
	}
	return s
}

// errScanned ends a scan that has seen enough.
var errScanned = errors.New("scanned")

// filtered is scan with those batches alone that the filter lets through.
func (s batchSource) filtered(ctx context.Context, f DumpFilter, fn func(base int64, raw []byte) error) error {
	err := s.scan(ctx, max(f.From, 0), func(base int64, raw []byte) error {
		if f.To >= 0 && base >= f.To {
			return errScanned
		}
		if !f.takes(raw) {
			return nil
		}
		return fn(base, raw)
	})
	if errors.Is(err, errScanned) {
		return nil
	}
	return err
}

func dumpBatches(ctx context.Context, s batchSource, o DumpOptions, out Output) error {
	if !out.JSON {
		if _, err := fmt.Fprintf(out.Out, "Dumping %s\nLog starting offset: %d\n", s.name, s.start); err != nil {
			return err
		}
	}
	d := newBatchDumper(o, out)
	if err := s.filtered(ctx, o.Filter, d.batch); err != nil {
		return err
	}
	return d.sum()
}

func newBatchDumper(o DumpOptions, out Output) batchDumper {
	return batchDumper{printData: o.PrintData || o.Decoder != DecodeNothing, decoder: o.Decoder, out: out}
}

// sum is what is to be said of the damage at the end.
func (d *batchDumper) sum() error {
	if d.damaged > 0 {
		return fmt.Errorf("%w: %d; --verify says what to do", ErrDamaged, d.damaged)
	}
	return nil
}

// quarantineScan calls fn with what is in quarantine, borrowed, until it fails.
type quarantineScan func(ctx context.Context, fn func(atMs, base int64, raw []byte) error) error

func storedQuarantine(l *engine.Log) quarantineScan {
	return func(ctx context.Context, fn func(int64, int64, []byte) error) error {
		var stop error
		err := l.ScanQuarantine(func(q engine.Quarantined) bool {
			if stop = ctx.Err(); stop == nil {
				stop = fn(q.AtMs, int64(q.Base), q.Batch)
			}
			return stop == nil
		})
		return errors.Join(err, stop)
	}
}

// dumpQuarantine prints the batches that truncations took out of the log.
func dumpQuarantine(ctx context.Context, name string, scan quarantineScan, o DumpOptions, out Output) error {
	if !out.JSON {
		if _, err := fmt.Fprintf(out.Out, "Dumping the quarantine of %s\n", name); err != nil {
			return err
		}
	}
	d := newBatchDumper(o, out)
	err := scan(ctx, func(atMs, base int64, raw []byte) error {
		if base < o.Filter.From || o.Filter.To >= 0 && base >= o.Filter.To || !o.Filter.takes(raw) {
			return nil
		}
		d.quarantinedAt = &atMs
		return d.batch(base, raw)
	})
	if err != nil {
		return err
	}
	return d.sum()
}
