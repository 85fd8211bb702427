package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const (
	idempotenceCase = "idempotence"
	// idempotencePairs is how many pairs of runs are made for each run of the other cases: neighbours on the machine disturb a pair, not their median.
	idempotencePairs = 3
)

// idempotence measures what producer ids and sequences cost: pairs of runs on one node, one idempotent and one not, in turns.
func (b *bench) idempotence(ctx context.Context) (err error) {
	c, err := b.started(ctx, 1, "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, pc := range []produceCase{
		{Nodes: 1, Flush: "always", Acks: "all", RecordBytes: 1024, Producers: 1},
		{Nodes: 1, Flush: "always", Acks: "all", RecordBytes: 100, Producers: 1, BatchBytes: 16 << 10},
	} {
		if err := b.pairs(ctx, c, pc); err != nil {
			return err
		}
	}
	return nil
}

// pairs makes the pairs of one case. Every other pair begins with the run that is not idempotent.
func (b *bench) pairs(ctx context.Context, c *harness.Cluster, pc produceCase) error {
	var throughput, cpu []float64
	for i := range idempotencePairs * b.runs {
		var with, without produced
		order := []*produced{&with, &without}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, p := range order {
			one := pc
			one.Plain = p == &without
			var err error
			if *p, err = b.once(ctx, c, one); err != nil {
				return err
			}
		}
		throughput = append(throughput, with.mbPerSecond()/without.mbPerSecond())
		cpu = append(cpu, with.CPUPerGB/without.CPUPerGB)
		fmt.Printf("%s, %s: %.0f MB/s with, %.0f without; broker's CPU s/GB %.2f and %.2f\n", idempotenceCase, pc,
			with.mbPerSecond(), without.mbPerSecond(), with.CPUPerGB, without.CPUPerGB)
	}
	slices.Sort(throughput)
	slices.Sort(cpu)
	b.report.idempotent(pc, len(cpu), throughput[len(throughput)/2], cpu[len(cpu)/2])
	return nil
}

// once is one run of a case on a topic of its own.
func (b *bench) once(ctx context.Context, c *harness.Cluster, pc produceCase) (p produced, err error) {
	topic, err := b.topic(ctx, c)
	if err != nil {
		return p, err
	}
	m, err := startMeter(ctx, c)
	if err != nil {
		return p, err
	}
	if p, err = pc.load(ctx, c.Bootstrap(), topic, b.length); err != nil {
		return p, err
	}
	if p.CPUPerGB, p.PeakRSS, err = m.finish(p.Bytes); err != nil {
		return p, err
	}
	return p, workload.DeleteTopic(ctx, c.Bootstrap(), topic)
}
