package engine

import (
	"context"
	"errors"
	"math"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// walkOp is a kind of step. do is false when there is nothing to do it with.
type walkOp struct {
	name   string
	weight int // more or less, or none, by seed
	do     func(w *modelWalk) bool
}

func walkOps() []walkOp {
	return []walkOp{
		{"save", 14, (*modelWalk).save},
		{"raise", 6, (*modelWalk).raise},
		{"log start", 2, (*modelWalk).moveStart},
		{"retention", 2, (*modelWalk).retain},
		{"compact", 5, (*modelWalk).compact},
		{"create", 8, (*modelWalk).create},
		{"delete", 1, (*modelWalk).remove},
		{"found generation", 1, (*modelWalk).found},
		{"join generation", 1, (*modelWalk).join},
		{"idle checkpoint", 2, (*modelWalk).idle},
		{"empty quarantine", 1, (*modelWalk).emptyQuarantine},
		{"look", 3, (*modelWalk).look},
		{"follow", 2, (*modelWalk).follow},
		{"copy", 1, (*modelWalk).copyLog},
		{"scrub", 1, (*modelWalk).scrub},
		{"flush", 1, (*modelWalk).flush},
		{"open again", 1, (*modelWalk).reopen},
		{"crash", 1, (*modelWalk).crash},
	}
}

// save saves updates of one shard or several, now and then a snapshot among them.
func (w *modelWalk) save() bool {
	chosen := slices.DeleteFunc(slices.Clone(w.slots), func(s *walkSlot) bool { return s.modelShard == nil || s.bound == nil && !s.metadata() })
	w.rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	if n := 1 + w.rng.IntN(len(chosen)); w.rng.IntN(3) > 0 || n == 0 {
		chosen = chosen[:1]
	} else {
		chosen = chosen[:n]
	}
	var updates []pb.Update
	level := flushLazy
	for _, s := range chosen {
		u, l := w.update(s)
		updates, level = append(updates, u), max(level, l)
	}
	w.begin(chosen...)
	w.must(w.db.SaveRaftState(updates, 1))
	clear(w.saving)
	w.waited(level)
	for i, s := range chosen {
		if s.bound != nil && !pb.IsEmptySnapshot(updates[i].Snapshot) {
			s.hw = s.newest().logStart
			s.hwMax = max(s.hwMax, s.hw)
		}
	}
	return true
}

// update makes up what a shard saves next.
func (w *modelWalk) update(s *walkSlot) (u pb.Update, level flushLevel) {
	old := *s.newest()
	s.mix.now, s.mix.small = w.now, w.small
	if w.rng.IntN(40) == 0 {
		var start []byte
		if u, start = s.install(w.rng); s.bound != nil {
			w.must(w.e.ExpectSnapshot(s.id.Shard, s.id.Replica, start))
		}
	} else {
		u = s.next(w.rng)
	}
	s.versions = s.versions[len(s.versions)-1:]
	v := s.newest()
	if v.durable || v.hard != old.hard {
		v.highWatermark = s.hw
		level = flushLazy
	}
	if v.durable {
		level = flushSaved
	}
	if s.metadata() && (v.durable || v.hard != old.hard) {
		level = flushDurable
	}
	if s.bound != nil {
		w.saving[s.id.Shard] = s.bound.State()
	}
	w.note("save partition %d: snapshot %d, entries %d to %d of term %d, commit %d", s.binding.Info.ID, u.Snapshot.Index, v.kept+1, len(v.entries), v.hard.Term, v.hard.Commit)
	return u, level
}

// beforeCommit checks that nobody sees what is not committed to the store yet.
func (w *modelWalk) beforeCommit(shard ids.ShardID) {
	before, ok := w.saving[shard]
	for _, s := range w.slots {
		if ok && s.bound != nil && s.id.Shard == shard && s.bound.State() != before {
			w.t.Errorf("seed %d: partition %d is at %+v before the commit, was at %+v", w.seed, s.binding.Info.ID, s.bound.State(), before)
		}
	}
}

// raise tells a log what is applied, and the high watermark: in-sync replicas may be behind the majority that has committed.
func (w *modelWalk) raise() bool {
	s := w.slot()
	if s == nil || s.newest().hard.Commit == 0 {
		return false
	}
	commit := s.newest().hard.Commit
	applied := max(s.bound.Applied(), ids.RaftIndex(1+w.rng.Uint64N(commit)))
	if w.rng.IntN(2) == 0 {
		applied = ids.RaftIndex(commit)
	}
	s.appliedMax = max(s.appliedMax, applied)
	s.bound.SetApplied(applied)
	below := s.log.at[1+w.rng.Uint64N(commit)-1].next
	if w.rng.IntN(2) == 0 {
		below = s.log.at[commit-1].next
	}
	s.hw = max(s.newest().logStart, s.hw, below)
	s.hwMax = max(s.hwMax, s.hw)
	s.bound.SetHighWatermark(s.hw)
	w.note("partition %d: applied %d, high watermark %d", s.binding.Info.ID, applied, s.hw)
	return true
}

// moveStart moves a log start up to any committed offset, as DeleteRecords does.
func (w *modelWalk) moveStart() bool {
	s := w.slot()
	if s == nil || s.hw == 0 {
		return false
	}
	o := ids.Offset(1 + w.rng.Int64N(int64(s.hw)))
	if w.rng.IntN(2) == 0 {
		o = min(s.hw, s.newest().logStart+ids.Offset(w.rng.Int64N(6)))
	}
	w.setStart(s, o)
	return true
}

func (w *modelWalk) setStart(s *walkSlot, o ids.Offset) {
	s.logStarts[o] = true
	commit := s.newest().hard.Commit
	w.change(s, func(v *version) { v.logStart = max(v.logStart, o) })
	index, err := s.bound.SetStart(o)
	w.must(err)
	s.hw = max(s.hw, s.newest().logStart)
	s.hwMax = max(s.hwMax, s.hw)
	w.note("partition %d: log start %d, Raft log to be compacted to %d", s.binding.Info.ID, o, index)
	if index > ids.RaftIndex(commit) || index >= max(1, s.bound.Applied()) {
		w.t.Errorf("seed %d: to be compacted to %d, committed is %d, applied %d", w.seed, index, commit, s.bound.Applied())
	}
	if index == 0 || w.rng.IntN(2) == 0 {
		return
	}
	w.change(s, func(v *version) { v.raftStart = index })
	w.must(w.db.RemoveEntriesTo(uint64(s.id.Shard), uint64(s.id.Replica), uint64(index)))
}

// compact makes a pass with random bounds. It may be broken off after any step.
func (w *modelWalk) compact() bool {
	s := w.slot()
	if s == nil || s.mix.keys == 0 || s.hw == 0 {
		return false
	}
	left := w.rng.IntN(40)
	c := Compaction{
		CompactionBounds: CompactionBounds{Limit: s.hw, YoungMs: -1},
		NowMs:            w.now, DeleteRetentionMs: compactRetention, DiscardBelow: math.MaxInt64, TableBytes: []int64{1, 1 << 20}[w.rng.IntN(2)], TableLoad: 0.9,
		Pace: func(int) error {
			if left--; left == 0 {
				return errBreak
			}
			return nil
		},
	}
	if w.rng.IntN(3) == 0 {
		c.YoungMs = w.now - w.rng.Int64N(6000)
	}
	if w.rng.IntN(4) == 0 {
		c.DiscardBelow = 0
	}
	before := s.bound.Compacted()
	w.change(s, func(v *version) { v.cleaning, v.compactTo = true, max(v.compactTo, c.Limit) })
	r, err := s.bound.Compact(c)
	if err != nil && !errors.Is(err, errBreak) {
		w.must(err)
	}
	w.change(s, func(v *version) { v.cleaning, v.clean = false, s.bound.Compacted() })
	w.note("partition %d: compacted to %d, was %d, limit %d: %+v, %v", s.binding.Info.ID, s.bound.Compacted(), before, c.Limit, r, err)
	if clean := s.bound.Compacted(); clean < before || clean > max(before, c.Limit) || err != nil && clean != before {
		w.t.Errorf("seed %d: clean to %d, before to %d, limit %d, %v", w.seed, clean, before, c.Limit, err)
	}
	s.noteTombstones(w.now)
	return true
}

// noteTombstones remembers since when a tombstone may be on its way out.
func (s *walkSlot) noteTombstones(now int64) {
	limit := s.newest().compactTo
	for i := range s.log.batches {
		if s.log.batches[i].base >= limit {
			break
		}
		records, _ := modelRecords(s.log.batches[i].raw())
		for _, r := range records {
			if _, known := s.cleaned[r.offset]; r.value == "" && r.offset < limit && !known {
				s.cleaned[r.offset] = now
			}
		}
	}
}

// create makes a partition anew where there is none, or goes on where joining a generation was broken off.
func (w *modelWalk) create() bool {
	for i, s := range w.slots {
		if s.modelShard == nil {
			w.createIn(s, int32(i))
			return true
		}
		if s.bound == nil && !s.metadata() {
			w.fill(s)
			return true
		}
	}
	return false
}

func (w *modelWalk) createIn(s *walkSlot, n int32) {
	w.partition, w.shard = w.partition+1, w.shard+1
	s.modelShard = newModelShard(w.shard, w.partition)
	s.binding.Info.Partition, s.binding.Info.TopicID = n, ids.UUID{15: byte(w.partition)}
	if s.mix.codecs = w.rng.IntN(3) == 0; w.rng.IntN(2) == 0 {
		s.mix.keys = 12
	}
	w.note("create partition %d", w.partition)
	w.bind(s)
}

// bind stores the owner of a slot's data, and loads its log.
func (w *modelWalk) bind(s *walkSlot) {
	w.begin(s)
	obs := &walkObserver{w: w}
	l, err := w.e.Bind(s.binding, obs)
	w.must(err)
	w.waited(flushDurable)
	obs.begin(l)
	s.bound, s.hw = l, l.HighWatermark()
	s.learn(l)
	s.recovered(*s.newest())
}

// remove deletes a partition.
func (w *modelWalk) remove() bool {
	s := w.slot()
	if s == nil {
		return false
	}
	id := s.binding.Info.ID
	w.note("delete partition %d", id)
	w.e.Release(id)
	s.modelShard, s.bound = nil, nil
	w.begin()
	w.must(w.e.DeletePartition(id))
	w.waited(flushDurable)
	w.checkRows()
	return true
}

func (w *modelWalk) idle() bool {
	for _, s := range w.slots {
		if s.bound != nil && s.bound.checkpoint.idleLast == s.bound.LastIndex() {
			s.newest().highWatermark = s.hw
			w.begin(s)
		}
	}
	n, err := w.e.CheckpointIdle()
	w.must(err)
	w.note("%d idle checkpoints", n)
	if n > 0 {
		w.waited(flushSaved)
	}
	return true
}

func (w *modelWalk) emptyQuarantine() bool {
	s := w.slot()
	if s == nil || len(s.newest().quarantined) == 0 {
		return false
	}
	var list []QuarantineEntry
	left := map[quarantineID][]byte{}
	w.must(s.bound.ScanQuarantine(func(q Quarantined) bool {
		if w.rng.IntN(2) == 0 {
			list = append(list, q.entry(s.binding.Info.ID))
		} else {
			left[quarantineID{q.LeaderEpoch, q.Base}] = slices.Clone(q.Batch)
		}
		return true
	}))
	if len(list) == 0 {
		return false
	}
	w.note("partition %d: %d batches leave the quarantine", s.binding.Info.ID, len(list))
	w.change(s, func(v *version) { v.quarantined = left })
	w.must(w.e.RemoveQuarantined(list))
	w.waited(flushDurable)
	return true
}

func (w *modelWalk) scrub() bool {
	_, err := w.e.Scrub(func(int) bool { return true })
	w.must(err)
	return true
}

// flush has the store move rows from memory to files, and files from level to level.
func (w *modelWalk) flush() bool {
	w.note("flush")
	w.must(w.e.db.Flush())
	w.waited(flushDurable)
	if w.rng.IntN(2) == 0 {
		w.must(w.e.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	}
	return true
}
