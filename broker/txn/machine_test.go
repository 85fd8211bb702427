package txn

import (
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/clock"

	"github.com/twmb/franz-go/pkg/kerr"
)

func mustInit(t *testing.T, h *host, id string) Producer {
	t.Helper()
	p, err := h.init(id, noProducer)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestATransactionFromBeginToEnd(t *testing.T) {
	h := newHost(t, Version2)
	p := mustInit(t, h, id)
	wantErr(t, h.add(id, p, Version2, a0), nil)
	h.now = h.now.Add(time.Second)
	wantErr(t, h.add(id, p, Version2, b0, a1), nil)
	next, err := h.end(id, p, true, Version2)
	if err != nil || next != (Producer{p.ID, p.Epoch + 1}) {
		t.Fatalf("%+v, %v", next, err)
	}
	want := Markers{ID: id, Producer: next, Commit: true, CoordinatorEpoch: 1, Version: Version2, Partitions: []Partition{a0, a1, b0}}
	if len(h.sent) != 1 || !equalMarkers(h.sent[0], want) {
		t.Fatalf("markers %+v, want %+v", h.sent, want)
	}
	wantErr(t, h.written(want, a1), nil)
	h.do(func(fx *coordinator.Effects) {
		h.m.Describe(id, fx, func(d Description, err error) {
			if err != nil || d.State != PrepareCommit || !slices.Equal(d.Partitions, []Partition{a0, b0}) || d.StartMs != t0.UnixMilli() {
				t.Errorf("described as %+v, %v", d, err)
			}
		})
	})
	wantErr(t, h.written(want, a0, a1), nil)
	if h.state(id) != PrepareCommit {
		t.Fatal("complete before the last marker")
	}
	wantErr(t, h.written(want, b0), nil)
	if h.state(id) != CompleteCommit {
		t.Fatalf("state %v", h.state(id))
	}
	wantErr(t, h.written(want, b0), kerr.InvalidTxnState)
	wantErr(t, h.add(id, next, Version2, a0), nil)
}

func equalMarkers(a, b Markers) bool {
	return a.ID == b.ID && a.Producer == b.Producer && a.Commit == b.Commit && a.CoordinatorEpoch == b.CoordinatorEpoch &&
		a.Version == b.Version && slices.Equal(a.Partitions, b.Partitions)
}

func TestMarkersAreSentOnceTheOutcomeIsCommitted(t *testing.T) {
	h := seeded(t, Version2, Ongoing, 5, 4)
	h.holding = true
	_, err := h.end(id, Producer{7, 5}, true, Version2)
	if err == nil || len(h.sent) != 0 {
		t.Fatalf("answered %v, sent %+v, and nothing is committed", err, h.sent)
	}
	h.commit(nil)
	if len(h.sent) != 1 {
		t.Fatalf("sent %+v", h.sent)
	}
	h = seeded(t, Version2, Ongoing, 5, 4)
	h.holding = true
	_, _ = h.end(id, Producer{7, 5}, true, Version2) // answered below
	h.commit(coordinator.ErrNotCoordinator)
	if len(h.sent) != 0 {
		t.Errorf("sent %+v by one that coordinates no more", h.sent)
	}
}

func TestErrorsWaitForWhatTheyWereDecidedFrom(t *testing.T) {
	h := seeded(t, Version2, Empty, 5, noEpoch)
	h.holding = true
	var answers []error
	for range 2 {
		h.do(func(fx *coordinator.Effects) {
			h.m.InitProducerID(InitRequest{ID: id, TimeoutMs: 1, Expected: Producer{7, 5}}, h.now, fx, func(_ Producer, err error) { answers = append(answers, err) })
		})
	}
	h.do(func(fx *coordinator.Effects) {
		h.m.AddPartitions(AddRequest{ID: id, Producer: Producer{7, 5}}, h.now, fx, func(err error) { answers = append(answers, err) })
	})
	if len(answers) != 0 {
		t.Fatalf("answered %v too early", answers)
	}
	h.commit(coordinator.ErrNotCoordinator)
	for _, err := range answers {
		if !errors.Is(err, coordinator.ErrNotCoordinator) {
			t.Errorf("answer %v", err)
		}
	}
	if len(answers) != 3 {
		t.Errorf("%d answers", len(answers))
	}
}

func TestTheNextCoordinatorSendsAllMarkersAgain(t *testing.T) {
	h := seeded(t, Version2, Ongoing, 5, 4)
	if _, err := h.end(id, Producer{7, 5}, false, Version2); err != nil {
		t.Fatal(err)
	}
	former := h.sent[0]
	wantErr(t, h.written(former, a0), nil)
	h.restart()
	if len(h.sent) != 1 || h.sent[0].CoordinatorEpoch != former.CoordinatorEpoch+1 || len(h.sent[0].Partitions) != 2 {
		t.Fatalf("sent %+v", h.sent)
	}
	wantErr(t, h.written(former, a0, a1), kerr.InvalidTxnState)
	h.writeAll()
	if h.state(id) != CompleteAbort {
		t.Errorf("state %v", h.state(id))
	}
}

func TestACoordinatorThatIsElectedAgainSendsAllMarkersAgain(t *testing.T) {
	h := seeded(t, Version2, Ongoing, 5, 4)
	if _, err := h.end(id, Producer{7, 5}, false, Version2); err != nil {
		t.Fatal(err)
	}
	wantErr(t, h.written(h.sent[0], a0), nil)
	h.m.Resigned()
	if next := h.expire(); !next.IsZero() || h.resigns != 1 {
		t.Errorf("a machine that leads no more wants to be called at %v; told %d times", next, h.resigns)
	}
	h.epoch, h.sent = h.epoch+1, nil
	h.do(func(fx *coordinator.Effects) { h.m.Elected(h.now, fx) })
	if len(h.sent) != 1 || len(h.sent[0].Partitions) != 2 {
		t.Fatalf("sent %+v", h.sent)
	}
	wantErr(t, h.written(h.sent[0], a1), nil)
	if h.state(id) != PrepareAbort {
		t.Errorf("state %v", h.state(id))
	}
}

func TestTimeouts(t *testing.T) {
	for _, level := range []int16{Version0, Version1, Version2} {
		h := newHost(t, level)
		p, q := mustInit(t, h, "p"), mustInit(t, h, "q")
		wantErr(t, h.add("p", p, level, a0), nil)
		h.now = h.now.Add(30 * time.Second)
		wantErr(t, h.add("q", q, level, a1), nil)
		wantErr(t, h.add("p", p, level, b0), nil) // does not begin it anew
		h.now = t0.Add(time.Minute)
		if next := h.expire(); next.Sub(h.now) != 10*time.Second || h.state("p") != Ongoing {
			t.Fatalf("level %d: next %v, state %v at its timeout", level, next, h.state("p"))
		}
		h.now = h.now.Add(9999 * time.Millisecond)
		h.expire()
		if h.state("p") != Ongoing {
			t.Fatalf("level %d: looked at before the interval was over", level)
		}
		h.now = h.now.Add(time.Millisecond)
		h.expire()
		if h.state("p") != PrepareAbort || h.state("q") != Ongoing || len(h.sent) != 1 || h.sent[0].Producer != (Producer{p.ID, 1}) {
			t.Fatalf("level %d: p %v, q %v, sent %+v", level, h.state("p"), h.state("q"), h.sent)
		}
		h.writeAll()
		_, err := h.end("p", p, true, Version0)
		wantErr(t, err, kerr.ProducerFenced)
		// With Version2 the producer may go on: its abort is a repeated one.
		next, err := h.end("p", p, false, Version2)
		if level == Version2 {
			wantErr(t, err, nil)
			if next != (Producer{p.ID, 1}) {
				t.Errorf("goes on as %+v", next)
			}
		}
		h.now = t0.Add(90*time.Second + time.Millisecond)
		h.expire()
		if h.state("q") != PrepareAbort {
			t.Errorf("level %d: q %v", level, h.state("q"))
		}
	}
}

// TestTimeoutsBearAClockThatIsSet: a transaction has its timeout, no less and no more, though somebody sets the wall clock meanwhile.
func TestTimeoutsBearAClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		h := newHost(t, Version2)
		h.now = time.Now()
		wantErr(t, h.add("p", mustInit(t, h, "p"), Version2, a0), nil)
		h.expire()
		h.now = clock.Set(h.now.Add(50*time.Second), by)
		h.expire()
		if h.state("p") != Ongoing {
			t.Errorf("set by %v: state %v before the timeout", by, h.state("p"))
		}
		h.now = h.now.Add(11 * time.Second)
		h.expire()
		if h.state("p") != PrepareAbort {
			t.Errorf("set by %v: state %v after the timeout", by, h.state("p"))
		}
	}
}

func TestManyTimeoutsAtOnceAreSeveralBatches(t *testing.T) {
	h := newHost(t, Version2)
	parts := make([]Partition, 200)
	for i := range parts {
		parts[i] = Partition{"a-topic-with-a-name-of-some-length", int32(i)}
	}
	for i := range 100 {
		name := string(rune('a'+i/26)) + string(rune('a'+i%26))
		wantErr(t, h.add(name, mustInit(t, h, name), Version2, parts...), nil)
	}
	h.now = h.now.Add(time.Hour - time.Minute)
	for calls := 1; ; calls++ {
		size := 0
		fx := h.do(func(fx *coordinator.Effects) { h.m.Expire(h.now, fx) })
		for _, b := range fx.Batches() {
			for _, r := range b.Records {
				size += len(r.Key) + len(r.Value)
			}
		}
		if size > expiryBytesMax {
			t.Fatalf("a batch of %d bytes", size)
		}
		if len(h.m.open) == 0 {
			if calls < 3 {
				t.Errorf("all in %d batches", calls)
			}
			break
		}
		if size == 0 {
			t.Fatalf("%d are left open", len(h.m.open))
		}
	}
	ended := map[string]bool{}
	for _, ms := range h.sent {
		ended[ms.ID] = true
	}
	if len(ended) != 100 {
		t.Errorf("the markers of %d were sent", len(ended))
	}
}

func TestMarkersThatAreNotWrittenAreSentAgain(t *testing.T) {
	h := seeded(t, Version2, Ongoing, 5, 4)
	h.holding = true
	_, _ = h.end(id, Producer{7, 5}, true, Version2) // answered by commit
	h.commit(coordinator.ErrTimeout)                 // and yet it is in the log
	h.holding = false
	if len(h.sent) != 0 {
		t.Fatalf("sent %+v", h.sent)
	}
	h.now = h.now.Add(DefaultAbortInterval)
	h.expire()
	if len(h.sent) != 1 || !slices.Equal(h.sent[0].Partitions, []Partition{a0, a1}) {
		t.Fatalf("sent %+v", h.sent)
	}
	wantErr(t, h.written(h.sent[0], a1), nil)
	h.now = h.now.Add(DefaultAbortInterval)
	h.expire()
	if len(h.sent) != 2 || !slices.Equal(h.sent[1].Partitions, []Partition{a0}) {
		t.Fatalf("sent %+v", h.sent)
	}
}

func TestACompletionThatWasRefusedIsTriedAgain(t *testing.T) {
	h := seeded(t, Version2, PrepareCommit, 5, 4)
	ms := h.sent[0]
	h.m.MarkersWritten(ms, ms.Partitions, h.now, coordinator.NewEffects(h.epoch), func(error) {}) // and nothing is replayed
	if h.state(id) != PrepareCommit {
		t.Fatal("complete without its record")
	}
	h.now = h.now.Add(DefaultAbortInterval)
	h.expire()
	if h.state(id) != CompleteCommit {
		t.Errorf("state %v", h.state(id))
	}
}

func TestIdleIDsAreForgotten(t *testing.T) {
	h := newHost(t, Version1)
	mustInit(t, h, "idle")
	p := mustInit(t, h, "open")
	wantErr(t, h.add("open", p, Version0, a0), nil)
	h.now = h.now.Add(DefaultExpiration - time.Millisecond)
	h.m.expireAt, h.m.abortAt = h.now, h.now.Add(time.Hour)
	h.expire()
	if h.m.Len() != 2 {
		t.Fatalf("%d ids", h.m.Len())
	}
	h.now = h.now.Add(time.Millisecond)
	h.m.expireAt = h.now
	if next := h.expire(); next.Sub(h.now) < 59*time.Minute {
		t.Errorf("next %v", next.Sub(h.now))
	}
	if h.m.Len() != 1 || h.state("open") != Ongoing {
		t.Fatalf("%d ids, open is %v", h.m.Len(), h.state("open"))
	}
	last := h.log[len(h.log)-1]
	if name, err := decodeKey(last.Key); err != nil || name != "idle" || last.Value != nil {
		t.Errorf("last record %+v", last)
	}
	h.restart()
	if h.m.Len() != 1 {
		t.Errorf("%d ids after a restart", h.m.Len())
	}
}

func TestIdleIDsAreForgottenInSeveralBatches(t *testing.T) {
	h := newHost(t, Version1)
	for i := range 3000 {
		mustInit(t, h, regexp.QuoteMeta(string(rune(0x100+i))))
	}
	h.now = h.now.Add(DefaultExpiration)
	h.m.expireAt, h.m.abortAt = h.now, h.now.Add(time.Hour)
	calls := 0
	for ; h.m.Len() > 0 && calls < 100; calls++ {
		h.expire()
	}
	if calls < 2 || h.m.Len() != 0 {
		t.Errorf("%d calls, %d ids left", calls, h.m.Len())
	}
	if next := h.expire(); next.Sub(h.now) < time.Minute {
		t.Errorf("next %v", next.Sub(h.now))
	}
}

func TestList(t *testing.T) {
	h := newHost(t, Version2)
	p := mustInit(t, h, "app-1")
	q := mustInit(t, h, "app-2")
	mustInit(t, h, "other")
	wantErr(t, h.add("app-1", p, Version2, a0), nil)
	h.now = h.now.Add(5 * time.Second)
	wantErr(t, h.add("app-2", q, Version2, a0), nil)
	pattern := func(s string) *regexp.Regexp {
		re, err := CompilePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		return re
	}
	tests := []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"all", Filter{OpenMs: -1}, []string{"app-1", "app-2", "other"}},
		{"by state", Filter{OpenMs: -1, States: map[State]struct{}{Ongoing: {}}}, []string{"app-1", "app-2"}},
		{"by producer id", Filter{OpenMs: -1, ProducerIDs: map[int64]struct{}{q.ID: {}, 4711: {}}}, []string{"app-2"}},
		{"no producer id", Filter{OpenMs: -1, ProducerIDs: map[int64]struct{}{}}, nil},
		{"by duration", Filter{OpenMs: 5000}, []string{"app-1", "other"}},
		{"by longer duration", Filter{OpenMs: 5001}, []string{"other"}},
		{"by pattern", Filter{OpenMs: -1, Pattern: pattern("app-.")}, []string{"app-1", "app-2"}},
		{"by a pattern of a part", Filter{OpenMs: -1, Pattern: pattern("app|other")}, []string{"other"}},
		{"by an empty pattern", Filter{OpenMs: -1, Pattern: pattern("")}, []string{"app-1", "app-2", "other"}},
	}
	for _, tt := range tests {
		h.do(func(fx *coordinator.Effects) {
			h.m.List(tt.filter, h.now, fx, func(list []Listing, err error) {
				var names []string
				for _, l := range list {
					names = append(names, l.ID)
				}
				if err != nil || !slices.Equal(names, tt.want) {
					t.Errorf("%s: %v, %v, want %v", tt.name, names, err, tt.want)
				}
			})
		})
	}
	if _, err := CompilePattern("("); err == nil {
		t.Error("a bad pattern is taken")
	}
}

func TestDescribeUnknown(t *testing.T) {
	h := newHost(t, Version2)
	for name, want := range map[string]*kerr.Error{"": kerr.InvalidRequest, "x": kerr.TransactionalIDNotFound} {
		h.do(func(fx *coordinator.Effects) {
			h.m.Describe(name, fx, func(_ Description, err error) { wantErr(t, err, want) })
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	err := Config{MaxTimeout: -1}.Validate()
	for _, want := range []string{"level", "markers", "longest timeout"} {
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
