package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// markerLogs is what a markerWriter appends to: partitions, of which some have no room.
type markerLogs struct {
	mu       sync.Mutex
	full     map[int32]bool
	held     map[int32]bool // appended, but not heard of
	appended []markerTarget
	tries    map[int32]int
	answers  []func(error)
}

func (l *markerLogs) append(to markerTarget, room, _ time.Duration, done func(error)) error {
	l.mu.Lock()
	l.tries[to.partition]++
	full := l.full[to.partition]
	l.mu.Unlock()
	if full {
		time.Sleep(room)
		return fmt.Errorf("%w: %w", errProposeTimeout, context.DeadlineExceeded)
	}
	l.mu.Lock()
	l.appended = append(l.appended, to)
	held := l.held[to.partition]
	if held {
		l.answers = append(l.answers, done)
	}
	l.mu.Unlock()
	if !held {
		done(nil)
	}
	return nil
}

func withMarkerWriter(t *testing.T, f func(t *testing.T, l *markerLogs, w *markerWriter)) {
	synctest.Test(t, func(t *testing.T) {
		l := &markerLogs{full: map[int32]bool{}, held: map[int32]bool{}, tries: map[int32]int{}}
		w := newMarkerWriter(l.append, 30*time.Second)
		defer w.close()
		f(t, l, w)
	})
}

func markerFor(partition int32, producerID int64) markerTarget {
	return markerTarget{topicPartition{"t", partition}, 1, marker{producerID: producerID, commit: true}}
}

// However many partitions have no room, and however much waits for them, the others' markers are appended soon, and in their order.
func TestMarkersOfFullPartitionsHoldUpNoOthers(t *testing.T) {
	withMarkerWriter(t, func(t *testing.T, l *markerLogs, w *markerWriter) {
		const full = 100
		for p := range int32(full) {
			l.full[p] = true
		}
		var refused atomic.Int32
		for i := range int64(2 * markerQueue / full) {
			for p := range int32(full) {
				w.write(markerFor(p, i), func(err error) {
					if errors.Is(err, errRequestTimedOut) {
						refused.Add(1)
					}
				})
			}
		}
		if refused.Load() == 0 {
			t.Fatal("the queue has no bound")
		}
		time.Sleep(10 * time.Second) // all of them are known to be full
		begun := time.Now()
		heard := make(chan error, 20)
		for i := range int64(20) {
			w.write(markerFor(full, i), func(err error) { heard <- err })
		}
		for range cap(heard) {
			if err := <-heard; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the others' markers took %v", took)
		}
		for i, to := range l.appended {
			if to != markerFor(full, int64(i)) {
				t.Errorf("marker %d is %+v", i, to)
			}
		}
		// One that has room again is served, too.
		l.mu.Lock()
		l.full[7] = false
		before := l.tries[7]
		l.mu.Unlock()
		time.Sleep(markerPatience * full / markersPatient)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.tries[7] < before+2 {
			t.Errorf("a partition that has room again was tried %d times", l.tries[7]-before)
		}
	})
}

func TestMarkersWithoutRoomAreRefusedInTime(t *testing.T) {
	withMarkerWriter(t, func(t *testing.T, l *markerLogs, w *markerWriter) {
		l.full[0] = true
		begun := time.Now()
		heard := make(chan error, 1)
		w.write(markerFor(0, 1), func(err error) { heard <- err })
		if err := <-heard; errorCode(err) != errorCode(errRequestTimedOut) {
			t.Error(err)
		}
		if took := time.Since(begun); took < 28*time.Second || took > 31*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestMarkersUnderWayAreNotAppendedAgain(t *testing.T) {
	withMarkerWriter(t, func(t *testing.T, l *markerLogs, w *markerWriter) {
		l.held[0] = true
		heard := make(chan error, 2*markerRepeats)
		for range markerRepeats {
			w.write(markerFor(0, 1), func(err error) { heard <- err })
			synctest.Wait()
		}
		w.write(markerFor(0, 1), func(err error) { heard <- err })
		if err := <-heard; !errors.Is(err, errRequestTimedOut) {
			t.Errorf("one more than may wait: %v", err)
		}
		w.write(markerFor(0, 2), func(error) {})
		synctest.Wait()
		if len(l.appended) != 2 || len(heard) != 0 {
			t.Fatalf("appended %v, %d answers", l.appended, len(heard))
		}
		l.answers[0](errNotLeader)
		for range markerRepeats {
			if err := <-heard; !errors.Is(err, errNotLeader) {
				t.Error(err)
			}
		}
		w.write(markerFor(0, 1), func(error) {}) // another transaction of the producer, or a new try
		synctest.Wait()
		if len(l.appended) != 3 {
			t.Errorf("appended %v", l.appended)
		}
	})
}

func TestMarkerWriterRefusesWhenItCloses(t *testing.T) {
	withMarkerWriter(t, func(t *testing.T, l *markerLogs, w *markerWriter) {
		heard := make(chan error, 101)
		for p := range int32(100) {
			l.full[p] = true
		}
		for p := range int32(100) {
			w.write(markerFor(p, 1), func(err error) { heard <- err })
		}
		w.close()
		w.write(markerFor(1, 2), func(err error) { heard <- err })
		for range 101 {
			if err := <-heard; !errors.Is(err, errRequestTimedOut) {
				t.Error(err)
			}
		}
	})
}

// A request that says how long it waits is answered then, and what it left is not appended again by the next.
func TestWriteTxnMarkersAnswersWhenItIsToldTo(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 0, 0))
	reign := awaitLeader(t, x.n, "t", 1).reign.Load().epoch
	w := x.n.broker.markers
	real, held := w.append, make(chan func(error), 2)
	w.append = func(to markerTarget, room, timeout time.Duration, done func(error)) error {
		if to.partition == 1 {
			held <- done
			return nil
		}
		return real(to, room, timeout, done)
	}
	req := markersReq(2, 500, 1, true, 0, 2, 0, 1)
	setMarkersWait(req, 200*time.Millisecond)
	codes := func() map[int32]int16 {
		got := map[int32]int16{}
		for _, p := range x.do(req).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions {
			got[p.Partition] = p.ErrorCode
		}
		return got
	}
	begun := time.Now()
	got := codes()
	wantCode(t, "partition 0", got[0], nil)
	wantCode(t, "partition 1", got[1], kerr.RequestTimedOut)
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("after %v", took)
	}
	again := make(chan error, 1)
	w.write(markerTarget{topicPartition{"t", 1}, reign, marker{producerID: 500, producerEpoch: 1, commit: true, version: 2}}, func(err error) { again <- err })
	(<-held)(nil)
	if err := <-again; err != nil || len(held) != 0 {
		t.Errorf("once more: %v, appended %d more times", err, len(held))
	}
}
