package controller

import (
	"context"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterReassignments answers AlterPartitionReassignments: once the reassignments have begun, or are cancelled.
func (c *Controller) alterReassignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		return resp
	}
	img := c.store.Image()
	free := req.Version < 1 || req.AllowReplicationFactorChange
	var cmd AlterReassignments
	type place struct{ topic, partition int }
	var planned []place
	for i, t := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for j, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			r, bad := planReassignment(img, t.Topic, p, free)
			if setError(bad, &rp.ErrorCode, &rp.ErrorMessage); bad.Code == 0 {
				cmd.Partitions, planned = append(cmd.Partitions, r), append(planned, place{i, j})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(planned) == 0 {
		return resp
	}
	res, err := c.propose(ctx, cmd)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = kmsgError(err)
		return resp
	}
	for i, at := range planned {
		rp := &resp.Topics[at.topic].Partitions[at.partition]
		setError(res.Items[i], &rp.ErrorCode, &rp.ErrorMessage)
	}
	return resp
}

func kmsgError(err error) (int16, *string) {
	code, message := errorCode(err)
	return code, &message
}

// planReassignment checks what Kafka checks; free: the number of replicas may change.
func planReassignment(img *Image, topic string, p kmsg.AlterPartitionAssignmentsRequestTopicPartition, free bool) (Reassignment, ItemResult) {
	cur, ok := img.Partition(topic, p.Partition)
	if !ok {
		return Reassignment{}, refuseItem(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	r := Reassignment{TopicID: img.Topics[topic].ID, Partition: p.Partition, AtMs: clock.Now().UnixMilli()}
	if p.Replicas == nil {
		if len(cur.Adding)+len(cur.Removing) == 0 {
			return Reassignment{}, refuseItem(kerr.NoReassignmentInProgress, "No partition reassignment is in progress.")
		}
		return r, ItemResult{}
	}
	r.Replicas = make([]ids.NodeID, len(p.Replicas))
	for i, n := range p.Replicas {
		r.Replicas[i] = ids.NodeID(n)
	}
	if bad := img.checkAssignments([][]ids.NodeID{r.Replicas}); bad.Code != 0 {
		return Reassignment{}, bad
	}
	if have := len(cur.Replicas) - len(cur.Adding); !free && len(r.Replicas) != have {
		return Reassignment{}, refuseItem(kerr.InvalidReplicationFactor,
			"The replication factor is changed from %d to %d", have, len(r.Replicas))
	}
	return r, ItemResult{}
}

// listReassignments answers ListPartitionReassignments: all that are under way, or those of the partitions named.
func (c *Controller) listReassignments(req *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		return resp
	}
	img := c.store.Image()
	if req.Topics == nil {
		for _, t := range img.TopicList() {
			all := make([]int32, len(t.Partitions))
			for i := range all {
				all[i] = int32(i)
			}
			addReassignments(resp, img, t.Name, all)
		}
		return resp
	}
	for _, t := range req.Topics {
		addReassignments(resp, img, t.Topic, t.Partitions)
	}
	return resp
}

func addReassignments(resp *kmsg.ListPartitionReassignmentsResponse, img *Image, topic string, partitions []int32) {
	rt := kmsg.NewListPartitionReassignmentsResponseTopic()
	rt.Topic = topic
	for _, i := range partitions {
		p, ok := img.Partition(topic, i)
		if !ok || len(p.Adding)+len(p.Removing) == 0 {
			continue
		}
		rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		rp.Partition, rp.Replicas, rp.AddingReplicas, rp.RemovingReplicas = i, numbers(p.Replicas), numbers(p.Adding), numbers(p.Removing)
		rt.Partitions = append(rt.Partitions, rp)
	}
	if len(rt.Partitions) > 0 {
		resp.Topics = append(resp.Topics, rt)
	}
}

// numbers are node ids as Kafka's messages have them, never null.
func numbers(nodes []ids.NodeID) []int32 {
	list := make([]int32, len(nodes))
	for i, n := range nodes {
		list[i] = int32(n)
	}
	return list
}
