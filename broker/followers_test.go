package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/ids"
)

func TestHandOverGoesToAFollowerThatHasEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		choose := func(f *followers, index ids.RaftIndex) (ids.ReplicaID, time.Duration) {
			at := time.Now()
			r := f.awaitCaughtUp(context.Background(), []ids.ReplicaID{1, 2, 3}, 5, index)
			return r, time.Since(at)
		}
		var f followers
		if r, d := choose(&f, 10); r != 1 || d != caughtUpWait {
			t.Errorf("nobody answered: replica %d after %v", r, d)
		}
		f.note(2, 9, 5)
		f.note(3, 10, 5)
		if r, d := choose(&f, 10); r != 3 || d != 0 {
			t.Errorf("replica %d after %v", r, d)
		}
		if r, d := choose(&f, 11); r != 3 || d != caughtUpWait {
			t.Errorf("none has all: replica %d after %v", r, d)
		}
		time.AfterFunc(50*time.Millisecond, func() { f.note(2, 11, 5) })
		if r, d := choose(&f, 11); r != 2 || d != 50*time.Millisecond {
			t.Errorf("one catches up: replica %d after %v", r, d)
		}
		f.note(1, 99, 4) // of an earlier term
		if r, _ := choose(&f, 11); r != 2 {
			t.Errorf("an old answer counted: replica %d", r)
		}
		if f.catchesUp(context.Background(), 3, 5, 11) || !f.catchesUp(context.Background(), 2, 5, 11) || f.catchesUp(context.Background(), 2, 6, 11) {
			t.Error("who catches up is not known")
		}
		f.forget(2)
		if r, _ := choose(&f, 10); r != 3 {
			t.Errorf("a dead one was chosen: replica %d", r)
		}
		f.note(1, 3, 6)
		if r, _ := choose(&f, 10); r != 1 {
			t.Errorf("answers of another term counted: replica %d", r)
		}
		if time.Since(start) > time.Minute {
			t.Error("waits are not bounded")
		}
	})
}
