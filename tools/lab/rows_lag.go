package lab

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lagging is the second half of the row isr-shrink, on a cluster of its own: a broker that answers but does not follow.
func lagging(s Settings) []Step {
	all, left := "Leader: 2 Isr: 2,3,1", "Leader: 2 Isr: 2,1"
	behind := acksLeader("busy", 1, 0)
	behind.first = 1
	latest := s.Lag + s.Lag/2 + 3*time.Second // the leader looks every half lag time
	return []Step{
		create("busy", 2, []int32{2, 3, 1}),
		create("idle", 2, []int32{2, 3, 1}),
		acknowledged(acksAll("busy", 1, 5), 0),
		acknowledged(acksAll("idle", 1, 5), 0),
		{
			Do: "hold back what other brokers send to broker 3; its heartbeats to the controller go on",
			Run: func(_ context.Context, w *world) (string, error) {
				w.relay.hold(true)
				w.silent = time.Now()
				return "", nil
			},
		},
		acknowledged(behind, 1),
		{
			Do: "describe busy, on which broker 3 lags", Expect: fmt.Sprintf("%s, after no less than %v and no more than %v", left, s.Lag, latest),
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, left, latest, w.lookAt("busy", func(p partitionState) bool { return hasFields(p.String(), left) }))
				took := time.Since(w.silent)
				if err == nil && took < s.Lag {
					err = differs("that was after %v", took)
				}
				return fmt.Sprintf("%s after %.1f s", seen, took.Seconds()), err
			},
		},
		shows("idle", all, time.Second),
		{
			Do: "list the brokers", Expect: "broker 3 among them: it is not fenced",
			Run: func(ctx context.Context, w *world) (string, error) {
				brokers, err := w.brokers(ctx)
				if err == nil && !slices.Contains(brokers, 3) {
					err = differs("brokers %s", joined(brokers))
				}
				return "brokers " + joined(brokers), err
			},
		},
		passes("idle", all, s.Lag/4),
		{
			Do: "hold nothing back any more",
			Run: func(_ context.Context, w *world) (string, error) {
				w.relay.hold(false)
				return "", nil
			},
		},
		{
			Do: "describe busy", Expect: "broker 3 is back in the ISR, within 30s",
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "three brokers in the ISR", 30*time.Second, w.lookAt("busy", func(p partitionState) bool {
					return p.leader == 2 && len(p.isr) == 3
				}))
				return seen, err
			},
		},
		consumed("busy", "v", 2),
	}
}
