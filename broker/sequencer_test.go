package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/raftgroup"
)

// fakeTicket is a proposal in the hands of fakeGroup.
type fakeTicket struct{ dropped bool }

func (t *fakeTicket) Dropped() bool { return t.dropped }

// fakeGroup stands in for Raft and the log at the sequencer's two edges: it keeps what was proposed, and saves, drops
// or voids it when the test says so.
type fakeGroup struct {
	t        *testing.T
	seq      *sequencer
	reign    *reign
	state    producer.State
	next     ids.Offset
	index    ids.RaftIndex
	proposed []engine.Header
	batches  []producer.Batch // by ordinal-1 as submitted
	tickets  []*fakeTicket
	refuse   error
	block    bool // Propose waits for its context
}

func newFakeGroup(t *testing.T) *fakeGroup {
	g := &fakeGroup{t: t, next: 100}
	g.seq = newSequencer(g.propose, g.state.Get)
	return g
}

func (g *fakeGroup) begin(term ids.Term, epoch ids.LeaderEpoch) {
	ctx, cancel := context.WithCancel(context.Background())
	g.reign = &reign{term: term, epoch: epoch, ctx: ctx, cancel: cancel}
	g.t.Cleanup(cancel)
	g.seq.begin(g.reign)
	g.proposed, g.batches, g.tickets = nil, nil, nil
}

func (g *fakeGroup) propose(ctx context.Context, data []byte) (ticket, error) {
	if g.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if g.refuse != nil {
		return nil, g.refuse
	}
	h, err := engine.ParseHeader(data)
	if err != nil {
		g.t.Fatal(err)
	}
	g.proposed = append(g.proposed, h)
	t := &fakeTicket{}
	g.tickets = append(g.tickets, t)
	return t, nil
}

// save saves the i-th proposal of the reign (from 0) as the log would: void when its ordinal is not the next.
func (g *fakeGroup) save(i int, void bool) {
	h := g.proposed[i]
	g.index++
	e := engine.SavedEntry{
		Index: g.index, Term: g.reign.term, Kind: h.Kind, Ordinal: h.Ordinal, HeaderTerm: h.Term,
		LeaderEpoch: h.LeaderEpoch, Base: g.next, Next: g.next,
	}
	if void {
		e.Kind = engine.KindVoid
	} else if b := g.batches[i]; h.Kind == engine.KindData {
		e.Next = e.Base + ids.Offset(b.Count)
		b.BaseOffset, b.LastOffset = e.Base, e.Next-1
		g.state.Append(b, 0)
		g.next = e.Next
	}
	g.seq.onSaved([]engine.SavedEntry{e})
}

// outcome records what a waiter hears.
type outcome struct{ events []string }

func (o *outcome) appended(slot int, base, next ids.Offset, duplicateOf int64) {
	s := fmt.Sprintf("%d:[%d,%d)", slot, base, next)
	if duplicateOf != noDuplicate {
		s += fmt.Sprintf(" dup of %d", duplicateOf)
	}
	o.events = append(o.events, s)
}

func (o *outcome) dropped(slot int) { o.events = append(o.events, fmt.Sprintf("%d:dropped", slot)) }

func (o *outcome) want(t *testing.T, events ...string) {
	t.Helper()
	if fmt.Sprint(o.events) != fmt.Sprint(events) {
		t.Errorf("waiter heard %v, want %v", o.events, events)
	}
}

func dataBatch(id int64, epoch int16, sequence, count int32) producer.Batch {
	return producer.Batch{
		ProducerID: id, Epoch: epoch, BaseSequence: sequence, Count: count,
		BaseOffset: ids.NoOffset, LastOffset: ids.NoOffset, Timestamp: 1000 + int64(sequence),
	}
}

// submit submits a batch of 61 zero bytes whose content the fake does not look at.
func (g *fakeGroup) submit(o *outcome, slot int, b producer.Batch) (dup producer.CachedBatch, isDup bool, err error) {
	before := len(g.proposed)
	dup, isDup, err = g.seq.submit(g.reign.ctx, g.reign, submission{data: make([]byte, 61), kind: engine.KindData, batch: b, waiter: o, slot: slot})
	if len(g.proposed) > before {
		g.batches = append(g.batches, b)
	}
	return dup, isDup, err
}

func (g *fakeGroup) mustSubmit(o *outcome, slot int, b producer.Batch) {
	g.t.Helper()
	if _, isDup, err := g.submit(o, slot, b); err != nil || isDup {
		g.t.Fatalf("submit: duplicate %v, %v", isDup, err)
	}
}

func TestSequencerGivesOrdinalsAndOffsetsInOrder(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(7, 3)
	var o outcome
	for i := range 3 {
		g.mustSubmit(&o, i, dataBatch(-1, 0, -1, int32(i+1)))
	}
	for i, h := range g.proposed {
		if want := (engine.Header{Ordinal: uint64(i + 1), Term: 7, LeaderEpoch: 3, Kind: engine.KindData}); h != want {
			t.Errorf("proposal %d: %+v", i, h)
		}
	}
	for i := range 3 {
		g.save(i, false)
	}
	o.want(t, "0:[100,101)", "1:[101,103)", "2:[103,106)")
	if n := g.seq.inFlightCount(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// TestSequencerProducerRules goes through Kafka's rules with everything in flight, and again with everything saved.
func TestSequencerProducerRules(t *testing.T) {
	type step struct {
		batch producer.Batch
		want  string // "ok", "dup" or an error's text
	}
	six := func() (s []step) {
		for i := range int32(6) {
			s = append(s, step{dataBatch(1, 0, 10*i, 10), "ok"})
		}
		return s
	}
	const (
		gap    = "out of order sequence number"
		fenced = "invalid producer epoch"
	)
	cases := map[string][]step{
		"no state takes any sequence":         {{dataBatch(1, 0, 77, 1), "ok"}},
		"next sequence":                       {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 10, 1), "ok"}},
		"gap":                                 {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 11, 1), gap}},
		"duplicate":                           {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 0, 10), "dup"}},
		"partial overlap":                     {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 5, 10), gap}},
		"shorter batch at the same sequence":  {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 0, 9), gap}},
		"fifth last is remembered":            append(six(), step{dataBatch(1, 0, 10, 10), "dup"}),
		"sixth last is not":                   append(six(), step{dataBatch(1, 0, 0, 10), gap}),
		"older epoch":                         {{dataBatch(1, 4, 0, 1), "ok"}, {dataBatch(1, 3, 1, 1), fenced}},
		"newer epoch from zero":               {{dataBatch(1, 4, 5, 1), "ok"}, {dataBatch(1, 5, 0, 1), "ok"}},
		"newer epoch not from zero":           {{dataBatch(1, 4, 5, 1), "ok"}, {dataBatch(1, 5, 6, 1), gap}},
		"old epoch's batch after a new epoch": {{dataBatch(1, 4, 0, 1), "ok"}, {dataBatch(1, 5, 0, 1), "ok"}, {dataBatch(1, 4, 0, 1), fenced}},
		"wrap":                                {{dataBatch(1, 0, 2147483640, 8), "ok"}, {dataBatch(1, 0, 0, 1), "ok"}},
		"wrap inside a batch":                 {{dataBatch(1, 0, 2147483640, 10), "ok"}, {dataBatch(1, 0, 2, 1), "ok"}},
		"producers do not meet":               {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(2, 0, 50, 1), "ok"}, {dataBatch(1, 0, 10, 1), "ok"}},
		"a refused batch leaves no trace":     {{dataBatch(1, 0, 0, 10), "ok"}, {dataBatch(1, 0, 20, 5), gap}, {dataBatch(1, 0, 10, 5), "ok"}},
	}
	for name, steps := range cases {
		for _, saved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/saved=%v", name, saved), func(t *testing.T) {
				g := newFakeGroup(t)
				g.begin(1, 0)
				var o outcome
				for i, s := range steps {
					proposed := len(g.proposed)
					_, isDup, err := g.submit(&o, i, s.batch)
					got := "ok"
					switch {
					case err != nil:
						got = errors.Unwrap(err).Error()
					case isDup || len(g.proposed) == proposed:
						got = "dup"
					}
					if got != s.want {
						t.Fatalf("step %d: %s (%v), want %s", i, got, err, s.want)
					}
					if isDup && !saved {
						t.Fatalf("step %d: a duplicate of a batch in flight was answered before that was saved", i)
					}
					if saved && len(g.proposed) > proposed {
						g.save(len(g.proposed)-1, false)
					}
				}
			})
		}
	}
}

func TestSequencerDuplicateOfSavedBatchHasItsOffsets(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 10))
	g.save(0, false)
	dup, isDup, err := g.submit(&o, 1, dataBatch(1, 0, 0, 10))
	if err != nil || !isDup || dup.BaseOffset != 100 || dup.LastOffset != 109 || dup.Timestamp != 1000 {
		t.Fatalf("%+v %v %v", dup, isDup, err)
	}
	o.want(t, "0:[100,110)")
}

func TestSequencerDuplicateInFlightSharesTheFateOfItsOriginal(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 10))
	g.mustSubmit(&o, 1, dataBatch(1, 0, 10, 5))
	g.mustSubmit(&o, 2, dataBatch(1, 0, 0, 10)) // repeats the first
	g.mustSubmit(&o, 3, dataBatch(1, 0, 10, 5)) // repeats the second
	g.save(0, false)
	o.want(t, "0:[100,110)", "2:[100,110) dup of 1000")
	g.seq.end(g.reign)
	o.want(t, "0:[100,110)", "2:[100,110) dup of 1000", "1:dropped", "3:dropped")
}

func TestSequencerLosingTheReignFailsAllAndForgetsTheSpeculation(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	old := g.reign
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 10))
	g.save(0, false)
	g.mustSubmit(&o, 1, dataBatch(1, 0, 10, 10))
	g.begin(3, 1)
	o.want(t, "0:[100,110)", "1:dropped")
	if _, _, err := g.seq.submit(old.ctx, old, submission{data: make([]byte, 61), batch: dataBatch(1, 0, 10, 10), waiter: &o}); !errors.Is(err, errNotLeader) {
		t.Fatalf("submission in an old reign: %v", err)
	}
	g.mustSubmit(&o, 2, dataBatch(1, 0, 10, 10)) // not a duplicate: the first one was never saved
	if h := g.proposed[0]; h.Ordinal != 1 || h.Term != 3 || h.LeaderEpoch != 1 {
		t.Errorf("first proposal of the new reign: %+v", h)
	}
	g.seq.end(old) // late: must not end the new reign
	g.save(0, false)
	o.want(t, "0:[100,110)", "1:dropped", "2:[110,120)")
}

func TestSequencerSavesOfOtherTermsSettleNothing(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(5, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(-1, 0, -1, 1))
	g.seq.onSaved([]engine.SavedEntry{
		{Index: 1, Term: 4, HeaderTerm: 4, Ordinal: 1, Kind: engine.KindData, Base: 0, Next: 1},
		{Index: 2, Term: 5, HeaderTerm: 4, Ordinal: 1, Kind: engine.KindVoid, Base: 1, Next: 1},
		{Index: 3, Term: 5, Kind: engine.KindRaft, Base: 1, Next: 1},
	})
	o.want(t)
	g.save(0, false)
	o.want(t, "0:[100,101)")
}

func TestSequencerDroppedHeadFailsAllBehindAndOrdinalsGoOnWhenTheirFateIsKnown(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 1))
	g.save(0, false)
	for i := 1; i <= 3; i++ {
		g.mustSubmit(&o, i, dataBatch(1, 0, int32(i), 1))
	}
	g.seq.poll()
	o.want(t, "0:[100,101)")
	g.tickets[1].dropped = true
	g.seq.poll()
	o.want(t, "0:[100,101)", "1:dropped", "2:dropped", "3:dropped")
	if _, _, err := g.submit(&o, 4, dataBatch(1, 0, 1, 1)); !errors.Is(err, errNotLeader) {
		t.Fatalf("taken while Raft may still append what is doomed: %v", err)
	}
	g.save(2, true) // appended behind the gap
	g.tickets[3].dropped = true
	g.seq.poll()
	g.mustSubmit(&o, 5, dataBatch(1, 0, 1, 1))
	if h := g.proposed[len(g.proposed)-1]; h.Ordinal != 2 {
		t.Errorf("ordinal %d after the gap, want 2", h.Ordinal)
	}
	g.save(len(g.proposed)-1, false)
	o.want(t, "0:[100,101)", "1:dropped", "2:dropped", "3:dropped", "5:[101,102)")
}

func TestSequencerVoidSaveFailsAll(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	for i := range 3 {
		g.mustSubmit(&o, i, dataBatch(-1, 0, -1, 1))
	}
	g.save(1, true) // the first was dropped, nobody has noticed yet
	o.want(t, "0:dropped", "1:dropped", "2:dropped")
	g.tickets[0].dropped, g.tickets[2].dropped = true, true
	g.seq.poll()
	g.mustSubmit(&o, 9, dataBatch(-1, 0, -1, 1))
	if h := g.proposed[3]; h.Ordinal != 1 {
		t.Errorf("ordinal %d, want 1", h.Ordinal)
	}
}

func TestSequencerRefusedProposalIsTakenBack(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 10))
	g.refuse = raftgroup.ErrTooLarge
	if _, _, err := g.submit(&o, 1, dataBatch(1, 0, 10, 10)); !errors.Is(err, raftgroup.ErrTooLarge) {
		t.Fatal(err)
	}
	if _, _, err := g.submit(&o, 1, dataBatch(2, 0, 0, 10)); !errors.Is(err, raftgroup.ErrTooLarge) {
		t.Fatal(err)
	}
	g.refuse = nil
	g.save(0, false)
	g.mustSubmit(&o, 2, dataBatch(1, 0, 10, 10))
	if h := g.proposed[1]; h.Ordinal != 2 {
		t.Errorf("ordinal %d, want 2", h.Ordinal)
	}
	g.save(1, false)
	o.want(t, "0:[100,110)", "2:[110,120)")
	if len(g.seq.speculative) != 0 {
		t.Errorf("speculation left: %v", g.seq.speculative)
	}
}

func TestSequencerWaitForRoomEndsWithTheRequestOrTheReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newFakeGroup(t)
		g.begin(1, 0)
		g.block = true
		var o outcome
		submit := func(timeout time.Duration) error {
			ctx := &deadlineContext{Context: g.reign.ctx, deadline: time.Now().Add(timeout)}
			defer ctx.stop()
			_, _, err := g.seq.submit(ctx, g.reign, submission{data: make([]byte, 61), kind: engine.KindData, batch: dataBatch(-1, 0, -1, 1), waiter: &o})
			return err
		}
		start := time.Now()
		second := make(chan error)
		go func() { second <- submit(3 * time.Second) }()
		if err := submit(time.Second); !errors.Is(err, errProposeTimeout) {
			t.Error(err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("waited %v", d)
		}
		if err := <-second; !errors.Is(err, errProposeTimeout) {
			t.Error(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("the second waited %v", d)
		}
		go func() { second <- submit(time.Hour) }()
		synctest.Wait()
		r := g.reign
		r.cancel()
		g.seq.end(r)
		<-second
		o.want(t, "0:dropped") // heard from the end of the reign, not twice
	})
}

func TestSequencerSecondReignInTheSameTermGoesOnWithTheOrdinals(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(4, 1)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(-1, 0, -1, 1))
	g.save(0, false)
	g.seq.end(g.reign)
	g.begin(4, 2)
	g.mustSubmit(&o, 1, dataBatch(-1, 0, -1, 1))
	if h := g.proposed[0]; h.Ordinal != 2 || h.LeaderEpoch != 2 {
		t.Errorf("%+v", h)
	}
}

func TestSequencerPauseLetsNothingInUntilTheNextReign(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	if err := g.seq.pause(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.submit(&o, 0, dataBatch(-1, 0, -1, 1)); !errors.Is(err, errNotLeader) {
		t.Fatal(err)
	}
	g.begin(2, 1)
	g.mustSubmit(&o, 0, dataBatch(-1, 0, -1, 1))
}

func TestSequencerProducerThatExpiresWhileWritingIsAskedToRetry(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(1, 0)
	var o outcome
	g.mustSubmit(&o, 0, dataBatch(1, 0, 0, 10))
	g.mustSubmit(&o, 1, dataBatch(1, 0, 10, 10))
	g.save(0, false)
	g.state.Expire(1<<60, 1)
	if _, isDup, err := g.submit(&o, 2, dataBatch(1, 0, 0, 10)); isDup || !errors.Is(err, errNotLeader) {
		t.Fatalf("%v %v", isDup, err)
	}
}

func txnBatch(id int64, epoch int16, sequence, count int32) producer.Batch {
	b := dataBatch(id, epoch, sequence, count)
	b.Transactional = true
	return b
}

// submitGuarded submits a transactional batch after its coordinator was asked.
func (g *fakeGroup) submitGuarded(o *outcome, slot int, b producer.Batch, v *verification) error {
	before := len(g.proposed)
	_, _, err := g.seq.submit(g.reign.ctx, g.reign, submission{data: make([]byte, 61), kind: engine.KindData, batch: b, waiter: o, slot: slot, guard: v})
	if len(g.proposed) > before {
		g.batches = append(g.batches, b)
	}
	return err
}

func (g *fakeGroup) submitMarker(o *outcome, slot int, m marker) error {
	before := len(g.proposed)
	sub := m.submission(make([]byte, 61), o, slot)
	_, _, err := g.seq.submit(g.reign.ctx, g.reign, sub)
	if len(g.proposed) > before {
		g.batches = append(g.batches, sub.batch)
	}
	return err
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestSequencerLetsATransactionBeginOnlyVerified(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(7, 3)
	var o outcome
	first := txnBatch(5, 1, 0, 2)
	wantErr(t, "unverified", g.submitGuarded(&o, 0, first, nil), producer.ErrInvalidTxnState)
	v := g.seq.beginVerification(g.reign, first)
	wantErr(t, "verified", g.submitGuarded(&o, 1, first, v), nil)
	g.seq.endVerification(5, v)
	next := txnBatch(5, 1, 2, 2)
	if g.seq.beginVerification(g.reign, next) != nil {
		t.Error("a transaction whose first batch is in flight would be verified again")
	}
	wantErr(t, "goes on", g.submitGuarded(&o, 2, next, nil), nil)
	wantErr(t, "plain batch of the producer", g.submitGuarded(&o, 3, dataBatch(5, 1, 4, 1), nil), producer.ErrInvalidTxnState)
	g.save(0, false)
	g.save(1, false)
	wantErr(t, "marker", g.submitMarker(&o, 4, marker{producerID: 5, producerEpoch: 1, commit: true, coordinatorEpoch: 1}), nil)
	wantErr(t, "behind the marker in flight", g.submitGuarded(&o, 5, txnBatch(5, 1, 4, 1), nil), producer.ErrInvalidTxnState)
	wantErr(t, "old epoch", g.submitGuarded(&o, 6, txnBatch(5, 0, 4, 1), nil), producer.ErrInvalidProducerEpoch)
}

// The transaction ends while its coordinator is asked about a late batch: the batch must not begin another that nobody would end.
func TestSequencerRefusesABatchThatAMarkerHasOvertaken(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(7, 3)
	var o outcome
	late := txnBatch(5, 1, 0, 2)
	v := g.seq.beginVerification(g.reign, late)
	wantErr(t, "marker", g.submitMarker(&o, 0, marker{producerID: 5, producerEpoch: 1, coordinatorEpoch: 1}), nil)
	wantErr(t, "late batch", g.submitGuarded(&o, 1, late, v), producer.ErrInvalidTxnState)
	g.seq.endVerification(5, v)
	again := g.seq.beginVerification(g.reign, late)
	if again == nil || again == v {
		t.Fatalf("the next question has guard %p, the one before had %p", again, v)
	}
	wantErr(t, "asked again", g.submitGuarded(&o, 2, late, again), nil)
	g.seq.endVerification(5, again)
	if len(g.seq.verifying) != 0 {
		t.Errorf("%d verifications are left", len(g.seq.verifying))
	}
}

func TestSequencerWantsTheLowestVerifiedSequenceFirst(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(7, 3)
	var o outcome
	second, first := txnBatch(5, 1, 2, 2), txnBatch(5, 1, 0, 2)
	v := g.seq.beginVerification(g.reign, second)
	if w := g.seq.beginVerification(g.reign, first); w != v {
		t.Error("requests of one producer do not share their verification")
	}
	wantErr(t, "the second before the first", g.submitGuarded(&o, 0, second, v), producer.ErrOutOfOrderSequence)
	g.seq.endVerification(5, v)
	wantErr(t, "the first", g.submitGuarded(&o, 1, first, v), nil)
	g.seq.endVerification(5, v)
	wantErr(t, "the second", g.submitGuarded(&o, 2, second, nil), nil)
}

// A dropped first batch takes its transaction back: the next one is verified anew.
func TestSequencerForgetsATransactionThatWasDropped(t *testing.T) {
	g := newFakeGroup(t)
	g.begin(7, 3)
	var o outcome
	first := txnBatch(5, 1, 0, 2)
	v := g.seq.beginVerification(g.reign, first)
	wantErr(t, "verified", g.submitGuarded(&o, 0, first, v), nil)
	g.seq.endVerification(5, v)
	g.tickets[0].dropped = true
	g.seq.poll()
	o.want(t, "0:dropped")
	if v = g.seq.beginVerification(g.reign, first); v == nil {
		t.Fatal("a dropped transaction counts as open")
	}
	wantErr(t, "again", g.submitGuarded(&o, 1, first, v), nil)
}

// The marker that ends a transaction at version 2 may come after the producer has begun to ask about its next one, whose batches have the
// marker's own epoch or a later one: that question goes on. Older markers, and those of a later epoch than the question's, take it away.
func TestSequencerMarkerLeavesTheNextTransactionsVerification(t *testing.T) {
	for _, tt := range []struct {
		name          string
		asked, marker int16
		version       int16
		want          error
	}{
		{"version 2, the marker's epoch", 2, 2, 2, nil},
		{"version 2, a later epoch", 3, 2, 2, nil},
		{"version 2, the ended transaction", 1, 2, 2, producer.ErrInvalidProducerEpoch},
		{"version 1", 2, 2, 1, producer.ErrInvalidTxnState},
		{"version 0", 2, 2, 0, producer.ErrInvalidTxnState},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newFakeGroup(t)
			g.begin(7, 3)
			var o outcome
			before := txnBatch(5, 1, 0, 2)
			v := g.seq.beginVerification(g.reign, before)
			wantErr(t, "transaction of epoch 1", g.submitGuarded(&o, 0, before, v), nil)
			g.seq.endVerification(5, v)
			next := txnBatch(5, tt.asked, 0, 2)
			w := v
			if tt.asked > 1 {
				w = g.seq.beginVerification(g.reign, next)
			}
			wantErr(t, "marker", g.submitMarker(&o, 1, marker{producerID: 5, producerEpoch: tt.marker, commit: true, coordinatorEpoch: 1, version: tt.version}), nil)
			wantErr(t, "the next transaction's first batch", g.submitGuarded(&o, 2, next, w), tt.want)
			if tt.asked > 1 {
				g.seq.endVerification(5, w)
			}
			if len(g.seq.verifying) != 0 {
				t.Errorf("%d verifications are left", len(g.seq.verifying))
			}
		})
	}
}
