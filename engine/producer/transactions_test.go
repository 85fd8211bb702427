package producer

import (
	"fmt"
	"slices"
	"testing"

	"cairn/internal/ids"

	"pgregory.net/rapid"
)

// modelTxn is a transaction in the naive model: all that ever were, in order of their first offsets.
type modelTxn struct {
	producer    int64
	first, last ids.Offset // last: the marker; ids.NoOffset while it is open
	aborted     bool
}

// modelStable is the last stable offset by its definition: below it every record belongs to no transaction, or to one whose marker is
// below the high watermark.
func modelStable(txns []modelTxn, hw ids.Offset) ids.Offset {
	stable := hw
	for _, x := range txns {
		if x.last == ids.NoOffset || x.last >= hw {
			stable = min(stable, x.first)
		}
	}
	return stable
}

// txnWalk appends to, truncates and settles Transactions beside a State and the model.
type txnWalk struct {
	state    State
	txns     Transactions
	next, hw ids.Offset
	undos    []Undo
	nexts    []ids.Offset // next before each append
	models   [][]modelTxn // the model before the first append, and after each
}

func (w *txnWalk) append(t *rapid.T) {
	b := drawBatch(t)
	b.BaseOffset, b.LastOffset = w.next, w.next+ids.Offset(b.Count)-1
	if b.Control {
		b.Count, b.LastOffset, b.Commit = 1, w.next, rapid.Bool().Draw(t, "commit")
	}
	model := slices.Clone(w.models[len(w.models)-1])
	open := slices.IndexFunc(model, func(x modelTxn) bool { return x.producer == b.ProducerID && x.last == ids.NoOffset })
	ended, ends := w.txns.Append(b)
	switch {
	case b.ProducerID < 0:
	case b.Control && open >= 0:
		model[open].last, model[open].aborted = b.LastOffset, !b.Commit
		want := EndedTransaction{b.ProducerID, model[open].first, b.LastOffset, !b.Commit}
		if !ends || ended != want {
			t.Fatalf("ended %+v (%v), want %+v", ended, ends, want)
		}
	case ends:
		t.Fatalf("%+v ended by %+v", ended, b)
	case b.Transactional && !b.Control && open < 0:
		model = append(model, modelTxn{producer: b.ProducerID, first: w.next, last: ids.NoOffset})
	}
	w.undos, w.nexts, w.models = append(w.undos, w.state.Append(b, 0)), append(w.nexts, w.next), append(w.models, model)
	w.next = b.LastOffset + 1
}

func (w *txnWalk) truncate(t *rapid.T) {
	keep := len(w.undos)
	for keep > 0 && w.nexts[keep-1] >= w.hw && rapid.Bool().Draw(t, "more") {
		keep--
	}
	w.txns = w.txns.Clone()
	for i := len(w.undos) - 1; i >= keep; i-- {
		w.state.Revert(w.undos[i])
		w.txns.Restore(w.undos[i].Transaction())
		w.next = w.nexts[i]
	}
	w.undos, w.nexts, w.models = w.undos[:keep], w.nexts[:keep], w.models[:keep+1]
	w.txns.Truncate(w.next)
}

func (w *txnWalk) settle(t *rapid.T) {
	w.hw = ids.Offset(rapid.Int64Range(int64(w.hw), int64(w.next)).Draw(t, "hw"))
	if w.txns.Unsettled(w.hw) {
		w.txns.Settle(w.hw)
	}
	if e := w.txns.Ended(); len(e) > 0 && e[0].Last < w.hw {
		t.Fatalf("%+v left below the high watermark %d", e[0], w.hw)
	}
}

func (w *txnWalk) check(t *rapid.T) {
	model := w.models[len(w.models)-1]
	at := ids.Offset(rapid.Int64Range(int64(w.hw), int64(w.next)).Draw(t, "at"))
	if got, want := w.txns.Stable(at), modelStable(model, at); got != want {
		t.Fatalf("stable at %d is %d, want %d: %+v, model %+v", at, got, want, w.txns, model)
	}
	if got, want := fmt.Sprint(w.txns.Open()), fmt.Sprint(w.state.Transactions().open); got != want {
		t.Fatalf("open are %v, the state has %v", got, want)
	}
}

func TestTransactionsFollowTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := txnWalk{models: [][]modelTxn{nil}}
		t.Repeat(map[string]func(*rapid.T){
			"append": w.append, "truncate": w.truncate, "settle": w.settle, "": w.check,
			"clone": func(*rapid.T) {
				c := w.txns.Clone()
				c.Append(transactional(batch(0, 0, 1)))
				c.Append(marker(0, 0, 1<<41))
			},
		})
	})
}

func TestSnapshotWithinKeepsOpenTransactionsAndTheNewest(t *testing.T) {
	var s State
	for id := range int64(1000) {
		b := batch(1, 0, 1)
		b.ProducerID, b.Timestamp = id, 1000+id
		if id == 3 {
			b = transactional(b)
		}
		s.Append(b, 0)
	}
	whole := s.AppendSnapshot(nil)
	if got := s.SnapshotWithin(len(whole)); len(got) != len(whole) {
		t.Errorf("%d of %d bytes, which fit", len(got), len(whole))
	}
	part := s.SnapshotWithin(len(whole) / 4)
	var got State
	if err := got.LoadSnapshot(part, 0); err != nil || len(part) > len(whole)/4 || got.Len() < 150 {
		t.Fatalf("%d bytes of %d, %d producers, %v", len(part), len(whole), got.Len(), err)
	}
	for id, want := range map[int64]bool{3: true, 0: false, 100: false, 900: true, 999: true} {
		if _, ok := got.Get(id); ok != want {
			t.Errorf("producer %d kept: %v, want %v", id, ok, want)
		}
	}
}
