package engine

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// One bit of one stored file of a stopped broker is flipped. Nothing that is read afterwards may be wrong or missing without a word: the store
// refuses and names the file, or what is damaged is reported, or nothing has come of it.
//
//	go test ./engine -run TestFlippedBit -bitflip.rounds=20000    a long run
//	go test ./engine -run TestFlippedBit -bitflip.seed=42         one seed again

var (
	bitflipRounds = flag.Int("bitflip.rounds", 20, "bits that are flipped")
	bitflipSeed   = flag.Uint64("bitflip.seed", 0, "flip only the bit of this seed")
)

func TestFlippedBitIsNeverReadAsData(t *testing.T) {
	tally := map[string]int{}
	if *bitflipSeed != 0 {
		flipOne(t, *bitflipSeed, tally)
		return
	}
	for seed := range uint64(*bitflipRounds) {
		if flipOne(t, seed+1, tally); t.Failed() {
			return
		}
	}
	t.Logf("of %d flipped bits: %v", *bitflipRounds, tally)
}

// flipCase is a store with what was acknowledged of it.
type flipCase struct {
	disk    vfs.FS
	want    []image    // of the partitions 1 and 2
	meta    []pb.Entry // of the metadata shard
	damaged map[ids.PartitionID]bool
}

const flipPartitions = 2

func newFlipCase(t *testing.T, rng *rand.Rand) *flipCase {
	c := &flipCase{damaged: map[ids.PartitionID]bool{}}
	running := vfs.NewCrashableMem()
	e := openMem(t, running, nil)
	var groups []*group
	for i := range flipPartitions {
		groups = append(groups, startGroup(t, e, testBinding(i+1)))
	}
	meta := pb.Update{ShardID: uint64(ids.MetadataShard), ReplicaID: 1, State: pb.State{Term: 1, Vote: 1}}
	for step := range 30 {
		g := groups[rng.IntN(len(groups))]
		if rng.IntN(3) == 0 {
			g.save(g.producerData(int64(step), 0, 3))
		} else {
			g.save(g.data(1+rng.IntN(3), []int{20, 900, 3000}[rng.IntN(3)]))
		}
		entry := pb.Entry{Index: uint64(step + 1), Term: 1, Type: pb.EncodedEntry, Cmd: fmt.Appendf(nil, "\x00command %d", step)}
		meta.EntriesToSave, meta.State.Commit = []pb.Entry{entry}, uint64(step)
		if err := (logDB{e}).SaveRaftState([]pb.Update{meta}, 1); err != nil {
			t.Fatal(err)
		}
		c.meta = append(c.meta, entry)
		switch rng.IntN(10) {
		case 0:
			if err := e.db.Flush(); err != nil {
				t.Fatal(err)
			}
		case 1:
			for _, g := range groups {
				g.commit(g.last)
			}
			closeEngine(t, e)
			e = openMem(t, running, nil)
			for _, g := range groups {
				g.e = e
				g.bind()
			}
		}
	}
	for _, g := range groups {
		g.commit(g.last)
		c.want = append(c.want, imageOf(t, g.log))
	}
	if rng.IntN(2) == 0 { // an orderly end leaves nothing in the log
		c.disk = killed(running)
		closeEngine(t, e)
		return c
	}
	closeEngine(t, e)
	c.disk = running
	return c
}

// files are all files of the data directory that have content.
func (c *flipCase) files(t *testing.T, dir string) (list []string) {
	names, err := c.disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := c.disk.PathJoin(dir, name)
		info, err := c.disk.Stat(path)
		switch {
		case err != nil:
			t.Fatal(err)
		case info.IsDir():
			list = append(list, c.files(t, path)...)
		case info.Size() > 0:
			list = append(list, path)
		}
	}
	return list
}

func flipOne(t *testing.T, seed uint64, tally map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := newFlipCase(t, rng)
	files := c.files(t, "broker")
	path := files[rng.IntN(len(files))]
	b := readFile(t, c.disk, path)
	at := rng.IntN(8 * len(b))
	b[at/8] ^= 1 << (at % 8)
	rewriteFile(t, c.disk, path, b)
	outcome := c.judge(t)
	if t.Failed() {
		t.Logf("seed %d: bit %d of %s, of %d bytes: %s", seed, at, path, len(b), outcome)
	}
	kind := path[strings.LastIndexAny(path, "./")+1:]
	tally[strings.TrimRight(kind, "0123456789")+" "+outcome]++
}

// judge starts on the damaged store and reads everything.
func (c *flipCase) judge(t *testing.T) (outcome string) {
	e, err := Open(Config{
		Dir: "broker", FS: c.disk, MemTableBytes: 1 << 20, BlockCacheBytes: 1 << 20, TailBytes: -1,
		OnDamage: func(b Binding, _ *CorruptError) { c.damaged[b.Info.ID] = true },
	})
	if err != nil {
		if !strings.Contains(err.Error(), "broker/store") {
			t.Errorf("refused without a file's name: %v", err)
		}
		return "refused"
	}
	defer func() { _ = e.Close() }() // it may fail on what is damaged
	stopped := c.judgeMetadata(t, e)
	for i := range flipPartitions {
		l, err := e.Bind(testBinding(i+1), nil)
		if err != nil {
			if !IsDamage(err) {
				t.Errorf("bind: %v", err)
			}
			c.damaged[ids.PartitionID(i+1)] = true
			continue
		}
		c.judgeLog(t, e, l, c.want[i])
	}
	if _, err := e.Scrub(func(int) bool { return true }); err != nil {
		if !errors.Is(err, ErrStoreDamaged) {
			t.Errorf("scrub: %v", err)
		}
		stopped = true
	}
	switch {
	case stopped:
		return "stopped"
	case len(c.damaged) > 0:
		return "reported"
	}
	return "nothing"
}

// judgeMetadata reports whether the node would stop.
func (c *flipCase) judgeMetadata(t *testing.T, e *Engine) (stopped bool) {
	entries, _, err := logDB{e}.IterateEntries(nil, 0, uint64(ids.MetadataShard), 1, 1, uint64(len(c.meta)+1), math.MaxUint64)
	if err != nil {
		if !IsDamage(err) {
			t.Errorf("metadata: %v", err)
		}
		return true
	}
	if len(entries) != len(c.meta) {
		t.Errorf("%d of %d entries of the metadata", len(entries), len(c.meta))
	}
	for i := range entries {
		if !bytes.Equal(entries[i].Cmd, c.meta[i].Cmd) || entries[i].Term != c.meta[i].Term {
			t.Errorf("entry %d of the metadata is %q, was %q", i+1, entries[i].Cmd, c.meta[i].Cmd)
		}
	}
	return false
}

// judgeLog compares what is read of a partition with what was stored.
func (c *flipCase) judgeLog(t *testing.T, e *Engine, l *Log, want image) {
	p := l.binding.Info.ID
	if l.End() != want.End || l.Start() != want.Start || l.LastIndex() != want.Last {
		t.Errorf("partition %d: offsets %d to %d, last index %d, want %d to %d, %d", p, l.Start(), l.End(), l.LastIndex(), want.Start, want.End, want.Last)
		return
	}
	for i, base := range want.Bases {
		r, err := l.Read(ReadOptions{From: base, Limit: base + 100, MaxBytes: 1, MinOneBatch: true})
		switch {
		case err != nil && IsDamage(err):
			c.damaged[p] = true
		case err != nil:
			t.Errorf("partition %d, offset %d: %v", p, base, err)
		case !bytes.Equal(bytes.Join(r.Parts, nil), want.Batches[i]):
			t.Errorf("partition %d, offset %d: another batch is read", p, base)
		}
	}
	entries, _, err := logDB{e}.IterateEntries(nil, 0, uint64(l.sh.id.Shard), uint64(l.sh.id.Replica), 1, uint64(want.Last)+1, math.MaxUint64)
	if err != nil && IsDamage(err) {
		c.damaged[p] = true
		return
	}
	if err != nil || len(entries) != int(want.Last) {
		t.Errorf("partition %d: %d of %d entries: %v", p, len(entries), want.Last, err)
	}
}
