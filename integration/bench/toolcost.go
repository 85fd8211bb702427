package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/tools/clientconfig"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	toolCase = "tool"
	// toolPairs is how many pairs of runs are made for each run of the other cases.
	toolPairs = 3
	// toolCostMax is what the load tool may cost, as a multiple of the bare loop: it is to measure the broker and not itself.
	toolCostMax = 1.15
)

// toolCost compares the CPU time of `cairn bench produce` with that of a bare loop over the same client, as processes, in turns.
func (b *bench) toolCost(ctx context.Context) (err error) {
	c, err := b.started(ctx, 1, "os")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, load := range []struct{ records, bytes int }{{1_000_000, 100}, {400_000, 1024}} {
		if err := b.toolPair(ctx, c, load.records, load.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) toolPair(ctx context.Context, c *harness.Cluster, records, size int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	at := c.Bootstrap()[0]
	var tool, bare, ratios []float64
	for range toolPairs * b.runs {
		for _, p := range []struct {
			times *[]float64
			args  func(topic string) []string
		}{
			{&tool, func(topic string) []string {
				return []string{b.binary, "bench", "produce", "--bootstrap-server", at, "--topic", topic, "--num-records", strconv.Itoa(records), "--record-size", strconv.Itoa(size)}
			}},
			{&bare, func(topic string) []string {
				return []string{self, "-bare", fmt.Sprint(at, " ", topic, " ", records, " ", size)}
			}},
		} {
			topic, err := b.topic(ctx, c)
			if err != nil {
				return err
			}
			cpu, err := cpuOf(ctx, p.args(topic))
			if err := errors.Join(err, workload.DeleteTopic(ctx, c.Bootstrap(), topic)); err != nil {
				return err
			}
			*p.times = append(*p.times, float64(cpu.Nanoseconds())/float64(records))
		}
		last := len(tool) - 1
		ratios = append(ratios, tool[last]/bare[last])
		fmt.Printf("%s, %d B: %.0f ns of CPU per record, the bare loop %.0f\n", toolCase, size, tool[last], bare[last])
	}
	for _, list := range [][]float64{tool, bare, ratios} {
		slices.Sort(list)
	}
	ratio := ratios[len(ratios)/2]
	b.report.toolCosts(size, len(ratios), tool[len(tool)/2], bare[len(bare)/2], ratio)
	if ratio > toolCostMax {
		return fmt.Errorf("cairn bench produce takes %.2f times the CPU of a bare loop for records of %d bytes, more than %.2f", ratio, size, toolCostMax)
	}
	return nil
}

// cpuOf runs a process and returns the CPU time that it took.
func cpuOf(ctx context.Context, args []string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", args[0], err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// bareLoop produces as many records as fast as the client takes them, and does nothing else. what is address, topic, records and bytes.
func bareLoop(ctx context.Context, what string) error {
	var address, topic string
	var records, size int
	if _, err := fmt.Sscan(what, &address, &topic, &records, &size); err != nil {
		return fmt.Errorf("-bare %q: %w", what, err)
	}
	config, err := clientconfig.ParseProducer(map[string]string{})
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(config.Options(size), kgo.SeedBrokers(strings.Split(address, ",")...), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	value := make([]byte, size)
	_, _ = rand.Read(value) // never fails
	var failed atomic.Int64
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	for range records {
		cl.Produce(ctx, &kgo.Record{Value: value}, done)
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d records were not acknowledged", n)
	}
	return nil
}
