package walk

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/broker/internal/rules"
	"cairn/internal/ids"
)

var (
	stepsFlag = flag.Int("walk.steps", 1_000_000, "random steps of TestWalk, over all walks")
	seedFlag  = flag.Uint64("walk.seed", 1, "seed of the first walk")
)

const stepsPerWalk = 3000

// walkOnce runs one walk and returns what it found wrong, with the end of its trace. heal: the walk ends with everything
// healed, and with the checks that only then can be made.
func walkOnce(s setup, heal bool) (w *world, found string) {
	w = newWorld(s)
	defer func() {
		if r := recover(); r != nil {
			v, ok := r.(violation)
			if !ok {
				panic(r)
			}
			found = string(v)
		}
	}()
	for range stepsPerWalk {
		w.step()
	}
	if heal {
		w.heal()
	}
	return w, ""
}

// setupOf varies the cluster with the seed.
func setupOf(seed uint64) setup {
	r := rand.New(rand.NewPCG(seed, 2))
	return setup{
		seed: seed, replicas: 2 + r.IntN(4), minimum: 1 + r.IntN(3), unclean: r.IntN(3) == 0, moves: r.IntN(3) == 0,
		os: r.IntN(4) == 0, deaf: r.IntN(5) == 0,
	}
}

func TestWalk(t *testing.T) {
	steps := *stepsFlag
	if testing.Short() {
		steps /= 10
	}
	exposed, acked, generations, losses := 0, 0, 0, 0
	walks := max(steps/stepsPerWalk, 1)
	for i := range walks {
		s := setupOf(*seedFlag + uint64(i))
		w, found := walkOnce(s, true)
		if found != "" {
			t.Fatalf("%s\nseed %d (-walk.seed=%d -walk.steps=1), %d replicas, minimum %d at first, unclean elections %v, reassignments %v, power cuts %v; the end of the trace:\n%s",
				found, s.seed, s.seed, s.replicas, s.minimum, s.unclean, s.moves, s.os, w.tail())
		}
		exposed, acked, generations = exposed+w.exposure, acked+len(w.acked), generations+int(w.partition().Generation)
		losses += len(w.img().Losses)
	}
	t.Logf("%d walks: per walk %.1f records exposed, %.1f acknowledged, %.1f generations, %.1f losses", walks,
		per(exposed, walks), per(acked, walks), per(generations, walks), per(losses, walks))
	if exposed < 5*walks || generations < 2*walks || acked < 3*walks {
		t.Error("the walks do too little to find anything")
	}
}

func per(n, walks int) float64 { return float64(n) / float64(walks) }

// tail is what happened last, some eighty lines.
func (w *world) tail() string { return strings.Join(w.trace[max(0, len(w.trace)-80):], "\n") }

// TestEachRuleIsNeeded: without any one of the rules the walk finds a loss, so it would find one if the code broke it.
func TestEachRuleIsNeeded(t *testing.T) {
	const most = 60_000 // walks
	cases := map[string]func(*setup){
		"1 ack without ISR":            func(s *setup) { s.off = rules.AckWithoutISR },
		"1 high watermark before save": func(s *setup) { s.off = rules.HWBeforeSave },
		"2 no maximal ISR":             func(s *setup) { s.off = rules.NoMaximalISR },
		"3 no epoch start":             func(s *setup) { s.off, s.deaf = rules.NoEpochStart, true },
		"4 register old generation":    func(s *setup) { s.off = rules.RegisterOldGeneration },
		"5 all survivors vote":         func(s *setup) { s.off = rules.AllSurvivorsVote },
		"6 no freeze at the minimum":   func(s *setup) { s.off = rules.NoMinFreeze },
		"7 seed outside ISR":           func(s *setup) { s.off = rules.SeedOutsideISR },
		"8 no lease":                   func(s *setup) { s.noLease, s.unclean = true, true },
		"8 unfenced too early":         func(s *setup) { s.earlyUnfence, s.unclean = true, true },
		"8 unclean too early":          func(s *setup) { s.noWait, s.unclean = true, true },
		"11 minimum change keeps ELR":  func(s *setup) { s.off = rules.MinChangeKeepsELR },
		"11 stale minimum":             func(s *setup) { s.staleMin = true },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range uint64(most) {
				s := setupOf(*seedFlag + i)
				s.unclean, s.moves, s.os = false, false, false
				edit(&s)
				if w, found := walkOnce(s, false); found != "" {
					t.Logf("seed %d, %d replicas: %s", s.seed, s.replicas, found)
					if *verbose {
						t.Log(w.tail())
					}
					return
				}
			}
			t.Errorf("%d walks found nothing", most)
		})
	}
}

var verbose = flag.Bool("walk.trace", false, "show the traces of the walks that find a broken rule")

// heal starts every broker, mends every cut and lets the cluster run until all replicas are in sync and nothing is due,
// which must come about within a bounded time. Then it checks what was acknowledged.
func (w *world) heal() {
	w.say("healing")
	w.unclean = false
	for _, b := range w.brokers {
		b.linked = true
		if b.up && w.img().Brokers[b.node].ShuttingDown {
			w.saveTo(b, len(b.log))
			w.crash(b)
		}
		if !b.up {
			w.restart(b)
		}
	}
	for range 400 {
		if w.round() {
			w.checkAcknowledged()
			return
		}
	}
	w.fail("does not heal: %+v, losses %+v", w.partition(), w.img().Losses)
}

// round lets everybody do everything once. It reports whether all is well.
func (w *world) round() bool {
	w.now = w.now.Add(50 * time.Millisecond)
	for _, b := range w.brokers {
		w.heartbeat(b)
		for range 3 {
			w.learn(b)
		}
		w.saveTo(b, len(b.log))
		w.reportLeader(b)
		for _, to := range w.brokers {
			for range 3 {
				w.replicate(b, to)
			}
		}
		w.proposeISR(b)
		w.changeMember(b)
		w.handOver(b)
		w.reportLosses(b)
		w.retractLosses(b)
	}
	w.fenceExpired()
	for n := len(w.net) + 20; n > 0; n-- {
		w.deliver()
	}
	w.decide()
	if w.partition().Leader == ids.NoNode {
		w.elect(w.anyBroker())
	}
	return w.healed()
}

func (w *world) healed() bool {
	p := w.partition()
	if p.Leader == ids.NoNode || len(p.InSync) != len(p.Replicas) || len(p.Voters) != len(p.Replicas) || len(p.Adding)+len(p.Removing) > 0 {
		return false
	}
	l := w.broker(p.Leader)
	if l.r == nil || l.r.reign == nil || l.r.reign.Epoch() != p.LeaderEpoch || l.r.reign.HighWatermark() != l.end(len(l.log)) {
		return false
	}
	for _, b := range w.brokers {
		if len(b.quarantine) > 0 || w.estimated(b.node) {
			return false
		}
		if member := p.ReplicaOf(b.node) >= 0; member && (b.r == nil || b.r.shard != p.Shard || len(b.log) != len(l.log)) || !member && len(b.log) > 0 {
			return false
		}
	}
	return !w.overlap(l)
}

// overlap reports whether the leader holds something that is listed as lost.
func (w *world) overlap(l *broker) bool {
	return slices.ContainsFunc(l.log, func(e entry) bool { return e.id != 0 && w.lost(place{e.epoch, e.next - 1}) })
}

func (w *world) lost(at place) bool {
	return slices.ContainsFunc(w.img().Losses, func(l controller.Loss) bool {
		return l.LeaderEpoch == at.epoch && l.From <= at.offset && at.offset < l.To
	})
}

// checkAcknowledged: every acknowledged record is in exactly one of two sets, readable and reported lost.
func (w *world) checkAcknowledged() {
	l := w.broker(w.partition().Leader)
	w.checkLeader(l)
	readable := map[place]int{}
	for _, e := range l.log {
		if e.id != 0 && e.next <= l.r.reign.HighWatermark() {
			readable[place{e.epoch, e.next - 1}] = e.id
		}
	}
	for at, id := range w.acked {
		got, ok := readable[at]
		switch lost := w.lost(at); {
		case ok && got != id:
			w.fail("offset %d of epoch %d was acknowledged as record %d and is record %d", at.offset, at.epoch, id, got)
		case ok == lost:
			w.fail("record %d, acknowledged at offset %d of epoch %d: readable %v, reported lost %v", id, at.offset, at.epoch, ok, lost)
		}
	}
}
