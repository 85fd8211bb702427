package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const partitions = 12

// options are the flags.
type options struct {
	runs   int
	length time.Duration
	only   *regexp.Regexp
	out    string
}

func main() {
	quick := flag.Bool("quick", false, "one short run of each case, and nothing written")
	runs := flag.Int("runs", 3, "runs of each case; the median is reported")
	length := flag.Duration("length", 4*time.Second, "how long a run produces")
	only := flag.String("only", "", "a regular expression: only cases whose name it matches, and nothing written without -write")
	write := flag.Bool("write", false, "with -only: rewrite the sections of docs/benchmarks.md that were measured")
	bare := flag.String("bare", "", "`ADDRESS TOPIC RECORDS BYTES`: be the loop that the load tool is compared with")
	flag.Parse()
	if *bare != "" {
		if err := bareLoop(context.Background(), *bare); err != nil {
			fail(err)
		}
		return
	}
	o := options{runs: *runs, length: *length, only: regexp.MustCompile(*only)}
	if *quick {
		o.runs, o.length = 1, time.Second
	}
	if !*quick && (*only == "" || *write) {
		root, err := harness.Root()
		if err != nil {
			fail(err)
		}
		o.out = filepath.Join(root, "docs", "benchmarks.md")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// bench has what all cases share.
type bench struct {
	options
	binary string
	report report
	topics int
}

func run(ctx context.Context, o options) error {
	var builder harness.Builder
	binary, err := builder.Binary()
	if err != nil {
		return err
	}
	b := &bench{options: o, binary: binary, report: newReport(o)}
	if o.only.MatchString("start") {
		if err := b.startTimes(ctx); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	for _, nodes := range []int{1, 3} {
		for _, flush := range []string{"always", "os"} {
			if err := b.shape(ctx, nodes, flush); err != nil {
				return fmt.Errorf("%d nodes, flush %s: %w", nodes, flush, err)
			}
		}
	}
	if o.only.MatchString(frozenCase) {
		if err := b.frozen(ctx); err != nil {
			return fmt.Errorf("%s: %w", frozenCase, err)
		}
	}
	if o.only.MatchString(idempotenceCase) {
		if err := b.idempotence(ctx); err != nil {
			return fmt.Errorf("%s: %w", idempotenceCase, err)
		}
	}
	if o.only.MatchString(toolCase) {
		if err := b.toolCost(ctx); err != nil {
			return fmt.Errorf("%s: %w", toolCase, err)
		}
	}
	if o.only.MatchString(groupsCase) {
		if err := b.groups(ctx); err != nil {
			return fmt.Errorf("%s: %w", groupsCase, err)
		}
	}
	if slices.ContainsFunc(replicaRates(), func(rate int) bool { return o.only.MatchString(replicaName(rate)) }) {
		if err := b.addReplica(ctx); err != nil {
			return fmt.Errorf("%s: %w", replicaCase, err)
		}
	}
	if err := b.failover(ctx); err != nil {
		return fmt.Errorf("%s: %w", failoverCase, err)
	}
	sections := b.report.sections()
	fmt.Print(body(sections))
	if o.out == "" {
		return nil
	}
	return rewrite(o.out, sections)
}

// newCluster makes a cluster, not yet started.
func (b *bench) newCluster(nodes int, flush string) (*harness.Cluster, error) {
	props := map[string]string{"log.flush": flush}
	if nodes == 1 {
		return harness.Single(b.binary, props)
	}
	return harness.Three(b.binary, props)
}

// started is newCluster with its nodes running. Who gets it closes it.
func (b *bench) started(ctx context.Context, nodes int, flush string) (*harness.Cluster, error) {
	c, err := b.newCluster(nodes, flush)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// shape runs all cases of one cluster shape, on one cluster.
func (b *bench) shape(ctx context.Context, nodes int, flush string) (err error) {
	var cases []produceCase
	for _, size := range []int{1024, 100} {
		for _, producers := range []int{1, 50} {
			for _, acks := range []string{"all", "1"} {
				cases = append(cases, produceCase{Nodes: nodes, Flush: flush, Acks: acks, RecordBytes: size, Producers: producers})
			}
		}
	}
	cases = append(cases, produceCase{Nodes: nodes, Flush: flush, Acks: "all", RecordBytes: 1024, Producers: 1, Rate: 10_000})
	cases = slices.DeleteFunc(cases, func(c produceCase) bool { return !b.only.MatchString(c.String()) })
	consume := flush == "always" && b.only.MatchString(fmt.Sprintf("consume %d node(s)", nodes))
	if len(cases) == 0 && !consume {
		return nil
	}
	c, err := b.newCluster(nodes, flush)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
	}()
	startCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(startCtx); err != nil {
		return err
	}
	for _, pc := range cases {
		if err := b.produce(ctx, c, pc); err != nil {
			return err
		}
	}
	if consume {
		return b.consume(ctx, c, nodes)
	}
	return nil
}

// topic makes a fresh topic; the one before it is deleted by the caller.
func (b *bench) topic(ctx context.Context, c *harness.Cluster) (string, error) {
	b.topics++
	name := fmt.Sprintf("bench-%d", b.topics)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return name, workload.CreateTopic(ctx, c.Bootstrap(), name, partitions, int16(len(c.Brokers())), nil)
}

func (b *bench) produce(ctx context.Context, c *harness.Cluster, pc produceCase) error {
	var all []produced
	for range b.runs {
		topic, err := b.topic(ctx, c)
		if err != nil {
			return err
		}
		m, err := startMeter(ctx, c)
		if err != nil {
			return err
		}
		p, err := pc.load(ctx, c.Bootstrap(), topic, b.length)
		if err != nil {
			return err
		}
		if p.CPUPerGB, p.PeakRSS, err = m.finish(p.Bytes); err != nil {
			return err
		}
		written, err := m.settle(ctx)
		if err != nil {
			return err
		}
		p.WrittenPerByte = float64(written) / float64(p.Bytes) / float64(len(c.Brokers()))
		if err := workload.DeleteTopic(ctx, c.Bootstrap(), topic); err != nil {
			return err
		}
		all = append(all, p)
		fmt.Printf("%s: %.0f MB/s, %.0f records/s\n", pc, p.mbPerSecond(), p.recordsPerSecond())
	}
	slices.SortFunc(all, func(a, b produced) int { return cmp.Compare(a.mbPerSecond(), b.mbPerSecond()) })
	b.report.produced(pc, all[len(all)/2])
	return nil
}

// consume measures reading while it is written, and reading all of it after a restart, when nothing is in memory of the broker.
func (b *bench) consume(ctx context.Context, c *harness.Cluster, nodes int) error {
	for _, size := range []int{1024, 100} {
		topic, err := b.topic(ctx, c)
		if err != nil {
			return err
		}
		tail, records, err := b.tail(ctx, c, produceCase{Nodes: nodes, Flush: "always", Acks: "all", RecordBytes: size, Producers: 1}, topic)
		if err != nil {
			return err
		}
		for _, n := range c.Nodes {
			if err := n.Stop(time.Minute); err != nil {
				return err
			}
		}
		startCtx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := c.Start(startCtx); err != nil {
			return err
		}
		if err := waitLeaders(startCtx, c, topic); err != nil {
			return err
		}
		cold, err := measured(ctx, c, func() (consumed, error) { return drain(ctx, c.Bootstrap(), topic, records) })
		if err != nil {
			return err
		}
		b.report.consumed(nodes, size, "tail", tail)
		b.report.consumed(nodes, size, "cold", cold)
		if err := workload.DeleteTopic(ctx, c.Bootstrap(), topic); err != nil {
			return err
		}
	}
	return nil
}

// waitLeaders waits until all partitions are led, so that reading is measured and not the election.
func waitLeaders(ctx context.Context, c *harness.Cluster, topic string) error {
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return workload.WaitLeaders(ctx, kadm.NewClient(cl), topic)
}

// tail follows a topic while the case is produced into it.
func (b *bench) tail(ctx context.Context, c *harness.Cluster, pc produceCase, topic string) (consumed, int64, error) {
	follower, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	var records int64
	var loadErr error
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		defer cancel()
		<-ready
		var p produced
		p, loadErr = pc.load(ctx, c.Bootstrap(), topic, b.length)
		records = p.Records
	}()
	got, err := measured(ctx, c, func() (consumed, error) { return follow(follower, c.Bootstrap(), topic, ready) })
	<-loaded
	if err == nil {
		err = loadErr
	}
	return got, records, err
}

func measured(ctx context.Context, c *harness.Cluster, do func() (consumed, error)) (consumed, error) {
	m, err := startMeter(ctx, c)
	if err != nil {
		return consumed{}, err
	}
	got, err := do()
	if err != nil {
		return got, err
	}
	got.CPUPerGB, got.PeakRSS, err = m.finish(got.Bytes)
	return got, err
}

// startTimes measures from the start of a process with an empty data directory and with used ones to the first acknowledged record.
func (b *bench) startTimes(ctx context.Context) error {
	for i := range max(3, b.runs) {
		c, err := harness.Single(b.binary, nil)
		if err != nil {
			return err
		}
		ready, first, rss, err := startOnce(ctx, c)
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
		b.report.started(i, ready, first, rss)
	}
	return nil
}
