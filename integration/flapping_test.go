package integration

import (
	"testing"
	"time"

	"cairn/engine"
	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/internal/ids"
)

// TestFlappingLeavesNothingBehind: brokers are frozen until they are out of every in-sync replica set and freed until they are back, again and
// again: one, another one, and two at a time, so that generations move. In the end each partition goes on, with all its replicas in sync, and
// no broker stores a Raft replica that owns no partition.
func TestFlappingLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	frozenFor, freeFor, props, turns := 4*time.Second, 2*time.Second, fastTimes(), rounds(t, 3, 20)
	if long() {
		frozenFor, freeFor, props = 15*time.Second, 15*time.Second, nil
	}
	c, err := harness.New(cairnBinary(t), harness.Shape{Brokers: 3, Controllers: 1, Props: props, ControllerProps: props})
	manage(t, c, err)
	must(t, c.Start(deadline(t, 60*time.Second)))
	const topic, partitions = "flap", 6
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, partitions, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: partitions, RecordBytes: 200, Every: 5 * time.Millisecond})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 500))
	victims := [][]int{{1}, {2, 3}, {3}, {1, 2}, {2}, {1, 3}}
	for turn := range turns {
		frozen := victims[turn%len(victims)]
		for _, id := range frozen {
			must(t, c.Node(id).Freeze())
		}
		must(t, workload.Pause(t.Context(), frozenFor))
		for _, id := range frozen {
			must(t, c.Node(id).Thaw())
		}
		must(t, workload.Pause(t.Context(), freeFor))
	}
	must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
	waitInSync(t, c, topic)
	must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
	must(t, load.Stop(deadline(t, time.Minute)))
	if failed, err := load.Failed(); failed > 0 {
		t.Errorf("%d records were given up: %v", failed, err)
	}
	verify(t, c, topic, load.Ledger)
	decisionTime(t, c.Node(harness.ControllerID)) // generations did move
	for _, n := range c.Brokers() {
		must(t, n.Stop(time.Minute))
		checkNoLeftovers(t, n, partitions)
	}
}

// checkNoLeftovers compares the Raft replicas that the stopped broker stores with the owners of its partitions.
func checkNoLeftovers(t *testing.T, n *harness.Node, partitions int) {
	t.Helper()
	e, err := engine.OpenReadOnly(n.DataDir())
	must(t, err)
	defer func() { must(t, e.Close()) }()
	infos, err := e.Partitions()
	must(t, err)
	if len(infos) != partitions {
		t.Errorf("broker %d has %d partitions, not %d", n.ID, len(infos), partitions)
	}
	owners, metadata := map[engine.StoredReplica]bool{}, 0
	for _, i := range infos {
		b, found, err := e.Owner(i.ID)
		must(t, err)
		if !found {
			t.Errorf("broker %d: %s-%d has no owner", n.ID, i.Topic, i.Partition)
		}
		owners[engine.StoredReplica{Shard: b.Shard, Replica: b.Replica}] = true
	}
	replicas, err := e.StoredReplicas()
	must(t, err)
	for _, r := range replicas {
		if r.Shard == ids.MetadataShard {
			metadata++
		} else if !owners[r] {
			t.Errorf("broker %d still stores replica %d of shard %d, which owns no partition", n.ID, r.Replica, r.Shard)
		}
	}
	if metadata != 1 || len(replicas) != partitions+1 {
		t.Errorf("broker %d stores %d replicas of the metadata and %d in all, for %d partitions", n.ID, metadata, len(replicas), partitions)
	}
}
