package engine

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Random appends, transactions, truncations, moves of the log start, restarts, crashes and compactions that are broken off anywhere, against a
// naive model: whoever reads the log gets no record that was never written, and in the end the same value for each key as from all records.
//
//	go test ./engine -run TestCompactionKeepsWhatReadersNeed -compact.seeds=5000   a long run
//	go test ./engine -run TestCompactionKeepsWhatReadersNeed -compact.seed=42      one seed again
var (
	compactSeeds = flag.Int("compact.seeds", 25, "seeds of the model test of compaction")
	compactSeed  = flag.Uint64("compact.seed", 0, "run only this seed")
)

// compactEntry is a batch as it was written.
type compactEntry struct {
	txnEntry
	index   uint64
	records []modelRecord
}

// compactWalk is one seed.
type compactWalk struct {
	t       *testing.T
	rng     *rand.Rand
	fs      *vfs.MemFS
	noTail  bool
	g       *group
	log     []compactEntry
	start   ids.Offset
	now     int64
	commit  uint64 // ever
	hw      ids.Offset
	seq     map[int64]int32
	cleaned map[ids.Offset]int64 // tombstones below the clean end, and since when
	passes  int
}

const (
	compactRetention = 5000
	compactKeys      = 12
)

func (w *compactWalk) config(c *Config) {
	if c.DropStepBytes = 1; w.noTail {
		c.TailBytes = -1
	}
}

func (w *compactWalk) end() ids.Offset {
	if len(w.log) == 0 {
		return 0
	}
	return w.log[len(w.log)-1].next
}

func (w *compactWalk) txns() txnLog {
	l := make(txnLog, len(w.log))
	for i := range w.log {
		if l[i] = w.log[i].txnEntry; l[i].producer < 10 { // those are idempotent alone
			l[i].producer = 0
		}
	}
	return l
}

// entry makes up a batch or a marker.
func (w *compactWalk) entry() pb.Entry {
	w.now += w.rng.Int64N(200)
	e := compactEntry{txnEntry: txnEntry{base: w.end()}}
	cfg := batch.NewBuilderConfig(batch.Codec(w.rng.IntN(5)), w.now-w.rng.Int64N(3000))
	switch w.rng.IntN(8) {
	case 0, 1, 2:
	case 3:
		e.producer = 1 + w.rng.Int64N(3)
	case 4, 5, 6:
		e.producer, cfg.Transactional = 10+w.rng.Int64N(4), true
	default:
		e.producer, e.marker, e.commit, e.next = 10+w.rng.Int64N(4), true, w.rng.IntN(2) == 0, e.base+1
		p := w.g.entry(w.g.proposal(batch.BuildMarker(e.producer, 0, batch.Marker{Commit: e.commit, CoordinatorEpoch: 3}, w.now)))
		e.index = p.Index
		w.log = append(w.log, e)
		return p
	}
	n := 1 + w.rng.IntN(4)
	if e.producer > 0 {
		cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = e.producer, 0, w.seq[e.producer]
		w.seq[e.producer] += int32(n)
	}
	b, err := batch.NewBuilder(cfg)
	w.must(err)
	for i := range n {
		r := modelRecord{offset: e.base + ids.Offset(i), key: fmt.Sprint("k", w.rng.IntN(compactKeys)), ms: cfg.BaseTimestamp + w.rng.Int64N(500)}
		var value []byte
		if w.rng.IntN(4) > 0 {
			r.value = fmt.Sprintf("%d-%0*d", r.offset, w.rng.IntN(300), 0)
			value = []byte(r.value)
		}
		w.must(b.AppendKV(r.ms, []byte(r.key), value))
		e.records = append(e.records, r)
	}
	e.next = e.base + ids.Offset(n)
	raw, err := b.Build()
	w.must(err)
	p := w.g.entry(w.g.proposal(raw))
	e.index = p.Index
	w.log = append(w.log, e)
	return p
}

func (w *compactWalk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *compactWalk) save() {
	var entries []pb.Entry
	for range 1 + w.rng.IntN(8) {
		entries = append(entries, w.entry())
	}
	w.g.save(entries...)
}

// replace has the leader of a new term replace entries that are not committed.
func (w *compactWalk) replace() {
	keep := len(w.log)
	for keep > 0 && w.log[keep-1].index > w.commit && w.rng.IntN(3) > 0 {
		keep--
	}
	if keep == len(w.log) {
		return
	}
	w.g.last, w.log = w.log[keep].index-1, w.log[:keep]
	w.g.hard.Term++
	w.g.ordinal = 0
	w.g.epoch++
	w.g.save(w.g.noop(), w.g.epochStart(w.g.epoch), w.entry())
}

func (w *compactWalk) raise() {
	if len(w.log) == 0 {
		return
	}
	if e := w.log[w.rng.IntN(len(w.log))]; e.index > w.commit {
		w.commit = e.index
		w.g.commit(w.commit)
		w.hw = e.next
	}
	w.g.log.SetHighWatermark(max(w.hw, w.g.log.HighWatermark()))
}

var errBreak = errors.New("broken off")

// compact runs a pass with random bounds. It may be broken off after any step, and the machine may crash then.
func (w *compactWalk) compact() {
	w.now += w.rng.Int64N(4000)
	left, crash := w.rng.IntN(12), w.rng.IntN(4) == 0
	var clone *vfs.MemFS
	c := Compaction{
		CompactionBounds: CompactionBounds{Limit: w.g.log.HighWatermark(), YoungMs: -1},
		NowMs:            w.now, DeleteRetentionMs: compactRetention, DiscardBelow: math.MaxInt64, TableBytes: 1, TableLoad: 0.9,
		Pace: func(int) error {
			if left--; left > 0 {
				return nil
			}
			if crash {
				clone = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: w.rng})
			}
			return errBreak
		},
	}
	if w.rng.IntN(3) == 0 {
		c.YoungMs = w.now - w.rng.Int64N(6000)
	}
	if w.rng.IntN(4) == 0 {
		c.DiscardBelow = 0
	}
	before := w.g.log.Compacted()
	r, err := w.g.log.Compact(c)
	switch {
	case errors.Is(err, errBreak):
		w.noteTombstones(c.Limit)
		if clone != nil {
			closeEngine(w.t, w.g.e)
			w.fs = clone
			w.g.e = openMem(w.t, w.fs, w.config)
			w.g.bind()
			w.g.commit(w.commit)
			_, err := w.g.log.SetStart(w.start) // Raft applies it again
			w.must(err)
		}
		return
	case err != nil:
		w.t.Fatal(err)
	}
	w.passes++
	if r.Clean != max(before, r.Clean) || r.Clean > c.Limit {
		w.t.Fatalf("clean to %d, before to %d, limit %d", r.Clean, before, c.Limit)
	}
	w.noteTombstones(r.Clean)
}

// noteTombstones remembers since when a tombstone may be on its way out.
func (w *compactWalk) noteTombstones(clean ids.Offset) {
	for _, e := range w.log {
		for _, r := range e.records {
			if _, known := w.cleaned[r.offset]; r.value == "" && r.offset < clean && !known {
				w.cleaned[r.offset] = w.now
			}
		}
	}
}

func (w *compactWalk) moveStart() {
	if w.commit < 10 {
		return
	}
	o := ids.Offset(w.rng.Int64N(int64(w.hw) + 1))
	w.g.save(w.g.logStart(o))
	w.commit = w.g.last
	w.g.commit(w.commit)
	_, err := w.g.log.SetStart(o)
	w.must(err)
	w.start = max(w.start, o)
}

// readers read as a consumer that reads committed records does.
type compactReader struct {
	records []modelRecord
	stored  int64
}

func (w *compactWalk) read(l *Log, from, limit ids.Offset) (got compactReader) {
	for at := from; at < limit; {
		recs, aborted, err := l.ReadCommitted(ReadOptions{From: at, Limit: limit, MaxBytes: 1 + w.rng.IntN(2000), MinOneBatch: true})
		w.must(err)
		if recs.Next <= at {
			w.t.Fatalf("nothing to read at %d below %d", at, limit)
		}
		slices.SortFunc(aborted, func(a, b AbortedTransaction) int { return int(a.First - b.First) })
		gone := map[int64]bool{}
		for b := slices.Concat(recs.Parts...); len(b) > 0; {
			h, raw, rest, err := batch.Split(b)
			w.must(err)
			b = rest
			got.stored += int64(len(raw))
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
			for rec, err := range batch.Records(raw, 0) {
				w.must(err)
				r := modelRecord{offset: ids.Offset(h.BaseOffset) + ids.Offset(rec.OffsetDelta), key: string(rec.Key), value: string(rec.Value), ms: rec.Timestamp(&h)}
				if r.offset >= from && r.offset < limit {
					got.records = append(got.records, r)
				}
			}
		}
		at = recs.Next
	}
	return got
}

// written are the records that a consumer of committed ones would get without compaction.
func (w *compactWalk) written(from, limit ids.Offset) (list []modelRecord) {
	txns, aborted := w.txns().transactions()
	for _, e := range w.log {
		dead := slices.ContainsFunc(txns, func(t AbortedTransaction) bool {
			return t.ProducerID == e.producer && t.First <= e.base && (t.Last == ids.NoOffset || e.base < t.Last) && aborted[slices.Index(txns, t)]
		})
		if e.marker || dead {
			continue
		}
		for _, r := range e.records {
			if r.offset >= from && r.offset < limit {
				list = append(list, r)
			}
		}
	}
	return list
}

func lastValues(records []modelRecord) map[string]string {
	m := map[string]string{}
	for _, r := range records {
		if m[r.key] = r.value; r.value == "" {
			delete(m, r.key)
		}
	}
	return m
}

func (w *compactWalk) check() {
	w.t.Helper()
	l := w.g.log
	if problems, err := w.g.e.Verify(w.g.binding.Info.ID); err != nil || len(problems) > 0 {
		w.t.Fatalf("%v, %v", problems, err)
	}
	limit := l.LastStable(l.HighWatermark())
	if limit <= w.start {
		return
	}
	got, all := w.read(l, w.start, limit), w.written(w.start, limit)
	w.compare(got.records, all)
	w.checkTombstones(got.records, limit)
	seen := map[string]ids.Offset{}
	for _, r := range got.records {
		if o, ok := seen[r.key]; ok && r.offset < l.Compacted() && w.noTail {
			w.t.Fatalf("key %s at %d and at %d, clean to %d", r.key, o, r.offset, l.Compacted())
		}
		seen[r.key] = r.offset
	}
	w.checkSize()
	w.checkTimes(got.records, limit)
}

// compare fails unless got is a part of all that ends in the same values.
func (w *compactWalk) compare(got, all []modelRecord) {
	w.t.Helper()
	have := map[modelRecord]bool{}
	for _, r := range all {
		have[r] = true
	}
	for i, r := range got {
		if !have[r] || i > 0 && got[i-1].offset >= r.offset {
			w.t.Fatalf("read %+v, which was never written there", r)
		}
	}
	if g, want := lastValues(got), lastValues(all); !maps.Equal(g, want) {
		w.t.Fatalf("last values\n%v\nwant\n%v", g, want)
	}
}

// checkTombstones fails when one has gone too early.
func (w *compactWalk) checkTombstones(got []modelRecord, limit ids.Offset) {
	w.t.Helper()
	for k, r := range lastRecords(w.written(w.start, limit)) {
		since, cleaned := w.cleaned[r.offset]
		if r.value != "" || cleaned && w.now >= since+compactRetention {
			continue
		}
		if last, ok := lastRecords(got)[k]; !ok || last.offset != r.offset {
			w.t.Fatalf("tombstone of %s at %d has gone; first cleaned at %d (%v), now %d", k, r.offset, since, cleaned, w.now)
		}
	}
}

func lastRecords(records []modelRecord) map[string]modelRecord {
	m := map[string]modelRecord{}
	for _, r := range records {
		m[r.key] = r
	}
	return m
}

// checkSize compares SizeBytes with what is stored.
func (w *compactWalk) checkSize() {
	w.t.Helper()
	l, sum := w.g.log, int64(0)
	w.must(l.ScanBatches(w.start, func(base ids.Offset, raw []byte) bool {
		if h := batch.DecodeHeader(raw); ids.Offset(h.NextOffset()) > w.start {
			sum += int64(len(raw))
		}
		return true
	}))
	if l.SizeBytes() != sum {
		w.t.Fatalf("size %d, stored are %d bytes", l.SizeBytes(), sum)
	}
}

// checkTimes compares searches by time with what can be read.
func (w *compactWalk) checkTimes(_ []modelRecord, limit ids.Offset) {
	w.t.Helper()
	var stored []modelRecord
	l := w.g.log
	w.must(l.ScanBatches(w.start, func(_ ids.Offset, raw []byte) bool {
		h := batch.DecodeHeader(raw)
		for rec, err := range batch.Records(raw, 0) {
			w.must(err)
			if o := ids.Offset(h.BaseOffset) + ids.Offset(rec.OffsetDelta); o >= w.start && o < limit {
				stored = append(stored, modelRecord{offset: o, ms: rec.Timestamp(&h)})
			}
		}
		return true
	}))
	best := modelRecord{offset: ids.NoOffset, ms: -1}
	for _, r := range stored {
		if r.ms > best.ms {
			best = r
		}
	}
	if o, ms, _, err := l.MaxTimestamp(limit); err != nil || o != best.offset || ms != best.ms {
		w.t.Fatalf("largest timestamp %d at %d, %v; want %d at %d", ms, o, err, best.ms, best.offset)
	}
	ts := w.now - w.rng.Int64N(5000)
	want := slices.IndexFunc(stored, func(r modelRecord) bool { return r.ms >= ts })
	o, ms, _, err := l.OffsetForTime(ts, limit)
	if err != nil || want < 0 != (o == ids.NoOffset) || want >= 0 && (stored[want].offset != o || stored[want].ms != ms) {
		w.t.Fatalf("first record from %d on: %d at %d, %v", ts, ms, o, err)
	}
}

// checkFollower sends the whole Raft log to a replica that has nothing, and compares.
func (w *compactWalk) checkFollower() {
	w.t.Helper()
	e := openMem(w.t, vfs.NewMem(), nil)
	defer closeEngine(w.t, e)
	f := bindGroup(w.t, e, w.g.binding)
	f.hard.Term, f.hard.Commit = w.g.hard.Term, w.g.hard.Commit
	id := w.g.log.sh.id
	w.g.log.sh.replayUntil = 0 // this is not the walk of a replica that starts
	for low := uint64(1); low <= w.g.last; {
		entries, _, err := (logDB{w.g.e}).IterateEntries(nil, 0, uint64(id.Shard), uint64(id.Replica), low, w.g.last+1, math.MaxUint64)
		w.must(err)
		f.save(entries...)
		low += uint64(len(entries))
	}
	l := w.g.log
	if problems, err := e.Verify(f.binding.Info.ID); err != nil || len(problems) > 0 {
		w.t.Fatalf("follower: %v, %v", problems, err)
	}
	hw := l.HighWatermark()
	if f.log.End() != l.End() || f.log.LastStable(hw) != l.LastStable(hw) {
		w.t.Fatalf("follower: end %d, stable %d; leader: %d, %d", f.log.End(), f.log.LastStable(hw), l.End(), l.LastStable(hw))
	}
	w.sameProducers(f.log, l)
	if limit := l.LastStable(hw); limit > w.start {
		w.compare(w.read(f.log, w.start, limit).records, w.written(w.start, limit))
	}
}

// sameProducers compares what sequences are checked by.
func (w *compactWalk) sameProducers(a, b *Log) {
	w.t.Helper()
	b.Producers(func(id int64, want producer.Entry) {
		got, _ := a.Producer(id)
		x, _ := got.Last()
		y, _ := want.Last()
		if got.Epoch != want.Epoch || got.TxnFirstOffset != want.TxnFirstOffset || x.LastSequence != y.LastSequence || x.LastOffset != y.LastOffset {
			w.t.Fatalf("producer %d: %+v, want %+v", id, got, want)
		}
	})
}

// checkCopy copies the log to the beginning of a next generation, which knows producers from the batches alone.
func (w *compactWalk) checkCopy() {
	w.t.Helper()
	l := w.g.log
	end, limit := l.End(), l.LastStable(l.HighWatermark())
	if limit <= w.start {
		return
	}
	e := openMem(w.t, vfs.NewMem(), nil)
	defer closeEngine(w.t, e)
	b := testBinding(1)
	b.Shard, b.Replica, b.Generation, b.BaseOffset = 300, 3000, 1, end
	w.must(e.Rebase(Rebase{Binding: b, Start: w.start}))
	p, err := e.OpenPrefix(b)
	w.must(err)
	for p.Next() < end {
		recs, aborted, err := l.ReadWithMarkers(ReadOptions{From: p.Next(), Limit: end, MaxBytes: 700, MinOneBatch: true})
		w.must(err)
		if recs.Bytes == 0 {
			break
		}
		w.must(p.Append(slices.Concat(recs.Parts...), aborted))
	}
	w.must(p.Finish())
	copied, err := e.Bind(b, nil)
	w.must(err)
	if problems, err := e.Verify(b.Info.ID); err != nil || len(problems) > 0 {
		w.t.Fatalf("copy: %v, %v", problems, err)
	}
	w.compare(w.read(copied, w.start, limit).records, w.written(w.start, limit))
}

func (w *compactWalk) round() {
	switch w.rng.IntN(16) {
	case 0:
		w.g.reopen(w.fs, w.config)
	case 1:
		w.replace()
	case 2, 3, 4:
		w.raise()
	case 5, 6, 7:
		w.compact()
	case 8:
		w.checkFollower()
	case 9:
		w.checkCopy()
	case 10:
		if w.rng.IntN(4) == 0 {
			w.moveStart()
		}
	default:
		w.save()
	}
}

func TestCompactionKeepsWhatReadersNeed(t *testing.T) {
	seeds, passes := []uint64{*compactSeed}, 0
	if *compactSeed == 0 {
		seeds = seeds[:0]
		for seed := range uint64(*compactSeeds) {
			seeds = append(seeds, seed+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &compactWalk{
				t: t, rng: rand.New(rand.NewPCG(seed, 11)), fs: vfs.NewCrashableMem(), now: 1_000_000,
				seq: map[int64]int32{}, cleaned: map[ids.Offset]int64{},
			}
			w.noTail = w.rng.IntN(2) == 0
			w.must(w.fs.MkdirAll("broker", 0o755))
			root, err := w.fs.OpenDir("")
			w.must(err)
			w.must(errors.Join(root.Sync(), root.Close()))
			w.g = startGroup(t, openMem(t, w.fs, w.config), testBinding(1))
			w.commit = w.g.last
			w.g.commit(w.commit)
			for range 120 {
				w.round()
				w.check()
			}
			closeEngine(t, w.g.e)
			passes += w.passes
		})
	}
	if passes < 5*len(seeds) && !t.Failed() {
		t.Errorf("%d passes were not broken off in %d seeds", passes, len(seeds))
	}
}
