package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// ErrReleased ends a compaction whose log was released.
var ErrReleased = errors.New("engine: the log was released")

// Compaction is one pass over a log.
type Compaction struct {
	CompactionBounds
	NowMs             int64 // wall clock, ms since 1970
	DeleteRetentionMs int64 // how long a tombstone or a marker stays after the pass that found it could go
	// DiscardBelow: tombstones and markers at or above stay, as not every replica has them; one that had only what they delete would keep that.
	DiscardBelow ids.Offset
	// TableBytes bounds the table of keys, TableLoad is the share of it that is used. What does not fit is left to another pass.
	TableBytes int64
	TableLoad  float64
	// Pace is called after each step with the bytes that it has read and written, and with 0 after every few microseconds of work; it may wait.
	// An error ends the pass.
	Pace func(bytes int) error
}

// CompactionResult is what a pass has done.
type CompactionResult struct {
	From, Clean    ids.Offset // what was dirty before: [From, Clean) is clean now
	Keys           int        // different keys there
	Read, Written  int64      // bytes of batches
	Removed        int64      // bytes of batches
	BatchesRemoved int64
	More           bool // there is more that is dirty: it did not fit the table
}

const (
	compactStepBytes   = 256 << 10 // read in a step
	compactStepRecords = 4096      // the same; a batch counts for one at least
	compactRangeFrom   = 64        // so many deleted batches next to each other are deleted as a range
	compactPauseBytes  = 16 << 10  // worked on between two calls of Pace, but for what cannot be interrupted
	compactItemBytes   = 128       // as how much a record, or a batch, counts beside its bytes
	abortedWindow      = 4096      // offsets, for which the aborted transactions are read at once
)

// Compact makes one pass. One at a time for a log.
func (l *Log) Compact(c Compaction) (CompactionResult, error) {
	p := &compactPass{l: l, c: c, keys: newKeyTable(c.TableBytes, c.TableLoad), open: map[int64]bool{}}
	r, err := p.run()
	if err != nil {
		err = fmt.Errorf("compact %s: %w", l.binding.Info.label(), err)
	}
	return r, err
}

// compactPass is a pass under way.
type compactPass struct {
	l    *Log
	c    Compaction
	keys *keyTable
	r    CompactionResult

	end     ids.Offset               // what is below is filtered
	open    map[int64]bool           // producers of whose transaction there is a batch, up to the present one
	last    map[int64]lastOfProducer // what must stay of each
	aborted abortedCache
	edits   []compactEdit
	stays   bool  // the batch before the present one stays as it is
	kept    int64 // bytes that stay, up to the present batch
	worked  int   // bytes since the last call of Pace, about
}

// lastOfProducer is what restores the state of a producer: its last batch with data, and its epoch.
type lastOfProducer struct {
	offset ids.Offset // the last one of that batch; NoOffset: none
	epoch  int16
}

// compactEdit is a data row to be changed.
type compactEdit struct {
	base, next ids.Offset
	was        int
	batch      []byte     // nil: the row goes
	marker     ids.Offset // of a marker that goes; else NoOffset
	follows    bool       // there is no other batch between the edit before and this one
}

func (p *compactPass) run() (CompactionResult, error) {
	l := p.l
	p.r.From = max(l.compacted().Clean, l.Start())
	p.r.Clean = p.r.From
	to, err := l.compactableTo(p.c.CompactionBounds, p.r.From)
	if err != nil || to <= p.r.From {
		return p.r, err
	}
	from, err := l.baseOf(p.r.From)
	if err == nil {
		p.end, err = p.readKeys(from, to)
	}
	if err != nil {
		return p.r, err
	}
	p.r.More, p.r.Keys = p.end < to, p.keys.len()
	p.findLast()
	if err := p.commit(func(c *compactionRow) { c.Holes = max(c.Holes, p.end) }); err != nil {
		return p.r, err
	}
	at, err := l.baseOf(l.Start())
	for err == nil && at < p.end {
		at, err = p.step(at)
	}
	if err != nil {
		return p.r, err
	}
	err = p.commit(func(c *compactionRow) { c.Clean, c.CleanBytes = max(c.Clean, p.end), p.kept })
	if err == nil {
		p.r.Clean = p.end
		l.tail.dropTo(p.end - 1) // what is in memory has all records
	}
	return p.r, err
}

// scan calls fn with the stored batches that begin in [from, to), checked, until it returns false or a step is over. It returns where to go on.
func (p *compactPass) scan(from, to ids.Offset, fn func(h batch.Header, raw []byte) (bool, error)) (next ids.Offset, bytes int, err error) {
	next, records := to, 0
	err = p.l.scanStored(from, to, func(base ids.Offset, _ int, value func() ([]byte, error)) (bool, error) {
		if base < from {
			return true, nil
		}
		if bytes >= compactStepBytes || records >= compactStepRecords {
			next = base
			return false, nil
		}
		raw, err := value()
		if err != nil {
			return false, err
		}
		if _, err := p.l.checkStored(base, raw); err != nil {
			return false, err
		}
		if err := p.pause(len(raw)); err != nil {
			return false, err
		}
		h := batch.DecodeHeader(raw)
		bytes += len(raw)
		records += max(1, int(h.RecordCount))
		more, err := fn(h, raw)
		if !more {
			next = base
		}
		return more, err
	})
	return next, bytes, err
}

// readKeys fills the table with the keys in [from, to), as far as they fit, and returns to where that is.
func (p *compactPass) readKeys(from, to ids.Offset) (ids.Offset, error) {
	full := false
	for at := from; at < to && !full; {
		next, bytes, err := p.scan(at, to, func(h batch.Header, raw []byte) (bool, error) {
			fits, err := p.noteKeys(h, raw, ids.Offset(h.BaseOffset) == from)
			full = !fits
			return fits, err
		})
		if err != nil {
			return from, err
		}
		p.r.Read += int64(bytes)
		if err := p.c.Pace(bytes); err != nil {
			return from, err
		}
		at = next
		if full {
			return at, nil
		}
	}
	return to, nil
}

// noteKeys puts the keys of a batch into the table; false when it is full. The first batch always fits, or nothing would ever be done.
func (p *compactPass) noteKeys(h batch.Header, raw []byte, first bool) (fits bool, err error) {
	if h.IsControl() {
		return true, nil
	}
	if gone, err := p.isAborted(h); err != nil || gone {
		return err == nil, err
	}
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return false, p.unreadable(h, err)
		}
		if err := p.pause(len(rec.Key) + len(rec.Value)); err != nil {
			return false, err
		}
		if rec.Key != nil && !p.keys.put(rec.Key, ids.Offset(h.BaseOffset)+ids.Offset(rec.OffsetDelta), first) {
			return false, nil
		}
	}
	return true, nil
}

// pause lets others work in the middle of a step. It is told of each batch and record.
func (p *compactPass) pause(bytes int) error {
	if p.worked += bytes + compactItemBytes; p.worked < compactPauseBytes {
		return nil
	}
	p.worked = 0
	return p.c.Pace(0)
}

// unreadable is the error of a batch whose CRC is right, but whose records are not.
func (p *compactPass) unreadable(h batch.Header, err error) error {
	return fmt.Errorf("records of the batch at offset %d cannot be read: %w", h.BaseOffset, err)
}

// findLast notes what must stay of each producer, as of now.
func (p *compactPass) findLast() {
	l := p.l
	l.sh.mu.RLock()
	entries := l.producers.Clone()
	l.sh.mu.RUnlock()
	p.last = make(map[int64]lastOfProducer, len(entries))
	for id, e := range entries {
		last := lastOfProducer{offset: ids.NoOffset, epoch: e.Epoch}
		if b, ok := e.Last(); ok {
			last.offset = b.LastOffset
		}
		p.last[id] = last
	}
}

// step filters the batches from an offset on, as many as one step takes, and commits. It returns where to go on.
func (p *compactPass) step(at ids.Offset) (ids.Offset, error) {
	p.edits, p.stays = p.edits[:0], true
	next, bytes, err := p.scan(at, p.end, func(h batch.Header, raw []byte) (bool, error) { return true, p.filter(h, raw) })
	if err != nil {
		return at, err
	}
	p.r.Read += int64(bytes)
	if len(p.edits) > 0 {
		if err := p.commit(nil); err != nil {
			return at, err
		}
		for i := range p.edits {
			bytes += len(p.edits[i].batch)
		}
	}
	return next, p.c.Pace(bytes)
}

// filter decides what becomes of a batch.
func (p *compactPass) filter(h batch.Header, raw []byte) error {
	edit := compactEdit{base: ids.Offset(h.BaseOffset), next: ids.Offset(h.NextOffset()), was: len(raw), marker: ids.NoOffset, follows: !p.stays}
	var err error
	if h.IsControl() {
		edit.batch, err = p.filterMarker(h, raw)
		if edit.batch == nil {
			edit.marker = ids.Offset(h.LastOffset())
		}
	} else {
		edit.batch, err = p.filterData(h, raw)
	}
	if err != nil {
		return err
	}
	p.kept += int64(len(edit.batch))
	if p.stays = edit.batch != nil && &edit.batch[0] == &raw[0]; p.stays {
		return nil
	}
	p.edits = append(p.edits, edit)
	return nil
}

// filterData is what is left of a batch of a client: raw itself, another batch, or nil. Of the last batch of a producer the header always stays.
func (p *compactPass) filterData(h batch.Header, raw []byte) (left []byte, err error) {
	gone, err := p.isAborted(h)
	if err != nil {
		return nil, err
	}
	if h.IsTransactional() {
		p.open[h.ProducerID] = true
	}
	if !gone && h.RecordCount > 0 {
		horizon, has := h.DeleteHorizon()
		expired := has && horizon <= p.c.NowMs && ids.Offset(h.LastOffset()) < p.c.DiscardBelow
		left, err = batch.Filter(raw, batch.Filtering{
			HorizonMs: p.horizon(), Pause: p.pause,
			Keep: func(o int64, r *batch.Record) bool {
				if r.Key == nil || r.Value == nil && expired {
					return false
				}
				last, known := p.keys.last(r.Key)
				return !known || ids.Offset(o) >= last
			},
		})
		if err != nil {
			return nil, p.unreadable(h, err)
		}
	}
	if left != nil {
		return left, nil
	}
	if last, ok := p.last[h.ProducerID]; !ok || last.offset != ids.Offset(h.LastOffset()) {
		return nil, nil
	}
	if h.RecordCount == 0 {
		return raw, nil
	}
	return batch.Empty(h), nil
}

func (p *compactPass) horizon() int64 {
	if h := p.c.NowMs + p.c.DeleteRetentionMs; h >= p.c.NowMs {
		return h
	}
	return 1<<63 - 1
}

// filterMarker is what is left of a control batch: a marker goes some time after a pass that found no batch of its transaction, unless it is what
// its producer's epoch is known from.
func (p *compactPass) filterMarker(h batch.Header, raw []byte) ([]byte, error) {
	if _, err := batch.ParseMarker(raw); err != nil {
		return raw, nil // control records of other uses
	}
	needed := p.open[h.ProducerID]
	delete(p.open, h.ProducerID)
	last, known := p.last[h.ProducerID]
	if needed || known && last.epoch == h.ProducerEpoch && last.offset < ids.Offset(h.BaseOffset) {
		return raw, nil
	}
	if horizon, has := h.DeleteHorizon(); has {
		if horizon <= p.c.NowMs && ids.Offset(h.LastOffset()) < p.c.DiscardBelow {
			return nil, nil
		}
		return raw, nil
	}
	return batch.Filter(raw, batch.Filtering{Keep: func(int64, *batch.Record) bool { return true }, HorizonMs: p.horizon(), Always: true})
}

// abortedCache has the aborted transactions of a stretch of the log.
type abortedCache struct {
	from, to ids.Offset
	list     map[int64][]AbortedTransaction
}

// isAborted says whether a batch belongs to an aborted transaction. Batches are asked for in order.
func (p *compactPass) isAborted(h batch.Header) (bool, error) {
	if !h.IsTransactional() {
		return false, nil
	}
	base, c := ids.Offset(h.BaseOffset), &p.aborted
	if base < c.from || base >= c.to {
		list, err := p.l.AbortedTransactions(base, base+abortedWindow)
		if err != nil {
			return false, err
		}
		*c = abortedCache{from: base, to: base + abortedWindow, list: map[int64][]AbortedTransaction{}}
		for _, a := range list {
			c.list[a.ProducerID] = append(c.list[a.ProducerID], a)
		}
	}
	for _, a := range c.list[h.ProducerID] {
		if a.First <= base && base < a.Last {
			return true, nil
		}
	}
	return false, nil
}

// commit stores the edits of a step, and what change does to the compaction row. Rows that went with the log start meanwhile do not come back.
func (p *compactPass) commit(change func(*compactionRow)) error {
	l := p.l
	l.startMu.Lock()
	defer l.startMu.Unlock()
	if l.released {
		return ErrReleased
	}
	b := l.e.newBatch(0)
	defer b.Close()
	row := l.compacted()
	start := l.Start()
	if change != nil {
		change(&row)
	} else {
		row.Removed += p.put(b, start)
	}
	set(b, appendPartitionKey(nil, rowCompaction, l.binding.Info.ID), row.appendTo(nil))
	if row.Holes > l.compacted().Holes { // before anybody can miss a row
		l.sh.mu.Lock()
		l.compaction.Holes = row.Holes
		l.sh.mu.Unlock()
	}
	if err := l.e.commit(b, flushLazy); err != nil {
		return err
	}
	l.sh.mu.Lock()
	l.compaction = row
	l.sh.mu.Unlock()
	return nil
}

// put adds the edits to b, and returns how many bytes from the log start on they remove. It needs startMu.
func (p *compactPass) put(b *pebble.Batch, start ids.Offset) (removed int64) {
	l, id := p.l, p.l.binding.Info.ID
	marker := ids.NoOffset
	for i := 0; i < len(p.edits); i++ {
		x := &p.edits[i]
		if x.base < l.dropped {
			continue
		}
		if x.next > start {
			removed += int64(x.was - len(x.batch))
		}
		if x.batch != nil {
			set(b, appendDataKey(nil, id, x.base), x.batch)
			p.r.Written += int64(len(x.batch))
			continue
		}
		p.r.BatchesRemoved++
		if x.marker != ids.NoOffset {
			deleteRow(b, appendAbortedKey(nil, id, x.marker))
			marker = max(marker, x.marker)
		}
	}
	p.putDeleted(b)
	p.r.Removed += removed
	if marker != ids.NoOffset {
		l.tail.dropTo(marker)
		l.markersGone.Add(1)
	}
	return removed
}

// putDeleted deletes the rows of the batches that go, many next to each other as a range.
func (p *compactPass) putDeleted(b *pebble.Batch) {
	id := p.l.binding.Info.ID
	for i := 0; i < len(p.edits); {
		end := i
		for end < len(p.edits) && p.edits[end].batch == nil && (end == i || p.edits[end].follows) {
			end++
		}
		if end-i >= compactRangeFrom {
			lo, hi := dataBounds(id, p.edits[i].base, p.edits[end-1].base+1)
			deleteRange(b, lo, hi)
			i = end
			continue
		}
		for ; i < end; i++ {
			deleteRow(b, appendDataKey(nil, id, p.edits[i].base))
		}
		if end < len(p.edits) && p.edits[end].batch != nil {
			i = end + 1
		}
	}
}
