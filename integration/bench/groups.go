package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// Many groups that do nothing but live: what they cost the brokers, and how long it takes to look at all of them.
const (
	groupsCase      = "groups"
	groupsCount     = 1000
	groupMembers    = 10
	groupsTopic     = "groups"
	groupsHeartbeat = 3 * time.Second // Kafka's default
	groupsMeasured  = 30 * time.Second
	groupsQuick     = 6 * time.Second
	groupsLimit     = 5 * time.Minute // until all groups are stable
)

// groupsResult is one run.
type groupsResult struct {
	Nodes          int
	Cores          float64 // of all nodes while the groups heartbeat
	IdleCores      float64 // before there were groups
	RSS, IdleRSS   int64   // of all nodes
	Rate           float64 // heartbeats per second
	P50, P99       time.Duration
	List, Describe time.Duration
}

func (b *bench) groups(ctx context.Context) error {
	for _, nodes := range []int{1, 3} {
		r, err := b.groupsOf(ctx, nodes)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		fmt.Printf("%s, %d node(s): %.2f cores (%.2f idle), %d MiB (%d idle), heartbeats p50 %v p99 %v, list %v, describe %v\n",
			groupsCase, nodes, r.Cores, r.IdleCores, r.RSS>>20, r.IdleRSS>>20, r.P50, r.P99, r.List, r.Describe)
		b.report.grouped(r)
	}
	return nil
}

func (b *bench) groupsOf(ctx context.Context, nodes int) (r groupsResult, err error) {
	c, err := b.newCluster(nodes, "always")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	startCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(startCtx); err != nil {
		return r, err
	}
	if err := workload.CreateTopic(startCtx, c.Bootstrap(), groupsTopic, groupMembers, int16(len(c.Brokers())), nil); err != nil {
		return r, err
	}
	names := make([]string, groupsCount)
	for i := range names {
		names[i] = fmt.Sprintf("group-%04d", i)
	}
	addresses, err := coordinators(startCtx, c, names)
	if err != nil {
		return r, err
	}
	length := groupsMeasured
	if b.length < 3*time.Second {
		length = groupsQuick
	}
	r.Nodes = nodes
	if r.IdleCores, r.IdleRSS, err = measure(ctx, c, length/3); err != nil {
		return r, err
	}
	crowd := newCrowd(ctx, c, names, addresses)
	defer func() { err = errors.Join(err, crowd.end()) }()
	if err := crowd.settle(groupsLimit); err != nil {
		return r, err
	}
	crowd.forget()
	if r.Cores, r.RSS, err = measure(ctx, c, length); err != nil {
		return r, err
	}
	var beats int
	beats, r.P50, r.P99 = crowd.latencies()
	r.Rate = float64(beats) / length.Seconds()
	if r.List, err = b.command(ctx, c, "list"); err != nil {
		return r, err
	}
	r.Describe, err = b.command(ctx, c, "describe", "--all-groups")
	return r, err
}

// coordinators finds out where the groups are.
func coordinators(ctx context.Context, c *harness.Cluster, names []string) (map[string]string, error) {
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for { // the topic of the groups is made first, and its partitions get their leaders
		addresses := map[string]string{}
		for name, found := range kadm.NewClient(cl).FindGroupCoordinators(ctx, names...) {
			if found.Err == nil {
				addresses[name] = fmt.Sprintf("%s:%d", found.Host, found.Port)
			}
		}
		if len(addresses) == len(names) {
			return addresses, nil
		}
		if err := workload.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// measure has the nodes go on for a while, and returns how many cores they use, and how much memory they have at the end.
func measure(ctx context.Context, c *harness.Cluster, length time.Duration) (cores float64, rss int64, err error) {
	var used [2]time.Duration
	began := time.Now()
	for i := range used {
		rss = 0
		for _, n := range c.Brokers() {
			u, err := n.Usage()
			if err != nil {
				return 0, 0, err
			}
			used[i] += u.CPU
			rss += u.RSS
		}
		if i == 0 && !sleep(ctx, length) {
			return 0, 0, ctx.Err()
		}
	}
	return (used[1] - used[0]).Seconds() / time.Since(began).Seconds(), rss, nil
}

// command runs `cairn groups` a few times and returns the median.
func (b *bench) command(ctx context.Context, c *harness.Cluster, args ...string) (time.Duration, error) {
	var took []time.Duration
	for range max(b.runs, 3) {
		cmd := exec.CommandContext(ctx, b.binary, append([]string{"groups", args[0], "--bootstrap-server", c.Bootstrap()[0]}, args[1:]...)...)
		cmd.Stdout = io.Discard
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("cairn groups %v: %w", args, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// crowd is the members of all groups.
type crowd struct {
	cluster *harness.Cluster
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	failed error                // guarded by mu; the first failure
	stable map[*lightMember]int // guarded by mu; heartbeats in the present generation
	beats  []time.Duration      // guarded by mu; how long heartbeats took
}

func newCrowd(ctx context.Context, cluster *harness.Cluster, names []string, addresses map[string]string) *crowd {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{cluster: cluster, cancel: cancel, stable: map[*lightMember]int{}}
	for i, name := range names {
		for range groupMembers {
			m := &lightMember{crowd: c, group: name, address: addresses[name], delay: time.Duration(i) * 10 * time.Millisecond}
			c.running.Go(func() {
				if err := m.run(ctx); err != nil && ctx.Err() == nil {
					c.fail(fmt.Errorf("a member of %s: %w", m.group, err))
				}
			})
		}
	}
	return c
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	c.cancel()
}

// beat notes a heartbeat; one that was refused begins the account of the member anew.
func (c *crowd) beat(m *lightMember, took time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		delete(c.stable, m)
		return
	}
	c.stable[m]++
	c.beats = append(c.beats, took)
}

// settle waits until every member has had two heartbeats in its present generation.
func (c *crowd) settle(limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		n := 0
		c.mu.Lock()
		for _, beats := range c.stable {
			if beats >= 2 {
				n++
			}
		}
		failed := c.failed
		c.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case n == groupsCount*groupMembers:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("after %v %d of %d members are in their groups", limit, n, groupsCount*groupMembers)
		}
	}
}

func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = nil
}

func (c *crowd) latencies() (n int, p50, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sorted := slices.Sorted(slices.Values(c.beats))
	if n = len(sorted); n == 0 {
		return 0, 0, 0
	}
	return n, sorted[n/2], sorted[n*99/100]
}

// end stops the members and returns what went wrong.
func (c *crowd) end() error {
	c.cancel()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}
