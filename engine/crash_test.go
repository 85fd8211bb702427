package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Crash tests: two workers save random updates of several shards, until at some write to the file system the disk is
// frozen as a crash at that moment would leave it. From the frozen disk the engine is opened again, everything in it
// is compared with what was acknowledged, and the saves go on, until the next crash.
//
//	go test ./engine -run TestCrash -crash.rounds=5000    a long run
//	go test ./engine -run TestCrash -crash.seed=42        one seed again (the store's own goroutines are not seeded)

var (
	crashRounds = flag.Int("crash.rounds", 20, "seeds per kind of crash; each crashes crashesPerSeed times")
	crashSeed   = flag.Uint64("crash.seed", 0, "run only this seed")
)

const crashesPerSeed = 3

// crashKind is what is lost.
type crashKind struct {
	name  string
	flush FlushMode
	power bool // what was not synced is lost, in part; else the process alone dies, and what was written stays
}

func TestCrashLosesNothingAcknowledged(t *testing.T) {
	for _, kind := range []crashKind{
		{"flush=always/power", FlushAlways, true},
		{"flush=always/process", FlushAlways, false},
		{"flush=os/process", FlushOS, false},
		{"flush=os/power", FlushOS, true}, // partitions may lose their end, the metadata shard nothing
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			if *crashSeed != 0 {
				runCrashSeed(t, kind, *crashSeed)
				return
			}
			for seed := uint64(1); seed <= uint64(*crashRounds); seed++ {
				if runCrashSeed(t, kind, seed); t.Failed() {
					return
				}
			}
		})
	}
}

// freezer makes a copy of the disk at a chosen write, as a crash before that write would leave it.
type freezer struct {
	disk    *vfs.MemFS
	cfg     vfs.CrashCloneCfg
	left    atomic.Int64 // writes until then
	before  func()
	after   func()
	once    sync.Once
	frozen  *vfs.MemFS // valid after freeze
	stopped atomic.Bool
}

func (f *freezer) String() string { return "freezer" }

// MaybeError implements errorfs.Injector; it never makes an operation fail.
func (f *freezer) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && f.left.Add(-1) == 0 {
		f.freeze()
	}
	return nil
}

// freeze freezes the disk unless it is frozen already.
func (f *freezer) freeze() {
	f.once.Do(func() {
		f.before()
		f.frozen = f.disk.CrashClone(f.cfg)
		f.after()
		f.stopped.Store(true)
	})
}

// crashRun is one seed.
type crashRun struct {
	t    *testing.T
	kind crashKind
	seed uint64
	rng  *rand.Rand
	disk *vfs.MemFS

	shards []*crashShard

	freezer *freezer
	e       *Engine
	db      raftio.ILogDB
}

// crashShard is a shard under test.
type crashShard struct {
	*modelShard
	durable, started atomic.Int64 // newest version that must survive; that was begun
	from, to         int64        // durable before the freeze, started after it
	log              *Log
}

func runCrashSeed(t *testing.T, kind crashKind, seed uint64) {
	r := &crashRun{t: t, kind: kind, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), disk: vfs.NewCrashableMem()}
	r.makeDataDir()
	for i := range 4 { // shard 1 is the metadata shard
		r.shards = append(r.shards, &crashShard{modelShard: newModelShard(ids.ShardID(i+1), ids.PartitionID(i))})
	}
	for crash := range crashesPerSeed {
		r.open()
		r.saves()
		r.crash()
		if t.Failed() {
			t.Logf("crash %d of: go test ./engine -run 'TestCrashLosesNothingAcknowledged/%s' -crash.seed=%d", crash+1, kind.name, seed)
			return
		}
	}
	r.open()
	r.close()
}

// makeDataDir makes the data directory durable, as OpenDataDir does.
func (r *crashRun) makeDataDir() {
	err := r.disk.MkdirAll("data", 0o755)
	if err == nil {
		var root vfs.File
		if root, err = r.disk.OpenDir(""); err == nil {
			err = errors.Join(root.Sync(), root.Close())
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// open opens the disk with a freezer armed, and checks what is there.
func (r *crashRun) open() {
	f := &freezer{disk: r.disk, before: r.beforeFreeze, after: r.afterFreeze}
	f.cfg.RNG = rand.New(rand.NewPCG(r.seed, r.rng.Uint64()))
	f.cfg.UnsyncedDataPercent = 100
	if r.kind.power {
		f.cfg.UnsyncedDataPercent = []int{0, 10, 50, 90}[r.rng.IntN(4)]
	}
	r.freezer = f
	cfg := Config{
		Dir: "data", FS: errorfs.Wrap(r.disk, f), Flush: r.kind.flush, MemTableBytes: 64 << 10, BlockCacheBytes: 1 << 20,
		TailBytes: []int64{-1, 16 << 10, 1 << 20}[r.rng.IntN(3)], DropStepBytes: []int64{1, 4 << 10, 64 << 10}[r.rng.IntN(3)],
		producersEvery: []ids.RaftIndex{10, 40, 0}[r.rng.IntN(3)],
	}
	f.left.Store(math.MaxInt64)
	if r.rng.IntN(4) == 0 { // crash while opening
		f.left.Store(1 + r.rng.Int64N(60))
	}
	e, err := Open(cfg)
	if err != nil {
		r.t.Fatalf("seed %d: %v", r.seed, err)
	}
	r.e = e
	if r.db, err = e.LogDBFactory().Create(config.NodeHostConfig{}, nil, nil, nil); err != nil {
		r.t.Fatal(err)
	}
	for _, s := range r.shards {
		if !s.metadata() {
			if s.log, err = e.Bind(s.binding, nil); err != nil {
				r.t.Fatalf("seed %d: %v", r.seed, err)
			}
		}
		r.check(s)
	}
	if f.left.Swap(1+r.rng.Int64N(400)) <= 0 { // frozen while opening: then what was recovered is all there is
		f.freeze()
		for _, s := range r.shards {
			s.from, s.to = 0, 0
		}
	}
}

func (r *crashRun) close() {
	if err := r.e.Close(); err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
}

func (r *crashRun) beforeFreeze() {
	for _, s := range r.shards {
		s.from = s.durable.Load()
	}
}

func (r *crashRun) afterFreeze() {
	for _, s := range r.shards {
		s.to = s.started.Load()
	}
}

// saves runs two workers with two shards each until the disk freezes, as dragonboat's workers do.
func (r *crashRun) saves() {
	var wg sync.WaitGroup
	for worker := range 2 {
		rng := rand.New(rand.NewPCG(r.seed, r.rng.Uint64()))
		wg.Go(func() {
			for step := 0; step < 150 && !r.freezer.stopped.Load(); step++ {
				r.step(rng, worker, r.shards[2*worker:2*worker+2])
			}
		})
	}
	wg.Wait()
	r.freezer.freeze()
}

// step saves an update of one or both shards of a worker, or does what else touches the disk.
func (r *crashRun) step(rng *rand.Rand, worker int, shards []*crashShard) {
	chosen := shards
	if rng.IntN(3) > 0 {
		chosen = shards[rng.IntN(2):][:1]
	}
	if rng.IntN(8) == 0 && !chosen[0].metadata() {
		r.moveStart(rng, chosen[0])
		return
	}
	if rng.IntN(20) == 0 {
		if _, err := r.e.CheckpointIdle(); err != nil {
			r.t.Errorf("seed %d: %v", r.seed, err)
		}
	}
	var updates []pb.Update
	for _, s := range chosen {
		updates = append(updates, r.update(rng, s))
		s.started.Store(int64(len(s.versions) - 1))
	}
	if err := r.db.SaveRaftState(updates, uint64(worker)); err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
	for _, s := range chosen {
		v := s.newest()
		n := int64(len(s.versions) - 1)
		if v.durable && (s.metadata() || r.kind.flush == FlushAlways || !r.kind.power) {
			s.durable.Store(n)
		}
		r.checkpoint(rng, s, v)
		if !s.metadata() && rng.IntN(8) == 0 { // truncations take effects back without a restart, too
			if err := errors.Join(s.compareProducers(s.log, s.modelShard.log), s.compareTransactions(rng, s.log, s.modelShard.log)); err != nil {
				r.t.Errorf("seed %d: partition %d: %v", r.seed, s.binding.Info.ID, err)
			}
		}
	}
}

// update makes up what a shard saves next, now and then a snapshot.
func (r *crashRun) update(rng *rand.Rand, s *crashShard) pb.Update {
	if rng.IntN(25) > 0 {
		return s.next(rng)
	}
	u, start := s.install(rng)
	if !s.metadata() {
		if err := r.e.ExpectSnapshot(s.id.Shard, s.id.Replica, start); err != nil {
			r.t.Errorf("seed %d: %v", r.seed, err)
		}
	}
	return u
}

// checkpoint tells the log what was applied, as the state machine does.
func (r *crashRun) checkpoint(rng *rand.Rand, s *crashShard, v *version) {
	if s.metadata() || v.hard.Commit == 0 || rng.IntN(2) > 0 {
		return
	}
	applied := ids.RaftIndex(v.hard.Commit)
	s.appliedMax = max(s.appliedMax, applied)
	s.log.SetApplied(applied)
	// In-sync replicas may be behind the majority that has committed.
	below := s.modelShard.log.at[1+rng.Uint64N(v.hard.Commit)-1].next
	s.log.SetHighWatermark(max(s.log.Start(), s.log.HighWatermark(), below))
}

// moveStart does what a committed log-start entry leads to.
func (r *crashRun) moveStart(rng *rand.Rand, s *crashShard) {
	v := s.newest()
	if v.hard.Commit == 0 {
		return
	}
	o := s.modelShard.log.at[1+rng.Uint64N(v.hard.Commit)-1].next
	if o == 0 {
		return
	}
	if rng.IntN(2) == 0 {
		o -= ids.Offset(rng.Int64N(min(3, int64(o)))) // inside a batch
	}
	s.logStarts[o] = true
	index, err := s.log.SetStart(o)
	if err != nil {
		r.t.Errorf("seed %d: set start %d: %v", r.seed, o, err)
	}
	if index > ids.RaftIndex(v.hard.Commit) || index >= max(1, s.log.Applied()) {
		r.t.Errorf("seed %d: to be compacted to %d, committed is %d, applied %d", r.seed, index, v.hard.Commit, s.log.Applied())
	}
	if index == 0 || rng.IntN(2) == 0 {
		return
	}
	s.startMax = max(s.startMax, index)
	if err := r.db.RemoveEntriesTo(uint64(s.id.Shard), uint64(s.id.Replica), uint64(index)); err != nil {
		r.t.Errorf("seed %d: remove entries to %d: %v", r.seed, index, err)
	}
}

// crash closes the engine on the disk that lives on, and takes the frozen one.
func (r *crashRun) crash() {
	r.close()
	r.disk = r.freezer.frozen
	if r.rng.IntN(3) == 0 {
		r.lookAt()
	}
	for _, s := range r.shards { // forget what was saved after the disk froze
		s.durable.Store(s.from)
		s.started.Store(s.to)
	}
}

// check finds out which of the possible versions a shard has after opening, and compares all that can be read of it.
func (r *crashRun) check(s *crashShard) {
	got, err := readShard(r.db, s.id)
	if err != nil {
		r.t.Fatalf("seed %d: shard %d: %v", r.seed, s.id.Shard, err)
	}
	v, err := s.match(got)
	if err != nil {
		r.t.Fatalf("seed %d: shard %d: %v", r.seed, s.id.Shard, err)
	}
	s.recovered(v)
	s.durable.Store(0)
	s.started.Store(0)
	if s.metadata() {
		return
	}
	problems, err := r.e.Verify(s.binding.Info.ID)
	if err != nil {
		r.t.Errorf("seed %d: verify partition %d: %v", r.seed, s.binding.Info.ID, err)
	}
	for _, p := range problems {
		r.t.Errorf("seed %d: partition %d: %v", r.seed, s.binding.Info.ID, p)
	}
	if err := s.compare(r.rng); err != nil {
		r.t.Errorf("seed %d: partition %d: %v", r.seed, s.binding.Info.ID, err)
	}
}

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

// match finds the version that was recovered: one that was durable when the disk froze, or any later one that was
// begun, or the beginning of the entries of one that was saved in several pieces.
func (s *crashShard) match(got storedShard) (version, error) {
	if got.start > s.startMax {
		return version{}, fmt.Errorf("the Raft log starts behind %d, asked for was at most %d", got.start, s.startMax)
	}
	var why []error
	oldest, newest := s.durable.Load(), s.started.Load()
	for k := newest; k >= oldest; k-- {
		v := s.versions[k]
		err := s.same(got, v)
		if err == nil {
			return v, nil
		}
		why = append(why, fmt.Errorf("version %d: %w", k, err))
		if k == newest || int(got.last) > len(s.versions[k+1].entries) {
			continue
		}
		next := s.versions[k+1]
		if int(got.last) <= next.kept {
			continue
		}
		next.entries, next.hard = next.entries[:got.last:got.last], v.hard
		if s.same(got, next) == nil {
			return next, nil
		}
	}
	return version{}, fmt.Errorf("recovered index %d and %+v; of the versions %d (durable) to %d (begun) none fits:\n%w",
		got.last, got.hard, oldest, newest, errors.Join(why...))
}

// same says in what got differs from v.
func (s *crashShard) same(got storedShard, v version) error {
	if int(got.last) != len(v.entries) || got.hard != v.hard || int(got.start) < v.start {
		return fmt.Errorf("it begins behind index %d and ends at %d with %+v", v.start, len(v.entries), v.hard)
	}
	log := replay(s.metadata(), v.entries, v.start)
	for i := range got.entries {
		want := v.entries[int(got.start)+i]
		want.Cmd = log.at[int(got.start)+i].cmd
		g := got.entries[i]
		if !bytes.Equal(g.Cmd, want.Cmd) {
			return fmt.Errorf("entry %d of kind %v has command %x, want %x", want.Index, log.at[int(got.start)+i].kind, g.Cmd, want.Cmd)
		}
		g.Cmd, want.Cmd = nil, nil
		if !reflect.DeepEqual(g, want) {
			return fmt.Errorf("entry %+v, want %+v", g, want)
		}
	}
	return nil
}

// compare compares what the log says and holds with the model.
func (s *crashShard) compare(rng *rand.Rand) error {
	l, m, v := s.log, s.modelShard.log, s.newest()
	errs := []error{s.compareState(l, m, v), s.compareBatches(l, m), s.compareReads(rng, l, m), s.compareProducers(l, m), s.compareTransactions(rng, l, m), s.compareQuarantine(l, v)}
	return errors.Join(errs...)
}

func (s *crashShard) compareState(l *Log, m *modelLog, v *version) error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	start := l.LogStartPoint()
	if at := replay(false, v.entries[:start.Index], 0).state(); start.Index > 0 && start.LogState != at {
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
	if !s.logStarts[l.Start()] || l.Start() > l.End() || start.Next > l.Start() {
		add("log start %d was never asked for, or does not fit the end %d and the start point %d", l.Start(), l.End(), start.Next)
	}
	if l.Applied() > ids.RaftIndex(v.hard.Commit) || l.Applied() > max(s.appliedMax, start.Index) || l.HighWatermark() > l.End() {
		add("applied %d and high watermark %d, committed %d, told at most %d", l.Applied(), l.HighWatermark(), v.hard.Commit, s.appliedMax)
	}
	return errors.Join(errs...)
}

func (s *crashShard) compareBatches(l *Log, m *modelLog) error {
	want := m.batches
	for len(want) > 0 && want[0].next <= l.Start() {
		want = want[1:]
	}
	var failed error
	n := 0
	err := l.ScanBatches(l.Start(), func(base ids.Offset, raw []byte) bool {
		h := batch.DecodeHeader(raw)
		switch {
		case ids.Offset(h.NextOffset()) <= l.Start(): // the scan begins at or below the start, and it is not dropped yet
			return true
		case n >= len(want):
			failed = fmt.Errorf("a batch at offset %d, want only %d batches from %d on", base, len(want), l.Start())
		case base != want[n].base || !bytes.Equal(raw, want[n].raw()):
			failed = fmt.Errorf("batch %x at offset %d, want %x at %d", raw, base, want[n].raw(), want[n].base)
		}
		n++
		return failed == nil
	})
	if err == nil && failed == nil && n < len(want) {
		failed = fmt.Errorf("%d batches from offset %d on, want %d", n, l.Start(), len(want))
	}
	return errors.Join(err, failed)
}

// compareReads reads from the log start to the end as a consumer does.
func (s *crashShard) compareReads(rng *rand.Rand, l *Log, m *modelLog) error {
	var got, want []byte
	for at := l.Start(); at < l.End(); {
		records, err := l.Read(ReadOptions{From: at, Limit: l.End(), MaxBytes: 1 + rng.IntN(20_000), MinOneBatch: true})
		if err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		if records.Next <= at {
			return fmt.Errorf("a read at %d of [%d, %d) gives nothing", at, l.Start(), l.End())
		}
		got = append(got, bytes.Join(records.Parts, nil)...)
		at = records.Next
	}
	for _, b := range m.batches {
		if b.next > l.Start() {
			want = append(want, b.raw()...)
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("reads give %d bytes, want %d, or other ones", len(got), len(want))
	}
	return nil
}

func (s *crashShard) compareProducers(l *Log, m *modelLog) error {
	for id := range int64(6) {
		got, ok := l.Producer(id)
		want := m.producers[id]
		if !ok || want == nil {
			if ok || want != nil {
				return fmt.Errorf("producer %d is %+v (%v), want %+v", id, got, ok, want)
			}
			continue
		}
		batches := want.batches[max(0, len(want.batches)-5):]
		if got.CoordinatorEpoch != want.coordinator || got.TxnFirstOffset != want.txnFirst {
			return fmt.Errorf("producer %d has a marker of coordinator epoch %d and a transaction open since %d, want %d and %d", id, got.CoordinatorEpoch, got.TxnFirstOffset, want.coordinator, want.txnFirst)
		}
		if got.Epoch != want.epoch || got.LastTimestamp != want.lastMs || fmt.Sprint(got.Batches()) != fmt.Sprint(batches) {
			return fmt.Errorf("producer %d has epoch %d, timestamp %d and batches %v, want %d, %d and %v", id, got.Epoch, got.LastTimestamp, got.Batches(), want.epoch, want.lastMs, batches)
		}
	}
	return nil
}

// compareTransactions compares what a read-committed consumer gets told at the high watermark that was recovered, and at later ones.
func (s *crashShard) compareTransactions(rng *rand.Rand, l *Log, m *modelLog) error {
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
		if want := m.aborted(from, stable); !maps.Equal(got, want) {
			return fmt.Errorf("aborted in [%d, %d): %v, want %v", from, stable, got, want)
		}
	}
	return nil
}

func (s *crashShard) compareQuarantine(l *Log, v *version) error {
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
