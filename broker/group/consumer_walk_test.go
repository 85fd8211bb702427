package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestConsumerWalk has members join, beat, be late, be stubborn, leave, be forgotten and come back, topics come, grow and
// go, and leaders change, at random. After each step no partition is with two members, by the records and by what the
// clients believe, and a replica that knows the log alone is in the same state. When it gets quiet, all is divided.
func TestConsumerWalk(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &consumerWalk{stage: newStage(t), rng: rand.New(rand.NewPCG(seed, 8)), actors: map[string]*actor{}}
			if seed%2 == 0 {
				w.cfg.Consumer.AssignmentInterval = time.Second
				w.elect()
			}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			for range 300 {
				w.step()
				w.requireSound()
				w.requireBelief()
				if w.rng.IntN(10) == 0 {
					w.requireSameWhenCompacted()
				}
			}
			w.settle()
		})
	}
}

type consumerWalk struct {
	*stage
	rng    *rand.Rand
	actors map[string]*actor
	named  int
}

var walkTopics = []string{"t0", "t1", "t2"}

func (w *consumerWalk) pick() *actor {
	if len(w.actors) == 0 {
		return w.join()
	}
	names := slices.Sorted(maps.Keys(w.actors))
	return w.actors[names[w.rng.IntN(len(names))]]
}

func (w *consumerWalk) join() *actor {
	if len(w.actors) >= 6 {
		return w.pick()
	}
	w.named++
	a := w.actor(fmt.Sprintf("m%d", w.named))
	for _, name := range walkTopics {
		if w.rng.IntN(3) > 0 {
			a.topics = append(a.topics, name)
		}
	}
	switch w.rng.IntN(4) {
	case 0:
		a.regex = ptr([]string{"t.*", "t[01]"}[w.rng.IntN(2)])
	case 1:
		a.instance = ptr(fmt.Sprintf("i%d", w.rng.IntN(3)))
	}
	a.stubborn = w.rng.IntN(6) == 0
	a.timeout = int32(10_000 + w.rng.IntN(40_000))
	w.actors[a.id] = a
	return w.beatOf(a)
}

// beatOf sends a heartbeat as a client does, which joins again when it is told that it is out.
func (w *consumerWalk) beatOf(a *actor) *actor {
	a.beat()
	switch a.last.ErrorCode {
	case 0:
	case kerr.FencedMemberEpoch.Code, kerr.UnknownMemberID.Code, kerr.GroupIDNotFound.Code:
		a.epoch, a.has = 0, nil
	case kerr.UnreleasedInstanceID.Code, kerr.FencedInstanceID.Code: // what it has is another's now
		a.epoch, a.has = 0, nil
		delete(w.actors, a.id)
	default:
		w.t.Fatalf("%s is told %v", a.id, kerr.ErrorForCode(a.last.ErrorCode))
	}
	return a
}

func (w *consumerWalk) step() {
	switch n := w.rng.IntN(20); {
	case n < 2:
		w.join()
	case n < 12:
		w.beatOf(w.pick())
	case n < 13: // an answer is lost: the client beats again with what it had
		a := w.pick()
		before := *a
		if w.beatOf(a); a.last.ErrorCode == 0 && before.epoch != 0 {
			a.epoch, a.has = before.epoch, before.has
		}
	case n < 14:
		a := w.pick()
		epoch := epochLeave
		if a.instance != nil && w.rng.IntN(2) == 0 {
			epoch = epochLeaveStatic
		}
		a.leave(epoch)
		a.has = nil
		delete(w.actors, a.id)
	case n < 15: // killed: it says nothing any more
		a := w.pick()
		a.has = nil
		delete(w.actors, a.id)
	case n < 16:
		w.topics.set(walkTopics[w.rng.IntN(3)], int32(w.rng.IntN(7)))
	case n < 17:
		w.elect()
	default:
		w.pass(time.Duration(w.rng.IntN(15_000)) * time.Millisecond)
	}
}

// requireBelief fails if two clients that are members believe to have the same partition. A client that has been fenced
// may believe what it likes until it hears of that.
func (w *consumerWalk) requireBelief() {
	w.t.Helper()
	g := w.m.group("g")
	if g == nil || g.consumer == nil {
		return
	}
	owner := map[string]string{}
	for _, a := range w.actors {
		m := g.consumer.members[a.id]
		if m == nil || a.epoch == 0 || m.epoch != a.epoch && m.previous != a.epoch {
			continue
		}
		for id, list := range a.has {
			for _, p := range list {
				key := fmt.Sprint(id, p)
				if other, taken := owner[key]; taken {
					w.t.Fatalf("%s and %s both have %s", a.id, other, key)
				}
				owner[key] = a.id
			}
		}
	}
}

// settle lets all clients behave until everything is divided.
func (w *consumerWalk) settle() {
	w.t.Helper()
	for i, name := range walkTopics {
		w.topics.set(name, int32(3+i))
	}
	all := w.actor("all", walkTopics...)
	w.actors["all"] = all
	for _, a := range w.actors {
		a.stubborn = false
	}
	for range 40 {
		w.pass(4 * time.Second)
		for _, name := range slices.Sorted(maps.Keys(w.actors)) {
			if a := w.actors[name]; a != nil {
				w.beatOf(a)
			}
		}
		w.requireSound()
		w.requireBelief()
	}
	total := 0
	for _, a := range w.actors {
		total += a.count()
	}
	if total != 12 || w.state() != consumerStable {
		w.t.Fatalf("%d of 12 partitions are with clients, the group is %s:\n%s", total, w.state(), w.m.consumerState())
	}
}
