package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// successor is the next generation of a slot's partition, from a base on, with nothing saved yet.
func (w *modelWalk) successor(old *modelShard, base ids.Offset) *modelShard {
	w.shard++
	m := newModelShard(w.shard, old.binding.Info.ID)
	m.binding.Info, m.binding.Generation, m.binding.BaseOffset = old.binding.Info, old.binding.Generation+1, base
	m.nextEpoch, m.producerSeq, m.mix, m.hwMax = old.nextEpoch, old.producerSeq, old.mix, old.hwMax
	for o := range old.logStarts {
		m.logStarts[o] = true
	}
	for o, ms := range old.cleaned {
		m.cleaned[o] = ms
	}
	return m
}

// found begins a generation with all that is stored.
func (w *modelWalk) found() bool {
	s := w.slot()
	if s == nil || s.log.genesis == 0 || len(s.log.epochs) == 0 {
		return false
	}
	old, v := s.modelShard, s.newest()
	w.e.Release(s.binding.Info.ID)
	m := w.successor(old, old.log.next)
	m.before = old.log.prefix()
	m.versions = []version{{
		quarantined: v.quarantined, logStart: v.logStart, clean: v.clean, compactTo: v.compactTo, highWatermark: v.highWatermark, former: append(slices.Clone(v.former), old.id),
	}}
	s.modelShard, s.bound = m, nil
	w.note("partition %d: found generation %d at %d", s.binding.Info.ID, m.binding.Generation, m.binding.BaseOffset)
	w.bind(s)
	if w.rng.IntN(2) == 0 {
		w.change(s, func(v *version) { v.former = nil })
		w.must(w.e.DropFormerOwners(s.binding.Info.ID))
		w.checkRows()
	}
	return true
}

// learn takes from the log what a replica that has joined a generation does not know: what lay below its log start.
func (s *modelShard) learn(l *Log) {
	if state := l.State(); s.joined && l.LastIndex() == 0 {
		s.before.bytes, s.before.maxMs, s.before.maxMsBase = state.LogBytes, state.MaxTimestamp, state.MaxTimestampBase
	}
}

// join moves a partition to a generation that was founded elsewhere, with a log that agrees with ours up to some offset.
func (w *modelWalk) join() bool {
	s := w.slot()
	if s == nil || len(s.log.epochs) == 0 {
		return false
	}
	old, v, l := s.modelShard, *s.newest(), s.bound
	agreed := v.logStart + ids.Offset(w.rng.Int64N(int64(l.End()-v.logStart)+1))
	stored := map[quarantineID][]byte{}
	whole := agreed // the base of the batch that holds it
	w.must(l.ScanBatches(agreed, func(base ids.Offset, raw []byte) bool {
		h := batch.DecodeHeader(raw)
		if base < agreed && ids.Offset(h.NextOffset()) > agreed {
			whole = base
		}
		if base >= max(whole, v.logStart) {
			stored[quarantineID{ids.LeaderEpoch(h.LeaderEpoch), base}] = slices.Clone(raw)
		}
		return true
	}))
	for id, raw := range v.quarantined {
		if stored[id] == nil {
			stored[id] = raw
		}
	}
	lead, same := w.leaderLog(old, whole)
	if v.compactTo > 0 { // what is agreed on above the base comes again through Raft; here other batches do
		same = min(same, lead.next)
	}
	if same < whole {
		agreed, whole = same, same
		w.must(l.ScanBatches(agreed, func(base ids.Offset, raw []byte) bool {
			if base >= max(agreed, v.logStart) {
				stored[quarantineID{ids.LeaderEpoch(batch.DecodeHeader(raw).LeaderEpoch), base}] = slices.Clone(raw)
			}
			return true
		}))
	}
	m := w.successor(old, lead.next)
	m.nextEpoch, m.joined, m.before = lead.epoch+1, true, lead
	r := Rebase{Binding: m.binding, Agreed: agreed, Start: min(v.logStart, lead.next), Epochs: lead.epochs}
	if w.rng.IntN(4) == 0 && lead.next > r.Start {
		r.Start += ids.Offset(w.rng.Int64N(int64(lead.next - r.Start)))
	}
	n := version{quarantined: stored, logStart: max(r.Start, v.logStart)}
	keep := min(whole, lead.next) // a boundary in both logs, or agreed is not in ours
	spoiled := whole < l.compacted().Holes || l.compacted().Holes > v.logStart && markerBehind(old.log, max(whole, v.logStart))
	if keep <= max(v.logStart, r.Start) || spoiled {
		n.logStart = r.Start
	} else {
		n.compactTo = min(v.compactTo, keep)
	}
	m.logStarts[n.logStart] = true
	m.versions = []version{n}
	m.recovered(n)
	w.e.Release(m.binding.Info.ID)
	w.note("partition %d: join generation %d at %d, agreed to %d, start %d", m.binding.Info.ID, m.binding.Generation, m.binding.BaseOffset, agreed, r.Start)
	s.modelShard, s.bound = m, nil
	w.begin(s)
	w.must(w.e.Rebase(r))
	w.waited(flushDurable)
	if w.rng.IntN(3) > 0 {
		w.fill(s)
	}
	return true
}

// markerBehind says whether the log has a marker at or behind an offset.
func markerBehind(m *modelLog, o ids.Offset) bool {
	return slices.ContainsFunc(m.batches, func(b modelBatch) bool {
		h := batch.DecodeHeader(b.proposal)
		return b.base >= o && h.IsControl()
	})
}

// leaderLog is the log of a leader that has the same batches to an offset at most, and then some of its own or, now and then, ends earlier.
// agreed is up to where both are the same, as far as it goes.
func (w *modelWalk) leaderLog(old *modelShard, same ids.Offset) (lead *modelLog, agreed ids.Offset) {
	made := &modelShard{binding: old.binding, log: newModelLog(false), mix: old.mix, producerSeq: old.producerSeq}
	m := made.log
	m.genesis = 1
	take := func(b modelBatch) {
		m.next = b.base
		m.data(0, b.epoch, b.proposal)
	}
	ends := []ids.Offset{0}
	for _, b := range old.log.batches {
		if b.next <= same {
			ends = append(ends, b.next)
		}
	}
	until := same
	if agreed = same; w.rng.IntN(3) == 0 {
		until = ends[w.rng.IntN(len(ends))]
	}
	for _, b := range old.log.batches {
		if b.next <= until {
			take(b)
		}
	}
	for _, e := range old.log.epochs {
		if e.Start < m.next || e.Start == m.next && w.rng.IntN(2) == 0 {
			m.epochs = append(m.epochs, EpochStart{Epoch: e.Epoch, Start: e.Start})
			m.epoch = e.Epoch
		}
	}
	if w.rng.IntN(2) == 0 || len(m.epochs) == 0 {
		m.epoch = old.nextEpoch
		m.epochs = append(m.epochs, EpochStart{Epoch: m.epoch, Start: m.next})
		for range w.rng.IntN(8) {
			h := Header{Ordinal: 1, Term: 1, LeaderEpoch: m.epoch, Kind: KindData}
			raw := made.batch(w.rng, h)
			if w.rng.IntN(4) == 0 {
				raw = made.marker(w.rng, h)
			}
			agreed = min(agreed, m.next)
			m.data(0, m.epoch, raw)
		}
	}
	p := m.prefix()
	p.epoch = old.nextEpoch
	return p, agreed
}

// fill copies what a replica lacks below the base of its generation, and binds it; now and then it is broken off.
func (w *modelWalk) fill(s *walkSlot) {
	p, err := w.e.OpenPrefix(s.binding)
	w.must(err)
	lead := s.before
	for i := 0; i < len(lead.batches); {
		if lead.batches[i].base < p.Next() && (lead.batches[i].next <= p.Next() || !p.empty) {
			i++
			continue
		}
		if w.rng.IntN(10) == 0 {
			w.note("partition %d: broken off at %d", s.binding.Info.ID, p.Next())
			return
		}
		from := p.Next()
		var raw []byte
		for n := 1 + w.rng.IntN(4); n > 0 && i < len(lead.batches); n-- {
			raw = append(raw, lead.batches[i].raw()...)
			i++
		}
		w.must(p.Append(raw, lead.abortedRows(from, lead.batches[i-1].next)))
	}
	w.must(p.Finish())
	w.waited(flushDurable)
	w.note("partition %d: filled to %d", s.binding.Info.ID, p.Next())
	w.bind(s)
}

// abortedRows are the aborted transactions with a marker in [from, to).
func (m *modelLog) abortedRows(from, to ids.Offset) (list []AbortedTransaction) {
	for _, t := range m.ended {
		if !t.aborted || t.last < from || t.last >= to {
			continue
		}
		a := AbortedTransaction{ProducerID: t.producer, First: t.first, Last: t.last, Stable: t.last + 1}
		for _, x := range m.ended {
			if x.last > t.last && x.first < t.last {
				a.Stable = min(a.Stable, x.first)
			}
		}
		for _, p := range m.producers {
			if p.txnFirst != ids.NoOffset && p.txnFirst < t.last {
				a.Stable = min(a.Stable, p.txnFirst)
			}
		}
		list = append(list, a)
	}
	return list
}

// follow sends the whole Raft log to a replica that has nothing, by way of a snapshot where the log does not begin at its beginning, and
// compares what that then has.
func (w *modelWalk) follow() bool {
	s := w.slot()
	if s == nil || s.bound.LastIndex() == 0 || s.before != nil && s.log.genesis == 0 { // without it, only the founder knows the producers
		return false
	}
	e := openMem(w.t, vfs.NewMem(), func(c *Config) { c.TailBytes = []int64{-1, 1 << 20}[w.rng.IntN(2)] })
	defer closeEngine(w.t, e)
	b := s.binding
	b.Replica += 5000
	point, frame, behind, err := s.bound.EncodeStartPoint()
	w.must(err)
	if !behind && b.Generation > 0 {
		below := slices.DeleteFunc(s.bound.EpochStarts(), func(x EpochStart) bool { return x.Index > 0 })
		w.must(copyPrefix(e, b, s.bound, below))
	}
	f, err := e.Bind(b, nil)
	w.must(err)
	w.note("partition %d: a follower, from index %d to %d", b.Info.ID, point.Index, s.bound.LastIndex())
	w.must(replicate(e, s.bound, b, point, frame))
	if err := w.sameFollower(s, e, f); err != nil {
		w.t.Fatalf("seed %d: a follower of partition %d: %v", w.seed, b.Info.ID, err)
	}
	return true
}

// replicate has a replica save what the leader would send it.
func replicate(e *Engine, leader *Log, b Binding, point StartPoint, frame []byte) error {
	id, db := leader.sh.id, logDB{e}
	hard := pb.State{Term: uint64(leader.sh.hard.Term), Commit: uint64(point.Index)}
	if point.Index > 0 {
		if err := e.ExpectSnapshot(b.Shard, b.Replica, frame); err != nil {
			return err
		}
		ss := pb.Snapshot{ShardID: uint64(b.Shard), Index: uint64(point.Index), Term: uint64(point.Term), Membership: point.Membership, Type: pb.OnDiskStateMachine}
		if err := db.SaveRaftState([]pb.Update{{ShardID: uint64(b.Shard), ReplicaID: uint64(b.Replica), State: hard, Snapshot: ss}}, 1); err != nil {
			return err
		}
	}
	last := uint64(leader.LastIndex())
	for low := uint64(point.Index) + 1; low <= last; {
		entries, size, err := (logDB{leader.e}).IterateEntries(nil, 0, uint64(id.Shard), uint64(id.Replica), low, last+1, math.MaxInt32)
		if err != nil {
			return err
		}
		if size > math.MaxInt32 && len(entries) > 1 {
			entries = entries[:len(entries)-1]
		}
		low += uint64(len(entries))
		hard.Commit = min(leader.sh.hard.Commit, low-1)
		if err := db.SaveRaftState([]pb.Update{{ShardID: uint64(b.Shard), ReplicaID: uint64(b.Replica), State: hard, EntriesToSave: entries}}, 1); err != nil {
			return err
		}
	}
	return nil
}

// copyPrefix copies what lies below the base of a generation.
func copyPrefix(e *Engine, b Binding, from *Log, epochs []EpochStart) error {
	if err := e.Rebase(Rebase{Binding: b, Start: from.Start(), Epochs: epochs}); err != nil {
		return err
	}
	p, err := e.OpenPrefix(b)
	if err != nil {
		return err
	}
	for p.Next() < b.BaseOffset {
		recs, aborted, err := from.ReadWithMarkers(ReadOptions{From: p.Next(), Limit: b.BaseOffset, MaxBytes: 3000, MinOneBatch: true})
		if err != nil {
			return err
		}
		if recs.Bytes == 0 {
			break
		}
		if err := p.Append(slices.Concat(recs.Parts...), aborted); err != nil {
			return err
		}
	}
	return p.Finish()
}

func (w *modelWalk) sameFollower(s *walkSlot, e *Engine, f *Log) error {
	problems, err := e.Verify(f.binding.Info.ID)
	if err != nil || len(problems) > 0 {
		return fmt.Errorf("%v, %w", problems, err)
	}
	l, v := s.bound, s.newest()
	if f.End() != l.End() || f.LastIndex() != l.LastIndex() || fmt.Sprint(f.EpochStarts()) != fmt.Sprint(l.EpochStarts()) {
		return fmt.Errorf("end %d at index %d, epochs %v, want %d, %d, %v", f.End(), f.LastIndex(), f.EpochStarts(), l.End(), l.LastIndex(), l.EpochStarts())
	}
	if f.LastStable(s.hw) != l.LastStable(s.hw) {
		return fmt.Errorf("stable at %d is %d, want %d", s.hw, f.LastStable(s.hw), l.LastStable(s.hw))
	}
	if v.compactTo == 0 && s.before == nil && f.State() != l.State() {
		return fmt.Errorf("state %+v, want %+v", f.State(), l.State())
	}
	if err := s.compareBatches(f, v); err != nil {
		return err
	}
	if err := s.compareReads(w.rng, f, v); err != nil {
		return err
	}
	if err := sameProducers(f, l, v.compactTo == 0); err != nil {
		return err
	}
	return s.compareCommitted(w.rng, f, max(f.Start(), v.logStart), w.now)
}

// sameProducers compares what sequences are checked by; timestamps, too, unless compaction has changed them.
func sameProducers(a, b *Log, exact bool) (err error) {
	n := 0
	b.Producers(func(id int64, want producer.Entry) {
		n++
		got, _ := a.Producer(id)
		x, _ := got.Last()
		y, _ := want.Last()
		if got.Epoch != want.Epoch || got.TxnFirstOffset != want.TxnFirstOffset || x.LastSequence != y.LastSequence || x.LastOffset != y.LastOffset ||
			exact && fmt.Sprint(got.Batches()) != fmt.Sprint(want.Batches()) {
			err = fmt.Errorf("producer %d: %+v, want %+v", id, got, want)
		}
	})
	a.Producers(func(int64, producer.Entry) { n-- })
	if n != 0 && err == nil {
		err = fmt.Errorf("%d producers are missing", n)
	}
	return err
}

// copyLog copies a log to the beginning of a next generation, which knows producers from the batches alone.
func (w *modelWalk) copyLog() bool {
	s := w.slot()
	if s == nil || s.bound.End() == s.bound.Start() {
		return false
	}
	e := openMem(w.t, vfs.NewMem(), nil)
	defer closeEngine(w.t, e)
	b := s.binding
	b.Shard, b.Replica, b.Generation, b.BaseOffset = b.Shard+5000, b.Replica+5000, b.Generation+1, s.bound.End()
	w.note("partition %d: copied from %d to %d", b.Info.ID, s.bound.Start(), b.BaseOffset)
	w.must(copyPrefix(e, b, s.bound, s.bound.EpochStarts()))
	l, err := e.Bind(b, nil)
	w.must(err)
	problems, err := e.Verify(b.Info.ID)
	if len(problems) > 0 {
		err = fmt.Errorf("problems %v", problems)
	}
	if err == nil {
		err = s.compareReads(w.rng, l, s.newest())
	}
	if err == nil {
		err = s.compareCommitted(w.rng, l, s.newest().logStart, w.now)
	}
	if err != nil {
		w.t.Fatalf("seed %d: a copy of partition %d: %v", w.seed, b.Info.ID, err)
	}
	return true
}
