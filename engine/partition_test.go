package engine

import (
	"errors"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

func TestPartitionsAreListedAndDeleted(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	var infos []PartitionInfo
	for i := range 3 {
		g := startGroup(t, e, testBinding(i+1))
		infos = append(infos, g.binding.Info)
		g.save(g.data(2, 70_000), g.producerData(1, 0, 1))
		g.commit(5)
		g.fork(5, 2)
		g.save(g.noop()) // fills the quarantine
		if err := (logDB{e}).SaveBootstrapInfo(uint64(g.binding.Shard), uint64(g.binding.Replica), pb.Bootstrap{Addresses: map[uint64]string{1: "node-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := e.Partitions(); err != nil || !reflect.DeepEqual(got, infos) {
		t.Errorf("partitions %v, %v", got, err)
	}
	if err := e.DeletePartition(2); !errors.Is(err, ErrBound) {
		t.Errorf("deleting a bound partition: %v", err)
	}
	others := storeRows(t, e, func(k []byte) bool { return !belongsTo(k, testBinding(2)) })
	e.Release(2)
	for range 2 {
		if err := e.DeletePartition(2); err != nil {
			t.Fatal(err)
		}
	}
	if got := storeRows(t, e, nil); !reflect.DeepEqual(got, others) {
		t.Errorf("%d rows are left, the other partitions have %d", len(got), len(others))
	}
	closeEngine(t, e)
	e = openMem(t, fs, nil)
	defer closeEngine(t, e)
	if got, err := e.Partitions(); err != nil || !reflect.DeepEqual(got, []PartitionInfo{infos[0], infos[2]}) {
		t.Errorf("partitions %v, %v", got, err)
	}
	if _, err := e.OpenLog(2); !errors.Is(err, ErrNoPartition) {
		t.Errorf("opening a deleted partition: %v", err)
	}
}

// storeRows are the keys of all rows that keep lets through.
func storeRows(t testing.TB, e *Engine, keep func(key []byte) bool) (keys []string) {
	t.Helper()
	it, err := e.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if keep == nil || keep(it.Key()) {
			keys = append(keys, string(it.Key()))
		}
	}
	return keys
}

func belongsTo(k []byte, b Binding) bool {
	prefix := func(p []byte) bool { return len(k) >= len(p) && string(k[:len(p)]) == string(p) }
	for _, kind := range []rowKind{rowData, rowTime, rowQuarantine, rowOwner, rowMeta, rowCheckpoint, rowProducers} {
		if prefix(appendPartitionKey(nil, kind, b.Info.ID)) {
			return true
		}
	}
	for _, kind := range []rowKind{rowEntry, rowState, rowStart, rowBootstrap, rowSnapshot} {
		if prefix(appendReplicaKey(nil, kind, b.Shard, b.Replica)) {
			return true
		}
	}
	return false
}

func TestBindIsIdempotentAndExclusive(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	if again, err := e.Bind(g.binding, g.obs); err != nil || again != g.log {
		t.Errorf("second Bind: %p, %v", again, err)
	}
	other := g.binding
	other.Shard++
	if _, err := e.Bind(other, nil); !errors.Is(err, ErrBound) {
		t.Errorf("Bind by another shard: %v", err)
	}
	g.save(g.data(2, 10))
	g.log.SetHighWatermark(2)
	g.commit(g.last)
	want := imageOf(t, g.log)
	e.Release(1)
	e.Release(1)
	if _, ok := e.Log(1); ok {
		t.Error("a released partition is bound")
	}
	if l, err := e.OpenLog(1); err != nil {
		t.Error(err)
	} else {
		sameImage(t, imageOf(t, l), want)
	}
	g.bind()
	sameImage(t, imageOf(t, g.log), want)
	if g.log.HighWatermark() != 2 || g.log.Applied() != ids.RaftIndex(g.last) {
		t.Errorf("high watermark %d, applied %d", g.log.HighWatermark(), g.log.Applied())
	}
	g.save(g.data(1, 10))
}

func TestNextGenerationStandsOnTheDataOfTheLast(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	g.save(g.producerData(4, 0, 3), g.data(2, 10))
	g.commit(g.last)
	size, old := g.log.SizeBytes(), readAll(t, g.log)
	e.Release(1)

	b := g.binding
	b.Shard, b.Replica, b.Generation, b.BaseOffset = 900, 901, 1, 4
	if _, err := e.Bind(b, nil); !errors.Is(err, ErrBeyondBase) {
		t.Errorf("base below the end: %v", err)
	}
	b.BaseOffset = 5
	next := bindGroup(t, e, b)
	if next.log.End() != 5 || next.log.HasGenesis() || next.log.SizeBytes() != size || next.log.LastIndex() != 0 {
		t.Errorf("end %d, genesis %v, %d bytes, last %d", next.log.End(), next.log.HasGenesis(), next.log.SizeBytes(), next.log.LastIndex())
	}
	next.save(next.noop(), next.genesis(EpochStart{Epoch: 0}))
	next.epoch = 0
	next.save(next.epochStart(1), next.producerData(4, 3, 1))
	if got := readAll(t, next.log); len(got) <= len(old) || string(got[:len(old)]) != string(old) {
		t.Error("the old generation's data is not there")
	}
	if got := offsetsOf(t, readAll(t, next.log)); !reflect.DeepEqual(got, []int64{0, 3, 5}) {
		t.Errorf("base offsets %v", got)
	}
	if p := mustProducer(t, next.log, 4); len(p.Batches()) != 2 {
		t.Errorf("producer batches %v", p.Batches())
	}
	if epoch, end := next.log.EndOffsetForEpoch(0); epoch != 0 || end != 5 {
		t.Errorf("epoch 0 ends at %d (%d)", end, epoch)
	}
	want := imageOf(t, next.log)
	next.reopen(fs, nil)
	sameImage(t, imageOf(t, next.log), want)
	mustPanic(t, "late save of the old generation", func() { g.e = next.e; g.save(g.noop()) })
	next.e.Release(1)
	if err := next.e.DeletePartition(1); err != nil {
		t.Fatal(err)
	}
	if rows := storeRows(t, next.e, nil); len(rows) != 0 {
		t.Errorf("rows are left: %q", rows)
	}
	closeEngine(t, next.e)
}

func TestOpenReadOnly(t *testing.T) {
	dir := t.TempDir()
	e := openMem(t, vfs.Default, func(c *Config) { c.Dir = dir })
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(2, 2000), g.data(1, 10))
	g.commit(g.last)
	want, data := imageOf(t, g.log), readAll(t, g.log)
	closeEngine(t, e)
	e, err := OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeEngine(t, e)
	l, err := e.OpenLog(1)
	if err != nil {
		t.Fatal(err)
	}
	sameImage(t, imageOf(t, l), want)
	if string(readAll(t, l)) != string(data) {
		t.Error("the data differs")
	}
	if _, err := OpenReadOnly(t.TempDir()); err == nil {
		t.Error("a store was opened where none is")
	}
}

func TestEpochQuestions(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := bindGroup(t, e, testBinding(1))
	if epoch, end := g.log.EndOffsetForEpoch(0); epoch != ids.NoEpoch || end != ids.NoOffset {
		t.Errorf("empty log: %d, %d", epoch, end)
	}
	if epoch, start := g.log.LatestEpoch(); epoch != ids.NoEpoch || start != ids.NoOffset {
		t.Errorf("empty log: latest %d from %d", epoch, start)
	}
	g.save(g.genesis(), g.epochStart(2), g.data(3, 1), g.epochStart(5), g.data(2, 1), g.epochStart(6))
	for _, c := range []struct {
		ask, epoch ids.LeaderEpoch
		end        ids.Offset
	}{
		{ids.NoEpoch, ids.NoEpoch, ids.NoOffset}, {0, 0, 0}, {2, 2, 3}, {3, 2, 3}, {4, 2, 3}, {5, 5, 5}, {6, 6, 5}, {7, ids.NoEpoch, ids.NoOffset},
	} {
		if epoch, end := g.log.EndOffsetForEpoch(c.ask); epoch != c.epoch || end != c.end {
			t.Errorf("epoch %d: (%d, %d), want (%d, %d)", c.ask, epoch, end, c.epoch, c.end)
		}
	}
	if epoch, start := g.log.LatestEpoch(); epoch != 6 || start != 5 {
		t.Errorf("latest %d from %d", epoch, start)
	}
}

func TestRemoveNodeData(t *testing.T) {
	e := openMem(t, vfs.NewMem(), nil)
	defer closeEngine(t, e)
	g := startGroup(t, e, testBinding(1))
	g.save(g.data(1, 10))
	db := logDB{e}
	if err := db.SaveBootstrapInfo(101, 1001, pb.Bootstrap{Join: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := db.ListNodeInfo(); err != nil || !reflect.DeepEqual(got, []raftio.NodeInfo{{ShardID: 101, ReplicaID: 1001}}) {
		t.Errorf("nodes %v, %v", got, err)
	}
	if err := db.RemoveNodeData(101, 1001); !errors.Is(err, ErrBound) {
		t.Errorf("of a bound replica: %v", err)
	}
	e.Release(1)
	if err := db.RemoveNodeData(101, 1001); err != nil {
		t.Fatal(err)
	}
	if _, err := db.GetBootstrapInfo(101, 1001); !errors.Is(err, raftio.ErrNoBootstrapInfo) {
		t.Errorf("bootstrap info: %v", err)
	}
	if got := storeRows(t, e, func(k []byte) bool { return rowKind(k[0]) == rowEntry }); len(got) != 0 {
		t.Errorf("entry rows are left: %q", got)
	}
	if got := storeRows(t, e, func(k []byte) bool { return rowKind(k[0]) == rowData }); len(got) != 1 {
		t.Errorf("data rows: %q", got)
	}
}
