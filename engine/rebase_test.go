package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// rebaseCase is a leader that begins generation 1 at offset 9, and what another replica has stored: the same to offset 5.
type rebaseCase struct {
	t      testing.TB
	leader *group
	next   Binding // of the other replica in generation 1
	epochs []EpochStart
	prefix []byte // the leader's log below the base
	// entries are the leader's in generation 1, saved there.
	entries []pb.Entry
}

const (
	rebaseAgreed = 5
	rebaseBase   = 9
)

func newRebaseCase(t testing.TB) *rebaseCase {
	t.Helper()
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	g.save(g.producerData(4, 0, 3), g.data(2, 3000))
	g.newTerm(2)
	g.save(g.noop(), g.epochStart(2), g.producerData(4, 3, 2), g.data(2, 70_000))
	g.commit(g.last)
	prefix := readAll(t, g.log)
	g.e.Release(1)
	b := g.binding
	b.Shard, b.Replica, b.Generation, b.BaseOffset = 900, 901, 1, g.log.End()
	if b.BaseOffset != rebaseBase {
		t.Fatalf("base %d", b.BaseOffset)
	}
	c := &rebaseCase{t: t, leader: bindGroup(t, g.e, b), next: b, prefix: prefix}
	c.next.Replica = 902
	c.epochs = c.leader.log.EpochStarts()
	g = c.leader
	genesis := Genesis{Generation: 1, BaseOffset: rebaseBase, Epochs: c.epochs, Producers: g.log.ProducersSnapshot()}
	c.entries = []pb.Entry{
		g.noop(), g.entry(EncodeGenesis(g.header(KindGenesis), genesis)), g.epochStart(3), g.producerData(4, 5, 1), g.data(3, 10),
	}
	g.save(c.entries...)
	return c
}

// other is the replica with a tail of its own, in epoch 1, released.
func (c *rebaseCase) other(fs vfs.FS, change func(*Config)) *Engine {
	g := startGroup(c.t, openMem(c.t, fs, change), testBinding(1))
	g.save(g.producerData(4, 0, 3), g.data(2, 3000))
	g.newTerm(3)
	g.save(g.noop(), g.epochStart(1), g.data(1, 2000), g.producerData(5, 0, 2))
	g.log.SetHighWatermark(7)
	g.commit(g.last)
	g.e.Release(1)
	return g.e
}

func (c *rebaseCase) rebase() Rebase {
	return Rebase{Binding: c.next, Agreed: rebaseAgreed, Epochs: c.epochs}
}

// pieces are the leader's batches from an offset on, one by one.
func (c *rebaseCase) pieces(from ids.Offset) (out [][]byte) {
	for rest := c.prefix; len(rest) > 0; {
		h, err := batch.ParseHeader(rest)
		if err != nil {
			c.t.Fatal(err)
		}
		if ids.Offset(h.BaseOffset) >= from {
			out = append(out, rest[:h.Size()])
		}
		rest = rest[h.Size():]
	}
	return out
}

// finish does what is left to do from whatever a crash has left, as a broker does.
func (c *rebaseCase) finish(e *Engine) {
	c.t.Helper()
	s, found, err := e.Stored(1)
	if err != nil || !found {
		c.t.Fatal(found, err)
	}
	if s.Binding != c.next {
		if err := e.Rebase(c.rebase()); err != nil {
			c.t.Fatal(err)
		}
	}
	p, err := e.OpenPrefix(c.next)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, b := range c.pieces(p.Next()) {
		if err := p.Append(b, nil); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := p.Finish(); err != nil {
		c.t.Fatal(err)
	}
}

// follow has the other replica save what the leader has saved, and compares them.
func (c *rebaseCase) follow(e *Engine) {
	c.t.Helper()
	f := bindGroup(c.t, e, c.next)
	u := f.update(c.entries...)
	u.State = c.leader.hard
	if err := (logDB{e}).SaveRaftState([]pb.Update{u}, 1); err != nil {
		c.t.Fatal(err)
	}
	got, want := imageOf(c.t, f.log), imageOf(c.t, c.leader.log)
	got.Quarantine = want.Quarantine
	sameImage(c.t, got, want)
	if p := mustProducer(c.t, f.log, 4); len(p.Batches()) != 3 {
		c.t.Errorf("producer 4 has batches %v", p.Batches())
	}
	if _, ok := f.log.Producer(5); ok {
		c.t.Error("a producer of the tail that was cut is known")
	}
	if q := quarantinedOffsets(c.t, f.log); !slices.Equal(q, []string{"1/5", "1/6"}) {
		c.t.Errorf("quarantine %v", q)
	}
	if rows := storeRows(c.t, e, func(k []byte) bool { return rowKind(k[0]) == rowEntry && k[8] == 101 }); len(rows) != 0 {
		c.t.Errorf("%d entry rows of the former owner are left", len(rows))
	}
	e.Release(1)
}

func quarantinedOffsets(t testing.TB, l *Log) (list []string) {
	t.Helper()
	if err := l.ScanQuarantine(func(q Quarantined) bool {
		list = append(list, fmt.Sprintf("%d/%d", q.LeaderEpoch, q.Base))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRebaseCutsAndPrefixFills(t *testing.T) {
	c := newRebaseCase(t)
	defer func() { closeEngine(t, c.leader.e) }()
	fs := vfs.NewMem()
	e := c.other(fs, nil)
	if _, err := e.Bind(c.next, nil); !errors.Is(err, ErrIncomplete) {
		t.Errorf("bind without the data: %v", err)
	}
	if err := e.Rebase(c.rebase()); err != nil {
		t.Fatal(err)
	}
	s, found, err := e.Stored(1)
	if err != nil || !found || s.Binding != c.next || s.Start != 0 || s.End != rebaseAgreed || s.Complete() {
		t.Errorf("stored %+v %v %v", s, found, err)
	}
	if want := []EpochStart{{Epoch: 0}}; !slices.Equal(s.Epochs, want) {
		t.Errorf("epochs %v", s.Epochs)
	}
	if _, err := e.Bind(c.next, nil); !errors.Is(err, ErrIncomplete) {
		t.Errorf("bind of a part: %v", err)
	}
	if l, err := e.OpenLog(1); err != nil || l.HighWatermark() != rebaseAgreed {
		t.Errorf("high watermark %d, %v", l.HighWatermark(), err)
	}
	p, err := e.OpenPrefix(c.next)
	if err != nil {
		t.Fatal(err)
	}
	pieces := c.pieces(rebaseAgreed)
	damaged := slices.Clone(pieces[0])
	damaged[len(damaged)-1] ^= 1
	for name, raw := range map[string][]byte{
		"damaged": damaged, "cut": pieces[0][:len(pieces[0])-1], "again": c.pieces(0)[0], "behind the base": shifted(pieces[1], 5),
	} {
		if err := p.Append(raw, nil); err == nil {
			t.Errorf("a batch was taken: %s", name)
		}
	}
	if _, err := e.OpenPrefix(testBinding(1)); !errors.Is(err, ErrNotOwner) {
		t.Errorf("prefix of another: %v", err)
	}
	c.finish(e)
	c.follow(e)
	closeEngine(t, e)
}

// shifted is the batch at a higher offset: base offset and length are not part of the checksum.
func shifted(raw []byte, by int64) []byte {
	out := slices.Clone(raw)
	h, _ := batch.ParseHeader(out)
	patchBatch(out, ids.Offset(h.BaseOffset+by), len(out))
	return out
}

func TestRebaseAfterACrash(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newRebaseCase(t)
			defer func() { closeEngine(t, c.leader.e) }()
			rng := rand.New(rand.NewPCG(seed, 3))
			disk := vfs.NewCrashableMem()
			closeEngine(t, openMem(t, disk, nil)) // the first log file of a new store is in an older format
			root, err := disk.OpenDir("")
			if err == nil {
				err = errors.Join(root.Sync(), root.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			var clones []*vfs.MemFS
			crash := func() {
				clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng}))
			}
			during := false
			e := c.other(disk, func(cfg *Config) {
				cfg.Faults.DataRead = func(ids.PartitionID, ids.Offset) {
					if during {
						crash()
					}
				}
			})
			during = true
			if err := e.Rebase(c.rebase()); err != nil {
				t.Fatal(err)
			}
			during = false
			before := len(clones)
			crash()
			p, err := e.OpenPrefix(c.next)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range c.pieces(p.Next()) {
				if err := p.Append(b, nil); err != nil {
					t.Fatal(err)
				}
				crash()
			}
			if err := p.Finish(); err != nil {
				t.Fatal(err)
			}
			crash()
			closeEngine(t, e)
			if before == 0 {
				t.Fatal("no crash while the tail is moved")
			}
			for i, fs := range clones {
				c.recover(fs, i < before, i == len(clones)-1)
			}
		})
	}
}

// recover goes on with what a crash has left.
func (c *rebaseCase) recover(fs vfs.FS, before, finished bool) {
	c.t.Helper()
	e := openMem(c.t, fs, nil)
	s, found, err := e.Stored(1)
	switch {
	case err != nil || !found:
		c.t.Fatal(found, err)
	case before && (s.Binding == c.next || s.End != 8):
		c.t.Errorf("crash before the change of owner: %+v", s)
	case !before && (s.Binding != c.next || s.End < rebaseAgreed):
		c.t.Errorf("crash after the change of owner: %+v", s)
	case finished && !s.Complete():
		c.t.Errorf("finished, but %+v", s)
	}
	c.finish(e)
	c.follow(e)
	closeEngine(c.t, e)
}

func TestRebaseKeepsNothing(t *testing.T) {
	c := newRebaseCase(t)
	defer func() { closeEngine(t, c.leader.e) }()
	for name, change := range map[string]func(*Rebase){
		"nothing agreed":       func(r *Rebase) { r.Agreed = 0 },
		"expired at the other": func(r *Rebase) { r.Start = 6 },
	} {
		e := c.other(vfs.NewMem(), nil)
		r := c.rebase()
		change(&r)
		if err := e.Rebase(r); err != nil {
			t.Fatal(err)
		}
		s, _, err := e.Stored(1)
		if err != nil || s.Start != r.Start || s.End != r.Start {
			t.Errorf("%s: %+v %v", name, s, err)
		}
		if rows := storeRows(t, e, func(k []byte) bool { return rowKind(k[0]) == rowData || rowKind(k[0]) == rowTime }); len(rows) != 0 {
			t.Errorf("%s: %d rows are left", name, len(rows))
		}
		closeEngine(t, e)
	}
	// A replica that has nothing at all.
	e := openMem(t, vfs.NewMem(), nil)
	if err := e.Rebase(c.rebase()); err != nil {
		t.Fatal(err)
	}
	c.finish(e)
	f := bindGroup(t, e, c.next)
	if got := readAll(t, f.log); string(got) != string(c.prefix) {
		t.Errorf("%d bytes of %d", len(got), len(c.prefix))
	}
	if err := e.Rebase(c.rebase()); !errors.Is(err, ErrBound) {
		t.Errorf("rebase of a bound partition: %v", err)
	}
	closeEngine(t, e)
}

// TestNextGenerationWithoutGenesisKnowsProducers: a replica that has joined a generation, and begins the next one before the genesis of the
// first has come, knows the producers of all that it has.
func TestNextGenerationWithoutGenesisKnowsProducers(t *testing.T) {
	c := newRebaseCase(t)
	defer func() { closeEngine(t, c.leader.e) }()
	e := c.other(vfs.NewMem(), nil)
	defer closeEngine(t, e)
	c.finish(e)
	if f := bindGroup(t, e, c.next); f.log.HasGenesis() {
		t.Fatal("the genesis has come")
	}
	e.Release(1)
	b := c.next
	b.Shard, b.Replica, b.Generation = 1000, 1001, 2
	l, err := e.Bind(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, known := l.Producer(4)
	if last, ok := p.Last(); !known || !ok || len(p.Batches()) != 2 || last.LastSequence != 4 {
		t.Errorf("producer 4, whose records 0 to 4 are stored: known %t, %+v", known, p)
	}
	if _, ok := l.Producer(5); ok {
		t.Error("a producer of the tail that was cut is known")
	}
}

func TestDropFormerOwners(t *testing.T) {
	c := newRebaseCase(t)
	e := c.leader.e
	defer closeEngine(t, e)
	former := func() []string {
		return storeRows(t, e, func(k []byte) bool { return rowKind(k[0]) == rowEntry && k[8] == 101 })
	}
	if len(former()) == 0 {
		t.Fatal("the former owner has no rows")
	}
	if err := e.DropFormerOwners(1); err != nil {
		t.Fatal(err)
	}
	if rows := former(); len(rows) != 0 {
		t.Errorf("%d rows are left", len(rows))
	}
	if got := readAll(t, c.leader.log); !strings.HasPrefix(string(got), string(c.prefix)) {
		t.Error("the data is not there")
	}
}

// Compaction has removed a record for one of a transaction, whose marker the next generation does not have: it may abort that transaction.
func TestRebaseKeepsNothingThatWasCompactedByAMarkerThatGoes(t *testing.T) {
	for _, agreed := range []ids.Offset{3, 4} {
		g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
		g.save(g.keyed(nil, "a"), g.keyed(producerOf(7, 0, true), "a"), g.keyed(nil, "b"), g.marker(7, true))
		g.settle()
		g.compact(1)
		g.wantContents("1: a@1", "2: b@2", "3:M")
		g.e.Release(1)
		b := g.binding
		b.Shard, b.Replica, b.Generation, b.BaseOffset = 900, 901, 1, agreed
		if err := g.e.Rebase(Rebase{Binding: b, Agreed: agreed, Epochs: []EpochStart{{}}}); err != nil {
			t.Fatal(err)
		}
		want := ids.Offset(0)
		if agreed == 4 {
			want = 4
		}
		if s, _, err := g.e.Stored(1); err != nil || s.End != want {
			t.Errorf("agreed to %d: stored to %d, %v, want %d", agreed, s.End, err, want)
		}
		closeEngine(t, g.e)
	}
}

// The batch that holds the log start counts in the size, after a rebase that moves the start into it, too.
func TestRebaseCountsTheBatchThatHoldsTheLogStart(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer func() { closeEngine(t, g.e) }()
	g.save(g.data(3, 100), g.data(4, 200), g.data(2, 300))
	g.commit(g.last)
	whole := g.log.SizeBytes()
	g.e.Release(1)
	first := int64(len(g.batch(3, 100, nil)))
	b := g.binding
	b.Shard, b.Replica, b.Generation, b.BaseOffset = 900, 901, 1, 9
	if err := g.e.Rebase(Rebase{Binding: b, Agreed: 9, Start: 5, Epochs: []EpochStart{{}}}); err != nil {
		t.Fatal(err)
	}
	l, err := g.e.Bind(b, nil)
	if err != nil || l.Start() != 5 || l.SizeBytes() != whole-first {
		t.Errorf("log start %d, size %d, %v, want 5 and %d", l.Start(), l.SizeBytes(), err, whole-first)
	}
}
