package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/network"
	"cairn/integration/workload"
)

// A failover is measured from the moment something happens to the broker that leads until an acks=all record that was handed over after that
// moment is acknowledged; of several partitions that the broker led, the last one counts. Settings are the defaults.
const (
	failoverCase  = "failover"
	probes        = 12 // partitions that are produced to, of those that the broker leads
	probeEvery    = 5 * time.Millisecond
	failoverLimit = time.Minute
)

// fault is something that happens to a broker, and its end.
type fault struct {
	name          string
	rounds        int
	begin, finish func(*harness.Node, *network.Network) error
}

// faults are what is measured; quick ones once or twice.
func (b *bench) faults() []fault {
	kills, others := 20, 5
	if b.length < 3*time.Second {
		kills, others = 3, 1
	}
	return []fault{
		{"killed (SIGKILL)", kills, func(n *harness.Node, _ *network.Network) error { return n.Kill() }, func(n *harness.Node, _ *network.Network) error { return n.Start() }},
		{"frozen (SIGSTOP)", others, func(n *harness.Node, _ *network.Network) error { return n.Freeze() }, func(n *harness.Node, _ *network.Network) error { return n.Thaw() }},
		{"cut off from all nodes", others, func(n *harness.Node, net *network.Network) error {
			net.Split(n.ID)
			return nil
		}, func(_ *harness.Node, net *network.Network) error {
			net.Heal(false)
			return nil
		}},
	}
}

// failover measures all faults with one partition and with many: the cases failover-1 and failover-1000.
func (b *bench) failover(ctx context.Context) error {
	for _, partitions := range []int32{1, 1000} {
		if !b.only.MatchString(fmt.Sprintf("%s-%d", failoverCase, partitions)) {
			continue
		}
		if err := b.failoverOf(ctx, partitions); err != nil {
			return fmt.Errorf("%d partitions: %w", partitions, err)
		}
	}
	return nil
}

func (b *bench) failoverOf(ctx context.Context, partitions int32) (err error) {
	c, net, err := harness.Networked(b.binary, harness.Shape{Brokers: 3, Controllers: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(), net.Close()) }()
	startCtx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := c.Start(startCtx); err != nil {
		return err
	}
	const topic = "failover"
	if err := workload.CreateTopic(startCtx, c.Bootstrap(), topic, partitions, 3, nil); err != nil {
		return err
	}
	for _, f := range b.faults() {
		var took []time.Duration
		for i := range f.rounds {
			d, err := b.failOnce(ctx, c, net, topic, f, i)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", f.name, i+1, err)
			}
			fmt.Printf("%s, %d partitions, %s, round %d of %d: %v\n", failoverCase, partitions, f.name, i+1, f.rounds, d.Round(time.Millisecond))
			took = append(took, d)
		}
		slices.Sort(took)
		b.report.failedOver(partitions, f.name, took)
		fmt.Printf("%s, %d partitions, %s: median %v, worst %v\n", failoverCase, partitions, f.name, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	}
	return nil
}

// failOnce measures one round and leaves the cluster whole.
func (b *bench) failOnce(ctx context.Context, c *harness.Cluster, net *network.Network, topic string, f fault, round int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := waitWhole(ctx, c, topic); err != nil {
		return 0, err
	}
	victim, led, err := busiest(ctx, c, topic, round)
	if err != nil {
		return 0, err
	}
	p, err := startProbes(c, topic, led)
	if err != nil {
		return 0, err
	}
	defer p.end()
	if err := p.wait(ctx, time.Now()); err != nil {
		return 0, err
	}
	at := time.Now()
	if err := f.begin(victim, net); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	if err := p.wait(limited, at); err != nil {
		return 0, err
	}
	if err := f.finish(victim, net); err != nil {
		return 0, err
	}
	_, err = victim.WaitReady(ctx)
	return p.slowest(at), err
}

// waitWhole waits until all replicas are in sync.
func waitWhole(ctx context.Context, c *harness.Cluster, topic string) error {
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return workload.WaitTopic(ctx, kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// busiest returns a broker that leads, another one each round where there are several, and some of the partitions that it leads.
func busiest(ctx context.Context, c *harness.Cluster, topic string, round int) (*harness.Node, []int32, error) {
	leaders, err := workload.Leaders(ctx, c.Bootstrap(), topic)
	if err != nil {
		return nil, nil, err
	}
	led := map[int32][]int32{}
	for p, leader := range leaders {
		led[leader] = append(led[leader], p)
	}
	for i := range 3 {
		id := int32(1 + (round+i)%3)
		if list := led[id]; len(list) > 0 {
			slices.Sort(list)
			return c.Node(int(id)), list[:min(len(list), probes)], nil
		}
	}
	return nil, nil, fmt.Errorf("nobody leads %s: %v", topic, leaders)
}

// prober produces one record after the other to each of some partitions.
type prober struct {
	cancel context.CancelFunc
	client *kgo.Client
	wg     sync.WaitGroup

	mu    sync.Mutex
	acked map[int32][]sample // guarded by mu
}

// sample is an acknowledged record.
type sample struct{ sent, acked time.Time }

// startProbes begins to produce. The client gives an unanswered request up soon: a frozen broker keeps the connection, and what is measured is how long
// the cluster needs, not the patience of a client, which with franz-go is 20 s for a request and with Java 30 s.
func startProbes(c *harness.Cluster, topic string, partitions []int32) (*prober, error) {
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.DisableIdempotentWrite(), kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
		kgo.MaxProduceRequestsInflightPerBroker(5))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &prober{cancel: cancel, client: cl, acked: map[int32][]sample{}}
	for _, partition := range partitions {
		p.acked[partition] = nil
		p.wg.Go(func() {
			for sleep(ctx, probeEvery) {
				s := sample{sent: time.Now()}
				if cl.ProduceSync(ctx, &kgo.Record{Partition: partition, Value: []byte("probe")}).FirstErr() != nil {
					continue
				}
				s.acked = time.Now()
				p.mu.Lock()
				p.acked[partition] = append(p.acked[partition], s)
				p.mu.Unlock()
			}
		})
	}
	return p, nil
}

func (p *prober) end() {
	p.cancel()
	p.wg.Wait()
	p.client.Close()
}

// slowest is how long after that time the last of the partitions acknowledged a record that was sent after it; 0: one has not yet.
func (p *prober) slowest(then time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst time.Duration
	for _, samples := range p.acked {
		i := slices.IndexFunc(samples, func(s sample) bool { return s.sent.After(then) })
		if i < 0 {
			return 0
		}
		worst = max(worst, samples[i].acked.Sub(then))
	}
	return worst
}

func (p *prober) wait(ctx context.Context, then time.Time) error {
	for p.slowest(then) == 0 {
		if !sleep(ctx, probeEvery) {
			return fmt.Errorf("not all partitions acknowledge records: %w", ctx.Err())
		}
	}
	return nil
}
