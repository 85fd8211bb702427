package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// dragonboat reads entries through IterateEntries for three purposes: to apply them, to send them to followers, and
// for the term of one entry. Two rules make that cheap:
//
//   - At start Raft applies its log from the beginning, in order, and skips what the state machine's Open said is
//     applied. Those entries are answered without payload. No other use can fall into that walk: a replica does not
//     campaign, and so does not send, before it has applied all that was committed.
//   - At most iterateBytesMax of payload are read at once. dragonboat takes a short answer for a full one only when
//     the reported size is above its limit, and then drops the last entry; so behind a cut stands an empty entry to
//     be dropped.
const iterateBytesMax = 2 << 20

// entryCollector gathers entries within the limits of one call.
type entryCollector struct {
	entries []pb.Entry
	size    uint64 // as dragonboat counts it
	maxSize uint64
	bytes   int // of commands read in this call
	high    ids.RaftIndex
}

// take adds an entry and says whether more may follow.
func (c *entryCollector) take(e pb.Entry) bool {
	c.entries = append(c.entries, e)
	c.size += uint64(e.SizeUpperLimit())
	c.bytes += len(e.Cmd)
	if c.size > c.maxSize {
		return false
	}
	next := e.Index + 1
	if c.bytes <= iterateBytesMax || next >= uint64(c.high) {
		return true
	}
	c.entries = append(c.entries, pb.Entry{Index: next})
	c.size = c.maxSize + 1
	return false
}

// iterateEntries appends the stored entries in [low, high) to entries, as IterateEntries of raftio.ILogDB does. For
// one entry with maxSize 0, which is how dragonboat asks for a term, only index and term are filled in.
func (e *Engine) iterateEntries(sh *shard, entries []pb.Entry, size uint64, low, high ids.RaftIndex, maxSize uint64) ([]pb.Entry, uint64, error) {
	if maxSize == 0 && high == low+1 {
		r, err := e.entryAt(sh, low)
		if errors.Is(err, ErrNoEntry) {
			return entries, size, nil
		}
		entry := pb.Entry{Index: uint64(low), Term: uint64(r.term)}
		return append(entries, entry), size + uint64(entry.SizeUpperLimit()), err
	}
	sh.mu.RLock()
	low, high = max(low, sh.start.Index+1), min(high, sh.last+1)
	bareTo := ids.RaftIndex(0)
	if low == sh.replayNext && low <= sh.replayUntil {
		bareTo = sh.replayUntil
	}
	sh.mu.RUnlock()
	if low >= high {
		return entries, size, nil
	}
	c := &entryCollector{entries: entries, size: size, maxSize: maxSize, high: high}
	if sh.log == nil || bareTo > 0 || !sh.log.tail.entries(low, high, c) {
		if err := e.iterateStored(sh, c, low, high, bareTo); err != nil {
			return nil, 0, err
		}
	}
	if bareTo > 0 {
		sh.replayed(c, len(entries))
	}
	return c.entries, c.size, nil
}

// replayed moves the walk of a starting replica behind the entries that the caller keeps.
func (sh *shard) replayed(c *entryCollector, before int) {
	got := c.entries[before:]
	if len(got) == 0 {
		return
	}
	next := ids.RaftIndex(got[len(got)-1].Index) + 1
	if c.size > c.maxSize && len(got) > 1 {
		next-- // dragonboat drops the last one and asks for it again
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.replayNext = next
}

// iterateStored reads entries from the store, those up to bareTo without payload, until the tail can take over.
func (e *Engine) iterateStored(sh *shard, c *entryCollector, low, high, bareTo ids.RaftIndex) (err error) {
	it, err := e.newIter(entryBounds(sh.id.Shard, sh.id.Replica, low, high))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	payload := payloadReader{log: sh.log}
	defer func() { err = errors.Join(err, payload.close()) }()
	var row EntryRow
	for ok := it.First(); ok; ok = it.Next() {
		_, _, index, err := parseEntryKey(it.Key())
		if err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := row.decode(index, v); err != nil {
			return err
		}
		entry, err := payload.entry(&row, index <= bareTo)
		if err != nil {
			return fmt.Errorf("shard %d entry %d: %w", sh.id.Shard, index, err)
		}
		if !c.take(entry) {
			return nil
		}
		if sh.log != nil && index >= bareTo && index+1 < high && sh.log.tail.entries(index+1, high, c) {
			return nil
		}
	}
	return it.Error()
}

// payloadReader turns entry rows back into Raft entries. The batches of consecutive entries lie next to each other,
// so one iterator walks along.
type payloadReader struct {
	log  *Log
	iter dataIter
}

func (p *payloadReader) entry(row *EntryRow, bare bool) (pb.Entry, error) {
	e := pb.Entry{
		Term: uint64(row.Term), Index: uint64(row.Index), Type: row.Type,
		Key: row.Key, ClientID: row.ClientID, SeriesID: row.SeriesID, RespondedTo: row.RespondedTo,
	}
	if row.Kind != KindData || bare {
		if len(row.Cmd) > 0 {
			e.Cmd = append([]byte(nil), row.Cmd...)
		}
		return e, nil
	}
	b, err := p.batch(row)
	if err == nil {
		_, err = p.log.checkStored(row.Batch.Base, b)
	}
	if IsDamage(err) {
		e.Cmd = stubProposal(row)
		return e, nil
	}
	if err != nil {
		return e, err
	}
	e.Cmd = make([]byte, 1+len(b))
	e.Cmd[0] = plainPrefix
	copy(e.Cmd[1:], b)
	restoreProposal(e.Cmd[1:], row)
	return e, nil
}

// batch is the stored batch of an entry, or what stands for it when compaction has left nothing, borrowed until the next call.
func (p *payloadReader) batch(row *EntryRow) ([]byte, error) {
	base := row.Batch.Base
	if p.iter.it == nil {
		it, err := p.log.e.newIter(partitionBounds(rowData, p.log.binding.Info.ID))
		if err != nil {
			return nil, err
		}
		p.iter.it = it
	}
	ok, err := p.iter.seek(p.log.binding.Info.ID, base)
	switch {
	case err != nil && pebble.IsCorruptionError(err):
		return nil, p.log.damaged(base, err)
	case err != nil:
		return nil, err
	case !ok:
		if b := p.log.emptied(row); b != nil {
			return b, nil
		}
		return nil, p.log.damaged(base, fmt.Errorf("%w: no batch at offset %d", ErrCorruptRow, base))
	}
	return p.log.fetch(p.iter.it)
}

func (p *payloadReader) close() error {
	if p.iter.it == nil {
		return nil
	}
	if err := p.iter.it.Close(); err != nil && !pebble.IsCorruptionError(err) { // that one was met, and reported, before
		return err
	}
	return nil
}
