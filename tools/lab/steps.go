package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The steps that several experiments have in common. brokers are named by their ids.

// create makes the experiment's topic.
func create(topic string, minISR int, assignment ...[]int32) Step {
	var lists []string
	for _, replicas := range assignment {
		lists = append(lists, joined(replicas))
	}
	return Step{
		Do:     fmt.Sprintf("create topic %s with replicas %s and min.insync.replicas=%d", topic, strings.Join(lists, " and "), minISR),
		Expect: fmt.Sprintf("Leader: %d Isr: %s", assignment[0][0], joined(assignment[0])),
		Run: func(ctx context.Context, w *world) (string, error) {
			return w.createTopic(ctx, topic, minISR, assignment...)
		},
	}
}

// freeze stops brokers with SIGSTOP.
func freeze(brokers ...int) Step {
	return Step{Do: "freeze " + named(brokers) + " (SIGSTOP)", Run: func(_ context.Context, w *world) (string, error) {
		w.silent = time.Now()
		for _, id := range brokers {
			if err := w.node(id).Freeze(); err != nil {
				return "", err
			}
		}
		return "", nil
	}}
}

// thaw lets brokers go on.
func thaw(brokers ...int) Step {
	return Step{Do: "unfreeze " + named(brokers) + " (SIGCONT)", Run: func(_ context.Context, w *world) (string, error) {
		for _, id := range brokers {
			if err := w.node(id).Thaw(); err != nil {
				return "", err
			}
		}
		return "", nil
	}}
}

func kill(id int) Step {
	return Step{Do: "kill " + named([]int{id}) + " (SIGKILL)", Run: func(_ context.Context, w *world) (string, error) {
		w.silent = time.Now()
		return "", w.node(id).Kill()
	}}
}

// stop ends a broker in order.
func stop(id int) Step {
	return Step{Do: "stop " + named([]int{id}) + " (SIGTERM)", Expect: "exit code 0", Run: func(_ context.Context, w *world) (string, error) {
		begun := time.Now()
		if err := w.node(id).Stop(startLimit); err != nil {
			return "", err
		}
		return fmt.Sprintf("exit code 0 after %.1f s", time.Since(begun).Seconds()), nil
	}}
}

// start starts brokers again and waits until they say that they serve.
func start(brokers ...int) Step {
	return Step{Do: "start " + named(brokers), Expect: "the ready line", Run: func(ctx context.Context, w *world) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		for _, id := range brokers {
			if err := w.node(id).Start(); err != nil {
				return "", err
			}
		}
		var seen []string
		for _, id := range brokers {
			took, err := w.node(id).WaitReady(ctx)
			if err != nil {
				return strings.Join(seen, ", "), err
			}
			seen = append(seen, fmt.Sprintf("broker %d ready after %.1f s", id, took.Seconds()))
		}
		return strings.Join(seen, ", "), nil
	}}
}

func named(brokers []int) string {
	var s []string
	for _, id := range brokers {
		s = append(s, fmt.Sprintf("broker %d", id))
	}
	return strings.Join(s, " and ")
}

// shows waits until describe has the text in its line, which must happen within limit.
func shows(topic, text string, limit time.Duration) Step {
	return Step{Do: "describe " + topic, Expect: fmt.Sprintf("%s, within %v", text, limit), Run: func(ctx context.Context, w *world) (string, error) {
		took, seen, err := w.await(ctx, text, limit, w.lookAt(topic, func(p partitionState) bool { return hasFields(p.String(), text) }))
		return fmt.Sprintf("%s after %.1f s", seen, took.Seconds()), err
	}}
}

// settles waits like shows, and then until the state, leader epoch included, has stayed so for a second and the leader serves: what follows
// is about the state, not about the way there.
func settles(topic, text string, limit time.Duration) Step {
	const calm = time.Second
	return Step{Do: "describe " + topic, Expect: fmt.Sprintf("%s, within %v, and for a second after that", text, limit), Run: func(ctx context.Context, w *world) (string, error) {
		var since time.Time
		epoch := int32(-1)
		took, seen, err := w.await(ctx, text, limit+calm, func(ctx context.Context) (string, bool, error) {
			p, err := w.describe(ctx, topic)
			if err == nil && hasFields(p.String(), text) {
				_, err = w.listOffset(ctx, topic, 0, p.leader, latestOffset)
			} else if err == nil {
				since = time.Time{}
				return p.String(), false, nil
			}
			if err != nil || p.epoch != epoch || since.IsZero() {
				epoch, since = p.epoch, time.Now()
			}
			return p.String(), time.Since(since) >= calm, err
		})
		return fmt.Sprintf("%s after %.1f s, leader epoch %d", seen, (took - calm).Seconds(), epoch), err
	}}
}

// hasFields reports whether each "Name: value" of want is in line; a value may be empty.
func hasFields(line, want string) bool {
	have := fields(line)
	for name, value := range fields(want) {
		if got, ok := have[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// fields splits a line like "Leader: 2 Isr: 2,1 Elr: " into names and values.
func fields(line string) map[string]string {
	m := map[string]string{}
	name := ""
	for _, word := range strings.Fields(line) {
		if n, ok := strings.CutSuffix(word, ":"); ok {
			name = n
			m[name] = ""
		} else if name != "" {
			m[name] = word
		}
	}
	return m
}

// acknowledged produces records that must all be acknowledged, at offsets from first on.
func acknowledged(s sending, firstOffset int64) Step {
	return Step{
		Do:     "produce " + s.describe(),
		Expect: fmt.Sprintf("acknowledged at %s", offsetsText(firstOffset, s.count)),
		Run: func(ctx context.Context, w *world) (string, error) {
			res, err := w.produce(ctx, s)
			if err == nil && (len(res.offsets) != s.count || !consecutive(res.offsets, firstOffset)) {
				err = differs("%s; offsets %v", res, clipped(res.offsets))
			}
			return res.String(), err
		},
	}
}

// refused produces records of which each must fail with the error.
func refused(s sending, name string) Step {
	return Step{Do: "produce " + s.describe(), Expect: fmt.Sprintf("each fails with %s", name), Run: func(ctx context.Context, w *world) (string, error) {
		res, err := w.produce(ctx, s)
		all := len(res.errs) == s.count && !slices.ContainsFunc(res.errs, func(e error) bool { return errorName(e) != name })
		if err == nil && !all {
			err = differs("%s", res)
		}
		return res.String(), err
	}}
}

func (s sending) describe() string {
	acks := "1"
	if s.acksAll {
		acks = "all"
	}
	text := fmt.Sprintf("%s to %s, acks=%s retries=%d", recordsText(s.count), s.topic, acks, s.retries)
	if s.count > 1 {
		text += ", each awaited"
	}
	return text
}

func recordsText(n int) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

func offsetsText(from int64, n int) string {
	if n == 1 {
		return fmt.Sprintf("offset %d", from)
	}
	return fmt.Sprintf("offsets %d..%d", from, from+int64(n)-1)
}

func clipped(list []int64) []int64 { return list[:min(len(list), 20)] }

// consumed reads the topic, which must have just prefix0 to prefix(n-1).
func consumed(topic, prefix string, n int) Step {
	expect := recordsText(n)
	if n > 0 {
		expect += fmt.Sprintf(", %s0 to %s%d", prefix, prefix, n-1)
	}
	return Step{Do: "consume " + topic + " from the beginning", Expect: expect, Run: func(ctx context.Context, w *world) (string, error) {
		values, err := w.consume(ctx, topic)
		if err == nil && !numbered(values, prefix, n) {
			err = differs("%s: %v", summary(values), values[:min(len(values), 20)])
		}
		return summary(values), err
	}}
}

// stored counts the records that a stopped broker has of the topic; they must be prefix0 to prefix(n-1).
func stored(id int, topic, prefix string, n int) Step {
	return Step{
		Do:     fmt.Sprintf("dump what broker %d, which does not run, has stored of %s", id, topic),
		Expect: recordsText(n),
		Run: func(ctx context.Context, w *world) (string, error) {
			values, err := w.dump(ctx, id, topic)
			if err == nil && !numbered(values, prefix, n) {
				err = differs("%s: %v", summary(values), values[:min(len(values), 20)])
			}
			return summary(values), err
		},
	}
}

// highWatermark waits until a broker's own replica has heard of the high watermark.
func highWatermark(id int, topic string, want int64) Step {
	return Step{
		Do: fmt.Sprintf("look at broker %d's metrics", id), Expect: fmt.Sprintf("high watermark %d of %s, within 5s", want, topic),
		Run: func(ctx context.Context, w *world) (string, error) {
			took, seen, err := w.await(ctx, fmt.Sprintf("high watermark %d", want), 5*time.Second, func(context.Context) (string, bool, error) {
				v, err := partitionMetric(w.node(id), "high_watermark", topic)
				return fmt.Sprintf("%.0f", v), err == nil && int64(v) == want, err
			})
			return fmt.Sprintf("%s after %.1f s", seen, took.Seconds()), err
		},
	}
}

// passes lets time pass while the state must stay as it is.
func passes(topic, text string, d time.Duration) Step {
	return Step{
		Do: fmt.Sprintf("describe %s again and again for %v", topic, d), Expect: "still " + text,
		Run: func(ctx context.Context, w *world) (string, error) {
			return w.watch(ctx, text, d, w.lookAt(topic, func(p partitionState) bool { return hasFields(p.String(), text) }))
		},
	}
}
