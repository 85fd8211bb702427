package group

import (
	"cairn/broker/coordinator"
	"cairn/internal/ids"
)

// A machine that reads a log which compaction went over up to any offset must come to the same state, whether what is deleted there has left its
// tombstone or not.

// compacted is the log as compaction leaves it below an offset: of each key the last record, without tombstones if those have gone. Of aborted
// transactions nothing counts; those open there keep compaction below their first record.
func compacted(log []entry, limit int, tombstones bool) []entry {
	fate, first := endings(log)
	for i := range limit {
		if fate[i] == open {
			limit = min(limit, first[i])
			break
		}
	}
	last := map[string]int{}
	for i, e := range log[:limit] {
		if !e.marker && fate[i] != aborted {
			last[string(e.rec.Key)] = i
		}
	}
	var left []entry
	for i, e := range log {
		if i < limit && !e.marker && (fate[i] == aborted || last[string(e.rec.Key)] != i || e.rec.Value == nil && !tombstones) {
			continue
		}
		left = append(left, e)
	}
	return left
}

// ending is what becomes of a record's transaction.
type ending int

const (
	settled ending = iota // it has none, or it is committed
	aborted
	open
)

// endings says it of each entry, and where its transaction began.
func endings(log []entry) (fate []ending, first []int) {
	fate, first = make([]ending, len(log)), make([]int, len(log))
	running := map[int64][]int{}
	for i, e := range log {
		switch {
		case e.marker:
			for _, j := range running[e.producer] {
				if fate[j] = settled; !e.commit {
					fate[j] = aborted
				}
			}
			delete(running, e.producer)
		case e.producer >= 0:
			running[e.producer] = append(running[e.producer], i)
			fate[i], first[i] = open, running[e.producer][0]
		}
	}
	return fate, first
}

// plainLog is a log of records without transactions.
func plainLog(records []coordinator.Record) []entry {
	log := make([]entry, len(records))
	for i, r := range records {
		log[i] = entry{rec: r, producer: -1, epoch: -1}
	}
	return log
}

// replayed is a machine that has read a log.
func replayed(cfg Config, log []entry) (*Machine, error) {
	m := New(cfg, 0)
	for i, e := range log {
		if e.marker {
			m.ReplayMarker(e.producer, e.epoch, e.commit)
			continue
		}
		meta := coordinator.Meta{Offset: ids.Offset(i), ProducerID: e.producer, ProducerEpoch: e.epoch}
		if err := m.Replay(meta, e.rec); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// checkCompacted compares with a machine that reads a compacted log.
func (w *walker) checkCompacted(seed uint64) {
	w.t.Helper()
	limit, tombstones := w.rng.IntN(len(w.log)+1), w.rng.IntN(2) == 0
	m, err := replayed(w.cfg, compacted(w.log, limit, tombstones))
	if err != nil {
		w.t.Fatalf("seed %d step %d: compacted below record %d: %v", seed, w.step, limit, err)
	}
	if want, got := persistent(w.m), persistent(m); got != want {
		w.t.Fatalf("seed %d step %d: from a log compacted below record %d (tombstones: %v):\n%swant:\n%s", seed, w.step, limit, tombstones, got, want)
	}
}

// requireSameWhenCompacted compares with a machine that reads a compacted log.
func (w *consumerWalk) requireSameWhenCompacted() {
	w.t.Helper()
	limit, tombstones := w.rng.IntN(len(w.log)+1), w.rng.IntN(2) == 0
	m, err := replayed(w.cfg, compacted(plainLog(w.log), limit, tombstones))
	if err != nil {
		w.t.Fatalf("compacted below record %d: %v", limit, err)
	}
	if want, got := w.m.consumerState(), m.consumerState(); got != want {
		w.t.Fatalf("from a log compacted below record %d (tombstones: %v):\n%swant:\n%s", limit, tombstones, got, want)
	}
}
