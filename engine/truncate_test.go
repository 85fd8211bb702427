package engine

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// producerData is a batch of an idempotent producer.
func (g *group) producerData(id int64, sequence int32, n int) pb.Entry {
	return g.entry(g.proposal(g.batch(n, 20, func(c *batch.BuilderConfig) {
		c.ProducerID, c.ProducerEpoch, c.BaseSequence = id, 0, sequence
	})))
}

// withoutTime is an image whose quarantine times are zeroed: they are the wall clock's.
func withoutTime(im image) image {
	im.Quarantine = slices.Clone(im.Quarantine)
	for i := range im.Quarantine {
		im.Quarantine[i].AtMs = 0
	}
	return im
}

func TestTruncationRestoresWhatWasBefore(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	g.save(g.producerData(5, 0, 2), g.producerData(5, 2, 1))
	g.commit(g.last)
	before, at := imageOf(t, g.log), g.last

	g.save(g.data(3, 70_000), g.epochStart(2), g.producerData(5, 3, 4), g.producerData(6, 0, 1))
	g.save(g.noop(), g.data(1, 10))
	lost := imageOf(t, g.log)
	if len(lost.Batches) != 6 {
		t.Fatalf("%d batches", len(lost.Batches))
	}

	g.fork(at, 7)
	g.save(g.noop())
	if want := []string{"from 6, next 3"}; !reflect.DeepEqual(g.obs.truncated, want) {
		t.Errorf("observer heard %v, want %v", g.obs.truncated, want)
	}
	got := imageOf(t, g.log)
	if got.Last != before.Last+1 || got.LastTerm != 7 {
		t.Errorf("last %d of term %d", got.Last, got.LastTerm)
	}
	var quarantine []Quarantined
	for i, b := range lost.Batches[2:] {
		row := lost.Rows[[]int{5, 7, 8, 10}[i]]
		quarantine = append(quarantine, Quarantined{
			LeaderEpoch: row.Batch.LeaderEpoch, Base: row.Batch.Base, Shard: g.binding.Shard, Index: row.Index, Term: row.Term, Batch: b,
		})
	}
	rest := withoutTime(got)
	if !reflect.DeepEqual(rest.Quarantine, quarantine) {
		t.Errorf("quarantine\n got %+v\nwant %+v", rest.Quarantine, quarantine)
	}
	// But for the new leader's no-op, all is as it was.
	rest.Quarantine, rest.Last, rest.LastTerm = nil, before.Last, before.LastTerm
	rest.Rows, rest.Nexts = rest.Rows[:len(before.Rows)], rest.Nexts[:len(before.Nexts)]
	rest.Commit = before.Commit
	sameImage(t, rest, before)

	g.reopen(fs, nil)
	sameImage(t, imageOf(t, g.log), got)
	closeEngine(t, g.e)
}

func TestTruncationInTheMiddleOfASave(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(1, 10), g.data(2, 10), g.data(3, 10), g.data(4, 10))
	g.fork(5, 2) // keeps the batches of offsets 0 and 1-2
	g.epoch = 0
	g.save(g.noop(), g.epochStart(1), g.data(5, 10))
	if got, want := offsetsOf(t, readAll(t, g.log)), []int64{0, 1, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("base offsets %v, want %v", got, want)
	}
	if epoch, start := g.log.LatestEpoch(); epoch != 1 || start != 3 {
		t.Errorf("epoch %d from %d", epoch, start)
	}
	im := imageOf(t, g.log)
	if len(im.Quarantine) != 2 || im.Quarantine[0].Base != 3 || im.Quarantine[1].Base != 6 {
		t.Errorf("quarantine %+v", im.Quarantine)
	}
	g.reopen(fs, nil)
	sameImage(t, imageOf(t, g.log), im)
	closeEngine(t, g.e)
}

// The same offsets can be lost twice: the leader epochs tell them apart.
func TestQuarantineKeepsEveryTail(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	at := g.last
	for term := uint64(2); term < 5; term++ {
		g.save(g.data(2, int(10*term)))
		g.fork(at, term)
		g.epoch = 0
		g.save(g.noop(), g.epochStart(ids.LeaderEpoch(term)))
	}
	im := imageOf(t, g.log)
	var epochs []ids.LeaderEpoch
	for _, q := range im.Quarantine {
		epochs = append(epochs, q.LeaderEpoch)
		if q.Base != 0 {
			t.Errorf("base %d", q.Base)
		}
	}
	if want := []ids.LeaderEpoch{0, 2, 3}; !reflect.DeepEqual(epochs, want) {
		t.Errorf("epochs %v, want %v", epochs, want)
	}
	if g.log.End() != 0 || g.log.SizeBytes() != 0 {
		t.Errorf("end %d, %d bytes", g.log.End(), g.log.SizeBytes())
	}
}

func TestTruncationOfTheGenesis(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := bindGroup(t, e, testBinding(1))
	g.save(g.noop(), g.genesis(), g.epochStart(0), g.data(2, 10))
	g.fork(1, 3)
	g.epoch = ids.NoEpoch
	g.save(g.noop())
	if g.log.HasGenesis() || len(g.log.EpochStarts()) != 0 || g.log.End() != 0 {
		t.Errorf("genesis %v, epochs %v, end %d", g.log.HasGenesis(), g.log.EpochStarts(), g.log.End())
	}
	g.save(g.genesis(), g.epochStart(1), g.data(1, 10))
	im := imageOf(t, g.log)
	if !g.log.HasGenesis() || g.log.End() != 1 {
		t.Errorf("genesis %v, end %d", g.log.HasGenesis(), g.log.End())
	}
	g.reopen(fs, nil)
	sameImage(t, imageOf(t, g.log), im)
	closeEngine(t, g.e)
}

func TestProducerStateFollowsTruncations(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	for i := range int32(7) {
		g.save(g.producerData(9, i, 1))
	}
	g.commit(g.last)
	want, _ := g.log.Producer(9)
	at := g.last
	g.save(g.producerData(9, 7, 3), g.producerData(9, 10, 1), g.producerData(10, 0, 1))
	g.reopen(fs, nil) // the undos must be there after a restart too
	if last, _ := mustProducer(t, g.log, 9).Last(); last.LastSequence != 10 {
		t.Errorf("after the restart %+v", last)
	}
	g.fork(at, 2)
	g.save(g.noop())
	if got := mustProducer(t, g.log, 9); !reflect.DeepEqual(*got, want) {
		t.Errorf("producer state %+v, want %+v", got, want)
	}
	if _, ok := g.log.Producer(10); ok {
		t.Error("a producer without any batch left is known")
	}
	closeEngine(t, g.e)
}

func mustProducer(t testing.TB, l *Log, id int64) *producer.Entry {
	t.Helper()
	p, ok := l.Producer(id)
	if !ok {
		t.Fatalf("producer %d is not known", id)
	}
	return &p
}

func TestCommittedEntriesAreNeverReplaced(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(1, 1), g.data(1, 1))
	g.commit(g.last)
	g.fork(g.last-1, 2)
	mustPanic(t, "replacing what is committed", func() { g.save(g.noop()) })
}

func TestReadersSeeNothingOfATruncatedTail(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(1, 10), g.data(1, 20))
	old := readAll(t, g.log)
	kept := bytes.Clone(old)
	g.fork(4, 2)
	g.epoch = 0
	g.save(g.noop(), g.epochStart(1), g.data(1, 30))
	now := readAll(t, g.log)
	if bytes.Equal(now, kept) || !bytes.Equal(old, kept) {
		t.Error("a handed-out record changed, or the old tail is still read")
	}
}
