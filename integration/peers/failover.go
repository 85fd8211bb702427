package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// failoverLimit bounds the wait for a new leader.
const failoverLimit = time.Minute

// failover kills the node that leads partition 0, and measures how long it takes until each of the partitions that it led has acknowledged, with acks of
// all in-sync replicas, a record that was sent after that.
func (s *session) failover(ctx context.Context) error {
	if s.sys.nodes == 1 {
		return nil
	}
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	node, led, err := s.led(ctx, topic)
	if err != nil {
		return err
	}
	p := startProbes(ctx, s.client, topic, led)
	defer p.end()
	limited, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	if err := p.wait(limited, time.Now()); err != nil {
		return err
	}
	at := time.Now()
	if err := s.srv.kill(node); err != nil {
		return err
	}
	if err := p.wait(limited, at); err != nil {
		return err
	}
	s.note("failover", "ms", float64(p.slowest(at).Milliseconds()))
	return nil
}

// led finds the leader of partition 0, and all that it leads.
func (s *session) led(ctx context.Context, topic string) (node int, list []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	for p := range partitions {
		leader := 0
		if err := until(ctx, func() (err error) { leader, err = s.client.leader(ctx, topic, p); return err }); err != nil {
			return 0, nil, err
		}
		if p == 0 {
			node = leader
		}
		if leader == node {
			list = append(list, p)
		}
	}
	return node, list, nil
}

// prober writes one record after the other to each of some partitions.
type prober struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	acked map[int][]sample // guarded by mu
}

type sample struct{ sent, acked time.Time }

func startProbes(ctx context.Context, c client, topic string, list []int) *prober {
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{cancel: cancel, acked: map[int][]sample{}}
	for _, partition := range list {
		p.acked[partition] = nil
		p.running.Go(func() {
			for ctx.Err() == nil {
				one := sample{sent: time.Now()}
				if c.probe(ctx, topic, partition) == nil {
					one.acked = time.Now()
					p.mu.Lock()
					p.acked[partition] = append(p.acked[partition], one)
					p.mu.Unlock()
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	return p
}

func (p *prober) end() {
	p.cancel()
	p.running.Wait()
}

// slowest is how long after that time the last of the partitions acknowledged a record that was sent after it; 0: one has not yet.
func (p *prober) slowest(then time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst time.Duration
	for _, samples := range p.acked {
		first := time.Duration(0)
		for _, s := range samples {
			if s.sent.After(then) {
				first = s.acked.Sub(then)
				break
			}
		}
		if first == 0 {
			return 0
		}
		worst = max(worst, first)
	}
	return worst
}

func (p *prober) wait(ctx context.Context, then time.Time) error {
	return until(ctx, func() error {
		if p.slowest(then) == 0 {
			return fmt.Errorf("not all of %d partitions acknowledge records", len(p.acked))
		}
		return nil
	})
}
