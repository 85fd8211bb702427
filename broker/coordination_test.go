package broker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findGroup asks for a group's coordinator until there is one.
func (c *testCluster) findGroup(t *testing.T, cl *kgo.Client, name string) *Node {
	t.Helper()
	ctx := testContext(t)
	for {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{name}
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err == nil {
			found := resp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
			if found.ErrorCode == 0 && c.brokers[found.NodeID-1] != nil {
				return c.brokers[found.NodeID-1]
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no coordinator for %s: %v, %v", name, resp, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// onGroup runs an operation on the coordinator of a group, wherever that is, until it is done.
func (c *testCluster) onGroup(t *testing.T, name string, op func(m *group.Machine, now time.Time, fx *coordinator.Effects)) {
	t.Helper()
	ctx := testContext(t)
	partition := coordinator.PartitionOf(name, 16)
	for {
		img := c.controller.images.Image()
		err := error(coordinator.ErrNotCoordinator)
		if p, ok := img.Partition(offsetsTopic, partition); ok && p.Leader > 0 && c.brokers[p.Leader-1] != nil {
			done := make(chan error, 1)
			c.brokers[p.Leader-1].broker.groups.Do(name, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
				op(m, now, fx)
				fx.Then(func(err error) { done <- err })
			}, func(err error) { done <- err })
			err = <-done
		}
		switch {
		case err == nil:
			return
		case !errors.Is(err, coordinator.ErrNotCoordinator) && !errors.Is(err, coordinator.ErrLoading) && !errors.Is(err, coordinator.ErrUnavailable), ctx.Err() != nil:
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *testCluster) commitOffset(t *testing.T, name string, offset int64) {
	t.Helper()
	c.onGroup(t, name, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.SetVersion(8)
		req.Group, req.Generation = name, -1
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = offset
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		m.OffsetCommit(req, now, fx, func(resp *kmsg.OffsetCommitResponse, err error) {
			if err == nil && resp.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Errorf("commit: code %d", resp.Topics[0].Partitions[0].ErrorCode)
			}
		})
	})
}

// TestGroupCoordinatorSurvivesItsBrokers: what a coordinator has answered for is known to the next one, until the last
// broker alive, and after a restart of all.
func TestGroupCoordinatorSurvivesItsBrokers(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	at := c.findGroup(t, cl, "g")
	topic := c.controller.images.Image().Topics[offsetsTopic]
	if len(topic.Partitions) != 16 || len(topic.Partitions[0].Replicas) != 3 || !topic.Internal {
		t.Fatalf("created as %+v", topic)
	}
	want := c.controller.images.Image().Leader(topic.Partitions[coordinator.PartitionOf("g", 16)])
	if at.broker.nodeID != want {
		t.Errorf("the coordinator is said to be %d, its partition is led by %d", at.broker.nodeID, want)
	}
	c.commitOffset(t, "g", 1)
	whole16 := func(*controller.Image, *controller.Partition) bool {
		return !slices.ContainsFunc(c.controller.images.Image().Topics[offsetsTopic].Partitions, func(p *controller.Partition) bool {
			return !whole(nil, p)
		})
	}
	c.await(t, "all in sync", offsetsTopic, whole16)
	cl.Close()

	partition := coordinator.PartitionOf("g", 16)
	for i := range 2 { // until one is left
		p, _ := c.controller.images.Image().Partition(offsetsTopic, partition)
		c.stop(t, int(p.Leader))
		c.commitOffset(t, "g", int64(i+2))
	}
	c.mustHaveCommitted(t, "g", 3)
	for id, b := range c.brokers {
		if b != nil {
			c.stop(t, id+1)
		}
	}
	for id := range c.brokers {
		c.start(t, id+1)
	}
	for _, b := range c.brokers {
		awaitReady(t, b)
	}
	c.mustHaveCommitted(t, "g", 3)
	c.await(t, "all in sync", offsetsTopic, whole16)
	for _, b := range c.brokers {
		for _, s := range b.broker.groups.Stats() {
			if s.BadRecords > 0 {
				t.Errorf("broker %d: %+v", b.broker.nodeID, s)
			}
		}
	}
}

// mustHaveCommitted checks the committed offset of partition 0 of t.
func (c *testCluster) mustHaveCommitted(t *testing.T, name string, want int64) {
	t.Helper()
	got := int64(-2)
	c.onGroup(t, name, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group = name
		m.OffsetFetch(req, false, now, fx, func(resp *kmsg.OffsetFetchResponseGroup, err error) {
			if err == nil && len(resp.Topics) == 1 {
				got = resp.Topics[0].Partitions[0].Offset
			}
		})
	})
	if got != want {
		t.Fatalf("committed offset %d, want %d", got, want)
	}
}

// TestInternalTopicsGrowWithTheCluster: an internal topic of a single broker has replicas on those that join, and its
// coordinator goes on meanwhile; the first broker is not needed any more then.
func TestInternalTopicsGrowWithTheCluster(t *testing.T) {
	c := startCluster(t, 1)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	c.findGroup(t, cl, "g")
	cl.Close()
	if n := len(c.controller.images.Image().Topics[offsetsTopic].Partitions[0].Replicas); n != 1 {
		t.Fatalf("created with %d replicas", n)
	}
	c.commitOffset(t, "g", 1)
	for id := 2; id <= 3; id++ {
		c.brokers, c.dirs = append(c.brokers, nil), append(c.dirs, t.TempDir())
		c.start(t, id)
		awaitReady(t, c.brokers[id-1])
		c.commitOffset(t, "g", int64(id))
	}
	c.await(t, "three replicas in sync", offsetsTopic, func(img *controller.Image, _ *controller.Partition) bool {
		return !slices.ContainsFunc(img.Topics[offsetsTopic].Partitions, func(p *controller.Partition) bool {
			return len(p.Replicas) < 3 || len(p.Adding) > 0 || !whole(nil, p)
		})
	})
	c.stop(t, 1)
	c.mustHaveCommitted(t, "g", 3)
}

func TestInternalTopicsAreKeptFromClients(t *testing.T) {
	c := startCluster(t, 1)
	defer c.close(t)
	cl := c.client(t)
	c.findGroup(t, cl, "g")
	adm := kadm.NewClient(cl)
	meta, err := adm.Metadata(testContext(t), offsetsTopic)
	if err != nil || !meta.Topics[offsetsTopic].IsInternal || len(meta.Topics[offsetsTopic].Partitions) != 16 {
		t.Errorf("metadata %+v, %v", meta, err)
	}
	if resp, err := adm.DeleteTopics(testContext(t), offsetsTopic); err != nil || !errors.Is(resp[offsetsTopic].Err, kerr.InvalidRequest) {
		t.Errorf("deletion: %+v, %v", resp, err)
	}
	if resp, err := adm.CreateTopics(testContext(t), 1, 1, nil, "fine", transactionsTopic, offsetsTopic); err != nil ||
		!errors.Is(resp[transactionsTopic].Err, kerr.InvalidRequest) || !errors.Is(resp[offsetsTopic].Err, kerr.TopicAlreadyExists) || resp["fine"].Err != nil {
		t.Errorf("creation: %+v, %v", resp, err)
	}
	if resp, err := adm.UpdatePartitions(testContext(t), 20, offsetsTopic); err != nil || !errors.Is(resp[offsetsTopic].Err, kerr.InvalidRequest) {
		t.Errorf("more partitions: %+v, %v", resp, err)
	}
	err = cl.ProduceSync(testContext(t), &kgo.Record{Topic: offsetsTopic, Key: []byte("k"), Value: []byte("v")}).FirstErr()
	if !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("produce: %v", err)
	}
	configs, err := adm.DescribeTopicConfigs(testContext(t), offsetsTopic)
	if err != nil || len(configs) != 1 {
		t.Fatal(configs, err)
	}
	for _, e := range configs[0].Configs {
		if e.Key == "cleanup.policy" && *e.Value != "compact" {
			t.Errorf("%s=%s", e.Key, *e.Value)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 1, []string{"txn"}
	if _, err := cl.SeedBrokers()[0].Request(testContext(t), req); err != nil {
		t.Fatal(err)
	}
	configs, err = adm.DescribeTopicConfigs(testContext(t), transactionsTopic)
	if err != nil || len(configs) != 1 {
		t.Fatal(configs, err)
	}
	if e, ok := configOf(configs[0], "min.insync.replicas"); !ok || e != "2" {
		t.Errorf("min.insync.replicas=%s of %s", e, transactionsTopic)
	}
}

func configOf(r kadm.ResourceConfig, name string) (string, bool) {
	for _, e := range r.Configs {
		if e.Key == name && e.Value != nil {
			return *e.Value, true
		}
	}
	return "", false
}
