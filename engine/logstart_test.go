package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// walkReplica is one replica of a group whose leader moves its log start.
type walkReplica struct {
	*group
	fs        vfs.FS
	installed int
}

// walk replicates by hand, as Raft does: what a follower lacks is read from the leader's store, and a follower below
// the start of the leader's Raft log gets a snapshot that stands there.
type walk struct {
	t        *testing.T
	rng      *rand.Rand
	replicas []*walkReplica // the leader first
	restarts int
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{t: t, rng: rand.New(rand.NewPCG(seed, 3))}
	for i := range 3 {
		b := testBinding(1)
		b.Replica += ids.ReplicaID(i)
		fs := vfs.NewMem()
		w.replicas = append(w.replicas, &walkReplica{group: bindGroup(t, openMem(t, fs, smallSteps), b), fs: fs})
	}
	l := w.replicas[0]
	l.save(l.noop(), l.genesis(), l.epochStart(0))
	return w
}

func (w *walk) db(r *walkReplica) logDB { return logDB{r.e} }

// step does one thing that can happen.
func (w *walk) step() {
	leader := w.replicas[0]
	follower := w.replicas[1+w.rng.IntN(2)]
	switch w.rng.IntN(10) {
	case 0, 1, 2:
		leader.save(leader.data(1+w.rng.IntN(4), 10+w.rng.IntN(2000)), leader.data(1, 10))
	case 3:
		if leader.log.End() > 0 {
			leader.save(leader.logStart(leader.log.Start() + ids.Offset(w.rng.Int64N(int64(leader.log.End()-leader.log.Start())+1))))
		}
	case 4:
		leader.newTerm(leader.hard.Term + 1)
		leader.save(leader.noop(), leader.epochStart(leader.epoch+1))
	case 5, 6:
		w.commit(leader, uint64(leader.log.LastIndex()))
	case 7, 8:
		w.deliver(follower, 1+w.rng.Uint64N(8))
	case 9:
		w.restart(w.replicas[w.rng.IntN(3)])
	}
}

// deliver brings up to n entries to a follower, and the leader's commit index.
func (w *walk) deliver(r *walkReplica, n uint64) {
	w.t.Helper()
	leader := w.replicas[0]
	point, frame, ok, err := leader.log.EncodeStartPoint()
	if err != nil {
		w.t.Fatal(err)
	}
	if ok && r.log.LastIndex() < point.Index {
		w.install(r, point, frame)
	}
	from := uint64(r.log.LastIndex()) + 1
	to := min(from+n, uint64(leader.log.LastIndex())+1)
	if from < to {
		entries := iterate(w.t, leader.group, from, to)
		r.hard.Term = leader.hard.Term
		r.save(entries...)
	}
	w.commit(r, min(leader.hard.Commit, uint64(r.log.LastIndex())))
}

func (w *walk) install(r *walkReplica, point StartPoint, frame []byte) {
	w.t.Helper()
	if err := r.e.ExpectSnapshot(r.binding.Shard, r.binding.Replica, frame); err != nil {
		w.t.Fatal(err)
	}
	r.hard.Term, r.hard.Commit = w.replicas[0].hard.Term, uint64(point.Index)
	u := r.update()
	u.Snapshot = pb.Snapshot{ShardID: u.ShardID, Index: uint64(point.Index), Term: uint64(point.Term), Membership: point.Membership, OnDiskIndex: uint64(point.Index), Type: pb.OnDiskStateMachine, Filepath: "f"}
	if err := w.db(r).SaveRaftState([]pb.Update{u}, 1); err != nil {
		w.t.Fatal(err)
	}
	if r.log.LastIndex() != point.Index || r.log.End() != point.Next {
		w.t.Errorf("after a snapshot at index %d, next offset %d: last index %d, end %d", point.Index, point.Next, r.log.LastIndex(), r.log.End())
	}
	r.log.SetApplied(point.Index)
	r.installed++
}

// commit saves a commit index and applies what it commits, as the state machine does.
func (w *walk) commit(r *walkReplica, index uint64) {
	w.t.Helper()
	if index < r.hard.Commit {
		return
	}
	r.hard.Commit = index
	r.save()
	w.apply(r)
}

func (w *walk) apply(r *walkReplica) {
	w.t.Helper()
	var starts []ids.Offset
	err := r.log.ScanEntries(r.log.Applied()+1, func(row EntryRow) bool {
		if row.Index > ids.RaftIndex(r.hard.Commit) {
			return false
		}
		if row.Kind == KindLogStart {
			o, err := DecodeLogStart(row.Cmd[1:])
			if err != nil {
				w.t.Fatal(err)
			}
			starts = append(starts, o)
		}
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r.log.SetApplied(ids.RaftIndex(r.hard.Commit))
	for _, o := range starts {
		compactTo, err := r.log.SetStart(o)
		if err != nil {
			w.t.Fatal(err)
		}
		if compactTo > 0 {
			if err := w.db(r).RemoveEntriesTo(uint64(r.binding.Shard), uint64(r.binding.Replica), uint64(compactTo)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// restart opens a replica again. Its Raft log must begin where it did, by the record made up there.
func (w *walk) restart(r *walkReplica) {
	w.t.Helper()
	before := imageOf(w.t, r.log)
	r.reopen(r.fs, smallSteps)
	w.restarts++
	sameImage(w.t, imageOf(w.t, r.log), before)
	ss, err := w.db(r).GetSnapshot(uint64(r.binding.Shard), uint64(r.binding.Replica))
	if err != nil {
		w.t.Fatal(err)
	}
	point := r.log.LogStartPoint()
	if ss.Index != uint64(point.Index) || ss.Index > 0 && (!ss.Dummy || ss.OnDiskIndex != ss.Index || ss.Term != uint64(point.Term)) {
		w.t.Errorf("the record made up is %+v, the Raft log starts behind %d of term %d", ss, point.Index, point.Term)
	}
	if applied := r.log.Applied(); applied < point.Index {
		w.t.Errorf("applied %d is below the start %d", applied, point.Index)
	}
	if point.Index < r.log.LastIndex() { // Raft walks through its log before it does anything else
		iterate(w.t, r.group, uint64(point.Index)+1, uint64(r.log.LastIndex())+1)
	}
	w.apply(r)
}

// finish brings all followers to the leader's end and compares them.
func (w *walk) finish() {
	leader := w.replicas[0]
	w.commit(leader, uint64(leader.log.LastIndex()))
	for _, r := range w.replicas[1:] {
		for r.log.LastIndex() < leader.log.LastIndex() || r.hard.Commit < leader.hard.Commit {
			w.deliver(r, 20)
		}
	}
	for i, r := range w.replicas {
		if problems, err := r.e.Verify(r.binding.Info.ID); err != nil || len(problems) > 0 {
			w.t.Errorf("replica %d: %v, %v", i, problems, err)
		}
		if err := w.differs(r); err != nil {
			w.t.Errorf("replica %d differs from the leader: %v", i, err)
		}
	}
	for _, r := range w.replicas {
		closeEngine(w.t, r.e)
	}
}

func (w *walk) differs(r *walkReplica) error {
	a, b := r.log, w.replicas[0].log
	if a.State() != b.State() || a.LastIndex() != b.LastIndex() || a.LastTerm() != b.LastTerm() {
		return fmt.Errorf("state %+v at %d, want %+v at %d", a.State(), a.LastIndex(), b.State(), b.LastIndex())
	}
	if a.Start() != b.Start() {
		return fmt.Errorf("log start %d, want %d", a.Start(), b.Start())
	}
	if !reflect.DeepEqual(a.EpochStarts(), b.EpochStarts()) {
		return fmt.Errorf("epochs %v, want %v", a.EpochStarts(), b.EpochStarts())
	}
	got, want := readAll(w.t, a), readAll(w.t, b)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes from batches %v, want %d from %v", len(got), offsetsOf(w.t, got), len(want), offsetsOf(w.t, want))
	}
	return nil
}

func TestReplicasEndEqualAcrossLogStartsSnapshotsAndRestarts(t *testing.T) {
	installed, restarts, moved := 0, 0, 0
	for seed := range uint64(25) {
		w := newWalk(t, seed)
		for range 120 {
			w.step()
		}
		w.deliver(w.replicas[1], 1)
		if w.replicas[0].log.LogStartPoint().Index > 0 {
			moved++
		}
		w.finish()
		for _, r := range w.replicas {
			installed += r.installed
		}
		restarts += w.restarts
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if installed < 10 || restarts < 50 || moved < 10 {
		t.Errorf("%d snapshots, %d restarts and %d moved starts of the Raft log prove little", installed, restarts, moved)
	}
}
