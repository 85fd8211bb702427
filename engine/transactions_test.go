package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// txnEntry is what the walk knows of an entry of its log.
type txnEntry struct {
	producer       int64 // 0: a plain batch
	marker, commit bool
	base, next     ids.Offset
}

// txnLog is the naive model: all entries, from which everything is worked out anew.
type txnLog []txnEntry

// transactions has every transaction of the log: its first offset, its marker (NoOffset: open), whether it was aborted.
func (l txnLog) transactions() (list []AbortedTransaction, aborted []bool) {
	open := map[int64]int{}
	for _, e := range l {
		at, isOpen := open[e.producer]
		switch {
		case e.producer == 0:
		case e.marker && isOpen:
			list[at].Last, aborted[at] = e.base, !e.commit
			delete(open, e.producer)
		case !e.marker && !isOpen:
			open[e.producer] = len(list)
			list, aborted = append(list, AbortedTransaction{ProducerID: e.producer, First: e.base, Last: ids.NoOffset}), append(aborted, false)
		}
	}
	return list, aborted
}

func (l txnLog) stable(hw ids.Offset) ids.Offset {
	stable := hw
	list, _ := l.transactions()
	for _, t := range list {
		if t.Last == ids.NoOffset || t.Last >= hw {
			stable = min(stable, t.First)
		}
	}
	return stable
}

// aborted are the aborted transactions that have something in [from, to), as producer:first.
func (l txnLog) aborted(from, to ids.Offset) map[string]bool {
	found := map[string]bool{}
	list, aborted := l.transactions()
	for i, t := range list {
		if aborted[i] && t.First < to && t.Last >= from {
			found[fmt.Sprintf("%d:%d", t.ProducerID, t.First)] = true
		}
	}
	return found
}

// txnWalk saves random entries, truncates and restarts, and compares with the model.
type txnWalk struct {
	t   *testing.T
	rng *rand.Rand
	fs  vfs.FS
	g   *group
	log txnLog
	at  []uint64 // Raft indexes of log's entries
}

func (w *txnWalk) entry() pb.Entry {
	e := txnEntry{base: w.end()}
	n := 1 + w.rng.IntN(3)
	e.next = e.base + ids.Offset(n)
	var raw []byte
	switch w.rng.IntN(5) {
	case 0:
		raw = w.g.batch(n, 10, nil)
	case 1, 2:
		e.producer = 1 + w.rng.Int64N(4)
		raw = w.g.batch(n, 10, func(c *batch.BuilderConfig) {
			c.ProducerID, c.ProducerEpoch, c.BaseSequence, c.Transactional = e.producer, 0, 0, true
		})
	default:
		e.producer, e.marker, e.commit, e.next = 1+w.rng.Int64N(4), true, w.rng.IntN(2) == 0, e.base+1
		raw = batch.BuildMarker(e.producer, 0, batch.Marker{Commit: e.commit, CoordinatorEpoch: 3}, 1000)
	}
	p := w.g.entry(w.g.proposal(raw))
	w.log, w.at = append(w.log, e), append(w.at, p.Index)
	return p
}

func (w *txnWalk) end() ids.Offset {
	if len(w.log) == 0 {
		return 0
	}
	return w.log[len(w.log)-1].next
}

func (w *txnWalk) save() {
	var entries []pb.Entry
	for range 1 + w.rng.IntN(6) {
		entries = append(entries, w.entry())
	}
	w.g.save(entries...)
}

// replace has the leader of a new term replace the entries behind the commit, from a random one on.
func (w *txnWalk) replace() {
	keep := len(w.log)
	for keep > 0 && w.at[keep-1] > w.g.hard.Commit && w.rng.IntN(3) > 0 {
		keep--
	}
	if keep == len(w.log) {
		return
	}
	w.g.last = w.at[keep] - 1
	w.log, w.at = w.log[:keep], w.at[:keep]
	w.g.hard.Term++
	w.g.ordinal = 0
	w.g.epoch++
	w.g.save(w.g.noop(), w.g.epochStart(w.g.epoch), w.entry())
}

func (w *txnWalk) commit() {
	if len(w.at) == 0 {
		return
	}
	i := w.rng.IntN(len(w.at))
	if w.at[i] > w.g.hard.Commit {
		w.g.commit(w.at[i])
		w.g.log.SetHighWatermark(w.log[i].next)
	}
}

func (w *txnWalk) check() {
	w.t.Helper()
	if problems, err := w.g.e.Verify(w.g.binding.Info.ID); err != nil || len(problems) > 0 {
		w.t.Fatalf("%v, %v", problems, err)
	}
	hw := w.g.log.HighWatermark()
	for range 3 {
		at := hw + ids.Offset(w.rng.Int64N(int64(w.end()-hw)+1))
		if got, want := w.g.log.LastStable(at), w.log.stable(at); got != want {
			w.t.Fatalf("last stable offset at %d is %d, want %d", at, got, want)
		}
	}
	to := w.log.stable(hw)
	if to == 0 {
		return
	}
	from := ids.Offset(w.rng.Int64N(int64(to)))
	got, err := w.g.log.AbortedTransactions(from, to)
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]bool{}
	for _, a := range got {
		found[fmt.Sprintf("%d:%d", a.ProducerID, a.First)] = true
	}
	if want := w.log.aborted(from, to); fmt.Sprint(found) != fmt.Sprint(want) {
		w.t.Fatalf("aborted in [%d, %d): %v, want %v", from, to, found, want)
	}
}

func TestTransactionsFollowTheLog(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			fs := vfs.NewMem()
			w := &txnWalk{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: fs}
			w.g = startGroup(t, openMem(t, fs, nil), testBinding(1))
			for range 60 {
				switch w.rng.IntN(10) {
				case 0:
					w.g.reopen(fs, nil)
				case 1, 2:
					w.replace()
				case 3, 4:
					w.commit()
				default:
					w.save()
				}
				w.check()
			}
			closeEngine(t, w.g.e)
		})
	}
}

// The producer state where the log starts travels with a snapshot: also of producers that have nothing behind it.
func TestProducersTravelWithASnapshot(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, smallSteps)
	leader := startGroup(t, e, testBinding(1))
	open := func(c *batch.BuilderConfig) {
		c.ProducerID, c.ProducerEpoch, c.BaseSequence, c.Transactional = 9, 1, 5, true
	}
	leader.save(leader.producerData(7, 0, 2), leader.entry(leader.proposal(leader.batch(1, 10, open))), leader.producerData(8, 0, 1))
	leader.save(leader.data(1, 50), leader.data(1, 50))
	want7, _ := leader.log.Producer(7)
	want9, _ := leader.log.Producer(9)
	start := leader.log.End() - 2
	leader.commit(leader.last)
	leader.log.SetApplied(ids.RaftIndex(leader.last))
	leader.log.SetHighWatermark(leader.log.End())
	if _, err := leader.log.SetStart(start); err != nil {
		t.Fatal(err)
	}
	index, _, err := leader.log.IndexBelow(start)
	if err != nil {
		t.Fatal(err)
	}
	if err := (logDB{e}).RemoveEntriesTo(uint64(leader.binding.Shard), uint64(leader.binding.Replica), uint64(index)); err != nil {
		t.Fatal(err)
	}
	point, frame, ok, err := leader.log.EncodeStartPoint()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	b := testBinding(2)
	b.Info.ID, b.Shard = 2, 202
	follower := bindGroup(t, e, b)
	if err := e.ExpectSnapshot(202, 1002, frame); err != nil {
		t.Fatal(err)
	}
	ss := pb.Snapshot{ShardID: 202, Index: uint64(point.Index), Term: uint64(point.Term), Membership: point.Membership, OnDiskIndex: uint64(point.Index), Type: pb.OnDiskStateMachine, Filepath: "f"}
	if err := (logDB{e}).SaveRaftState([]pb.Update{{ShardID: 202, ReplicaID: 1002, State: pb.State{Term: 1, Commit: uint64(point.Index)}, Snapshot: ss}}, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got7, _ := follower.log.Producer(7)
		got9, _ := follower.log.Producer(9)
		if fmt.Sprint(got7) != fmt.Sprint(want7) || fmt.Sprint(got9) != fmt.Sprint(want9) {
			t.Errorf("producers %+v and %+v, want %+v and %+v", got7, got9, want7, want9)
		}
		if got := follower.log.LastStable(point.Next + 100); got != want9.TxnFirstOffset {
			t.Errorf("last stable offset %d, want %d", got, want9.TxnFirstOffset)
		}
		follower.reopen(fs, smallSteps)
	}
	closeEngine(t, follower.e)
}

// A replica that copies the log below its generation's base is told which transactions of it were aborted.
func TestAbortedTransactionsGoWithACopiedLog(t *testing.T) {
	fs := vfs.NewMem()
	w := &txnWalk{t: t, rng: rand.New(rand.NewPCG(7, 7)), fs: fs}
	w.g = startGroup(t, openMem(t, fs, nil), testBinding(1))
	for range 30 {
		w.save()
	}
	w.g.commit(w.g.last)
	w.g.log.SetHighWatermark(w.end())
	e := openMem(t, vfs.NewMem(), nil)
	b := testBinding(1)
	b.Shard, b.Replica, b.Generation, b.BaseOffset = 300, 3000, 1, w.end()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.Rebase(Rebase{Binding: b}))
	p, err := e.OpenPrefix(b)
	must(err)
	for p.Next() < b.BaseOffset {
		recs, err := w.g.log.Read(ReadOptions{From: p.Next(), Limit: b.BaseOffset, MaxBytes: 300, MinOneBatch: true})
		must(err)
		aborted, err := w.g.log.AbortedBetween(p.Next(), recs.Next)
		must(err)
		if len(aborted) > 0 && p.Append(slices.Concat(recs.Parts...), []AbortedTransaction{{First: 5, Last: recs.Next}}) == nil {
			t.Error("a marker that is not among the batches is taken")
		}
		must(p.Append(slices.Concat(recs.Parts...), aborted))
	}
	must(p.Finish())
	l, err := e.Bind(b, nil)
	must(err)
	for _, from := range []ids.Offset{0, 10, w.end() / 2} {
		want, err := w.g.log.AbortedTransactions(from, w.end())
		must(err)
		got, err := l.AbortedTransactions(from, w.end())
		must(err)
		if fmt.Sprint(got) != fmt.Sprint(want) || from == 0 && len(want) == 0 {
			t.Errorf("aborted from %d on: %+v, want %+v", from, got, want)
		}
	}
	closeEngine(t, e)
	closeEngine(t, w.g.e)
}
