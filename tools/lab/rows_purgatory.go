package lab

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// timeoutSlack is how long after its timeout a waiting request is answered at the latest, wakeSlack how long after the event, and moveSlack
// how long where the partition has to go on in another generation first, because Raft has lost its majority.
const (
	timeoutSlack = 500 * time.Millisecond
	wakeSlack    = 100 * time.Millisecond
	moveSlack    = 2 * time.Second
)

func purgatoryTimeout(s Settings) []Step {
	const timeout = 2 * time.Second
	return []Step{
		create("wait", 1, []int32{2, 3, 1}),
		create("pair", 1, []int32{2, 3}),
		acknowledged(acksAll("wait", 1, 0), 0),
		acknowledged(acksAll("pair", 1, 0), 0),
		freeze(3),
		{
			Do:     fmt.Sprintf("acks=all with a timeout of %v to broker 2, while broker 3 in the ISR is frozen", timeout),
			Expect: fmt.Sprintf("REQUEST_TIMED_OUT after %v to %v", timeout, timeout+timeoutSlack),
			Run: func(ctx context.Context, w *world) (string, error) {
				c, err := w.open(ctx, 2)
				if err != nil {
					return "", err
				}
				req, err := c.sendProduce(acksAllCode, timeout, place{"wait", 0, "v1"})
				if err != nil {
					return "", err
				}
				got, err := c.answers(req, timeout+callLimit)
				if err != nil {
					return "", err
				}
				took := time.Since(req.at)
				seen := fmt.Sprintf("%s after %.0f ms", strings.Join(got, ", "), 1000*took.Seconds())
				if len(got) != 1 || got[0] != "wait-0: REQUEST_TIMED_OUT" || took < timeout || took > timeout+timeoutSlack {
					err = differs("%s", seen)
				}
				return seen, err
			},
		},
		{
			Do:     "acks=all with a timeout of 30s; half a second later unfreeze broker 3",
			Expect: fmt.Sprintf("success at offset 2, within %v of broker 3's log end reaching 3", wakeSlack),
			Run: func(ctx context.Context, w *world) (string, error) {
				return w.wakes(ctx, "wait-0: offset 2", wakeSlack, place{"wait", 0, "v2"}, func() error { return w.node(3).Thaw() }, func(context.Context) (bool, error) {
					end, err := partitionMetric(w.node(3), "log_end_offset", "wait")
					return end == 3, err
				})
			},
		},
		backInSync("wait", "Leader: 2 Isr: 2,3,1"),
		leavesWhileWaiting("wait", "2,1", "wait-0: offset 3", wakeSlack, place{"wait", 0, "v3"}),
		thaw(3),
		backInSync("pair", "Leader: 2 Isr: 2,3"),
		leavesWhileWaiting("pair", "2", "pair-0: offset 1", moveSlack, place{"pair", 0, "v1"}),
		consumed("pair", "v", 2),
		consumed("wait", "v", 4),
	}
}

// backInSync waits until the partition is as wanted.
func backInSync(topic, want string) Step {
	return Step{Do: "describe " + topic, Expect: want, Run: func(ctx context.Context, w *world) (string, error) {
		_, seen, err := w.await(ctx, want, 30*time.Second, w.lookAt(topic, func(p partitionState) bool { return hasFields(p.String(), want) }))
		return seen, err
	}}
}

// leavesWhileWaiting freezes broker 3 while a request for p waits for it; the request is answered as wanted once it has left the ISR.
func leavesWhileWaiting(topic, isr, want string, slack time.Duration, p place) Step {
	return Step{
		Do:     "freeze broker 3 and keep it so until it is fenced; acks=all with a timeout of 30s to " + topic,
		Expect: fmt.Sprintf("success (%s), within %v of describe showing Isr: %s", want, slack, isr),
		Run: func(ctx context.Context, w *world) (string, error) {
			if err := w.node(3).Freeze(); err != nil {
				return "", err
			}
			return w.wakes(ctx, want, slack, p, func() error { return nil }, func(ctx context.Context) (bool, error) {
				list, err := describeAt(ctx, w.node(2).Addr, topic)
				return err == nil && joined(list[0].isr) == isr, err
			})
		},
	}
}

// wakes sends a record with acks=all to broker 2, calls act when it has waited for half a second, and measures how long after the event that
// happened tells of the answer comes. It must be want, and come within slack.
func (w *world) wakes(ctx context.Context, want string, slack time.Duration, p place, act func() error, happened func(context.Context) (bool, error)) (string, error) {
	c, err := w.open(ctx, 2)
	if err != nil {
		return "", err
	}
	req, err := c.sendProduce(acksAllCode, 30*time.Second, p)
	if err != nil {
		return "", err
	}
	if err := c.quiet(500 * time.Millisecond); err != nil {
		return "", fmt.Errorf("while it should wait: %w", err)
	}
	type answer struct {
		got []string
		err error
		at  time.Time
	}
	answers := make(chan answer, 1)
	go func() { // ends with the answer, or with its time limit, or when the run closes the connection
		got, err := c.answers(req, 40*time.Second)
		answers <- answer{got, err, time.Now()}
	}()
	if err := act(); err != nil {
		return "", err
	}
	acted := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, err := happened(ctx)
		if err == nil && done {
			break
		}
		w.narrator.waiting("waiting for what the request waits for", fmt.Sprintf("not so (%v)", err), acted, 40*time.Second)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", differs("what the request waits for did not happen within 40 s: %v", err)
		}
	}
	event := time.Now()
	a := <-answers
	if a.err != nil {
		return "", a.err
	}
	seen := fmt.Sprintf("%s, %.0f ms after what it waited for was seen, which was after %.1f s", strings.Join(a.got, ", "), 1000*a.at.Sub(event).Seconds(), event.Sub(acted).Seconds())
	if len(a.got) != 1 || a.got[0] != want || a.at.Sub(event) > slack {
		return seen, differs("%s", seen)
	}
	return seen, nil
}
