package engine

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"cairn/internal/ids"
)

// The model test of the engine: random steps of all kinds on several partitions and the metadata shard of one store, against a model of plain
// slices and maps. The store is closed, or the machine crashes, at any write to the file system; then the store must be as it was after some
// step between the last durable one and the last begun, in all partitions the same one.
//
//	make model SEEDS=5000                                                    a long run
//	go test ./engine -run TestEngineAgainstModel -v -walk.seed=42            one seed again, with its steps
//
// The steps follow from the seed, step by step. The store's own goroutines, and what of unsynced data a power cut leaves, are not seeded:
// a failure that depends on these may need the seed several times (-count).
var (
	walkSeeds = flag.Int("walk.seeds", 150, "seeds of the model test of the engine")
	walkFirst = flag.Uint64("walk.first", 1, "the first seed")
	walkSeed  = flag.Uint64("walk.seed", 0, "run only this seed, and print its steps")
)

const (
	walkSteps      = 120
	walkPartitions = 3
)

func TestEngineAgainstModel(t *testing.T) {
	if *walkSeed != 0 {
		newModelWalk(t, *walkSeed).run()
		return
	}
	done := make([]*modelWalk, *walkSeeds)
	t.Run("seeds", func(t *testing.T) {
		for i := range done {
			t.Run(fmt.Sprint(*walkFirst+uint64(i)), func(t *testing.T) {
				t.Parallel()
				done[i] = newModelWalk(t, *walkFirst+uint64(i))
				done[i].run()
			})
		}
	})
	total := map[string]int{}
	for _, w := range done {
		for what, n := range w.counts {
			total[what] += n
		}
	}
	t.Log(total)
	if t.Failed() || *walkSeeds < 50 {
		return
	}
	for _, op := range walkOps() {
		if total[op.name] < *walkSeeds/10 {
			t.Errorf("%d times %q in %d seeds prove little", total[op.name], op.name, *walkSeeds)
		}
	}
}

// modelWalk is one seed.
type modelWalk struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand // of the present step
	kind    crashKind
	weights []int // of walkOps
	small   bool  // no large values
	now     int64 // ms

	disk    *vfs.MemFS
	freezer *freezer
	e       *Engine
	db      raftio.ILogDB

	slots     []*walkSlot // the metadata shard first
	partition ids.PartitionID
	shard     ids.ShardID

	// worlds are the states since the store was opened. A crash leaves one of those from durable to begun.
	worlds         []world
	durable, begun atomic.Int64
	from, to       int64 // those of which the disk, as it was opened last, holds one
	frozen         [2]int64

	saving map[ids.ShardID]LogState // as the logs were before the save under way
	steps  []string
	counts map[string]int
}

// walkSlot is a place for a partition, which comes and goes.
type walkSlot struct {
	*modelShard            // nil: there is none
	bound       *Log       // nil: it is not bound, as data below the base of its generation are missing
	hw          ids.Offset // told last
}

// cell is what a slot holds at some time.
type cell struct {
	s *modelShard
	v version
}

type world []*cell

func newModelWalk(t *testing.T, seed uint64) *modelWalk {
	w := &modelWalk{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), disk: vfs.NewCrashableMem(), now: 1_000_000, partition: 1, shard: 100,
		saving: map[ids.ShardID]LogState{}, counts: map[string]int{},
	}
	w.kind = []crashKind{
		{"flush=always/power", FlushAlways, true},
		{"flush=always/process", FlushAlways, false},
		{"flush=os/process", FlushOS, false},
		{"flush=os/power", FlushOS, true},
	}[w.rng.IntN(4)]
	w.small = w.rng.IntN(2) == 0
	for _, op := range walkOps() {
		w.weights = append(w.weights, op.weight*[]int{0, 1, 1, 3}[w.rng.IntN(4)])
	}
	w.weights[0] = max(w.weights[0], walkOps()[0].weight) // saves
	w.slots = append(w.slots, &walkSlot{modelShard: newModelShard(ids.MetadataShard, 0)})
	for range walkPartitions {
		w.slots = append(w.slots, &walkSlot{})
	}
	return w
}

func (w *modelWalk) run() {
	defer w.report()
	w.note("%s", w.kind.name)
	r := crashRun{t: w.t, disk: w.disk}
	r.makeDataDir()
	w.worlds = []world{w.state()}
	w.open()
	for i := range walkSteps {
		w.rng = rand.New(rand.NewPCG(w.seed, uint64(1+i)))
		w.now += w.rng.Int64N(300)
		w.step()
		if w.freezer.stopped.Load() {
			w.crash()
		}
		w.checkStep()
	}
	w.reopen()
	w.checkAll()
	w.close()
}

// report says how to run a failed seed again, and keeps what is there.
func (w *modelWalk) report() {
	panicked := recover()
	if *walkSeed != 0 && testing.Verbose() && !w.t.Failed() && panicked == nil {
		w.t.Log(strings.Join(w.steps, "\n"))
	}
	if !w.t.Failed() && panicked == nil {
		return
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("cairn-walk-%d-", w.seed))
	if err == nil {
		_, err = vfs.Clone(w.disk, vfs.Default, "data", dir+"/data")
	}
	w.t.Logf("last steps:\n%s\nthe disk as it was opened last: %s, %v\nagain: go test ./engine -run TestEngineAgainstModel -v -walk.seed=%d",
		strings.Join(w.steps[max(0, len(w.steps)-25):], "\n"), dir, err, w.seed)
	if panicked != nil {
		panic(panicked)
	}
}

func (w *modelWalk) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf("%4d ", len(w.steps))+fmt.Sprintf(format, args...))
}

func (w *modelWalk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
}

// step does one thing that can happen.
func (w *modelWalk) step() {
	total := 0
	for _, n := range w.weights {
		total += n
	}
	dice := w.rng.IntN(total)
	for i, op := range walkOps() {
		if dice -= w.weights[i]; dice < 0 {
			if op.do(w) {
				w.counts[op.name]++
			}
			return
		}
	}
}

// slot is a partition at random; nil when there is none.
func (w *modelWalk) slot() *walkSlot {
	there := slices.DeleteFunc(slices.Clone(w.slots[1:]), func(s *walkSlot) bool { return s.bound == nil })
	if len(there) == 0 {
		return nil
	}
	return there[w.rng.IntN(len(there))]
}

// state is what all slots hold now. Cells that have not changed are those of the world before.
func (w *modelWalk) state(changed ...*walkSlot) world {
	next := make(world, len(w.slots))
	if len(w.worlds) > 0 {
		copy(next, w.worlds[len(w.worlds)-1])
	}
	for i, s := range w.slots {
		switch {
		case s.modelShard == nil:
			next[i] = nil
		case next[i] == nil || slices.Contains(changed, s):
			next[i] = &cell{s.modelShard, *s.newest()}
		}
	}
	return next
}

// begin says that the store is about to be changed to what the slots hold now.
func (w *modelWalk) begin(changed ...*walkSlot) {
	w.worlds = append(w.worlds, w.state(changed...))
	w.begun.Store(int64(len(w.worlds) - 1))
}

// change begins with a change of a slot's newest version.
func (w *modelWalk) change(s *walkSlot, change func(v *version)) {
	v := *s.newest()
	change(&v)
	s.versions = []version{v}
	w.begin(s)
}

// waited says that the store has waited for the disk: as Config.Flush says, or for an fsync.
func (w *modelWalk) waited(level flushLevel) {
	if level == flushDurable || level == flushSaved && (w.kind.flush == FlushAlways || !w.kind.power) {
		w.durable.Store(int64(len(w.worlds) - 1))
	}
}

// open opens the disk, finds out which world it holds, and arms the next crash.
func (w *modelWalk) open() {
	f := &freezer{disk: w.disk, before: func() { w.frozen[0] = w.durable.Load() }, after: func() { w.frozen[1] = w.begun.Load() }}
	f.cfg.RNG = rand.New(rand.NewPCG(w.seed, w.rng.Uint64()))
	f.cfg.UnsyncedDataPercent = 100
	if w.kind.power {
		f.cfg.UnsyncedDataPercent = []int{0, 10, 50, 90, 100}[w.rng.IntN(5)]
	}
	w.freezer = f
	cfg := Config{
		Dir: "data", FS: errorfs.Wrap(w.disk, f), Flush: w.kind.flush, MemTableBytes: []int64{64 << 10, 1 << 20}[w.rng.IntN(2)], BlockCacheBytes: 1 << 20,
		TailBytes: []int64{-1, 16 << 10, 1 << 20}[w.rng.IntN(3)], DropStepBytes: []int64{1, 4 << 10, 64 << 10}[w.rng.IntN(3)],
		producersEvery: []ids.RaftIndex{10, 40, 0}[w.rng.IntN(3)],
		Faults:         Faults{SaveDelay: w.beforeCommit},
		OnDamage: func(b Binding, err *CorruptError) {
			w.t.Errorf("seed %d: damage of %s: %v", w.seed, b.Info.label(), err)
		},
	}
	f.left.Store(math.MaxInt64)
	if w.rng.IntN(5) == 0 { // crash while opening
		f.left.Store(1 + w.rng.Int64N(60))
	}
	var err error
	w.e, err = Open(cfg)
	w.must(err)
	w.db, err = w.e.LogDBFactory().Create(config.NodeHostConfig{}, nil, nil, nil)
	w.must(err)
	w.recover()
	left := int64(math.MaxInt64)
	if w.rng.IntN(3) > 0 {
		left = 1 + w.rng.Int64N(600)
	}
	if f.left.Swap(left) <= 0 { // frozen while opening: then what was recovered is all there is
		f.freeze()
		w.frozen = [2]int64{}
	}
}

// close closes the store in order.
func (w *modelWalk) close() {
	for _, s := range w.slots[1:] {
		if s.bound != nil {
			s.newest().highWatermark = s.hw
			w.begin(s)
		}
	}
	w.must(w.e.Close())
	w.waited(flushDurable)
}

// reopen closes the store in order, unless the crash comes before that is done, and opens it again.
func (w *modelWalk) reopen() bool {
	w.note("close and open")
	w.close()
	if w.freezer.stopped.Load() {
		w.thaw()
	} else {
		w.from, w.to = w.durable.Load(), w.begun.Load()
	}
	w.open()
	return true
}

// crash takes the disk as it froze, or as it is now.
func (w *modelWalk) crash() bool {
	w.freezer.freeze()
	w.must(w.e.Close())
	w.thaw()
	if w.rng.IntN(4) == 0 {
		w.lookAt()
	}
	w.open()
	return true
}

// thaw takes the frozen disk.
func (w *modelWalk) thaw() {
	w.disk, w.from, w.to = w.freezer.frozen, w.frozen[0], w.frozen[1]
	w.note("crash: one of the worlds %d to %d is left", w.from, w.to)
}

// lookAt opens the disk as a dump does.
func (w *modelWalk) lookAt() {
	known := false
	for _, c := range w.worlds[w.from] {
		known = known || c != nil && c.s.before != nil || c != nil && len(c.v.entries) > 0
	}
	if err := lookAtDisk(w.t.Context(), w.disk, known); err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
	}
}

// recover finds the world that the disk holds.
func (w *modelWalk) recover() {
	w.t.Helper()
	found, err := w.readStored()
	w.must(err)
	var why []error
	for k := w.to; k >= w.from; k-- {
		err := w.fits(found, w.worlds[k])
		if err == nil {
			w.settle(found, w.worlds[k])
			w.note("opened: world %d of %d to %d", k, w.from, w.to)
			return
		}
		why = append(why, fmt.Errorf("world %d: %w", k, err))
		if k == w.to {
			continue
		}
		if part := w.pieces(found, w.worlds[k], w.worlds[k+1]); part != nil {
			if err = w.fits(found, part); err == nil {
				w.settle(found, part)
				w.note("opened: a part of world %d of %d to %d", k+1, w.from, w.to)
				return
			}
		}
	}
	w.t.Fatalf("seed %d: the store is none of the worlds %d (durable) to %d (begun):\n%v", w.seed, w.from, w.to, errors.Join(why...))
}
