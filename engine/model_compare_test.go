package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// storedShard is what Raft reads of a shard at start.
type storedShard struct {
	hard    pb.State
	start   ids.RaftIndex
	last    ids.RaftIndex
	entries []pb.Entry // from start+1 to last
}

func readShard(db raftio.ILogDB, id replicaID) (g storedShard, err error) {
	shard, replica := uint64(id.Shard), uint64(id.Replica)
	ss, err := db.GetSnapshot(shard, replica)
	if err != nil {
		return g, err
	}
	state, err := db.ReadRaftState(shard, replica, ss.Index)
	if errors.Is(err, raftio.ErrNoSavedLog) {
		return g, nil
	}
	if err != nil {
		return g, err
	}
	g.hard, g.start = state.State, ids.RaftIndex(ss.Index)
	g.last = g.start + ids.RaftIndex(state.EntryCount)
	bare, err := iterateAll(db, id, g.start+1, g.last+1) // the walk of a starting replica, without payload
	if err != nil {
		return g, err
	}
	if g.entries, err = iterateAll(db, id, g.start+1, g.last+1); err != nil {
		return g, err
	}
	if len(bare) != len(g.entries) || len(bare) != int(state.EntryCount) {
		return g, fmt.Errorf("%d entries without payload, %d with, said were %d", len(bare), len(g.entries), state.EntryCount)
	}
	for i := range bare {
		if bare[i].Index != g.entries[i].Index || bare[i].Term != g.entries[i].Term || bare[i].Type != g.entries[i].Type {
			return g, fmt.Errorf("entry %+v without payload, %+v with", bare[i], g.entries[i])
		}
	}
	return g, nil
}

// iterateAll reads the entries in [low, high) as dragonboat's log reader does.
func iterateAll(db raftio.ILogDB, id replicaID, low, high ids.RaftIndex) (all []pb.Entry, err error) {
	for low < high {
		const maxSize = math.MaxInt32
		entries, size, err := db.IterateEntries(nil, 0, uint64(id.Shard), uint64(id.Replica), uint64(low), uint64(high), maxSize)
		if err != nil {
			return nil, err
		}
		if size > maxSize && len(entries) > 1 {
			entries = entries[:len(entries)-1]
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("no entries at %d, asked for them up to %d", low, high)
		}
		for _, e := range entries {
			if ids.RaftIndex(e.Index) != low {
				return nil, fmt.Errorf("entry %d where %d was asked for", e.Index, low)
			}
			low++
		}
		all = append(all, entries...)
	}
	return all, nil
}

// same says in what got differs from v.
func (s *modelShard) same(got *storedShard, v *version) error {
	if int(got.last) != len(v.entries) || got.hard != v.hard || int(got.start) < v.start {
		return fmt.Errorf("it begins behind index %d and ends at %d with %+v", v.start, len(v.entries), v.hard)
	}
	log := s.replay(v, len(v.entries))
	for i := range got.entries {
		want := v.entries[int(got.start)+i]
		at := &log.at[int(got.start)+i]
		want.Cmd = at.cmd
		g := got.entries[i]
		if !bytes.Equal(g.Cmd, want.Cmd) && !log.sameProposal(at, g.Cmd, v.compactTo) {
			return fmt.Errorf("entry %d of kind %v has command %x, want %x", want.Index, at.kind, g.Cmd, want.Cmd)
		}
		g.Cmd, want.Cmd = nil, nil
		if !reflect.DeepEqual(g, want) {
			return fmt.Errorf("entry %+v, want %+v", g, want)
		}
	}
	return nil
}

// sameProposal says whether a command is that of an entry whose batch compaction may have changed.
func (m *modelLog) sameProposal(at *modelEntry, cmd []byte, compactTo ids.Offset) bool {
	if at.kind != KindData || at.next > compactTo || len(cmd) < 1+HeaderLen || !bytes.Equal(cmd[:1+HeaderLen], at.cmd[:1+HeaderLen]) {
		return false
	}
	i := slices.IndexFunc(m.batches, func(b modelBatch) bool { return b.next == at.next })
	stored := modelBatch{base: m.batches[i].base, proposal: cmd[1:]}
	return m.batches[i].differs(stored.raw(), compactTo) == nil
}

// compare compares what the log says and holds with the model.
func (s *modelShard) compare(rng *rand.Rand, l *Log) error {
	v := s.newest()
	return errors.Join(s.compareState(l, v), s.compareBatches(l, v), s.compareReads(rng, l, v), s.compareProducers(l), s.compareTransactions(rng, l, v), s.compareQuarantine(l, v))
}

func (s *modelShard) compareState(l *Log, v *version) error {
	m := s.log
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	start := l.LogStartPoint()
	if at := s.replay(v, int(start.Index)).state(); start.Index > 0 && start.LogState != at {
		add("the log at its start point %d was %+v, want %+v", start.Index, start.LogState, at)
	}
	if l.State() != m.state() {
		add("state %+v, want %+v", l.State(), m.state())
	}
	if l.LastIndex() != ids.RaftIndex(len(v.entries)) || l.HasGenesis() != (m.genesis != 0) {
		add("last index %d and genesis %v, want %d and index %d", l.LastIndex(), l.HasGenesis(), len(v.entries), m.genesis)
	}
	if got := l.EpochStarts(); fmt.Sprint(got) != fmt.Sprint(m.epochs) {
		add("epochs %v, want %v", got, m.epochs)
	}
	for i := start.Index + 1; i <= l.LastIndex(); i++ {
		if next, err := l.NextAfter(i); err != nil || next != m.at[i-1].next {
			add("the log ends at %d, %v after index %d, want %d", next, err, i, m.at[i-1].next)
		}
	}
	if !s.logStarts[l.Start()] || l.Start() > l.End() || start.Index > 0 && start.Next > l.Start() {
		add("log start %d was never asked for, or does not fit the end %d and the start point %d", l.Start(), l.End(), start.Next)
	}
	if l.Applied() > ids.RaftIndex(v.hard.Commit) || l.Applied() > max(s.appliedMax, start.Index) || l.HighWatermark() > l.End() {
		add("applied %d and high watermark %d, committed %d, told at most %d", l.Applied(), l.HighWatermark(), v.hard.Commit, s.appliedMax)
	}
	return errors.Join(errs...)
}

// matcher compares batches, which come in order, with those of the model from an offset on.
type matcher struct {
	want      []modelBatch
	compactTo ids.Offset
}

func (s *modelShard) matcher(from ids.Offset, v *version) *matcher {
	want := s.log.batches
	for len(want) > 0 && want[0].next <= from {
		want = want[1:]
	}
	return &matcher{want, v.compactTo}
}

// skip passes by what compaction may have deleted below an offset.
func (m *matcher) skip(to ids.Offset) {
	for len(m.want) > 0 && m.want[0].base < min(to, m.compactTo) {
		m.want = m.want[1:]
	}
}

func (m *matcher) take(raw []byte) error {
	base := ids.Offset(batch.DecodeHeader(raw).BaseOffset)
	m.skip(base)
	if len(m.want) == 0 || m.want[0].base != base {
		return fmt.Errorf("a batch at offset %d, where the next of %d is to come", base, len(m.want))
	}
	err := m.want[0].differs(raw, m.compactTo)
	m.want = m.want[1:]
	return err
}

func (m *matcher) end() error {
	if m.skip(m.compactTo); len(m.want) > 0 {
		return fmt.Errorf("%d batches are missing, from offset %d on", len(m.want), m.want[0].base)
	}
	return nil
}

// differs says in what a batch is not the one that was saved, or what compaction may have made of it below an offset.
func (b *modelBatch) differs(raw []byte, compactTo ids.Offset) error {
	was := b.raw()
	if bytes.Equal(raw, was) {
		return nil
	}
	if b.next > compactTo {
		return fmt.Errorf("batch %.100x at offset %d, want %.100x; compacted below %d", raw, b.base, was, compactTo)
	}
	h, w := batch.DecodeHeader(raw), batch.DecodeHeader(was)
	if h.BaseOffset != w.BaseOffset || h.LastOffsetDelta != w.LastOffsetDelta || h.LeaderEpoch != w.LeaderEpoch || h.ProducerID != w.ProducerID ||
		h.ProducerEpoch != w.ProducerEpoch || h.BaseSequence != w.BaseSequence || h.IsControl() != w.IsControl() || h.IsTransactional() != w.IsTransactional() {
		return fmt.Errorf("batch %+v at offset %d, want what is left of %+v", h, b.base, w)
	}
	got, err := modelRecords(raw)
	if err != nil {
		return err
	}
	all, err := modelRecords(was)
	if err != nil {
		return err
	}
	for _, r := range got {
		if !slices.Contains(all, r) {
			return fmt.Errorf("record %+v, which was not written there", r)
		}
	}
	return batch.VerifyCRC(raw)
}

func (s *modelShard) compareBatches(l *Log, v *version) error {
	m := s.matcher(l.Start(), v)
	var failed error
	err := l.ScanBatches(l.Start(), func(_ ids.Offset, raw []byte) bool {
		h := batch.DecodeHeader(raw)
		if ids.Offset(h.NextOffset()) > l.Start() { // the scan begins at or below the start, and it is not dropped yet
			failed = m.take(raw)
		}
		return failed == nil
	})
	if err == nil && failed == nil {
		failed = m.end()
	}
	return errors.Join(err, failed)
}

// compareReads reads from the log start to the end as a consumer does.
func (s *modelShard) compareReads(rng *rand.Rand, l *Log, v *version) error {
	m := s.matcher(l.Start(), v)
	for at := l.Start(); at < l.End(); {
		limit := l.End()
		if rng.IntN(3) == 0 {
			limit -= ids.Offset(rng.Int64N(int64(limit-at)/4 + 1))
		}
		records, err := l.Read(ReadOptions{From: at, Limit: limit, MaxBytes: 1 + rng.IntN(20_000), MinOneBatch: true})
		if err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		if records.Next <= at && limit == l.End() {
			return fmt.Errorf("a read at %d of [%d, %d) gives nothing", at, l.Start(), l.End())
		}
		if records.Next > limit {
			return fmt.Errorf("a read at %d up to %d goes on at %d", at, limit, records.Next)
		}
		for rest := bytes.Join(records.Parts, nil); len(rest) > 0; {
			var raw []byte
			if _, raw, rest, err = batch.Split(rest); err == nil {
				err = m.take(raw)
			}
			if err != nil {
				return fmt.Errorf("read at %d: %w", at, err)
			}
		}
		at = records.Next
	}
	if err := m.end(); err != nil {
		return fmt.Errorf("read from %d to %d: %w", l.Start(), l.End(), err)
	}
	return nil
}

func (s *modelShard) compareProducers(l *Log) error {
	m := s.log
	for id := range int64(6) {
		got, ok := l.Producer(id)
		want := m.producers[id]
		if !ok || want == nil {
			if ok || want != nil {
				return fmt.Errorf("producer %d is %+v (%v), want %+v", id, got, ok, want)
			}
			continue
		}
		if got.CoordinatorEpoch != want.coordinator || got.TxnFirstOffset != want.txnFirst {
			return fmt.Errorf("producer %d has a marker of coordinator epoch %d and a transaction open since %d, want %d and %d", id, got.CoordinatorEpoch, got.TxnFirstOffset, want.coordinator, want.txnFirst)
		}
		if got.Epoch != want.epoch || got.LastTimestamp != want.lastMs || fmt.Sprint(got.Batches()) != fmt.Sprint(want.last()) {
			return fmt.Errorf("producer %d has epoch %d, timestamp %d and batches %v, want %d, %d and %v", id, got.Epoch, got.LastTimestamp, got.Batches(), want.epoch, want.lastMs, want.last())
		}
	}
	return nil
}

// compareTransactions compares what a read-committed consumer gets told at the high watermark that is known, and at later ones.
func (s *modelShard) compareTransactions(rng *rand.Rand, l *Log, v *version) error {
	m := s.log
	known := max(l.HighWatermark(), l.Start())
	for range 3 {
		hw := known + ids.Offset(rng.Int64N(int64(l.End()-known)+1))
		stable := l.LastStable(hw)
		if want := m.stable(hw); stable != want {
			return fmt.Errorf("the last stable offset at the high watermark %d is %d, want %d", hw, stable, want)
		}
		if stable <= l.Start() {
			continue
		}
		from := l.Start() + ids.Offset(rng.Int64N(int64(stable-l.Start())))
		list, err := l.AbortedTransactions(from, stable)
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, a := range list {
			got[fmt.Sprintf("%d:%d-%d", a.ProducerID, a.First, a.Last)] = true
		}
		want := m.aborted(from, stable, 0)
		if v.compactTo > 0 { // a marker may have gone, and with it the row
			must := m.aborted(from, stable, v.compactTo)
			maps.DeleteFunc(want, func(k string, _ bool) bool { return !got[k] && !must[k] })
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("aborted in [%d, %d): %v, want %v", from, stable, got, want)
		}
	}
	return nil
}

func (s *modelShard) compareQuarantine(l *Log, v *version) error {
	n := 0
	var failed error
	err := l.ScanQuarantine(func(q Quarantined) bool {
		n++
		want, ok := v.quarantined[quarantineID{q.LeaderEpoch, q.Base}]
		if !ok || !bytes.Equal(q.Batch, want) {
			failed = fmt.Errorf("quarantine holds %x of epoch %d at offset %d, want %x", q.Batch, q.LeaderEpoch, q.Base, want)
		}
		return failed == nil
	})
	if failed == nil && n != len(v.quarantined) {
		failed = fmt.Errorf("%d batches in quarantine, want %d", n, len(v.quarantined))
	}
	return errors.Join(err, failed)
}
