package engine

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
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
		r.shards[i].mix.bare = true
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
		BootID:         "the only one",
	}
	if r.kind.power {
		cfg.BootID = fmt.Sprint(r.rng.Uint64())
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
			if err := errors.Join(s.compareProducers(s.log), s.compareTransactions(rng, s.log, v)); err != nil {
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
		known := slices.ContainsFunc(r.shards, func(s *crashShard) bool { return s.from > 0 })
		if err := lookAtDisk(r.t.Context(), r.disk, known); err != nil {
			r.t.Errorf("seed %d: %v", r.seed, err)
		}
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
	if err := s.compare(r.rng, s.log); err != nil {
		r.t.Errorf("seed %d: partition %d: %v", r.seed, s.binding.Info.ID, err)
	}
}

// match finds the version that was recovered: one that was durable when the disk froze, or any later one that was
// begun, or of one that was saved in several pieces the beginning of the entries, or the snapshot, without its hard state.
func (s *crashShard) match(got storedShard) (version, error) {
	if got.start > s.startMax {
		return version{}, fmt.Errorf("the Raft log starts behind %d, asked for was at most %d", got.start, s.startMax)
	}
	var why []error
	oldest, newest := s.durable.Load(), s.started.Load()
	for k := newest; k >= oldest; k-- {
		v := s.versions[k]
		err := s.same(&got, &v)
		if err == nil {
			return v, nil
		}
		why = append(why, fmt.Errorf("version %d: %w", k, err))
		if k == newest || int(got.last) > len(s.versions[k+1].entries) {
			continue
		}
		next := s.versions[k+1]
		snapshot := next.start > v.start && int(got.last) == len(next.entries)
		if !snapshot && int(got.last) <= next.kept {
			continue
		}
		next.entries, next.hard = next.entries[:got.last:got.last], v.hard
		if snapshot { // whoever reads the state takes what it holds for committed
			next.hard.Commit = max(v.hard.Commit, uint64(got.last))
		}
		if s.same(&got, &next) == nil {
			return next, nil
		}
	}
	return version{}, fmt.Errorf("recovered index %d and %+v; of the versions %d (durable) to %d (begun) none fits:\n%w",
		got.last, got.hard, oldest, newest, errors.Join(why...))
}
