package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/tools/lab/nodes"
)

const (
	waitingRequests = 10000
	waitingConns    = 100 // a connection takes 128 unanswered requests
	pairedRuns      = 5
	samples         = 300 // of each operation, before and during the wait
	slackMs         = 5.0 // what may be added where twice is less
	memoryPerWait   = 10 << 10
	spareGoroutines = 100
	spareThreads    = 20
)

// footprint is what a broker uses.
type footprint struct {
	goroutines, threads float64
	rss                 int64
}

func footprintOf(n *nodes.Node) (f footprint, err error) {
	var errs [3]error
	f.goroutines, errs[0] = metric(n, "go_goroutines", "")
	f.threads, errs[1] = metric(n, "go_threads", "")
	u, err := n.Usage()
	f.rss, errs[2] = u.RSS, err
	return f, errors.Join(errs[:]...)
}

func (f footprint) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f threads, %d MB", f.goroutines, f.threads, f.rss>>20)
}

// pair is one run: the same measurement before and while the requests wait.
type pair struct {
	before, during []float64 // p99 of each operation in milliseconds
	idle, loaded   footprint
}

func purgatory(Settings) []Step {
	var pairs []pair
	steps := []Step{
		create("slow", 1, []int32{2, 3}),
		create("alone", 1, []int32{2}),
		create("both", 1, []int32{2, 1}),
		acknowledged(acksAll("alone", 1, 0), 0),
	}
	for i := range pairedRuns {
		steps = append(steps, Step{
			Do: fmt.Sprintf("run %d: measure broker 2, freeze broker 3, send %d acks=all requests to slow on %d connections, measure again, unfreeze broker 3",
				i+1, waitingRequests, waitingConns),
			Expect: "all wait while it is measured, and all succeed afterwards",
			Run: func(ctx context.Context, w *world) (string, error) {
				p, err := w.pairedRun(ctx)
				if err != nil {
					return "", err
				}
				pairs = append(pairs, p)
				return fmt.Sprintf("p99 in ms of %s: before %.1f, during %.1f; %s before, %s during", strings.Join(operationNames(), ", "), p.before, p.during, p.idle, p.loaded), nil
			},
		})
	}
	return append(steps, Step{
		Do:     fmt.Sprintf("compare the medians of the %d runs", pairedRuns),
		Expect: fmt.Sprintf("each p99 at most twice what it was, or %.0f ms more", slackMs),
		Run:    func(context.Context, *world) (string, error) { return comparePairs(pairs) },
	}, Step{
		Do:     "compare what the waiting requests cost",
		Expect: fmt.Sprintf("at most %d goroutines and %d threads more, and %d KB for each request", spareGoroutines, spareThreads, memoryPerWait>>10),
		Run:    func(context.Context, *world) (string, error) { return compareFootprints(pairs) },
	}, consumedCount("slow", pairedRuns*waitingRequests))
}

// consumedCount reads the topic and counts.
func consumedCount(topic string, n int) Step {
	return Step{Do: "consume " + topic + " from the beginning", Expect: fmt.Sprintf("%d records", n), Run: func(ctx context.Context, w *world) (string, error) {
		values, err := w.consume(ctx, topic)
		if err == nil && len(values) != n {
			err = differs("%d records", len(values))
		}
		return fmt.Sprintf("%d records", len(values)), err
	}}
}

// comparePairs compares the medians over the runs, operation by operation.
func comparePairs(pairs []pair) (string, error) {
	var seen, bad []string
	for op, name := range operationNames() {
		before := median(pairs, func(p pair) float64 { return p.before[op] })
		during := median(pairs, func(p pair) float64 { return p.during[op] })
		text := fmt.Sprintf("%s %.1f -> %.1f ms", name, before, during)
		seen = append(seen, text)
		if during > max(2*before, before+slackMs) {
			bad = append(bad, text)
		}
	}
	if len(bad) > 0 {
		return strings.Join(seen, ", "), differs("%s", strings.Join(bad, ", "))
	}
	return strings.Join(seen, ", "), nil
}

func compareFootprints(pairs []pair) (string, error) {
	var last string
	for i, p := range pairs {
		goroutines, threads, bytes := p.loaded.goroutines-p.idle.goroutines, p.loaded.threads-p.idle.threads, p.loaded.rss-p.idle.rss
		last = fmt.Sprintf("%+.0f goroutines, %+.0f threads, %+d MB", goroutines, threads, bytes>>20)
		if goroutines > spareGoroutines || threads > spareThreads || bytes > memoryPerWait*waitingRequests {
			return last, differs("in run %d: %s", i+1, last)
		}
	}
	return "in the last run " + last, nil
}

func median(pairs []pair, of func(pair) float64) float64 {
	var all []float64
	for _, p := range pairs {
		all = append(all, of(p))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// pairedRun measures, lets the requests wait, measures again, and ends the wait.
func (w *world) pairedRun(ctx context.Context) (p pair, err error) {
	n := w.node(2)
	var conns []*conn
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.close())
		}
	}()
	for range waitingConns {
		c, err := dial(ctx, n.Addr)
		if err != nil {
			return p, err
		}
		conns = append(conns, c)
		if _, err := c.call(kmsg.NewPtrApiVersionsRequest(), callLimit); err != nil {
			return p, err
		}
	}
	if p.idle, err = footprintOf(n); err != nil {
		return p, err
	}
	if p.before, err = w.operations(ctx, n); err != nil {
		return p, err
	}
	if err := w.node(3).Freeze(); err != nil {
		return p, err
	}
	sent, err := sendWaiting(conns)
	if err != nil {
		return p, err
	}
	if err := w.allWait(ctx, n); err != nil {
		return p, err
	}
	if p.loaded, err = footprintOf(n); err != nil {
		return p, err
	}
	if p.during, err = w.operations(ctx, n); err != nil {
		return p, err
	}
	if err := w.allWait(ctx, n); err != nil {
		return p, fmt.Errorf("after the measurement: %w", err)
	}
	if err := w.node(3).Thaw(); err != nil {
		return p, err
	}
	if err := receiveWaiting(conns, sent); err != nil {
		return p, err
	}
	_, _, err = w.await(ctx, "broker 3 in the ISR", 30*time.Second, w.lookAt("slow", func(s partitionState) bool { return hasFields(s.String(), "Leader: 2 Isr: 2,3") }))
	return p, err
}

// allWait waits until the broker has all the requests in its purgatory.
func (w *world) allWait(ctx context.Context, n *nodes.Node) error {
	_, _, err := w.await(ctx, fmt.Sprintf("%d requests to wait", waitingRequests), 4*time.Second, func(context.Context) (string, bool, error) {
		v, err := metric(n, "cairn_purgatory_requests", "")
		return fmt.Sprintf("%.0f wait", v), v >= waitingRequests, err
	})
	return err
}

// sendWaiting sends the requests, the same number on each connection.
func sendWaiting(conns []*conn) ([][]sentRequest, error) {
	sent := make([][]sentRequest, len(conns))
	for i, c := range conns {
		for j := range waitingRequests / waitingConns {
			req, err := c.sendProduce(acksAllCode, time.Minute, place{"slow", 0, fmt.Sprintf("%d-%d", i, j)})
			if err != nil {
				return nil, err
			}
			sent[i] = append(sent[i], req)
		}
	}
	return sent, nil
}

// receiveWaiting reads all answers, which must be successes.
func receiveWaiting(conns []*conn, sent [][]sentRequest) error {
	for i, c := range conns {
		for _, s := range sent[i] {
			got, err := c.answers(s, 30*time.Second)
			if err != nil {
				return err
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], "slow-0: offset ") {
				return differs("a waiting request was answered with %v", got)
			}
		}
	}
	return nil
}

// operation is a request whose latency is measured.
type operation struct {
	name    string
	request func() (kmsg.Request, error)
	silent  bool // it has no answer: the time is until that of the metadata request behind it
}

func operationNames() []string {
	var names []string
	for _, o := range measuredOperations() {
		names = append(names, o.name)
	}
	return names
}

// measuredOperations are what must not become slower, all on partitions other than the one that is waited for.
func measuredOperations() []operation {
	produce := func(acks int16, topic string) func() (kmsg.Request, error) {
		return func() (kmsg.Request, error) { return produceRequest(acks, callLimit, place{topic, 0, "quick"}) }
	}
	return []operation{
		{name: "metadata", request: func() (kmsg.Request, error) { return metadataRequest(), nil }},
		{name: "fetch", request: func() (kmsg.Request, error) { return fetchRequest("alone"), nil }},
		{name: "acks=0", request: produce(0, "alone"), silent: true},
		{name: "acks=1", request: produce(1, "alone")},
		{name: "acks=all", request: produce(acksAllCode, "both")},
	}
}

func metadataRequest() kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr("alone")
	req.Topics = append(req.Topics, rt)
	return req
}

func fetchRequest(topic string) kmsg.Request {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 500, 1, 4096, -1
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 4096
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// operations measures the p99 of each operation on one connection, one request at a time.
func (w *world) operations(ctx context.Context, n *nodes.Node) (p99 []float64, err error) {
	c, err := dial(ctx, n.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	all := measuredOperations()
	took := make([][]float64, len(all))
	for range samples { // in turns, so that a bad moment of the machine is not that of one operation
		for i, o := range all {
			ms, err := o.once(c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", o.name, err)
			}
			took[i] = append(took[i], ms)
		}
	}
	for _, list := range took {
		slices.Sort(list)
		p99 = append(p99, list[len(list)*99/100])
	}
	return p99, ctx.Err()
}

// once is one request and its answer, in milliseconds.
func (o operation) once(c *conn) (float64, error) {
	req, err := o.request()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if o.silent {
		if _, err := c.send(req); err != nil {
			return 0, err
		}
		req = metadataRequest()
	}
	resp, err := c.call(req, callLimit)
	if err != nil {
		return 0, err
	}
	return 1000 * time.Since(begun).Seconds(), failedAnswer(resp)
}

// failedAnswer is the error in the answer to a measured operation.
func failedAnswer(resp kmsg.Response) error {
	var errs []error
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				errs = append(errs, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	case *kmsg.FetchResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				errs = append(errs, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	case *kmsg.MetadataResponse:
		for _, t := range r.Topics {
			errs = append(errs, kerr.ErrorForCode(t.ErrorCode))
		}
	}
	return errors.Join(errs...)
}
