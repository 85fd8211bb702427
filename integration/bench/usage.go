package main

import (
	"context"
	"errors"
	"time"

	"cairn/integration/harness"
)

// meter takes the figures of all nodes before and after a run, and watches their memory meanwhile.
type meter struct {
	cluster *harness.Cluster
	before  harness.Usage
	stop    context.CancelFunc
	done    chan struct{}
	peak    int64
	err     error
}

// total adds up CPU and bytes written of all nodes; the memory is that of the largest.
func total(c *harness.Cluster) (harness.Usage, error) {
	var sum harness.Usage
	for _, n := range c.Nodes {
		u, err := n.Usage()
		if err != nil {
			return sum, err
		}
		sum.CPU += u.CPU
		sum.WrittenBytes += u.WrittenBytes
		sum.RSS = max(sum.RSS, u.RSS)
	}
	return sum, nil
}

func startMeter(ctx context.Context, c *harness.Cluster) (*meter, error) {
	before, err := total(c)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	m := &meter{cluster: c, before: before, stop: stop, done: make(chan struct{}), peak: before.RSS}
	go m.watch(ctx)
	return m, nil
}

func (m *meter) watch(ctx context.Context) {
	defer close(m.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			u, err := total(m.cluster)
			m.peak, m.err = max(m.peak, u.RSS), errors.Join(m.err, err)
		}
	}
}

// finish ends the measurement: CPU per GB of the bytes acknowledged, and the largest resident memory.
func (m *meter) finish(bytes int64) (cpuPerGB float64, peakRSS int64, err error) {
	after, err := total(m.cluster)
	m.stop()
	<-m.done
	return (after.CPU - m.before.CPU).Seconds() / (float64(bytes) / 1e9), m.peak, errors.Join(err, m.err)
}

// settle waits until the nodes have written nothing for a second, and returns what they have written since the start of the measurement.
func (m *meter) settle(ctx context.Context) (int64, error) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	last, quiet := m.before, 0
	for {
		u, err := total(m.cluster)
		if err != nil {
			return 0, err
		}
		// Heartbeats write a little all the time.
		if quiet++; u.WrittenBytes-last.WrittenBytes > 64<<10 {
			quiet = 0
		}
		last = u
		if quiet >= 4 {
			return u.WrittenBytes - m.before.WrittenBytes, nil
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return u.WrittenBytes - m.before.WrittenBytes, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
