package producer

import (
	"cmp"
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

// Append takes a batch that is in the log into account, at the wall clock's nowMs (ms). Batches without a producer id (negative)
// change nothing, and neither does their Undo.
func (s *State) Append(b Batch, nowMs int64) Undo {
	if b.ProducerID < 0 {
		return Undo{producerID: -1}
	}
	e, ok := s.entries[b.ProducerID]
	u := Undo{producerID: b.ProducerID, existed: ok, before: e}
	if !ok {
		e = NewEntry(b.Epoch)
	}
	e.Append(b)
	e.seenMs = nowMs
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

// Transaction is what Revert does to the producer's open transaction: where it began, ids.NoOffset for none; for
// Transactions.Restore.
func (u Undo) Transaction() (producerID int64, first ids.Offset) {
	if !u.existed {
		return u.producerID, ids.NoOffset
	}
	return u.producerID, u.before.TxnFirstOffset
}

// Get is a producer's state, a copy; false when nothing is known of it.
func (s *State) Get(producerID int64) (Entry, bool) {
	e, ok := s.entries[producerID]
	e.seenMs = 0 // nobody else's business
	return e, ok
}

// Len is the number of producers.
func (s *State) Len() int { return len(s.entries) }

// expiryGraceMs is how long a producer is kept at least, by this replica's clock, when its timestamps are old: nobody repeats a batch
// for longer.
const expiryGraceMs = 60 * 60 * 1000

// Expire forgets producers whose last batch is ttlMs or more older than nowMs (both ms, the batch's own timestamp, as in
// Kafka) and that have no open transaction. It returns how many.
//
// Each replica expires by itself, and batches may carry old timestamps. So that no replica forgets a producer that is still
// writing, and takes a repeated batch for a new one when it leads, a batch counts for an hour (or ttlMs, if that is less) from
// when it came here as well.
func (s *State) Expire(nowMs, ttlMs int64) int {
	before := len(s.entries)
	maps.DeleteFunc(s.entries, func(_ int64, e Entry) bool {
		return e.TxnFirstOffset == ids.NoOffset && nowMs-e.LastTimestamp >= ttlMs && nowMs-e.seenMs >= min(ttlMs, expiryGraceMs)
	})
	return before - len(s.entries)
}

// Clone is a copy of all producers.
func (s *State) Clone() map[int64]Entry { return maps.Clone(s.entries) }

// Retain forgets the producers without an open transaction that keep does not want.
func (s *State) Retain(keep func(producerID int64) bool) {
	maps.DeleteFunc(s.entries, func(id int64, e Entry) bool { return e.TxnFirstOffset == ids.NoOffset && !keep(id) })
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

// SnapshotWithin is a snapshot of at most maxBytes: of more, the producers that have been silent for longest and have no open
// transaction are left out.
func (s *State) SnapshotWithin(maxBytes int) []byte {
	b := s.AppendSnapshot(nil)
	if len(b) <= maxBytes {
		return b
	}
	var silent []int64
	for id, e := range s.entries {
		if e.TxnFirstOffset == ids.NoOffset {
			silent = append(silent, id)
		}
	}
	slices.SortFunc(silent, func(a, b int64) int { return cmp.Compare(s.entries[b].LastTimestamp, s.entries[a].LastTimestamp) })
	for len(b) > maxBytes && len(silent) > 0 {
		silent = silent[:len(silent)*maxBytes/len(b)*9/10]
		keep := make(map[int64]bool, len(silent))
		for _, id := range silent {
			keep[id] = true
		}
		part := State{entries: maps.Clone(s.entries)}
		part.Retain(func(id int64) bool { return keep[id] })
		b = part.AppendSnapshot(b[:0])
	}
	return b
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

// LoadSnapshot replaces the state by a snapshot, at the wall clock's nowMs (ms). On error (wrapping bin.ErrMalformed) the
// state is as before.
func (s *State) LoadSnapshot(b []byte, nowMs int64) error {
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
		e.seenMs = nowMs
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
