package coordinator_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/coordinator/coordtest"
	"cairn/wire/batch"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type host = coordtest.Host[*store]

// inBubble runs a test on a fake clock, over one partition.
func inBubble(t *testing.T, test func(t *testing.T, h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := coordtest.NewHost(t, 1, newStore)
		defer h.Close()
		test(t, h)
	})
}

// start runs an operation without waiting. The answer comes to the channel, which is called done in tests.
func start(h *host, run op) chan error {
	done := make(chan error, 2)
	h.Do("k", func(m *store, now time.Time, fx fxs) {
		run(m, now, fx)
		fx.Then(func(err error) { done <- err })
	}, func(err error) { done <- err })
	return done
}

func answered(t *testing.T, done chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Fatalf("answer %v, want %v", err, want)
		}
	default:
		t.Fatal("no answer")
	}
	if len(done) > 0 {
		t.Fatalf("a second answer: %v", <-done)
	}
}

func waits(t *testing.T, done chan error) {
	t.Helper()
	synctest.Wait()
	if len(done) > 0 {
		t.Fatalf("answered too early: %v", <-done)
	}
}

// value reads a key through the leader.
func value(t *testing.T, h *host, key string) string {
	t.Helper()
	var got string
	if err := h.Run("k", func(m *store, _ time.Time, fx fxs) { got = m.values[key] }); err != nil {
		t.Fatal(err)
	}
	return got
}

// batchesOf are the batches of a replica.
func batchesOf(r *coordtest.Replica) (list [][]byte) {
	all, _, _ := r.Read(0, r.End(), 1<<30)
	for len(all) > 0 {
		_, raw, rest, err := batch.Split(all)
		if err != nil {
			panic(err)
		}
		list, all = append(list, raw), rest
	}
	return list
}

// copyLog appends what one replica holds to another, as the given leader would.
func copyLog(from, to *coordtest.Replica, leader *coordtest.Reign) {
	for _, b := range batchesOf(from) {
		to.Put(leader.Epoch(), b)
	}
}

func TestOperationsReachOnlyALoadedLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		answered(t, start(h, put("a", "1")), coordinator.ErrNotCoordinator)
		h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("a", "1")), nil)
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q", got)
		}
		h.Resign(0)
		synctest.Wait()
		answered(t, start(h, put("a", "2")), coordinator.ErrNotCoordinator)
		none := coordtest.NewHost(t, 0, newStore)
		defer none.Close()
		answered(t, start(none, put("a", "1")), coordinator.ErrNotCoordinator)
	})
}

func TestLeaderLoadsUntilItsHighWatermarkIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{Hold: true})
		done := start(h, put("a", "1"))
		waits(t, done)
		h.Resign(0)
		answered(t, done, coordinator.ErrNotCoordinator)
		h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("b", "1")), coordinator.ErrLoading)
		h.Replica(0).CommitAll()
		synctest.Wait()
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q: what another reign appended is part of the state", got)
		}
	})
}

func TestReadsWaitForWhatWasAppendedBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{Hold: true})
		write := start(h, put("a", "1"))
		read := start(h, func(m *store, _ time.Time, _ fxs) {
			if m.values["a"] != "1" {
				t.Error("the operation before was not replayed")
			}
		})
		waits(t, write)
		waits(t, read)
		h.Replica(0).CommitAll()
		answered(t, write, nil)
		answered(t, read, nil)
	})
}

func TestCommitTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{Hold: true})
		done := start(h, put("a", "1"))
		time.Sleep(4999 * time.Millisecond)
		waits(t, done)
		time.Sleep(2 * time.Millisecond)
		answered(t, done, coordinator.ErrTimeout)
		h.Replica(0).CommitAll()
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q", got)
		}
	})
}

func TestTooLargeIsRefusedAndUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{MaxBatch: 1000})
		answered(t, start(h, put("small", strings.Repeat("x", 800))), nil)
		undone := false
		done := start(h, func(m *store, _ time.Time, fx fxs) {
			fx.Append(rec("half", "1"))
			fx.Append(rec("a", strings.Repeat("x", 1000)))
			fx.Refused(func(err error, fx *coordinator.Effects) {
				undone = errors.Is(err, coordinator.ErrTooLarge)
				fx.Append(rec("undone", "1"))
			})
		})
		answered(t, done, coordinator.ErrTooLarge)
		if !undone || value(t, h, "a") != "" || value(t, h, "half") != "" || value(t, h, "undone") != "1" {
			t.Fatal("a refused operation left something, or was not undone")
		}
	})
}

func TestTooFewReplicasRefuseRecordsButNotReads(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{CheckErr: coordinator.ErrUnavailable})
		answered(t, start(h, put("a", "1")), coordinator.ErrUnavailable)
		answered(t, start(h, func(*store, time.Time, fxs) {}), nil)
		r.Set(coordtest.Knobs{CheckErr: coordinator.ErrNotCoordinator})
		answered(t, start(h, func(*store, time.Time, fxs) {}), coordinator.ErrNotCoordinator)
		r.Set(coordtest.Knobs{})
		if value(t, h, "a") != "" {
			t.Fatal("a refused record was applied")
		}
	})
}

func TestBusyPartitionDelaysAndThenRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{AppendErr: coordinator.ErrBusy})
		first := start(h, put("a", "1"))
		waits(t, first)
		second := start(h, put("b", "1"))
		time.Sleep(100 * time.Millisecond)
		waits(t, second)
		r.Set(coordtest.Knobs{})
		time.Sleep(100 * time.Millisecond)
		answered(t, first, nil)
		answered(t, second, nil)

		r.Set(coordtest.Knobs{AppendErr: coordinator.ErrBusy})
		first = start(h, put("a", "2"))
		synctest.Wait()
		second = start(h, put("b", "2"))
		time.Sleep(6 * time.Second)
		answered(t, first, coordinator.ErrTimeout)
		answered(t, second, coordinator.ErrUnavailable)
		r.Set(coordtest.Knobs{})
		time.Sleep(100 * time.Millisecond)
		if value(t, h, "a") != "2" || value(t, h, "b") != "1" {
			t.Fatal("a timed out operation is appended all the same, a refused one is not")
		}
	})
}

// busyReign has no room for anything, and counts how often that is found out: each time costs a wait.
type busyReign struct {
	*coordtest.Reign
	asked atomic.Int32
}

func (g *busyReign) AppendMarker(coordinator.Marker, coordinator.Outcome) error {
	g.asked.Add(1)
	return coordinator.ErrBusy
}

func TestBusyPartitionIsAskedOnceATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := &busyReign{Reign: h.Replica(0).Lead(1)}
		h.Began(0, r)
		synctest.Wait()
		entered, goOn := make(chan struct{}), make(chan struct{})
		h.Do("k", func(*store, time.Time, fxs) { close(entered); <-goOn }, func(err error) { t.Error(err) })
		<-entered
		const n = 100
		done := make(chan error, n)
		for range n {
			h.WriteMarker(0, coordinator.Marker{ProducerID: 7}, func(err error) { done <- err })
		}
		close(goOn)
		synctest.Wait()
		if len(done) != n || r.asked.Load() != 1 {
			t.Fatalf("%d of %d markers are answered, the partition was asked %d times", len(done), n, r.asked.Load())
		}
		for range n {
			if err := <-done; !errors.Is(err, coordinator.ErrUnavailable) {
				t.Fatalf("answer %v", err)
			}
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{AppendErr: coordinator.ErrBusy})
		var loading, other atomic.Int32
		note := func(err error) {
			if errors.Is(err, coordinator.ErrLoading) {
				loading.Add(1)
			} else {
				other.Add(1)
			}
		}
		start(h, put("a", "1"))
		synctest.Wait()
		for range 5000 {
			h.Do("k", func(_ *store, _ time.Time, fx fxs) { fx.Then(note) }, note)
		}
		synctest.Wait()
		if loading.Load() != 5000-4096 || other.Load() != 0 {
			t.Fatalf("%d of 5000 refused with the queue full, %d answered", loading.Load(), other.Load())
		}
		h.Resign(0)
		synctest.Wait()
		if other.Load() != 4096 {
			t.Fatalf("%d of what waited answered", other.Load())
		}
	})
}

func TestTimersRunWhenTheyAreDue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.Elect(0)
		synctest.Wait()
		done := make(chan error, 2)
		h.Do("k", func(m *store, now time.Time, fx fxs) {
			m.waiting, m.wake = append(m.waiting, func(err error) { done <- err }), now.Add(time.Minute)
		}, func(err error) { t.Error(err) })
		time.Sleep(59 * time.Second)
		waits(t, done)
		time.Sleep(time.Second)
		answered(t, done, nil)
		if value(t, h, "expired") != "yes" {
			t.Fatal("what the timer appended was not applied")
		}
		h.Do("k", func(m *store, now time.Time, fx fxs) {
			m.waiting, m.wake = append(m.waiting, func(err error) { done <- err }), now.Add(time.Minute)
		}, func(err error) { t.Error(err) })
		waits(t, done)
		h.Resign(0)
		answered(t, done, coordinator.ErrNotCoordinator)
	})
}

func TestTransactionsEndByMarkers(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.Elect(0)
		synctest.Wait()
		txn := func(id int64, k string) op {
			return func(_ *store, _ time.Time, fx fxs) { fx.AppendTxn(id, 3, rec(k, "1")) }
		}
		answered(t, start(h, txn(7, "committed")), nil)
		answered(t, start(h, txn(8, "aborted")), nil)
		if value(t, h, "committed") != "" {
			t.Fatal("visible before its marker")
		}
		for id, commit := range map[int64]bool{7: true, 8: false} {
			done := make(chan error, 2)
			h.WriteMarker(0, coordinator.Marker{ProducerID: id, ProducerEpoch: 3, Commit: commit}, func(err error) { done <- err })
			answered(t, done, nil)
		}
		check := func(h *host) {
			t.Helper()
			if value(t, h, "committed") != "1" || value(t, h, "aborted") != "" {
				t.Fatal("markers not applied")
			}
		}
		check(h)
		other := coordtest.NewHostOver(t, []*coordtest.Replica{h.Replica(0).Clone()}, newStore)
		defer other.Close()
		other.Elect(0)
		synctest.Wait()
		check(other)

		refused := errors.New("producer fenced")
		h.Reign(0).Set(coordtest.Knobs{AppendErr: refused})
		answered(t, start(h, txn(9, "x")), refused)
		h.Reign(0).Set(coordtest.Knobs{})
		check(h)
		if st := h.Stats()[0]; st.Rebuilds != 0 {
			t.Fatalf("a refused producer cost a rebuild: %+v", st)
		}
	})
}

func TestFollowerKeepsUpAndTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Replica(0)
		other := coordtest.NewHost(t, 1, newStore)
		defer other.Close()
		leader := other.Elect(0)
		synctest.Wait()
		for i := range 100 {
			answered(t, start(other, put(fmt.Sprint("k", i%10), fmt.Sprint(i))), nil)
		}
		copyLog(other.Replica(0), r, leader)
		r.CommitAll()
		synctest.Wait()
		if st := h.Stats()[0]; st.Applied != 100 || st.State != "following" {
			t.Fatalf("follower is at %+v", st)
		}
		h.Elect(0)
		h.Elect(0)
		synctest.Wait()
		if got := value(t, h, "k9"); got != "99" {
			t.Fatalf("k9 is %q", got)
		}
		if st := h.Stats()[0]; st.Records != 100 || st.Rebuilds != 0 {
			t.Fatalf("it read more than the tail: %+v", st)
		}
	})
}

func TestUnknownOutcomeRebuilds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("a", "1")), nil)
		r.Set(coordtest.Knobs{Silent: true})
		done := start(h, put("a", "2"))
		waits(t, done)
		r.Drop()
		answered(t, done, coordinator.ErrNotCoordinator)
		r.Set(coordtest.Knobs{})
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q after its append was dropped", got)
		}
		if st := h.Stats()[0]; st.Rebuilds != 1 || st.Loads != 2 {
			t.Fatalf("%+v", st)
		}
		// The same at the end of a reign.
		r.Set(coordtest.Knobs{Silent: true})
		done = start(h, put("a", "3"))
		waits(t, done)
		h.Resign(0)
		answered(t, done, coordinator.ErrNotCoordinator)
		r.Drop()
		h.Elect(0)
		synctest.Wait()
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q after its append was dropped", got)
		}
	})
}

func TestForeignBatchRebuilds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("a", "1")), nil)
		other := coordtest.NewHost(t, 1, newStore)
		defer other.Close()
		other.Elect(0)
		synctest.Wait()
		answered(t, start(other, put("foreign", "1")), nil)
		copyLog(other.Replica(0), h.Replica(0), r)
		h.Replica(0).CommitAll()
		answered(t, start(h, put("b", "1")), coordinator.ErrNotCoordinator)
		if value(t, h, "foreign") != "1" || value(t, h, "b") != "1" {
			t.Fatal("the state is not what the log says")
		}
	})
}

func TestCutLogRebuilds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("a", "1")), nil)
		answered(t, start(h, put("a", "2")), nil)
		h.Resign(0)
		synctest.Wait()
		next := h.Replica(0).Clone()
		next.Truncate(1)
		next.Advanced = func() { h.Advanced(0) }
		h.Attach(0, next)
		synctest.Wait()
		h.Began(0, next.Lead(9))
		synctest.Wait()
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q after the log was cut", got)
		}
		// As long as before, but of another leader.
		h.Ended(0, nil, false)
		fork := next.Clone()
		fork.Truncate(0)
		other := coordtest.NewHost(t, 1, newStore)
		defer other.Close()
		other.Elect(0)
		synctest.Wait()
		answered(t, start(other, put("a", "other")), nil)
		copyLog(other.Replica(0), fork, fork.Lead(10))
		fork.CommitAll()
		h.Attach(0, fork)
		h.Began(0, fork.Lead(11))
		synctest.Wait()
		if got := value(t, h, "a"); got != "other" {
			t.Fatalf("a is %q", got)
		}
	})
}

func TestGenerationMoveKeepsWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{Hold: true})
		done, kept := start(h, put("a", "1")), make(chan error, 2)
		h.Do("k", func(m *store, _ time.Time, _ fxs) {
			m.waiting = append(m.waiting, func(err error) { kept <- err })
		}, func(err error) { t.Error(err) })
		waits(t, done)
		h.Ended(0, r, true)
		synctest.Wait()
		answered(t, start(h, put("b", "1")), coordinator.ErrLoading)
		next := h.Replica(0).Clone()
		next.Advanced = func() { h.Advanced(0) }
		h.Attach(0, next)
		reign := next.Lead(5)
		h.Began(0, reign)
		waits(t, done)
		waits(t, kept)
		next.CommitAll()
		answered(t, done, nil)
		if got := value(t, h, "a"); got != "1" {
			t.Fatalf("a is %q", got)
		}
		if st := h.Stats()[0]; st.Rebuilds != 0 || st.Loads != 1 {
			t.Fatalf("the machine was loaded again: %+v", st)
		}
		h.Ended(0, reign, true)
		h.Abandoned(0)
		answered(t, kept, coordinator.ErrNotCoordinator)
	})
}

func TestHeldMachineGivesUpInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		kept := make(chan error, 2)
		synctest.Wait()
		h.Do("k", func(m *store, _ time.Time, _ fxs) {
			m.waiting = append(m.waiting, func(err error) { kept <- err })
		}, func(err error) { t.Error(err) })
		waits(t, kept)
		h.Ended(0, r, true)
		time.Sleep(9 * time.Second)
		waits(t, kept)
		time.Sleep(2 * time.Second)
		answered(t, kept, coordinator.ErrNotCoordinator)
	})
}

// TestHeldMachineIsQuiet: an expired lease has the shard try again soon; while it is held there is nothing to try.
func TestHeldMachineIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const enough = 1000
		var looks atomic.Int32 // at the clock: each turn is one
		c, err := coordinator.New(coordinator.Config[*store]{
			New: newStore, Partitions: func() int32 { return 1 }, Log: zaptest.NewLogger(t),
			Now: func() time.Time {
				if looks.Add(1) > enough {
					time.Sleep(time.Second) // so that the test ends
				}
				return time.Now()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		replica := new(coordtest.Replica)
		r := replica.Lead(1)
		replica.Advanced = func() { c.Advanced(0) }
		c.Attach(0, replica)
		c.Began(0, r)
		synctest.Wait()
		r.Set(coordtest.Knobs{CheckErr: coordinator.ErrNotCoordinator})
		c.Advanced(0)
		synctest.Wait()
		c.Ended(0, r, true)
		time.Sleep(9 * time.Second)
		if n := looks.Load(); n > 100 {
			t.Errorf("%d looks at the clock within nine seconds", n)
		}
	})
}

func TestRecordsThatAreNotUnderstoodAreLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		h.Elect(0)
		synctest.Wait()
		answered(t, start(h, put("", "1")), nil)
		answered(t, start(h, put("a", "1")), nil)
		if st := h.Stats()[0]; st.BadRecords != 1 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestManyOperationsShareBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{AppendErr: coordinator.ErrBusy})
		var left atomic.Int32
		first := start(h, put("first", "1"))
		waits(t, first)
		for i := range 300 {
			left.Add(1)
			h.Do("k", func(_ *store, _ time.Time, fx fxs) {
				fx.Append(rec(fmt.Sprint(i), "1"))
				fx.Then(func(err error) {
					if err == nil {
						left.Add(-1)
					}
				})
			}, func(err error) { t.Error(err) })
		}
		r.Set(coordtest.Knobs{})
		time.Sleep(time.Second)
		answered(t, first, nil)
		if left.Load() != 0 {
			t.Fatalf("%d operations not committed", left.Load())
		}
		if n := len(batchesOf(h.Replica(0))); n != 1+3 {
			t.Fatalf("301 operations made %d batches, want 4: one, and then 128 a turn", n)
		}
	})
}

func TestDetachedPartitionIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host) {
		r := h.Elect(0)
		synctest.Wait()
		r.Set(coordtest.Knobs{Hold: true})
		done := start(h, put("a", "1"))
		waits(t, done)
		h.Detach(0)
		answered(t, done, coordinator.ErrNotCoordinator)
		answered(t, start(h, put("a", "1")), coordinator.ErrNotCoordinator)
		if n := len(h.Stats()); n != 0 {
			t.Fatalf("%d partitions left", n)
		}
	})
}
