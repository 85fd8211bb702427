package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// maxPause is how long a leader's death may stop acks=all at default settings; the aim is aimedPause.
const (
	maxPause   = 3 * time.Second
	aimedPause = time.Second
)

// TestClusterKeepsAcknowledgedRecordsThroughKills: three brokers and a controller, replication factor 3, continuous acks=all load;
// each node in turn is killed and started again.
func TestClusterKeepsAcknowledgedRecordsThroughKills(t *testing.T) {
	c := three(t, nil)
	topic := "kills"
	const partitions = 6
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, partitions, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: partitions, RecordBytes: 400, Every: 2 * time.Millisecond, MaxBuffered: 20000})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 2000))
	var pauses []time.Duration
	for round := range rounds(t, 1, 5) {
		for _, n := range c.Nodes {
			pause := killAndRestart(t, c, n, topic, load)
			t.Logf("round %d, node %d: longest pause of a partition %v", round, n.ID, pause.Round(time.Millisecond))
			pauses = append(pauses, pause)
			if n.Addr != "" && pause > maxPause {
				t.Errorf("round %d: the death of broker %d stopped acks=all for %v, more than %v", round, n.ID, pause, maxPause)
			}
		}
	}
	must(t, load.Stop(deadline(t, time.Minute)))
	if failed, err := load.Failed(); failed > 0 {
		t.Errorf("%d records were given up: %v", failed, err)
	}
	verify(t, c, topic, load.Ledger)
	over := 0
	for _, p := range pauses {
		if p > aimedPause {
			over++
		}
	}
	t.Logf("%d of %d kills paused some partition for more than the %v aimed at", over, len(pauses), aimedPause)
}

// killAndRestart kills a node, waits until every partition goes on without it, starts it and waits until all replicas are in sync again.
// The result is the longest pause from the kill until the node is started again. Without a controller a partition that changes its leader
// waits for it, so nothing is asked of each partition then.
func killAndRestart(t *testing.T, c *harness.Cluster, n *harness.Node, topic string, load *workload.Load) time.Duration {
	t.Helper()
	load.Ledger.ResetPauses()
	must(t, n.Kill())
	if n.Addr != "" {
		must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
	}
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 500))
	_, pause := load.Ledger.LongestPause()
	must(t, n.Start())
	_, err := n.WaitReady(deadline(t, 60*time.Second))
	must(t, err)
	waitInSync(t, c, topic)
	must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 1000))
	return pause
}

// waitInSync waits until each partition has a leader and all its replicas in its ISR.
func waitInSync(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	defer cl.Close()
	ctx := deadline(t, 2*time.Minute)
	must(t, workload.WaitTopic(ctx, kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	}))
}

// TestTermHandsLeadershipOver: SIGTERM of a broker under load: exit code 0, and no partition pauses for as long as a death would cost.
func TestTermHandsLeadershipOver(t *testing.T) {
	c := three(t, nil)
	topic := "handover"
	const partitions = 6
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, partitions, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: partitions, RecordBytes: 400, Every: 2 * time.Millisecond})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 2000))
	for _, n := range c.Brokers() {
		load.Ledger.ResetPauses()
		must(t, n.Stop(30*time.Second))
		ended := time.Now()
		until(t, fmt.Sprintf("no partition is led by broker %d, which has ended", n.ID), func() bool { // others hear of it a moment later
			leaders, err := workload.Leaders(deadline(t, 20*time.Second), otherThan(c, n), topic)
			must(t, err)
			return !slices.Contains(slices.Collect(maps.Values(leaders)), int32(n.ID))
		})
		if took := time.Since(ended); took > time.Second {
			t.Errorf("others named broker %d as a leader for %v after its end", n.ID, took)
		}
		must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
		_, pause := load.Ledger.LongestPause()
		t.Logf("broker %d: longest pause %v", n.ID, pause.Round(time.Millisecond))
		if pause > maxPause {
			t.Errorf("the orderly end of broker %d stopped acks=all for %v", n.ID, pause)
		}
		must(t, n.Start())
		_, err = n.WaitReady(deadline(t, 60*time.Second))
		must(t, err)
		waitInSync(t, c, topic)
	}
	must(t, load.Stop(deadline(t, time.Minute)))
	verify(t, c, topic, load.Ledger)
	must(t, c.Node(harness.ControllerID).Stop(20*time.Second))
}

func otherThan(c *harness.Cluster, n *harness.Node) []string {
	var list []string
	for _, b := range c.Brokers() {
		if b != n {
			list = append(list, b.Addr)
		}
	}
	return list
}

// TestWholeClusterRestarts: all nodes killed at once lose nothing that was acknowledged.
func TestWholeClusterRestarts(t *testing.T) {
	c := three(t, nil)
	topic := "all-down"
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, 3, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 3, RecordBytes: 400, Every: time.Millisecond})
	must(t, err)
	for range rounds(t, 2, 10) {
		must(t, load.WaitAcked(deadline(t, time.Minute), 1000))
		for _, n := range c.Nodes {
			must(t, n.Kill())
		}
		must(t, c.Start(deadline(t, time.Minute)))
	}
	must(t, load.WaitAcked(deadline(t, time.Minute), 1000))
	must(t, load.Stop(deadline(t, time.Minute)))
	verify(t, c, topic, load.Ledger)
}

// TestFrozenFollowerDoesNotFillMemory: the leader's memory stays bounded while a follower takes nothing, and the follower catches up.
func TestFrozenFollowerDoesNotFillMemory(t *testing.T) {
	frozenFor := 15 * time.Second
	if long() {
		frozenFor = time.Minute
	}
	c := three(t, nil)
	topic := "frozen"
	// Broker 3 leads nothing, so the load goes on at full speed.
	cairn(t, "", "topics", "create", "--bootstrap-server", c.Bootstrap()[0], "--topic", topic, "--replica-assignment", "1:2:3,2:1:3,1:3:2,2:3:1,1:2:3,2:1:3")
	waitInSync(t, c, topic)
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 6, RecordBytes: 4096})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, time.Minute), 1000))
	frozen := c.Node(3)
	must(t, frozen.Freeze())
	watch, cancel := context.WithTimeout(t.Context(), frozenFor)
	defer cancel()
	peak := peakRSS(t, watch, c.Node(1), c.Node(2))
	must(t, frozen.Thaw())
	must(t, load.WaitAcked(deadline(t, time.Minute), 1000))
	// Three nodes share one disk, which the load keeps busy: a follower that has to catch up gets there when the load ends.
	must(t, load.Stop(deadline(t, time.Minute)))
	waitInSync(t, c, topic)
	t.Logf("peak resident memory of the leaders %d MB", peak>>20)
	if peak > 1<<30 {
		t.Errorf("a leader had %d MB resident while a follower was frozen", peak>>20)
	}
	verify(t, c, topic, load.Ledger)
}

// peakRSS watches the nodes until ctx ends.
func peakRSS(t *testing.T, ctx context.Context, nodes ...*harness.Node) int64 {
	t.Helper()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var peak int64
	for {
		for _, n := range nodes {
			u, err := n.Usage()
			must(t, err)
			peak = max(peak, u.RSS)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return peak
		}
	}
}
