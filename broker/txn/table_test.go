package txn

import (
	"errors"
	"math"
	"testing"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	a0 = Partition{"a", 0}
	a1 = Partition{"a", 1}
	b0 = Partition{"b", 0}
)

const id = "my-id"

// seeded is a host whose log holds one transaction of producer 7.
func seeded(t *testing.T, level int16, state State, epoch, last int16) *host {
	t.Helper()
	h := newHost(t, level)
	tx := Transaction{
		State: state, ProducerID: 7, Epoch: epoch, LastEpoch: last, PreviousProducerID: 7, NextProducerID: -1, TimeoutMs: 60_000,
		StartMs: t0.UnixMilli(), UpdateMs: t0.UnixMilli(),
	}
	if state == Ongoing || state.prepared() {
		tx.Partitions = []Partition{a0, a1}
	}
	if level >= Version2 {
		tx.ClientVersion = Version2
	}
	h.log = []coordinator.Record{encode(id, &tx, max(level, Version1))}
	h.restart()
	return h
}

// Rows are Kafka's table of states and requests; producer 7 has epoch 5 in all of them, and epoch 4 before.
func TestInitProducerID(t *testing.T) {
	nobody, current, before := Producer{-1, -1}, Producer{7, 5}, Producer{7, 4}
	tests := []struct {
		name     string
		state    State
		expected Producer
		want     Producer
		err      *kerr.Error
		then     State
	}{
		{"empty", Empty, nobody, Producer{7, 6}, nil, Empty},
		{"complete commit", CompleteCommit, nobody, Producer{7, 6}, nil, Empty},
		{"complete abort", CompleteAbort, nobody, Producer{7, 6}, nil, Empty},
		{"with the current epoch", Empty, current, Producer{7, 6}, nil, Empty},
		{"repeated", CompleteCommit, before, Producer{7, 5}, nil, Empty},
		{"with an older epoch", Empty, Producer{7, 3}, noProducer, kerr.ProducerFenced, Empty},
		{"with a later epoch", Empty, Producer{7, 6}, noProducer, kerr.ProducerFenced, Empty},
		{"with another producer id", Empty, Producer{8, 5}, noProducer, kerr.ProducerFenced, Empty},
		{"prepared commit", PrepareCommit, nobody, noProducer, kerr.ConcurrentTransactions, PrepareCommit},
		{"prepared abort", PrepareAbort, current, noProducer, kerr.ConcurrentTransactions, PrepareAbort},
		{"prepared, another producer id", PrepareAbort, Producer{8, 5}, noProducer, kerr.ConcurrentTransactions, PrepareAbort},
		{"ongoing", Ongoing, nobody, noProducer, kerr.ConcurrentTransactions, PrepareAbort},
		{"ongoing, its own producer", Ongoing, current, noProducer, kerr.ConcurrentTransactions, PrepareAbort},
		{"ongoing, another producer id", Ongoing, Producer{8, 5}, noProducer, kerr.ProducerFenced, Ongoing},
	}
	for _, tt := range tests {
		for _, level := range []int16{Version0, Version1, Version2} {
			t.Run(tt.name, func(t *testing.T) {
				h := seeded(t, level, tt.state, 5, 4)
				got, err := h.init(id, tt.expected)
				wantErr(t, err, tt.err)
				if got != tt.want || h.state(id) != tt.then {
					t.Errorf("level %d: producer %+v, want %+v; state %v, want %v", level, got, tt.want, h.state(id), tt.then)
				}
			})
		}
	}
}

func wantErr(t *testing.T, err error, want *kerr.Error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestInitProducerIDOfANewID(t *testing.T) {
	h := newHost(t, Version2)
	var err error
	h.do(func(fx *coordinator.Effects) {
		h.m.InitProducerID(InitRequest{ID: id, TimeoutMs: 1, Expected: noProducer, Fresh: NoFresh}, h.now, fx, func(_ Producer, e error) { err = e })
	})
	if !errors.Is(err, ErrNeedProducerID) || h.m.Len() != 0 {
		t.Errorf("without a fresh id: %v, %d ids", err, h.m.Len())
	}
	if p, err := h.init(id, Producer{99, 3}); err != nil || p != (Producer{1001, 0}) {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, bad := range []struct {
		id      string
		timeout int32
		err     *kerr.Error
	}{
		{"", 1, kerr.InvalidRequest},
		{id, 0, kerr.InvalidTransactionTimeout},
		{id, -1, kerr.InvalidTransactionTimeout},
		{id, 900_001, kerr.InvalidTransactionTimeout},
		{id, 900_000, nil},
	} {
		h.do(func(fx *coordinator.Effects) {
			h.m.InitProducerID(InitRequest{ID: bad.id, TimeoutMs: bad.timeout, Expected: noProducer}, h.now, fx, func(_ Producer, e error) { err = e })
		})
		wantErr(t, err, bad.err)
	}
}

func TestInitProducerIDTakesANewProducerIDWhenEpochsAreUsedUp(t *testing.T) {
	for _, epoch := range []int16{epochMax, math.MaxInt16} {
		h := seeded(t, Version2, CompleteAbort, epoch, noEpoch)
		h.fresh = 2000
		p, err := h.init(id, noProducer)
		if err != nil || p != (Producer{2001, 0}) {
			t.Fatalf("epoch %d: %+v, %v", epoch, p, err)
		}
	}
	// The answer was lost: the request is repeated with the epoch that was used up.
	h := seeded(t, Version2, Empty, epochMax, noEpoch)
	first, err := h.init(id, Producer{7, epochMax})
	if err != nil || first.Epoch != 0 || first.ID == 7 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := h.init(id, Producer{7, epochMax})
	if err != nil || again != first {
		t.Errorf("repeated: %+v, %v, want %+v", again, err, first)
	}
	h.restart()
	if again, err = h.init(id, Producer{7, epochMax}); err != nil || again != first {
		t.Errorf("repeated to the next coordinator: %+v, %v, want %+v", again, err, first)
	}
}

func TestFencingRaisesTheEpochOnce(t *testing.T) {
	for _, level := range []int16{Version0, Version1, Version2} {
		h := seeded(t, level, Ongoing, 5, 4)
		_, err := h.init(id, noProducer)
		wantErr(t, err, kerr.ConcurrentTransactions)
		if len(h.sent) != 1 || h.sent[0].Commit || h.sent[0].Producer != (Producer{7, 6}) || h.sent[0].CoordinatorEpoch != int32(h.epoch) {
			t.Fatalf("level %d: markers %+v", level, h.sent)
		}
		if want := min(level, Version2) / Version2 * Version2; h.sent[0].Version != want {
			t.Errorf("level %d: markers of version %d", level, h.sent[0].Version)
		}
		// The fenced one may not add, commit or abort as if nothing had happened.
		wantErr(t, h.add(id, Producer{7, 5}, Version0, b0), kerr.ConcurrentTransactions)
		h.writeAll()
		wantErr(t, h.add(id, Producer{7, 5}, Version0, b0), kerr.ProducerFenced)
		if _, err := h.end(id, Producer{7, 5}, true, Version0); !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("level %d: commit by the fenced one: %v", level, err)
		}
		if p, err := h.init(id, noProducer); err != nil || p != (Producer{7, 7}) {
			t.Errorf("level %d: new owner is %+v, %v", level, p, err)
		}
		if _, err := h.end(id, Producer{7, 5}, false, Version2); !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("level %d: abort by the fenced one: %v", level, err)
		}
	}
}

func TestAddAndVerifyPartitions(t *testing.T) {
	tests := []struct {
		name        string
		state       State
		producer    Producer
		add, verify *kerr.Error
	}{
		{"ongoing", Ongoing, Producer{7, 5}, nil, nil},
		{"empty", Empty, Producer{7, 5}, nil, nil},
		{"complete", CompleteAbort, Producer{7, 5}, nil, nil},
		{"another producer id", Ongoing, Producer{8, 5}, kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping},
		{"older epoch", Ongoing, Producer{7, 4}, kerr.ProducerFenced, kerr.ProducerFenced},
		{"later epoch", Ongoing, Producer{7, 6}, kerr.ProducerFenced, kerr.ProducerFenced},
		{"prepared commit", PrepareCommit, Producer{7, 5}, kerr.ConcurrentTransactions, kerr.ConcurrentTransactions},
		{"prepared abort", PrepareAbort, Producer{7, 5}, kerr.ConcurrentTransactions, kerr.ConcurrentTransactions},
		// The producer was told already what follows, and may begin before the markers are written.
		{"prepared, next epoch", PrepareCommit, Producer{7, 6}, kerr.ConcurrentTransactions, kerr.ProducerFenced},
		{"prepared, next producer id", PrepareCommit, Producer{8, 0}, kerr.ConcurrentTransactions, kerr.InvalidProducerIDMapping},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := seeded(t, Version2, tt.state, 5, 4)
			found, err := h.verify(id, tt.producer, a0, b0)
			wantErr(t, err, tt.verify)
			if err == nil {
				wantErr(t, found[1], kerr.TransactionAbortable)
				if inTxn := found[0] == nil; inTxn != (tt.state == Ongoing) {
					t.Errorf("verify: %v", found)
				}
			}
			wantErr(t, h.add(id, tt.producer, Version2, b0, a0, b0), tt.add)
			if tt.add != nil {
				return
			}
			got, _ := h.m.Get(id)
			if got.State != Ongoing || !got.contains([]Partition{a0, b0}) || got.contains([]Partition{{"c", 0}}) {
				t.Errorf("now %+v", got)
			}
			records := len(h.log)
			if err := h.add(id, tt.producer, Version2, a0); err != nil || len(h.log) != records {
				t.Errorf("adding once more: %v, %d records more", err, len(h.log)-records)
			}
		})
	}
	h := newHost(t, Version2)
	wantErr(t, h.add("unknown", Producer{7, 5}, Version2, a0), kerr.InvalidProducerIDMapping)
	wantErr(t, h.add("", Producer{7, 5}, Version2, a0), kerr.InvalidRequest)
	_, err := h.verify("unknown", Producer{7, 5}, a0)
	wantErr(t, err, kerr.InvalidProducerIDMapping)
}

// EndTxn by its rows: producer 7 has epoch 5.
func TestEndTxn(t *testing.T) {
	const none, same = -1, 0
	tests := []struct {
		name    string
		state   State
		epoch   int16
		version int16
		commit  bool
		err     *kerr.Error
		then    State
		// next is the epoch that is answered.
		next int16
	}{
		{"0: ongoing, commit", Ongoing, 5, 0, true, nil, PrepareCommit, 5},
		{"0: ongoing, abort", Ongoing, 5, 0, false, nil, PrepareAbort, 5},
		{"0: older epoch", Ongoing, 4, 0, true, kerr.ProducerFenced, Ongoing, none},
		{"0: later epoch", Ongoing, 6, 0, true, kerr.ProducerFenced, Ongoing, none},
		{"0: committed, commit", CompleteCommit, 5, 0, true, nil, CompleteCommit, 5},
		{"0: committed, abort", CompleteCommit, 5, 0, false, kerr.InvalidTxnState, CompleteCommit, none},
		{"0: aborted, abort", CompleteAbort, 5, 0, false, nil, CompleteAbort, 5},
		{"0: aborted, commit", CompleteAbort, 5, 0, true, kerr.InvalidTxnState, CompleteAbort, none},
		{"0: empty, commit", Empty, 5, 0, true, kerr.InvalidTxnState, Empty, none},
		{"0: empty, abort", Empty, 5, 0, false, kerr.InvalidTxnState, Empty, none},
		{"0: prepared commit, commit", PrepareCommit, 5, 0, true, kerr.ConcurrentTransactions, PrepareCommit, none},
		{"0: prepared abort, abort", PrepareAbort, 5, 0, false, kerr.ConcurrentTransactions, PrepareAbort, none},

		{"2: ongoing, commit", Ongoing, 5, 2, true, nil, PrepareCommit, 6},
		{"2: ongoing, abort", Ongoing, 5, 2, false, nil, PrepareAbort, 6},
		{"2: older epoch", Ongoing, 4, 2, true, kerr.ProducerFenced, Ongoing, none},
		{"2: later epoch", Ongoing, 6, 2, true, kerr.ProducerFenced, Ongoing, none},
		{"2: committed, commit repeated", CompleteCommit, 4, 2, true, nil, CompleteCommit, 5},
		{"2: committed, commit", CompleteCommit, 5, 2, true, kerr.InvalidTxnState, CompleteCommit, none},
		{"2: committed, abort repeated", CompleteCommit, 4, 2, false, kerr.InvalidTxnState, CompleteCommit, none},
		{"2: committed, abort", CompleteCommit, 5, 2, false, nil, CompleteAbort, 6},
		{"2: aborted, abort repeated", CompleteAbort, 4, 2, false, nil, CompleteAbort, 5},
		{"2: aborted, abort", CompleteAbort, 5, 2, false, nil, CompleteAbort, 6},
		{"2: aborted, commit repeated", CompleteAbort, 4, 2, true, kerr.InvalidTxnState, CompleteAbort, none},
		{"2: aborted, commit", CompleteAbort, 5, 2, true, kerr.InvalidTxnState, CompleteAbort, none},
		{"2: aborted, fenced", CompleteAbort, 3, 2, false, kerr.ProducerFenced, CompleteAbort, none},
		{"2: empty, abort", Empty, 5, 2, false, nil, CompleteAbort, 6},
		{"2: empty, abort repeated", Empty, 4, 2, false, kerr.ProducerFenced, Empty, none},
		{"2: empty, commit repeated", Empty, 4, 2, true, kerr.ProducerFenced, Empty, none},
		{"2: empty, commit", Empty, 5, 2, true, kerr.InvalidTxnState, Empty, none},
		{"2: prepared commit, commit", PrepareCommit, 4, 2, true, kerr.ConcurrentTransactions, PrepareCommit, none},
		{"2: prepared abort, commit", PrepareAbort, 4, 2, true, kerr.ConcurrentTransactions, PrepareAbort, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := seeded(t, Version2, tt.state, 5, 4)
			h.sent = nil
			got, err := h.end(id, Producer{7, tt.epoch}, tt.commit, tt.version)
			wantErr(t, err, tt.err)
			if h.state(id) != tt.then || got.Epoch != tt.next || err == nil && got.ID != 7 {
				t.Errorf("state %v, want %v; answer %+v, want epoch %d", h.state(id), tt.then, got, tt.next)
			}
			wantSent := same
			if tt.err == nil && tt.state == Ongoing {
				wantSent = 1
			}
			if len(h.sent) != wantSent {
				t.Errorf("markers sent: %+v", h.sent)
			}
		})
	}
}

func TestEndTxnOfSomebodyElse(t *testing.T) {
	for _, version := range []int16{0, 2} {
		h := seeded(t, Version2, Ongoing, 5, 4)
		_, err := h.end(id, Producer{8, 5}, true, version)
		wantErr(t, err, kerr.InvalidProducerIDMapping)
		_, err = h.end("unknown", Producer{8, 5}, true, version)
		wantErr(t, err, kerr.InvalidProducerIDMapping)
		_, err = h.end("", Producer{8, 5}, true, version)
		wantErr(t, err, kerr.InvalidRequest)
	}
}

func TestEndTxnTakesANewProducerIDWhenEpochsAreUsedUp(t *testing.T) {
	h := seeded(t, Version2, Ongoing, epochMax, noEpoch)
	h.do(func(fx *coordinator.Effects) {
		h.m.EndTxn(EndRequest{ID: id, Producer: Producer{7, epochMax}, Commit: true, ClientVersion: Version2, Fresh: NoFresh}, h.now, fx,
			func(_ Producer, err error) {
				if !errors.Is(err, ErrNeedProducerID) {
					t.Errorf("without a fresh id: %v", err)
				}
			})
	})
	next, err := h.end(id, Producer{7, epochMax}, true, Version2)
	if err != nil || next.Epoch != 0 || next.ID == 7 {
		t.Fatalf("%+v, %v", next, err)
	}
	if got := h.sent[0].Producer; got != (Producer{7, math.MaxInt16}) {
		t.Errorf("the markers are of %+v", got)
	}
	wantErr(t, h.add(id, next, Version2, a0), kerr.ConcurrentTransactions)
	h.writeAll()
	if again, err := h.end(id, Producer{7, epochMax}, true, Version2); err != nil || again != next {
		t.Errorf("repeated: %+v, %v, want %+v", again, err, next)
	}
	h.restart()
	if again, err := h.end(id, Producer{7, epochMax}, true, Version2); err != nil || again != next {
		t.Errorf("repeated to the next coordinator: %+v, %v, want %+v", again, err, next)
	}
	wantErr(t, h.add(id, next, Version2, a0), nil)
}

// A transaction that cannot be fenced by a higher epoch can be aborted all the same.
func TestFencingAtTheLastEpoch(t *testing.T) {
	for _, level := range []int16{Version0, Version2} {
		h := seeded(t, level, Ongoing, math.MaxInt16, noEpoch)
		_, err := h.init(id, noProducer)
		wantErr(t, err, kerr.ConcurrentTransactions)
		h.writeAll()
		if p, err := h.init(id, noProducer); err != nil || p.ID == 7 || p.Epoch != 0 {
			t.Errorf("level %d: %+v, %v", level, p, err)
		}
	}
}
