package engine

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// ErrOffsetOutOfRange refuses a read below the log start or above the log end.
var ErrOffsetOutOfRange = errors.New("engine: offset out of range")

// ReadOptions says what to read.
type ReadOptions struct {
	From        ids.Offset // may lie inside a batch, which is then read whole
	Limit       ids.Offset // exclusive: only batches whose last offset is below
	MaxBytes    int
	MinOneBatch bool // the first batch is read even if it alone exceeds MaxBytes
}

// Records are whole batches as a client gets them.
type Records struct {
	Parts     [][]byte   // concatenated; read-only, never reused, freed by the garbage collector
	Bytes     int        // of all parts
	FirstBase ids.Offset // base offset of the first batch; NoOffset when there is none
	Next      ids.Offset // where to read on: behind the last batch or, when there is nothing more below the limit, there
}

// Read reads whole batches: recent ones from memory, where they are shared with Raft, older ones from the store,
// with one copy and their CRC checked. ErrOffsetOutOfRange when From is below the log start or above the log end;
// *CorruptError when the first batch is damaged (a later one ends the records before it).
func (l *Log) Read(o ReadOptions) (Records, error) {
	l.sh.mu.RLock()
	start, end := l.logStart, l.state.Next
	l.sh.mu.RUnlock()
	if o.From < start || o.From > end {
		return Records{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, o.From, start, end)
	}
	c := collector{o: o, r: Records{FirstBase: ids.NoOffset, Next: o.From}}
	c.o.Limit = min(o.Limit, end)
	if c.o.From >= c.o.Limit {
		return c.r, nil
	}
	l.e.stats.reads.Add(1)
	for before := ids.NoOffset; !c.full && before < c.r.Next && c.r.Next < c.o.Limit && !l.tail.from(c.r.Next, &c); {
		before = c.r.Next
		tailBase := min(c.o.Limit, l.tail.firstBase(end))
		if err := l.readStored(&c, tailBase); err != nil && c.r.Bytes == 0 {
			return Records{}, err
		} else if err != nil {
			break
		}
		if !c.full { // compaction may have left nothing more before the tail
			c.r.Next = max(c.r.Next, min(tailBase, l.compacted().Holes))
		}
	}
	return c.r, nil
}

// Stored tells whether a read from an offset would go to the store, and may have to wait for the disk.
func (l *Log) Stored(from ids.Offset) bool {
	end := l.End()
	return from < end && from < l.tail.firstBase(end)
}

// collector gathers batches within the limits of a read.
type collector struct {
	o     ReadOptions
	r     Records
	full  bool
	chunk []byte // the last part, while there is room behind it for more small batches
}

// fits says whether a batch may be taken. After false nothing more may be.
func (c *collector) fits(size int, next ids.Offset) bool {
	first := c.r.Bytes == 0
	if next > c.o.Limit || c.r.Bytes+size > c.o.MaxBytes && !(first && c.o.MinOneBatch) {
		c.full = true
	}
	return !c.full
}

func (c *collector) take(base, next ids.Offset, parts ...[]byte) {
	if c.r.Bytes == 0 {
		c.r.FirstBase = base
	}
	c.r.Next = next
	for _, p := range parts {
		c.r.Bytes += len(p)
		c.r.Parts = append(c.r.Parts, p)
	}
}

// Small batches are copied into shared chunks, so that a read of many costs few allocations.
const (
	ownPartBytes = 16 << 10 // from here a batch gets its own allocation
	chunkBytes   = 64 << 10
)

// takeCopy takes a copy of b. Consecutive small batches become one part.
func (c *collector) takeCopy(base, next ids.Offset, b []byte) {
	if len(b) >= ownPartBytes {
		c.take(base, next, bytes.Clone(b))
		c.chunk = nil
		return
	}
	if cap(c.chunk)-len(c.chunk) < len(b) {
		c.chunk = make([]byte, 0, max(len(b), min(chunkBytes, c.o.MaxBytes-c.r.Bytes)))
		c.take(base, next, c.chunk)
	}
	if c.r.Bytes == 0 {
		c.r.FirstBase = base
	}
	c.chunk = append(c.chunk, b...)
	c.r.Parts[len(c.r.Parts)-1] = c.chunk
	c.r.Bytes += len(b)
	c.r.Next = next
}

// readStored reads batches from the store until the collector is full or the tail takes over at tailBase.
func (l *Log) readStored(c *collector, tailBase ids.Offset) error {
	return l.scanStored(c.r.Next, tailBase, func(base ids.Offset, size int, value func() ([]byte, error)) (bool, error) {
		if c.r.Bytes > 0 && !c.fits(size, base+1) {
			return false, nil // before the payload is fetched
		}
		b, err := value()
		if err != nil {
			return false, err
		}
		next, err := l.checkStored(base, b)
		if err != nil {
			return false, err
		}
		if next <= c.r.Next { // the one before the hole in which the read begins
			return true, nil
		}
		if !c.fits(len(b), next) {
			return false, nil
		}
		c.takeCopy(base, next, b)
		return true, nil
	})
}

// scanStored calls fn with the stored batches from the one that holds from on, whose base is below to, until it
// returns false. value fetches the batch, borrowed until fn returns.
func (l *Log) scanStored(from, to ids.Offset, fn func(base ids.Offset, size int, value func() ([]byte, error)) (bool, error)) (err error) {
	partition := l.binding.Info.ID
	it, err := l.e.newIter(dataBounds(partition, 0, to))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	fetch := func() ([]byte, error) { return l.fetch(it) }
	at := from
	ok := it.SeekLT(appendDataKey(nil, partition, from+1))
	if !ok {
		ok = it.First()
	}
	for ; ok; ok = it.Next() {
		_, base, err := parseDataKey(it.Key())
		if err != nil {
			return err
		}
		at = base
		lazy := it.LazyValue()
		if more, err := fn(base, lazy.Len(), fetch); err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		if pebble.IsCorruptionError(err) {
			return l.damaged(at, err)
		}
		return fmt.Errorf("read %s: %w", l.binding.Info.label(), err)
	}
	return nil
}

// fetch reads the batch at the iterator, borrowed until it moves. Damage that the store itself finds is a *CorruptError
// like that which the batch's own CRC finds.
func (l *Log) fetch(it *pebble.Iterator) ([]byte, error) {
	if hook := l.e.cfg.Faults.DataRead; hook != nil {
		_, base, _ := parseDataKey(it.Key())
		hook(l.binding.Info.ID, base)
	}
	v, err := it.ValueAndErr()
	switch {
	case err == nil:
		return v, nil
	case pebble.IsCorruptionError(err):
		_, base, _ := parseDataKey(it.Key())
		return nil, l.damaged(base, err)
	}
	return nil, fmt.Errorf("read %s: %w", l.binding.Info.label(), err)
}

// checkStored verifies a stored batch and returns the offset behind it.
func (l *Log) checkStored(base ids.Offset, b []byte) (ids.Offset, error) {
	h, err := batch.ParseHeader(b)
	if err == nil && (h.Size() != len(b) || ids.Offset(h.BaseOffset) != base) {
		err = fmt.Errorf("%w: header says %d bytes from offset %d, stored are %d bytes", batch.ErrCorruptMessage, h.Size(), h.BaseOffset, len(b))
	}
	if err == nil {
		err = batch.VerifyCRC(b)
	}
	if err != nil {
		return 0, l.damaged(base, err)
	}
	return ids.Offset(h.NextOffset()), nil
}

// ScanBatches calls fn with the stored batches from the one that holds from on, unchecked, until it returns false.
// raw is borrowed until fn returns.
func (l *Log) ScanBatches(from ids.Offset, fn func(base ids.Offset, raw []byte) bool) error {
	return l.scanStored(from, l.End(), func(base ids.Offset, _ int, value func() ([]byte, error)) (bool, error) {
		b, err := value()
		return err == nil && fn(base, b), err
	})
}
