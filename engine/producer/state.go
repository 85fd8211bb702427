package producer

import (
	"fmt"
	"maps"
	"slices"

	"cairn/internal/bin"
	"cairn/internal/ids"
)

// State holds all producers of one partition. The zero State is empty and ready. Not safe for concurrent use.
type State struct {
	entries map[int64]Entry
}

// Undo takes one Append back. It holds the producer's former state, so it is as small as an Entry.
type Undo struct {
	producerID int64
	existed    bool
	before     Entry
}

// Append takes a batch that is in the log into account. Batches without a producer id (negative) change nothing,
// and neither does their Undo.
func (s *State) Append(b Batch) Undo {
	if b.ProducerID < 0 {
		return Undo{producerID: -1}
	}
	e, ok := s.entries[b.ProducerID]
	u := Undo{producerID: b.ProducerID, existed: ok, before: e}
	if !ok {
		e = NewEntry(b.Epoch)
	}
	e.Append(b)
	if s.entries == nil {
		s.entries = make(map[int64]Entry)
	}
	s.entries[b.ProducerID] = e
	return u
}

// Revert takes back the newest Append that is not yet taken back. Undos are reverted in the reverse order of their
// appends; then the state is exactly what it was. A producer that expired in between comes back as it was.
func (s *State) Revert(u Undo) {
	switch {
	case u.producerID < 0:
	case u.existed:
		s.entries[u.producerID] = u.before
	default:
		delete(s.entries, u.producerID)
	}
}

// Get is a producer's state, a copy; false when nothing is known of it.
func (s *State) Get(producerID int64) (Entry, bool) {
	e, ok := s.entries[producerID]
	return e, ok
}

// Len is the number of producers.
func (s *State) Len() int { return len(s.entries) }

// Expire forgets producers whose last batch is ttlMs or more older than nowMs (both ms, the batch's own
// timestamp) and that have no open transaction. It returns how many.
func (s *State) Expire(nowMs, ttlMs int64) int {
	before := len(s.entries)
	maps.DeleteFunc(s.entries, func(_ int64, e Entry) bool {
		return e.TxnFirstOffset == ids.NoOffset && nowMs-e.LastTimestamp >= ttlMs
	})
	return before - len(s.entries)
}

const snapshotVersion = 1

// Least bytes of an encoded producer (id, five fields, count) and of an encoded batch of it.
const (
	minEntryBytes  = 6
	minCachedBytes = 5
)

// AppendSnapshot appends the whole state to dst. Equal states give equal bytes.
func (s *State) AppendSnapshot(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, snapshotVersion), uint64(len(s.entries)))
	before := int64(-1)
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		dst = bin.AppendUvarint(dst, uint64(id-before-1))
		before = id
		dst = e.appendTo(dst)
	}
	return dst
}

func (e *Entry) appendTo(dst []byte) []byte {
	dst = bin.AppendVarint(dst, e.Epoch)
	dst = bin.AppendVarint(dst, e.CoordinatorEpoch)
	dst = bin.AppendVarint(dst, e.LastTimestamp)
	dst = bin.AppendVarint(dst, e.TxnFirstOffset)
	dst = bin.AppendUvarint(dst, uint64(len(e.ring)))
	for _, c := range e.ring {
		dst = bin.AppendVarint(dst, c.FirstSequence)
		dst = bin.AppendVarint(dst, c.LastSequence)
		dst = bin.AppendVarint(dst, c.BaseOffset)
		dst = bin.AppendVarint(dst, c.LastOffset)
		dst = bin.AppendVarint(dst, c.Timestamp)
	}
	return dst
}

// LoadSnapshot replaces the state by a snapshot. On error (wrapping bin.ErrMalformed) the state is as before.
func (s *State) LoadSnapshot(b []byte) error {
	r := bin.NewReader(b)
	r.Version(snapshotVersion)
	n := r.Count(minEntryBytes)
	entries := make(map[int64]Entry, n)
	before := int64(-1)
	for range n {
		id := before + 1 + r.Int64()
		if id <= before {
			r.Fail("producer ids overflow")
		}
		e := readEntry(&r)
		if r.Err() != nil {
			break
		}
		entries[id] = e
		before = id
	}
	if err := r.Done(); err != nil {
		return fmt.Errorf("producer snapshot: %w", err)
	}
	s.entries = entries
	return nil
}

func readEntry(r *bin.Reader) Entry {
	e := Entry{Epoch: r.Varint16(), CoordinatorEpoch: r.Varint32(), LastTimestamp: r.Varint(), TxnFirstOffset: ids.Offset(r.Varint())}
	n := r.Count(minCachedBytes)
	if n > CachedBatches {
		r.Fail("%d batches of one producer, at most %d are kept", n, CachedBatches)
		return e
	}
	if n > 0 {
		e.ring = make([]CachedBatch, n)
	}
	for i := range e.ring {
		e.ring[i] = CachedBatch{
			FirstSequence: r.Varint32(), LastSequence: r.Varint32(),
			BaseOffset: ids.Offset(r.Varint()), LastOffset: ids.Offset(r.Varint()), Timestamp: r.Varint(),
		}
	}
	return e
}
