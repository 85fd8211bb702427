package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"cairn/tools/lab/nodes"
)

// world is the cluster of one run, as the steps act on it and look at it. It is for one goroutine.
type world struct {
	cluster  *nodes.Cluster
	binary   string
	set      Settings
	narrator *narrator
	relay    *relay // in front of one broker, or nil

	conns  []*conn   // those that steps left open for later steps
	silent time.Time // when the broker that was frozen or killed last was
}

func (w *world) node(id int) *nodes.Node { return w.cluster.Node(id) }

func (w *world) close() error {
	var errs []error
	for _, c := range w.conns {
		errs = append(errs, c.close())
	}
	if w.relay != nil {
		errs = append(errs, w.relay.close())
	}
	return errors.Join(errs...)
}

// open opens a connection that lives until the end of the run.
func (w *world) open(ctx context.Context, broker int) (*conn, error) {
	c, err := dial(ctx, w.node(broker).Addr)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *world) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return w.cluster.Start(ctx)
}

// serving are the brokers that run and are not frozen.
func (w *world) serving() []*nodes.Node {
	var list []*nodes.Node
	for _, n := range w.cluster.Brokers() {
		if n.Serving() {
			list = append(list, n)
		}
	}
	return list
}

// addresses are those of the brokers that serve.
func (w *world) addresses() []string {
	var list []string
	for _, n := range w.serving() {
		list = append(list, n.Addr)
	}
	return list
}

// cairn runs a command of the binary, as a person would, and returns its output.
func (w *world) cairn(ctx context.Context, args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	w.narrator.say("    $ cairn %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, w.binary, args...)
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("cairn %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errText.String())
	}
	return out.String(), nil
}

// lookEvery is the time between two looks at something that only looking can tell.
const lookEvery = 50 * time.Millisecond

// await looks until look says done, and returns how long that took and what was seen last. What goes wrong while looking counts as not done:
// brokers come and go here. After limit the error is that something else was seen.
func (w *world) await(ctx context.Context, what string, limit time.Duration, look func(context.Context) (seen string, done bool, err error)) (time.Duration, string, error) {
	begun := time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		seen, done, err := look(ctx)
		took := time.Since(begun)
		if err == nil && done {
			return took, seen, nil
		}
		if err != nil {
			seen = strings.TrimSpace(seen + " (" + err.Error() + ")")
		}
		if took > limit {
			return took, seen, differs("%v of waiting for %s, and it is %s", limit, what, orNothing(seen))
		}
		w.narrator.waiting("waiting for "+what, seen, begun, limit)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return took, seen, ctx.Err()
		}
	}
}

// watch looks for the whole time d and reports the first look at which what must hold does not.
func (w *world) watch(ctx context.Context, what string, d time.Duration, look func(context.Context) (seen string, holds bool, err error)) (string, error) {
	begun := time.Now()
	ticker := time.NewTicker(4 * lookEvery)
	defer ticker.Stop()
	for {
		seen, holds, err := look(ctx)
		if err != nil {
			return seen, err
		}
		if !holds {
			return seen, differs("after %.1f s it is %s", time.Since(begun).Seconds(), orNothing(seen))
		}
		if time.Since(begun) >= d {
			return seen, nil
		}
		w.narrator.waiting("watching that "+what, seen, begun, d)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return seen, ctx.Err()
		}
	}
}

// pause lets time pass that something is given, not something that is waited for.
func (w *world) pause(ctx context.Context, why string, d time.Duration) error {
	_, err := w.watch(ctx, why, d, func(context.Context) (string, bool, error) { return "so", true, nil })
	return err
}

// metric reads one figure of a node; labels are as Prometheus writes them, or empty.
func metric(n *nodes.Node, name, labels string) (float64, error) {
	status, page, err := n.Get("/metrics")
	if err != nil {
		return 0, err
	}
	series := name
	if labels != "" {
		series += "{" + labels + "}"
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("node %d has no metric %s (status %d)", n.ID, series, status)
}

// partitionMetric reads a figure of the first partition of a topic.
func partitionMetric(n *nodes.Node, name, topic string) (float64, error) {
	return metric(n, "cairn_partition_"+name, fmt.Sprintf(`partition="0",topic="%s"`, topic))
}
