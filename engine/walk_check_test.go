package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// checkStep compares what is in memory of all logs.
func (w *modelWalk) checkStep() {
	w.t.Helper()
	for _, s := range w.slots {
		if s.bound == nil {
			continue
		}
		if err := s.memory(); err != nil {
			w.t.Fatalf("seed %d: partition %d: %v", w.seed, s.binding.Info.ID, err)
		}
	}
}

func (s *walkSlot) memory() error {
	l, v := s.bound, s.newest()
	switch {
	case l.State() != s.log.state():
		return fmt.Errorf("state %+v, want %+v", l.State(), s.log.state())
	case l.LastIndex() != ids.RaftIndex(len(v.entries)) || l.Commit() != ids.RaftIndex(v.hard.Commit):
		return fmt.Errorf("last index %d, commit %d, want %d, %d", l.LastIndex(), l.Commit(), len(v.entries), v.hard.Commit)
	case l.Start() != v.logStart || l.LogStartPoint().Index != v.raftStart:
		return fmt.Errorf("log start %d, Raft log behind %d, want %d, %d", l.Start(), l.LogStartPoint().Index, v.logStart, v.raftStart)
	case l.HighWatermark() != s.hw:
		return fmt.Errorf("high watermark %d, want %d", l.HighWatermark(), s.hw)
	case l.LastStable(s.hw) != s.log.stable(s.hw):
		return fmt.Errorf("last stable offset %d at the high watermark %d, want %d", l.LastStable(s.hw), s.hw, s.log.stable(s.hw))
	}
	return nil
}

func (w *modelWalk) checkAll() {
	for _, s := range w.slots {
		if s.bound != nil {
			w.checkFull(s)
		}
	}
}

// look reads all of one partition.
func (w *modelWalk) look() bool {
	s := w.slot()
	if s == nil {
		return false
	}
	w.checkFull(s)
	return true
}

// checkFull compares all that can be read of a log with the model.
func (w *modelWalk) checkFull(s *walkSlot) {
	w.t.Helper()
	problems, err := w.e.Verify(s.binding.Info.ID)
	if len(problems) > 0 {
		err = fmt.Errorf("problems %v", problems)
	}
	if err == nil {
		err = s.memory()
	}
	if err == nil {
		err = s.compare(w.rng, s.bound)
	}
	if err == nil {
		err = s.compareCommitted(w.rng, s.bound, s.newest().logStart, w.now)
	}
	if err == nil {
		err = s.compareSizeAndTimes(w.rng, w.now)
	}
	if err == nil {
		err = s.compareEpochs(w.rng)
	}
	if err != nil {
		w.t.Fatalf("seed %d: partition %d: %v", w.seed, s.binding.Info.ID, err)
	}
}

// readCommitted reads as a consumer of committed records does.
func readCommitted(rng *rand.Rand, l *Log, from, limit ids.Offset) (got []modelRecord, err error) {
	for at := from; at < limit; {
		recs, aborted, err := l.ReadCommitted(ReadOptions{From: at, Limit: limit, MaxBytes: 1 + rng.IntN(5000), MinOneBatch: true})
		if err != nil {
			return nil, err
		}
		if recs.Next <= at {
			return nil, fmt.Errorf("nothing to read at %d below %d", at, limit)
		}
		slices.SortFunc(aborted, func(a, b AbortedTransaction) int { return int(a.First - b.First) })
		gone := map[int64]bool{}
		for b := slices.Concat(recs.Parts...); len(b) > 0; {
			h, raw, rest, err := batch.Split(b)
			if err != nil {
				return nil, err
			}
			b = rest
			for len(aborted) > 0 && aborted[0].First <= ids.Offset(h.LastOffset()) {
				gone[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
			if m, err := batch.ParseMarker(raw); err == nil && !m.Commit {
				delete(gone, h.ProducerID)
			}
			if h.IsControl() || h.IsTransactional() && gone[h.ProducerID] {
				continue
			}
			records, err := modelRecords(raw)
			if err != nil {
				return nil, err
			}
			for _, r := range records {
				if r.offset >= from && r.offset < limit {
					got = append(got, r)
				}
			}
		}
		at = recs.Next
	}
	return got, nil
}

// compareCommitted compares what a consumer of committed records gets from an offset on: what was written or, where compaction was, a part of
// it that has the same last values.
func (s *modelShard) compareCommitted(rng *rand.Rand, l *Log, from ids.Offset, now int64) error {
	limit := l.LastStable(max(l.HighWatermark(), from))
	if rng.IntN(2) == 0 {
		limit = l.LastStable(l.End())
	}
	if limit <= from {
		return nil
	}
	got, err := readCommitted(rng, l, from, limit)
	if err != nil {
		return err
	}
	compactTo := s.newest().compactTo
	all, err := s.log.committed(from, max(limit, compactTo)) // the high watermark may have gone back since
	if err != nil {
		return err
	}
	last := map[string]modelRecord{} // below compactTo
	for _, r := range all {
		if r.offset < compactTo && !r.keyless {
			last[r.key] = r
		}
	}
	for _, r := range all {
		if r.offset >= limit {
			break
		}
		if len(got) > 0 && got[0] == r {
			got = got[1:]
			continue
		}
		since, cleaned := s.cleaned[r.offset]
		if r.offset >= compactTo || last[r.key] == r && (r.value != "" || !cleaned || now < since+compactRetention) {
			return fmt.Errorf("record %+v is missing between %d and %d; compacted below %d, cleaned at %d (%v), now %d", r, from, limit, compactTo, since, cleaned, now)
		}
	}
	if len(got) > 0 {
		return fmt.Errorf("read %+v, which was never committed there", got[0])
	}
	return nil
}

// compareSizeAndTimes compares the size, and lookups by time, with what is stored.
func (s *walkSlot) compareSizeAndTimes(rng *rand.Rand, now int64) error {
	l, start := s.bound, s.newest().logStart
	limit, size := start+ids.Offset(rng.Int64N(int64(l.End()-start)+1)), int64(0)
	var stored []modelRecord
	var failed error
	err := l.ScanBatches(start, func(_ ids.Offset, raw []byte) bool {
		h := batch.DecodeHeader(raw)
		if ids.Offset(h.NextOffset()) > start {
			size += int64(len(raw))
		}
		var records []modelRecord
		if records, failed = modelRecords(raw); failed != nil {
			return false
		}
		for _, r := range records {
			if r.offset >= start && r.offset < limit {
				stored = append(stored, r)
			}
		}
		return true
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if l.SizeBytes() != size {
		return fmt.Errorf("size %d, stored are %d bytes", l.SizeBytes(), size)
	}
	best := modelRecord{offset: ids.NoOffset, ms: -1}
	for _, r := range stored {
		if r.ms > best.ms {
			best = r
		}
	}
	inside := slices.ContainsFunc(s.log.batches, func(b modelBatch) bool { return b.base < limit && limit < b.next })
	if o, ms, _, err := l.MaxTimestamp(limit); !inside && (err != nil || o != best.offset || ms != best.ms) {
		return fmt.Errorf("largest timestamp below %d is %d at %d, %v; want %d at %d", limit, ms, o, err, best.ms, best.offset)
	}
	for range 3 {
		ts := now - rng.Int64N(20_000) + 2000
		if len(stored) > 0 && rng.IntN(2) == 0 {
			ts = stored[rng.IntN(len(stored))].ms
		}
		want := modelRecord{offset: ids.NoOffset, ms: -1}
		if i := slices.IndexFunc(stored, func(r modelRecord) bool { return r.ms >= ts }); i >= 0 {
			want = stored[i]
		}
		if o, ms, _, err := l.OffsetForTime(ts, limit); err != nil || o != want.offset || ms != want.ms {
			return fmt.Errorf("first record from time %d on below %d: %d at %d, %v; want %d at %d", ts, limit, ms, o, err, want.ms, want.offset)
		}
	}
	return nil
}

// compareEpochs asks for the end of an epoch.
func (s *walkSlot) compareEpochs(rng *rand.Rand) error {
	epochs := s.log.epochs
	asked := ids.LeaderEpoch(rng.IntN(int(s.nextEpoch) + 2))
	want, end := ids.NoEpoch, ids.NoOffset
	for i, e := range epochs {
		if e.Epoch > asked {
			if end = e.Start; i == 0 {
				want = asked
			}
			break
		}
		want = e.Epoch
		if end = s.log.next; i == len(epochs)-1 && e.Epoch < asked {
			want, end = ids.NoEpoch, ids.NoOffset
		}
	}
	if epoch, o := s.bound.EndOffsetForEpoch(asked); epoch != want || o != end {
		return fmt.Errorf("epoch %d ends as %d at %d, want %d at %d, of %v", asked, epoch, o, want, end, epochs)
	}
	return nil
}

// checkRows checks that there is no row of a partition or a replica that is not there (any more).
func (w *modelWalk) checkRows() {
	w.t.Helper()
	partitions, replicas := map[ids.PartitionID]bool{}, map[replicaID]bool{}
	for _, s := range w.slots {
		if s.modelShard == nil {
			continue
		}
		replicas[s.id] = true
		for _, id := range s.newest().former {
			replicas[id] = true
		}
		partitions[s.binding.Info.ID] = true
	}
	delete(partitions, 0)
	it, err := w.e.newIter(nil, nil)
	w.must(err)
	strangers := map[string]int{}
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		switch rowKind(k[0]) {
		case rowEntry, rowState, rowStart, rowBootstrap, rowSnapshot:
			id := replicaID{ids.ShardID(binary.BigEndian.Uint64(k[1:])), ids.ReplicaID(binary.BigEndian.Uint64(k[9:]))}
			if !replicas[id] {
				strangers[fmt.Sprintf("%c %v", k[0], id)]++
			}
		default:
			if id := ids.PartitionID(binary.BigEndian.Uint64(k[1:])); !partitions[id] {
				strangers[fmt.Sprintf("%c %d", k[0], id)]++
			}
		}
	}
	w.must(errors.Join(it.Error(), it.Close()))
	if len(strangers) > 0 {
		w.t.Fatalf("seed %d: rows %v; there are the partitions %v and replicas %v", w.seed, strangers, slices.Collect(maps.Keys(partitions)), slices.Collect(maps.Keys(replicas)))
	}
}

// retain asks what has expired, compares that, and moves the log start there.
func (w *modelWalk) retain() bool {
	s := w.slot()
	if s == nil {
		return false
	}
	r := Retention{Limit: s.hw, MaxBytes: -1, OldestMs: -1}
	if w.rng.IntN(3) > 0 {
		r.MaxBytes = w.rng.Int64N(s.bound.SizeBytes() + 1000)
	}
	if w.rng.IntN(3) == 0 {
		r.OldestMs = w.now - w.rng.Int64N(20_000)
	}
	to, more, err := s.bound.Expired(r)
	w.must(err)
	start := s.newest().logStart
	w.note("partition %d: expired to %d of %+v", s.binding.Info.ID, to, r)
	if want := s.expired(r); more || s.newest().compactTo == 0 && to != want || to < start || to > max(start, r.Limit) {
		w.t.Fatalf("seed %d: partition %d: expired to %d (more: %v), want %d; log start %d, retention %+v", w.seed, s.binding.Info.ID, to, more, want, start, r)
	}
	if to > start {
		w.setStart(s, to)
	}
	return true
}

// expired is up to where a log that was never compacted may be deleted.
func (s *walkSlot) expired(r Retention) ids.Offset {
	start, left := s.newest().logStart, int64(0)
	bySize, byTime := start, start
	list := slices.DeleteFunc(slices.Clone(s.log.batches), func(b modelBatch) bool { return b.next <= start })
	for _, b := range list {
		left += int64(len(b.proposal))
	}
	for _, b := range list {
		if left -= int64(len(b.proposal)); r.MaxBytes < 0 || left < r.MaxBytes || b.next > r.Limit {
			break
		}
		bySize = b.next
	}
	for _, b := range list {
		if batch.DecodeHeader(b.proposal).MaxTimestamp >= r.OldestMs || b.next > r.Limit {
			break
		}
		byTime = b.next
	}
	if start >= r.Limit {
		return start
	}
	return max(bySize, byTime)
}
