package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"go.uber.org/goleak"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Several workers save, each for its own shards, while consumers, followers, the apply workers and snapshots use the
// same logs. It is for the race detector, and checks that what is read is always whole.
func TestSavesAndReadsAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	e := openMem(t, vfs.NewMem(), func(c *Config) { c.TailBytes, c.DropStepBytes = 40_000, 10_000 })
	defer closeEngine(t, e)
	const workers, perWorker, saves = 3, 2, 60
	var groups [workers][]*group
	for w := range workers {
		for i := range perWorker {
			groups[w] = append(groups[w], startGroup(t, e, testBinding(1+w*perWorker+i)))
		}
	}
	compactTo := make([]atomic.Uint64, 1+workers*perWorker) // by partition: what snapshots ask the Raft worker to remove
	var writers, readers sync.WaitGroup
	var done atomic.Bool
	for w := range workers {
		writers.Go(func() { saveMuch(t, e, groups[w], compactTo, saves) })
	}
	for i := range workers * perWorker {
		g := groups[i/perWorker][i%perWorker]
		readers.Go(func() { readMuch(t, g.log, &done) })
		readers.Go(func() { useMuch(t, e, g.log, compactTo, &done) })
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	for _, g := range slices.Concat(groups[:]...) {
		if g.log.End() < saves {
			t.Errorf("partition %d ends at %d", g.binding.Info.ID, g.log.End())
		}
	}
}

func saveMuch(t *testing.T, e *Engine, groups []*group, compactTo []atomic.Uint64, saves int) {
	for i := range saves {
		var updates []pb.Update
		for _, g := range groups {
			if i%10 == 9 { // a new leader replaces the newest entry
				g.fork(g.last-1, g.hard.Term+1)
				updates = append(updates, g.update(g.noop(), g.epochStart(g.epoch+1), g.producerData(1, 0, 2)))
				continue
			}
			g.hard.Commit = g.last - 1
			updates = append(updates, g.update(g.data(1+i%3, 700), g.data(1, 3000)))
		}
		err := (logDB{e}).SaveRaftState(updates, 1)
		for _, g := range groups {
			if to := compactTo[g.binding.Info.ID].Swap(0); to > 0 && err == nil {
				err = (logDB{e}).RemoveEntriesTo(uint64(g.binding.Shard), uint64(g.binding.Replica), to)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// readMuch reads below the saved commit, as consumers do, from random places.
func readMuch(t *testing.T, l *Log, done *atomic.Bool) {
	rng := rand.New(rand.NewPCG(1, uint64(l.binding.Info.ID)))
	for !done.Load() {
		limit, err := l.NextAfter(l.Commit())
		if errors.Is(err, ErrNoEntry) {
			continue // compacted in between
		}
		if err != nil {
			t.Error(err)
			return
		}
		start := l.Start()
		from := start + ids.Offset(rng.Int64N(max(1, int64(limit-start))))
		r, err := l.Read(ReadOptions{From: from, Limit: limit, MaxBytes: 10_000, MinOneBatch: true})
		if errors.Is(err, ErrOffsetOutOfRange) {
			continue // the start has moved
		}
		if err != nil {
			t.Error(err)
			return
		}
		next := r.FirstBase
		for rest := slices.Concat(r.Parts...); len(rest) > 0; {
			h, one, r, err := batch.Split(rest)
			if err != nil || batch.VerifyCRC(one) != nil || ids.Offset(h.BaseOffset) != next {
				t.Errorf("partition %d: batch at %d, expected at %d, %v", l.binding.Info.ID, h.BaseOffset, next, err)
				return
			}
			next, rest = ids.Offset(h.NextOffset()), r
		}
		if r.Bytes > 0 && next != r.Next {
			t.Errorf("read to %d, said %d", next, r.Next)
		}
	}
}

// useMuch is everything else that runs next to saves.
func useMuch(t *testing.T, e *Engine, l *Log, compactTo []atomic.Uint64, done *atomic.Bool) {
	db, s, r := logDB{e}, uint64(l.binding.Shard), uint64(l.binding.Replica)
	for i := 0; !done.Load(); i++ {
		commit := l.Commit()
		l.SetApplied(commit)
		next, err := l.NextAfter(commit)
		if errors.Is(err, ErrNoEntry) {
			continue // compacted in between
		}
		if err == nil {
			l.SetHighWatermark(next)
			_, _, _, err = l.MaxTimestamp(next)
		}
		if err == nil && i%20 == 0 {
			var to ids.RaftIndex
			to, err = l.SetStart(next / 2)
			compactTo[l.binding.Info.ID].Store(uint64(to))
		}
		if err == nil {
			_, _, _, err = l.OffsetForTime(1_000_050, next)
		}
		if err == nil {
			err = db.SaveSnapshots([]pb.Update{{ShardID: s, ReplicaID: r, Snapshot: pb.Snapshot{ShardID: s, Index: uint64(commit), Term: 1}}})
		}
		if err == nil {
			_, err = db.GetSnapshot(s, r)
		}
		if err != nil {
			t.Error(err)
			return
		}
		l.Producer(1)
		l.ExpireProducers(1, 1000)
		l.EndOffsetForEpoch(0)
		e.Metrics()
		e.DurableIndex(l.binding.Shard)
	}
}
