package controller

import (
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (e *edit) createTopic(c NewTopic) ItemResult {
	switch {
	case e.img.Topics[c.Name] != nil:
		return refuseItem(kerr.TopicAlreadyExists, "Topic '%s' already exists.", c.Name)
	case c.ID.IsZero() || e.img.TopicsByID[c.ID] != nil:
		return refuseItem(kerr.InvalidRequest, "topic id %s is not free", c.ID)
	case len(c.Partitions) == 0:
		return refuseItem(kerr.InvalidPartitions, "a topic needs a partition")
	}
	if bad := e.img.checkAssignments(c.Partitions); bad.Code != 0 {
		return bad
	}
	t := &Topic{Name: c.Name, ID: c.ID, Internal: c.Internal}
	e.addPartitions(t, c.Partitions)
	e.setTopic(t)
	e.setConfigs(Resource{TopicResource, c.Name}, c.Configs)
	return ItemResult{}
}

func (e *edit) createPartitions(c MorePartitions) ItemResult {
	t := e.img.TopicsByID[c.Topic]
	switch {
	case t == nil:
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no such topic")
	case len(t.Partitions) != c.From:
		return refuseItem(kerr.InvalidPartitions, "the topic has %d partitions by now", len(t.Partitions))
	}
	if bad := e.img.checkAssignments(c.Partitions); bad.Code != 0 {
		return bad
	}
	e.addPartitions(e.editTopic(c.Topic), c.Partitions)
	return ItemResult{}
}

func (e *edit) deleteTopic(id ids.UUID) ItemResult {
	t := e.img.TopicsByID[id]
	if t == nil {
		return refuseItem(kerr.UnknownTopicID, "there is no topic with id %s", id)
	}
	e.dropTopic(t)
	for _, p := range t.Partitions {
		delete(e.ownPartitions(), p.ID)
	}
	e.setConfigs(Resource{TopicResource, t.Name}, nil)
	if len(e.img.Losses) > 0 { // its records are all gone now, as somebody wanted
		e.img.Losses = slices.DeleteFunc(slices.Clone(e.img.Losses), func(l Loss) bool { return l.TopicID == id })
	}
	return ItemResult{}
}

// checkAssignments refuses replicas on brokers that are not registered and two on one broker.
func (img *Image) checkAssignments(partitions [][]ids.NodeID) ItemResult {
	for i, replicas := range partitions {
		if len(replicas) == 0 {
			return refuseItem(kerr.InvalidReplicaAssignment, "partition %d has no replica", i)
		}
		for j, n := range replicas {
			if img.Brokers[n] == nil {
				return refuseItem(kerr.InvalidReplicaAssignment, "broker %d is not registered", n)
			}
			if slices.Contains(replicas[:j], n) {
				return refuseItem(kerr.InvalidReplicaAssignment, "broker %d holds two replicas of one partition", n)
			}
		}
	}
	return ItemResult{}
}

// addPartitions appends partitions in generation 0, all replicas voters, with ids from the counters.
func (e *edit) addPartitions(t *Topic, partitions [][]ids.NodeID) {
	index := e.ownPartitions()
	for _, replicas := range partitions {
		p := &Partition{
			ID: e.img.NextPartition, Shard: e.img.NextShard, Replicas: replicas, Voters: replicas, InSync: replicas,
			Leader: ids.NoNode, LeaderEpoch: ids.NoEpoch,
		}
		e.img.NextPartition++
		e.img.NextShard++
		for _, n := range replicas {
			r := e.nextReplica()
			p.ReplicaIDs = append(p.ReplicaIDs, r)
			p.Founders = append(p.Founders, Founder{r, n})
			p.Directories = append(p.Directories, e.img.Brokers[n].Directory)
		}
		p.InSync = e.img.eligibleOf(replicas)
		index[p.ID] = partitionKey{t.ID, int32(len(t.Partitions))}
		t.Partitions = append(t.Partitions, p)
	}
}
