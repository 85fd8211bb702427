package lab

import (
	"context"
	"fmt"
	"time"
)

// acksAll are n records v0, v1, ... with acks=all.
func acksAll(topic string, n, retries int) sending {
	return sending{topic: topic, prefix: "v", count: n, acksAll: true, retries: retries}
}

// acksLeader are n records v0, v1, ... with acks=1.
func acksLeader(topic string, n, retries int) sending {
	return sending{topic: topic, prefix: "v", count: n, retries: retries}
}

func isrExperiments() []Experiment {
	return []Experiment{
		{
			Name: "clamp-open", Table: tableISR, steps: clampOpen,
			Shows: "min.insync.replicas above the number of replicas counts as that number",
		},
		{
			Name: "clamp-shut", Table: tableISR, After: "clamp-open", steps: clampShut,
			Shows: "below the effective minimum acks=all is refused, and nothing is appended",
		},
		{
			Name: "isr-shrink", Table: tableISR, steps: isrShrink,
			Shows: "a frozen broker leaves the in-sync replica set when its session ends, not before",
		},
		{
			Name: "isr-lag", Table: tableISR, steps: lagging, relayed: 3,
			Shows: "a broker that answers but lags leaves after the lag time, not before, and never from an idle partition",
		},
		{
			Name: "single-replica", Table: tableISR, steps: singleReplica,
			Shows: "with one replica acks=all is acks=1",
		},
		{
			Name: "all-survives", Table: tableISR, After: "isr-shrink", steps: allSurvives,
			Shows: "records acknowledged with acks=all survive their leader, with one replica left",
		},
		{
			Name: "all-survives-twice", Table: tableISR, After: "all-survives", steps: allSurvivesTwice,
			Shows: "and survive the next death, after the first broker came back",
		},
		{
			Name: "below-min", Table: tableISR, steps: belowMin,
			Shows: "below the minimum acks=all is refused, acks=1 is acknowledged, and the high watermark stands still",
		},
	}
}

func clampOpen(Settings) []Step {
	return []Step{
		create("clamp", 3, []int32{2, 3}),
		acknowledged(acksAll("clamp", 1, 0), 0),
	}
}

func clampShut(s Settings) []Step {
	refusedAll := acksAll("clamp", 3, 0)
	refusedAll.first = 1
	return []Step{
		freeze(3),
		settles("clamp", "Leader: 2 Isr: 2 Elr: 3", s.fenced()),
		refused(refusedAll, "NOT_ENOUGH_REPLICAS"),
		shows("clamp", "Leader: 2 Isr: 2 Elr: 3", time.Second),
		kill(2),
		stored(2, "clamp", "v", 1),
	}
}

func isrShrink(s Settings) []Step {
	frozenFor := s.Lag + s.Lag*2/5 // 42 s at the defaults
	return []Step{
		create("shrink", 2, []int32{2, 3, 1}),
		freeze(3),
		{
			Do:     "describe shrink until the ISR changes",
			Expect: fmt.Sprintf("Isr: 2,1, between %v (the last heartbeat may be that old) and %v after the freeze", s.Session-s.Heartbeat, s.fenced()),
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "Isr: 2,1", s.fenced(), w.lookAt("shrink", func(p partitionState) bool { return hasFields(p.String(), "Leader: 2 Isr: 2,1") }))
				took := time.Since(w.silent)
				if early := s.Session - s.Heartbeat - 100*time.Millisecond; err == nil && took < early {
					err = differs("that was before %v", early)
				}
				return fmt.Sprintf("%s after %.1f s", seen, took.Seconds()), err
			},
		},
		{
			Do: fmt.Sprintf("wait until broker 3 has been frozen for %v, describe shrink again and again", frozenFor), Expect: "still Leader: 2 Isr: 2,1",
			Run: func(ctx context.Context, w *world) (string, error) {
				return w.watch(ctx, "Isr: 2,1", frozenFor-time.Since(w.silent), w.lookAt("shrink", func(p partitionState) bool {
					return hasFields(p.String(), "Leader: 2 Isr: 2,1")
				}))
			},
		},
	}
}

func singleReplica(Settings) []Step {
	first, second := acksLeader("single", 1, 0), acksAll("single", 1, 0)
	second.first = 1
	return []Step{
		create("single", 3, []int32{2}),
		freeze(1, 3),
		acknowledged(first, 0),
		acknowledged(second, 1),
		consumed("single", "v", 2),
	}
}

func allSurvives(s Settings) []Step {
	return []Step{
		acknowledged(acksAll("shrink", 100, 5), 0),
		highWatermark(1, "shrink", 100),
		kill(2),
		shows("shrink", "Leader: 1 Isr: 1 Elr: 2", s.fenced()),
		consumed("shrink", "v", 100),
	}
}

func allSurvivesTwice(s Settings) []Step {
	return []Step{
		start(2),
		{
			Do: "describe shrink", Expect: "broker 2 is back in the ISR, within 30s",
			Run: func(ctx context.Context, w *world) (string, error) {
				took, seen, err := w.await(ctx, "brokers 1 and 2 in the ISR", 30*time.Second, w.lookAt("shrink", func(p partitionState) bool {
					return len(p.isr) == 2 && p.leader >= 0
				}))
				return fmt.Sprintf("%s after %.1f s", seen, took.Seconds()), err
			},
		},
		{
			Do: "ask for a preferred election of shrink-0", Expect: "no error, as broker 2 is the first of the replicas",
			Run: func(ctx context.Context, w *world) (string, error) { return "", w.elect(ctx, "shrink", 0) },
		},
		shows("shrink", "Leader: 2", 10*time.Second),
		kill(1),
		shows("shrink", "Leader: 2 Isr: 2 Elr: 1", s.fenced()),
		consumed("shrink", "v", 100),
	}
}

func belowMin(s Settings) []Step {
	refusedAll := sending{topic: "below", prefix: "refused", count: 10, acksAll: true, retries: 1}
	accepted := acksLeader("below", 5, 10)
	accepted.first = 1
	return []Step{
		create("below", 2, []int32{2, 3, 1}),
		acknowledged(acksAll("below", 1, 5), 0),
		freeze(1, 3),
		settles("below", "Leader: 2 Isr: 2", s.fenced()),
		refused(refusedAll, "NOT_ENOUGH_REPLICAS"),
		acknowledged(accepted, 1),
		highWatermark(2, "below", 1),
		consumed("below", "v", 1),
		{
			Do: "look at the high watermark for two seconds", Expect: "1 all the time: the ISR is below the minimum",
			Run: func(ctx context.Context, w *world) (string, error) {
				return w.watch(ctx, "the high watermark stands", 2*time.Second, func(ctx context.Context) (string, bool, error) {
					_, end, err := w.offsets(ctx, "below")
					return fmt.Sprint(end), end == 1, err
				})
			},
		},
		thaw(1, 3),
		{
			Do: "describe below", Expect: "at least two brokers in the ISR, within 30s",
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "two brokers in the ISR", 30*time.Second, w.lookAt("below", func(p partitionState) bool {
					return len(p.isr) >= 2 && p.leader >= 0
				}))
				return seen, err
			},
		},
		{
			Do: "list the end offset of below", Expect: "6, within 5s: the high watermark moves again",
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "end offset 6", 5*time.Second, func(ctx context.Context) (string, bool, error) {
					_, end, err := w.offsets(ctx, "below")
					return fmt.Sprint(end), end == 6, err
				})
				return seen, err
			},
		},
		consumed("below", "v", 6),
	}
}
