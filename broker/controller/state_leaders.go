package controller

import (
	"cairn/broker/internal/rules"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (e *edit) registerLeaders(c RegisterLeaders) Result {
	bad := e.img.checkEpoch(c.Broker, c.Epoch)
	if bad.Code == 0 && e.img.Brokers[c.Broker].Fenced {
		bad = refuseItem(kerr.IneligibleReplica, "broker %d is fenced", c.Broker)
	}
	if bad.Code != 0 {
		return Result{Code: bad.Code, Message: bad.Message}
	}
	return eachItem(c.Leaders, func(r LeaderReport) ItemResult { return e.registerLeader(c.Broker, r) })
}

// registerLeader accepts a registration only from the current generation, at a Raft term above the last registered one or
// at that same term by that same replica (design, rule 4). Each accepted one starts the next leader epoch, but for one
// that repeats what the partition shows already: its first answer was lost.
//
// An older generation or term gets FENCED_LEADER_EPOCH: the reporter has been superseded and must not ask again. A
// generation this controller does not know yet cannot be: its number comes from here.
func (e *edit) registerLeader(broker ids.NodeID, r LeaderReport) ItemResult {
	p, ok := e.img.PartitionOf(r.TopicID, r.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicID, "there is no partition %d of topic id %s", r.Partition, r.TopicID)
	case r.Generation != p.Generation && e.off.Has(rules.RegisterOldGeneration) && p.ReplicaOf(broker) >= 0:
	case r.Generation != p.Generation:
		return refuseItem(kerr.FencedLeaderEpoch, "generation %d, the current one is %d", r.Generation, p.Generation).of(p)
	case p.NodeOf(r.Replica) != broker:
		return refuseItem(kerr.InvalidRequest, "replica %d is not broker %d's", r.Replica, broker).of(p)
	case r.Term < p.LeaderTerm, r.Term == p.LeaderTerm && r.Replica != p.LeaderReplica:
		return refuseItem(kerr.FencedLeaderEpoch, "term %d, replica %d registered in %d", r.Term, p.LeaderReplica, p.LeaderTerm).of(p)
	case r.Term == p.LeaderTerm && p.Leader == broker:
		return ItemResult{}.of(p)
	}
	if p.BaseOffset == ids.NoOffset && r.BaseOffset < 0 {
		return refuseItem(kerr.InvalidRequest, "generation %d has no base offset yet, and the report has none", p.Generation).of(p)
	}
	p = e.editPartition(r.TopicID, r.Partition)
	former := p.Leader
	p.Leader, p.LeaderTerm, p.LeaderReplica = broker, r.Term, r.Replica
	p.LeaderEpoch++
	e.leads(e.img.TopicsByID[r.TopicID], p, former, r)
	return ItemResult{}.of(p)
}

func (r ItemResult) of(p *Partition) ItemResult {
	r.Leader, r.LeaderEpoch, r.PartitionEpoch = p.Leader, p.LeaderEpoch, p.PartitionEpoch
	return r
}
