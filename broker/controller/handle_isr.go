package controller

import (
	"context"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterPartitions answers AlterPartition: leaders ask for other ISRs, each for the partition as they know it.
func (c *Controller) alterPartitions(ctx context.Context, req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		return resp
	}
	cmd := isrChanges(req)
	res, err := c.propose(ctx, cmd)
	if err != nil {
		resp.ErrorCode, _ = errorCode(err)
		return resp
	}
	if resp.ErrorCode = res.Code; res.Code != 0 {
		return resp
	}
	img := c.store.Image()
	item := 0
	for i := range req.Topics {
		t := kmsg.NewAlterPartitionResponseTopic()
		t.TopidID = req.Topics[i].TopicID
		for range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, img.isrAnswer(cmd.Partitions[item], res.Items[item]))
			item++
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// isrChanges is the command that the request asks for. Version 2 does not know epochs of members: any will do.
func isrChanges(req *kmsg.AlterPartitionRequest) AlterPartitions {
	cmd := AlterPartitions{Broker: ids.NodeID(req.BrokerID), Epoch: req.BrokerEpoch}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			change := ISRChange{
				TopicID: t.TopicID, Partition: p.Partition, LeaderEpoch: ids.LeaderEpoch(p.LeaderEpoch), PartitionEpoch: p.PartitionEpoch,
			}
			for _, n := range p.NewISR {
				change.ISR = append(change.ISR, ISRMember{ids.NodeID(n), -1})
			}
			for _, m := range p.NewEpochISR {
				change.ISR = append(change.ISR, ISRMember{ids.NodeID(m.BrokerID), m.BrokerEpoch})
			}
			cmd.Partitions = append(cmd.Partitions, change)
		}
	}
	return cmd
}

// isrAnswer is the answer for one partition. The state in it is for those who look at the wire: leaders take theirs from
// their own metadata.
func (img *Image) isrAnswer(c ISRChange, res ItemResult) kmsg.AlterPartitionResponseTopicPartition {
	a := kmsg.NewAlterPartitionResponseTopicPartition()
	a.Partition, a.ErrorCode = c.Partition, res.Code
	p, ok := img.PartitionOf(c.TopicID, c.Partition)
	if res.Code != 0 || !ok {
		return a
	}
	a.LeaderID, a.LeaderEpoch, a.PartitionEpoch = int32(res.Leader), int32(res.LeaderEpoch), res.PartitionEpoch
	for _, n := range p.InSync {
		a.ISR = append(a.ISR, int32(n))
	}
	if p.Recovering {
		a.LeaderRecoveryState = 1
	}
	return a
}
