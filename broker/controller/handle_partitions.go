package controller

import (
	"context"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createPartitions answers CreatePartitions.
func (c *Controller) createPartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	active := c.Active()
	img := c.store.Image()
	seen := countNames(req.Topics, func(t kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	var cmd CreatePartitions
	var answers []int
	room := partitionsPerRequest
	for _, t := range req.Topics {
		if seen[t.Topic] == 0 {
			continue
		}
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		var more MorePartitions
		bad := refuseItem(kerr.NotController, "This node is not the active controller.")
		if active {
			more, bad = c.planPartitions(img, t, seen[t.Topic] > 1, &room)
		}
		seen[t.Topic] = 0
		setError(bad, &rt.ErrorCode, &rt.ErrorMessage)
		if bad.Code == 0 {
			answers = append(answers, len(resp.Topics))
			cmd.Topics = append(cmd.Topics, more)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(cmd.Topics) == 0 || req.ValidateOnly {
		return resp
	}
	for i, r := range c.proposeItems(ctx, cmd, len(cmd.Topics)) {
		rt := &resp.Topics[answers[i]]
		setError(r, &rt.ErrorCode, &rt.ErrorMessage)
	}
	return resp
}

func (c *Controller) planPartitions(img *Image, t kmsg.CreatePartitionsRequestTopic, twice bool, room *int) (MorePartitions, ItemResult) {
	if twice {
		return MorePartitions{}, refuseItem(kerr.InvalidRequest, "Duplicate topic name.")
	}
	topic := img.Topics[t.Topic]
	if topic == nil {
		return MorePartitions{}, refuseItem(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	have := len(topic.Partitions)
	added := int(t.Count) - have
	switch {
	case topic.Internal:
		return MorePartitions{}, refuseItem(kerr.InvalidRequest,
			"Topic '%s' is internal: with another number of partitions, groups and transactions would change their coordinators and lose their state.", t.Topic)
	case added == 0:
		return MorePartitions{}, refuseItem(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case added < 0:
		return MorePartitions{}, refuseItem(kerr.InvalidPartitions,
			"The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, have, t.Count)
	case t.Assignment != nil && len(t.Assignment) != added:
		return MorePartitions{}, refuseItem(kerr.InvalidReplicaAssignment,
			"Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", added, len(t.Assignment))
	}
	if *room -= added; *room < 0 {
		return MorePartitions{}, refuseItem(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	factor := len(topic.Partitions[0].Replicas)
	var partitions [][]ids.NodeID
	var bad ItemResult
	if t.Assignment == nil {
		partitions, bad = c.place(img, added, factor)
	} else {
		partitions, bad = img.addedReplicas(t.Assignment, have, factor)
	}
	return MorePartitions{topic.ID, have, partitions}, bad
}

// addedReplicas checks the replicas that the request names for the partitions from first on.
func (img *Image) addedReplicas(assignment []kmsg.CreatePartitionsRequestTopicAssignment, first, factor int) ([][]ids.NodeID, ItemResult) {
	var partitions [][]ids.NodeID
	for i, a := range assignment {
		replicas, bad := img.manualReplicas(int32(first+i), a.Replicas)
		if bad.Code != 0 {
			return nil, bad
		}
		if len(replicas) != factor {
			return nil, inconsistentFactor(len(replicas), factor)
		}
		partitions = append(partitions, replicas)
	}
	return partitions, ItemResult{}
}
