package controller

import (
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// reassign starts moving a partition to other replicas, or back where it was. Meanwhile it has the new replicas, in the
// order asked for, and behind them those to be removed.
func (e *edit) reassign(c Reassignment) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	if !ok {
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	}
	target := c.Replicas
	if target == nil {
		if len(p.Adding)+len(p.Removing) == 0 {
			return refuseItem(kerr.NoReassignmentInProgress, "no reassignment is under way").of(p)
		}
		target = keep(p.Replicas, func(n ids.NodeID) bool { return !slices.Contains(p.Adding, n) })
	}
	if bad := e.img.checkAssignments([][]ids.NodeID{target}); bad.Code != 0 {
		return bad.of(p)
	}
	t := e.img.TopicsByID[c.TopicID]
	p = e.editPartition(c.TopicID, c.Partition)
	former := keep(p.Replicas, func(n ids.NodeID) bool { return !slices.Contains(p.Adding, n) })
	removing := keep(p.Replicas, func(n ids.NodeID) bool { return !slices.Contains(target, n) })
	e.setReplicas(t, p, slices.Concat(target, removing))
	p.Adding = keep(target, func(n ids.NodeID) bool { return !slices.Contains(former, n) })
	p.Removing, p.ReassignedMs = removing, c.AtMs
	e.finishReassignment(t, p)
	return ItemResult{}.of(p)
}

// setReplicas gives p, which this edit owns, another assignment. Replicas that were there keep their ids. Another
// effective minimum empties the ELR, in this same record, as in minimumChanged.
func (e *edit) setReplicas(t *Topic, p *Partition, replicas []ids.NodeID) {
	minimum := e.img.MinISR(t.Name, p)
	var replicaIDs []ids.ReplicaID
	var directories []ids.UUID
	for _, n := range replicas {
		if i := p.ReplicaOf(n); i >= 0 {
			replicaIDs, directories = append(replicaIDs, p.ReplicaIDs[i]), append(directories, p.Directories[i])
		} else {
			replicaIDs, directories = append(replicaIDs, e.nextReplica()), append(directories, e.img.Brokers[n].Directory)
		}
	}
	for _, n := range p.Voters {
		if !slices.Contains(replicas, n) {
			p.FormerVoters = append(slices.Clone(p.FormerVoters), p.ReplicaIDs[p.ReplicaOf(n)])
		}
	}
	p.Replicas, p.ReplicaIDs, p.Directories = replicas, replicaIDs, directories
	p.Voters = p.inOrder(func(n ids.NodeID) bool { return slices.Contains(p.Voters, n) })
	p.ELR = p.inOrder(p.inELR)
	if e.img.MinISR(t.Name, p) != minimum && len(p.InSync) > 0 {
		p.ELR = nil
	}
	e.setISR(t, p, p.inOrder(p.inISR))
}

// finishReassignment completes the reassignment of p, which this edit owns, once one of the new replicas leads, all of them
// are in sync and vote, and none of the others votes any more: the leader sees to that. Then those can go.
func (e *edit) finishReassignment(t *Topic, p *Partition) {
	if len(p.Adding)+len(p.Removing) == 0 {
		return
	}
	target := keep(p.Replicas, func(n ids.NodeID) bool { return !slices.Contains(p.Removing, n) })
	if !slices.Contains(target, p.Leader) {
		return
	}
	for _, n := range target {
		if !p.inISR(n) || !slices.Contains(p.Voters, n) {
			return
		}
	}
	if len(p.Voters) > len(target) {
		return
	}
	p.Adding, p.Removing, p.ReassignedMs = nil, nil, 0
	e.setReplicas(t, p, target)
}
