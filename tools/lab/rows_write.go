package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/tools/lab/nodes"
)

// patient keeps the default session in fast runs too: what these experiments show is over before it ends.
func patient(s *Settings) { *s = Defaults() }

func writeExperiments() []Experiment {
	return []Experiment{
		{
			Name: "purgatory", Table: tableWrite, steps: purgatory, settings: patient,
			Shows: "10,000 waiting acks=all requests slow nothing else down, and cost memory alone",
		},
		{
			Name: "purgatory-timeout", Table: tableWrite, steps: purgatoryTimeout, settings: patient,
			Shows: "a waiting request is answered at its own timeout, or as soon as what it waits for happens",
		},
		{
			Name: "mixed-request", Table: tableWrite, steps: mixedRequest,
			Shows: "each partition of a request gets its own answer, in one response",
		},
		{
			Name: "fenced-leader", Table: tableWrite, steps: fencedLeader,
			Shows: "a broker that lost its leadership or its registration appends nothing for clients",
		},
		{
			Name: "pipelining", Table: tableWrite, steps: pipelining, settings: patient,
			Shows: "requests of a connection are appended and answered in order, and none waits for another's replication",
		},
	}
}

func acks0(Settings) []Step {
	return []Step{
		create("zero", 1, []int32{1, 2, 3}),
		{
			Do:     "on one connection to broker 1: a record with acks=0, then a metadata request",
			Expect: "the first and only answer is that to the second request",
			Run: func(ctx context.Context, w *world) (string, error) {
				c, err := w.open(ctx, 1)
				if err != nil {
					return "", err
				}
				if _, err := c.sendProduce(0, callLimit, place{"zero", 0, "v0"}); err != nil {
					return "", err
				}
				if _, err := c.call(kmsg.NewPtrMetadataRequest(), callLimit); err != nil {
					return "", err
				}
				if err := c.quiet(time.Second); err != nil {
					return "", err
				}
				return "the answer to request 2, and nothing for a second after it", nil
			},
		},
		consumed("zero", "v", 1),
		closes("on a connection to broker 1: acks=0 to a partition that does not exist", 1, place{"zero", 7, "lost"}),
		closes("on a connection to broker 2, which does not lead zero-0: acks=0", 2, place{"zero", 0, "lost"}),
		consumed("zero", "v", 1),
	}
}

// closes sends a record with acks=0 that cannot be taken.
func closes(do string, broker int, p place) Step {
	return Step{Do: do, Expect: "the broker closes the connection without an answer, within 5s", Run: func(ctx context.Context, w *world) (string, error) {
		c, err := w.open(ctx, broker)
		if err != nil {
			return "", err
		}
		if _, err := c.sendProduce(0, callLimit, p); err != nil {
			return "", err
		}
		begun := time.Now()
		err = c.quiet(5 * time.Second)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
			return fmt.Sprintf("closed after %.0f ms", 1000*time.Since(begun).Seconds()), nil
		case err == nil:
			return "", differs("the connection is still open")
		}
		return "", err
	}}
}

// quiet returns nil when nothing comes for the time d, and an error when bytes come or the connection ends.
func (c *conn) quiet(d time.Duration) error {
	if err := c.c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, err := c.r.Peek(1)
	var timeout net.Error
	switch {
	case err == nil:
		return differs("an answer came")
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	}
	return err
}

func mixedRequest(Settings) []Step {
	want := []string{
		"mixed-0: offset 0", "mixed-1: NOT_LEADER_OR_FOLLOWER", "mixed-2: NOT_LEADER_OR_FOLLOWER", "mixed-9: UNKNOWN_TOPIC_OR_PARTITION",
		"nowhere-0: UNKNOWN_TOPIC_OR_PARTITION",
	}
	return []Step{
		create("mixed", 1, []int32{1, 2}, []int32{2, 1}, []int32{3, 2}),
		{
			Do:     "one acks=all request to broker 1 for mixed-0 (led here), mixed-1 (a follower here), mixed-2 (not here), mixed-9 and nowhere-0 (do not exist)",
			Expect: strings.Join(want, ", ") + ", in one response",
			Run: func(ctx context.Context, w *world) (string, error) {
				req, err := produceRequest(acksAllCode, callLimit, place{"mixed", 0, "v0"}, place{"mixed", 1, "lost"}, place{"mixed", 2, "lost"},
					place{"mixed", 9, "lost"}, place{"nowhere", 0, "lost"})
				if err != nil {
					return "", err
				}
				resp, err := ask[*kmsg.ProduceResponse](ctx, w.node(1).Addr, req, callLimit)
				if err != nil {
					return "", err
				}
				got := produceAnswers(resp)
				if !slices.Equal(got, want) {
					err = differs("%s", strings.Join(got, ", "))
				}
				return strings.Join(got, ", "), err
			},
		},
		consumed("mixed", "v", 1),
	}
}

func fencedLeader(s Settings) []Step {
	return append(lostLeadership(s), lostRegistration(s)...)
}

// lostLeadership has a frozen leader wake up with requests in its socket when another leads.
func lostLeadership(s Settings) []Step {
	var c *conn
	var late []sentRequest
	return []Step{
		create("fenced", 1, []int32{2, 1, 3}),
		acknowledged(acksAll("fenced", 1, 5), 0),
		{
			Do: "open a connection to broker 2, the leader",
			Run: func(ctx context.Context, w *world) (_ string, err error) {
				if c, err = w.open(ctx, 2); err == nil {
					_, err = c.call(kmsg.NewPtrMetadataRequest(), callLimit)
				}
				return "", err
			},
		},
		freeze(2),
		{
			Do: "describe fenced", Expect: fmt.Sprintf("another broker leads and broker 2 is out of the ISR, within %v", s.fenced()),
			Run: func(ctx context.Context, w *world) (string, error) {
				_, seen, err := w.await(ctx, "another leader", s.fenced(), w.lookAt("fenced", func(p partitionState) bool {
					return p.leader >= 0 && p.leader != 2 && !slices.Contains(p.isr, 2)
				}))
				return seen, err
			},
		},
		{
			Do: "send two requests to broker 2 while it is frozen, acks=1 and acks=all",
			Run: func(context.Context, *world) (string, error) {
				for _, acks := range []int16{1, acksAllCode} {
					req, err := c.sendProduce(acks, callLimit, place{"fenced", 0, "late"})
					if err != nil {
						return "", err
					}
					late = append(late, req)
				}
				return "", nil
			},
		},
		thaw(2),
		{
			Do: "read broker 2's answers", Expect: "NOT_LEADER_OR_FOLLOWER, twice",
			Run: func(context.Context, *world) (string, error) {
				return answered(c, late, "fenced-0: NOT_LEADER_OR_FOLLOWER")
			},
		},
		allInSync(),
		consumed("fenced", "v", 1),
	}
}

// allInSync waits until each broker has all that was acknowledged.
func allInSync() Step {
	return Step{Do: "describe fenced", Expect: "all three brokers in the ISR, within 30s", Run: func(ctx context.Context, w *world) (string, error) {
		_, seen, err := w.await(ctx, "three brokers in the ISR", 30*time.Second, w.lookAt("fenced", func(p partitionState) bool {
			return p.leader >= 0 && len(p.isr) == 3
		}))
		return seen, err
	}}
}

// lostRegistration silences the controller, so that no broker can know whether it still leads.
func lostRegistration(s Settings) []Step {
	return []Step{
		freezeController(s),
		leaderless(),
		thawController(),
		{
			Do: "produce one record to fenced, acks=all", Expect: "acknowledged at offset 1, within 30s",
			Run: func(ctx context.Context, w *world) (string, error) {
				res, err := w.produce(ctx, sending{topic: "fenced", prefix: "v", first: 1, count: 1, acksAll: true, retries: math.MaxInt32})
				if err == nil && !slices.Equal(res.offsets, []int64{1}) {
					err = differs("%s", res)
				}
				return res.String(), err
			},
		},
		consumed("fenced", "v", 2),
		allInSync(),
		stop(2),
		stored(2, "fenced", "v", 2),
	}
}

// answered reads the answers to the requests, each of which must be want.
func answered(c *conn, requests []sentRequest, want string) (string, error) {
	var seen []string
	for _, r := range requests {
		got, err := c.answers(r, callLimit)
		if err != nil {
			return strings.Join(seen, ", "), err
		}
		seen = append(seen, got...)
		if !slices.Equal(got, []string{want}) {
			return strings.Join(seen, ", "), differs("%s, want %s", strings.Join(got, ", "), want)
		}
	}
	return strings.Join(seen, ", "), nil
}

// freezeController takes the registration of all brokers away.
func freezeController(s Settings) Step {
	return Step{
		Do: fmt.Sprintf("freeze the controller for longer than the session timeout of %v: no broker's heartbeat is answered", s.Session),
		Run: func(ctx context.Context, w *world) (string, error) {
			if err := w.node(nodes.ControllerID).Freeze(); err != nil {
				return "", err
			}
			_, err := w.watch(ctx, "the brokers' leases run out", s.Session+500*time.Millisecond, func(context.Context) (string, bool, error) {
				still, err := w.node(nodes.ControllerID).StandsStill()
				return fmt.Sprintf("controller frozen: %t", still), still, err
			})
			return "", err
		},
	}
}

func thawController() Step {
	return Step{Do: "unfreeze the controller", Run: func(_ context.Context, w *world) (string, error) {
		return "", w.node(nodes.ControllerID).Thaw()
	}}
}

// leaderless sends records to brokers whose leases have run out. It asks nobody who leads: the answer is as old as the controller's last word.
func leaderless() Step {
	return Step{
		Do:     "send acks=1 and acks=all to each broker; the leader of fenced-0 among them cannot know whether it still leads",
		Expect: "NOT_LEADER_OR_FOLLOWER, twice from each; their log ends stay 1",
		Run: func(ctx context.Context, w *world) (string, error) {
			var all []string
			for _, n := range w.serving() {
				seen, err := w.refusesAll(ctx, n)
				all = append(all, seen)
				if err != nil {
					return strings.Join(all, "; "), err
				}
			}
			return strings.Join(all, "; "), nil
		},
	}
}

// refusesAll sends records to a broker, which must refuse them and store nothing.
func (w *world) refusesAll(ctx context.Context, n *nodes.Node) (string, error) {
	c, err := w.open(ctx, n.ID)
	if err != nil {
		return "", err
	}
	var requests []sentRequest
	for _, acks := range []int16{1, acksAllCode} {
		req, err := c.sendProduce(acks, callLimit, place{"fenced", 0, "late"})
		if err != nil {
			return "", err
		}
		requests = append(requests, req)
	}
	seen, err := answered(c, requests, "fenced-0: NOT_LEADER_OR_FOLLOWER")
	seen = fmt.Sprintf("broker %d: %s", n.ID, seen)
	if err != nil {
		return seen, err
	}
	end, err := partitionMetric(n, "log_end_offset", "fenced")
	seen += fmt.Sprintf("; log end %.0f", end)
	if err == nil && end != 1 {
		err = differs("%s", seen)
	}
	return seen, err
}

func pipelining(Settings) []Step {
	var c *conn
	var requests []sentRequest
	want := []string{"slow-0: offset 0", "slow-0: offset 1", "slow-0: offset 2", "other-0: offset 0", "slow-0: offset 3"}
	return []Step{
		create("slow", 1, []int32{2, 3}),
		create("other", 1, []int32{2}),
		freeze(3),
		{
			Do: "on one connection to broker 2, at once: three acks=all to slow (which wait for broker 3), acks=1 to other, acks=all to slow",
			Run: func(ctx context.Context, w *world) (_ string, err error) {
				if c, err = w.open(ctx, 2); err != nil {
					return "", err
				}
				for i, topic := range []string{"slow", "slow", "slow", "other", "slow"} {
					acks := int16(acksAllCode)
					value := fmt.Sprintf("v%d", min(i, 3))
					if topic == "other" {
						acks, value = 1, "v0"
					}
					req, err := c.sendProduce(acks, 30*time.Second, place{topic, 0, value})
					if err != nil {
						return "", err
					}
					requests = append(requests, req)
				}
				return "", nil
			},
		},
		{
			Do: "look at broker 2's log ends", Expect: "slow 4 and other 1, within 2s: all are appended while the first waits",
			Run: func(ctx context.Context, w *world) (string, error) {
				took, seen, err := w.await(ctx, "log ends 4 and 1", 2*time.Second, func(context.Context) (string, bool, error) {
					slow, err := partitionMetric(w.node(2), "log_end_offset", "slow")
					other, err2 := partitionMetric(w.node(2), "log_end_offset", "other")
					return fmt.Sprintf("slow %.0f, other %.0f", slow, other), slow == 4 && other == 1, errors.Join(err, err2)
				})
				return fmt.Sprintf("%s after %.0f ms", seen, 1000*took.Seconds()), err
			},
		},
		{
			Do: "listen on the connection for half a second", Expect: "no answer: the first request still waits, and answers keep the order",
			Run: func(context.Context, *world) (string, error) { return "nothing came", c.quiet(500 * time.Millisecond) },
		},
		consumed("other", "v", 1),
		thaw(3),
		{
			Do: "read the answers", Expect: strings.Join(want, ", "),
			Run: func(context.Context, *world) (string, error) {
				var got []string
				for _, r := range requests {
					a, err := c.answers(r, callLimit)
					if err != nil {
						return strings.Join(got, ", "), err
					}
					got = append(got, a...)
				}
				if !slices.Equal(got, want) {
					return strings.Join(got, ", "), differs("%s", strings.Join(got, ", "))
				}
				return strings.Join(got, ", "), nil
			},
		},
		consumed("slow", "v", 4),
	}
}
