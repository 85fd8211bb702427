package broker

import (
	"slices"
	"testing"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reassign asks for other replicas of t-0 and waits until they are the only ones, in sync, with votes.
func (c *testCluster) reassign(t *testing.T, replicas ...int32) {
	t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Replicas = replicas
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	cl := c.client(t)
	defer cl.Close()
	resp, err := req.RequestWith(testContext(t), cl)
	if err != nil || resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%v: %+v", err, resp)
	}
	var want []ids.NodeID
	for _, n := range replicas {
		want = append(want, ids.NodeID(n))
	}
	c.await(t, "reassigned", "t", func(img *controller.Image, p *controller.Partition) bool {
		return slices.Equal(p.Replicas, want) && whole(img, p) && img.Leader(p) != ids.NoNode
	})
}

func TestReassignmentMovesReplicas(t *testing.T) {
	c := startCluster(t, 5)
	defer c.close(t)
	cl := c.client(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "t", -1, -1
	ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	ra.Replicas = []int32{1, 2, 3}
	rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	req.Topics = append(req.Topics, rt)
	if resp, err := req.RequestWith(testContext(t), cl); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("%v: %+v", err, resp)
	}
	mustProduce(t, cl, "t", 0, 10)
	n := 10
	for _, replicas := range [][]int32{{3, 4, 5}, {4}, {1, 4, 2}} {
		c.reassign(t, replicas...)
		mustProduce(t, cl, "t", n, n+10)
		n += 10
	}
	cl.Close()
	reader := c.client(t)
	mustConsume(t, reader, "t", n)
	reader.Close()
	for i, node := range c.brokers {
		hosted := slices.Contains(c.partition("t").Replicas, ids.NodeID(i+1))
		awaitTrue(t, func() bool {
			s, found, err := node.engine.Stored(c.partition("t").ID)
			if err != nil {
				t.Fatal(err)
			}
			return found == hosted && (!hosted || s.End == ids.Offset(n))
		})
	}
	if l := c.controller.images.Image().Losses; len(l) != 0 {
		t.Errorf("losses %v", l)
	}
}
