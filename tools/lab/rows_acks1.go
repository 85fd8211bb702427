package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

func acksLeaderExperiments() []Experiment {
	return []Experiment{
		{
			Name: "acks1-accepted", Table: tableISR, steps: acks1Accepted,
			Shows: "with the other replica out of the ISR, acks=1 is acknowledged by the leader alone",
		},
		{
			Name: "acks1-offline", Table: tableISR, After: "acks1-accepted", steps: acks1Offline,
			Shows: "when that leader dies, the partition is offline, and the stale replica is not promoted",
		},
		{
			Name: "acks1-unclean", Table: tableISR, After: "acks1-offline", steps: acks1Unclean,
			Shows: "an unclean election promotes the stale replica, and the records are not there",
		},
		{
			Name: "acks1-evidence", Table: tableISR, After: "acks1-unclean", steps: acks1Evidence,
			Shows: "the stored data says what happened: nothing on the promoted broker, all on the dead one",
		},
		{
			Name: "acks1-honest", Table: tableISR, After: "acks1-evidence", steps: acks1Honest,
			Shows: "beyond Kafka: what was lost is foretold, kept in quarantine and reported",
		},
		{
			Name: "acks0", Table: tableISR, steps: acks0,
			Shows: "acks=0 is never answered; a failure closes the connection",
		},
		{
			Name: "clean-return", Table: tableISR, After: "acks1-offline", steps: cleanReturn,
			Shows: "the dead leader comes back instead of an unclean election, leads again by itself, and has all records",
		},
		{
			Name: "last-two", Table: tableISR, steps: lastTwo,
			Shows: "after all have gone one by one, the member that held everything leads, not just any",
		},
	}
}

func acks1Accepted(s Settings) []Step {
	return []Step{
		create("acks1", 1, []int32{1, 3}),
		freeze(3),
		settles("acks1", "Leader: 1 Isr: 1", s.fenced()),
		acknowledged(acksLeader("acks1", 100, 0), 0),
	}
}

func acks1Offline(s Settings) []Step {
	offline := "Leader: none Isr: Elr: 1 LastKnownElr: 1"
	return []Step{
		{
			Do: "let a heartbeat of broker 1 pass, with which it tells its log end",
			Run: func(ctx context.Context, w *world) (string, error) {
				return "", w.pause(ctx, "a heartbeat passes", s.Heartbeat+500*time.Millisecond)
			},
		},
		kill(1),
		shows("acks1", offline, s.fenced()),
		passes("acks1", offline, 3*time.Second),
	}
}

func acks1Unclean(s Settings) []Step {
	return []Step{
		thaw(3),
		{
			Do: "wait until broker 3 is registered again", Expect: fmt.Sprintf("broker 3 says that it is ready, within %v", s.fenced()),
			Run: func(ctx context.Context, w *world) (string, error) {
				took, _, err := w.await(ctx, "broker 3 to be ready", s.fenced(), func(context.Context) (string, bool, error) {
					status, body, err := w.node(3).Get("/readyz")
					return strings.TrimSpace(body), status == 200, err
				})
				return fmt.Sprintf("ready after %.1f s", took.Seconds()), err
			},
		},
		passes("acks1", "Leader: none Isr: Elr: 1", 3*time.Second),
		{
			Do:     "ask what an unclean election would lose",
			Expect: "of broker 3: offsets 0..99; of broker 1: log end 100 as of its last heartbeat, and how old that is",
			Run:    previewUnclean,
		},
		{
			Do: "ask for an unclean election", Expect: uncleanLine,
			Run: func(ctx context.Context, w *world) (string, error) {
				out, err := w.cairn(ctx, "elect", "--bootstrap-server", w.addresses()[0], "--election-type", "UNCLEAN", "--topic", "acks1", "--partition", "0")
				if out = strings.TrimSpace(out); err == nil && !slices.Contains(strings.Split(out, "\n"), uncleanLine) {
					err = differs("%q", out)
				}
				return out, err
			},
		},
		shows("acks1", "Leader: 3 Isr: 3", 10*time.Second),
		consumed("acks1", "v", 0),
	}
}

// uncleanLine is Kafka's.
const uncleanLine = "Successfully completed leader election (UNCLEAN) for partitions acks1-0"

// previewUnclean is the dry run of the unclean election.
func previewUnclean(ctx context.Context, w *world) (string, error) {
	out, err := w.cairn(ctx, "elect", "--bootstrap-server", w.addresses()[0], "--election-type", "UNCLEAN", "--topic", "acks1", "--partition", "0", "--dry-run", "--json")
	if err != nil {
		return out, err
	}
	previews, err := oneArray[electionPreview](out)
	if err != nil {
		return out, err
	}
	if len(previews) != 1 || previews[0].Topic != "acks1" || previews[0].Partition != 0 {
		return out, differs("the preview is not of acks1-0 alone: %s", out)
	}
	var told []string
	foretold, dead := false, false
	for _, r := range previews[0].Replicas {
		told = append(told, fmt.Sprintf("broker %d (alive: %v) log end %d, %d ms old, would lose %s", r.Broker, r.Alive, r.LogEnd, r.AgeMs, rangesText(r.WouldLose)))
		switch r.Broker {
		case 3:
			foretold = r.Alive && r.LogEnd == 0 && covers(r.WouldLose, 100)
		case 1:
			dead = !r.Alive && r.LogEnd == 100 && r.AgeMs > 0
		}
	}
	seen := strings.Join(told, "; ")
	if !foretold || !dead {
		return seen, differs("%s", seen)
	}
	return seen, nil
}

func acks1Evidence(s Settings) []Step {
	return []Step{
		stop(3),
		stored(3, "acks1", "v", 0),
		stored(1, "acks1", "v", 100),
		start(3),
		shows("acks1", "Leader: 3 Isr: 3", s.fenced()),
	}
}

func acks1Honest(Settings) []Step {
	return []Step{
		start(1),
		{
			Do: "describe acks1", Expect: "broker 3 leads, broker 1 is back in the ISR, within 30s",
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "brokers 3 and 1 in the ISR", 30*time.Second, w.lookAt("acks1", func(p partitionState) bool {
					return p.leader == 3 && len(p.isr) == 2
				}))
				return seen, err
			},
		},
		consumed("acks1", "v", 0),
		{
			Do: "ask for the loss report", Expect: "offsets 0..99 of acks1-0 are lost, within 10s",
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "the loss of offsets 0..99", 10*time.Second, func(ctx context.Context) (string, bool, error) {
					return w.lostAll(ctx, 100)
				})
				return seen, err
			},
		},
		stop(1),
		stored(1, "acks1", "v", 0),
		{
			Do: "dump the quarantine of broker 1", Expect: "100 records, v0 to v99",
			Run: func(ctx context.Context, w *world) (string, error) {
				values, err := w.dump(ctx, 1, "acks1", "--quarantine")
				if err == nil && !numbered(values, "v", 100) {
					err = differs("%s", summary(values))
				}
				return summary(values), err
			},
		},
	}
}

// lostAll reports whether the loss report of acks1-0 covers just the first n offsets.
func (w *world) lostAll(ctx context.Context, n int64) (string, bool, error) {
	out, err := w.cairn(ctx, "losses", "--bootstrap-server", w.addresses()[0], "--topic", "acks1", "--json")
	if err != nil {
		return "", false, err
	}
	losses, err := oneArray[reportedLoss](out)
	if err != nil {
		return "", false, err
	}
	var ranges []lostRange
	var told []string
	for _, l := range losses {
		if l.Topic == "acks1" && l.Partition == 0 {
			ranges = append(ranges, lostRange{l.LeaderEpoch, l.From, l.To})
			told = append(told, fmt.Sprintf("%s (%s, broker %d)", rangesText(ranges[len(ranges)-1:]), l.Cause, l.Broker))
		}
	}
	return strings.Join(told, "; "), covers(ranges, n), nil
}

func cleanReturn(s Settings) []Step {
	return []Step{
		start(1),
		shows("acks1", "Leader: 1 Isr: 1", s.fenced()),
		consumed("acks1", "v", 100),
	}
}

func lastTwo(s Settings) []Step {
	second := acksAll("last", 50, 5)
	second.first = 50
	return []Step{
		create("last", 2, []int32{1, 2, 3}),
		acknowledged(acksAll("last", 50, 5), 0),
		stop(3),
		shows("last", "Leader: 1 Isr: 1,2", s.fenced()),
		acknowledged(second, 50),
		stop(2),
		settles("last", "Leader: 1 Isr: 1 Elr: 2", s.fenced()),
		refused(sending{topic: "last", prefix: "refused", count: 1, acksAll: true}, "NOT_ENOUGH_REPLICAS"),
		kill(1),
		start(3, 2),
		shows("last", "Leader: 2", s.fenced()+5*time.Second),
		consumed("last", "v", 100),
	}
}
