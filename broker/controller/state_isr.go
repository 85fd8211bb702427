package controller

import (
	"slices"
	"strconv"

	"cairn/broker/internal/rules"
	"cairn/broker/isr"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

const minInsyncDefault = 1

// MinISR is the partition's effective minimum: min.insync.replicas of the topic, or of the whole cluster, at most the
// number of replicas. It depends on the image alone, so controller and leader cannot differ on it.
func (img *Image) MinISR(topic string, p *Partition) int {
	configured := minInsyncDefault
	for _, configs := range []map[string]string{img.ClusterConfigs(), img.TopicConfigs(topic)} {
		if n, err := strconv.Atoi(configs[minInsyncReplicas]); err == nil {
			configured = n
		}
	}
	return min(configured, len(p.Replicas))
}

// View is the partition as its leader looks at it.
func (img *Image) View(t *Topic, p *Partition) isr.View {
	v := isr.View{
		Index: img.Index, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		MinISR: img.MinISR(t.Name, p), Members: make([]isr.Member, len(p.Replicas)),
	}
	for i, n := range p.Replicas {
		v.Members[i] = isr.Member{
			Node: n, Replica: p.ReplicaIDs[i], InSync: slices.Contains(p.InSync, n), Eligible: img.eligible(n),
			Voter: slices.Contains(p.Voters, n), Leaving: slices.Contains(p.Removing, n),
		}
	}
	return v
}

// eligible reports whether the node's broker may be in an ISR: registered, unfenced and not shutting down.
func (img *Image) eligible(node ids.NodeID) bool {
	b := img.Brokers[node]
	return b != nil && !b.Fenced && !b.ShuttingDown
}

// eligibleOf returns those of the nodes that are eligible.
func (img *Image) eligibleOf(nodes []ids.NodeID) []ids.NodeID { return keep(nodes, img.eligible) }

// keep returns a new slice of the nodes for which f holds.
func keep(nodes []ids.NodeID, f func(ids.NodeID) bool) []ids.NodeID {
	return slices.DeleteFunc(slices.Clone(nodes), func(n ids.NodeID) bool { return !f(n) })
}

func without(nodes []ids.NodeID, node ids.NodeID) []ids.NodeID {
	return keep(nodes, func(n ids.NodeID) bool { return n != node })
}

// inOrder returns the replicas of p for which f holds, in assignment order.
func (p *Partition) inOrder(f func(ids.NodeID) bool) []ids.NodeID { return keep(p.Replicas, f) }

func (p *Partition) inISR(n ids.NodeID) bool { return slices.Contains(p.InSync, n) }
func (p *Partition) inELR(n ids.NodeID) bool { return slices.Contains(p.ELR, n) }

// setLevel raises the level, to what this program knows.
func (e *edit) setLevel(c SetLevel) Result {
	if c.Level < e.img.Level || c.Level > ReplicationLevel {
		return refuse(kerr.InvalidUpdateVersion, "level %d, the metadata has %d, this program knows %d", c.Level, e.img.Level, ReplicationLevel)
	}
	e.img.Level = c.Level
	return Result{}
}

// setISR gives p, which this edit owns, another ISR, with what follows for the ELR: who leaves while the ISR is below the
// minimum stays eligible, since the high watermark stands still from then on; once the ISR is at the minimum nobody
// outside it is.
func (e *edit) setISR(t *Topic, p *Partition, next []ids.NodeID) {
	before := p.InSync
	p.InSync = p.inOrder(func(n ids.NodeID) bool { return slices.Contains(next, n) })
	if len(p.InSync) >= e.img.MinISR(t.Name, p) {
		p.ELR, p.LastKnownELR = nil, nil
		return
	}
	p.ELR = p.inOrder(func(n ids.NodeID) bool {
		return !p.inISR(n) && (p.inELR(n) || slices.Contains(before, n))
	})
}

// leaveLeader ends the leadership of p, which this edit owns. The next registration, also one of the same replica at the
// same Raft term, gets another epoch than who may have led on meanwhile.
func (p *Partition) leaveLeader() {
	if p.Leader != ids.NoNode {
		p.LastKnownELR = []ids.NodeID{p.Leader}
	}
	p.Leader, p.Transfer = ids.NoNode, nil
	p.LeaderEpoch++
}

// outOfSync takes the broker out of every ISR and, if it is fenced, out of every leadership. A broker that shuts down
// keeps what it leads until somebody else is registered there, or it is fenced.
func (e *edit) outOfSync(node ids.NodeID, action BrokerAction) {
	e.eachPartition(func(t *Topic, i int32, p *Partition) {
		leads := p.Leader == node
		if !leads && !p.inISR(node) || leads && action == Shutdown {
			return
		}
		p = e.editPartition(t.ID, i)
		if leads {
			p.leaveLeader()
		}
		e.setISR(t, p, without(p.InSync, node))
	})
}

// eachPartition calls f for all partitions in a fixed order. f may edit the one it is called with.
func (e *edit) eachPartition(f func(*Topic, int32, *Partition)) {
	for _, t := range e.img.TopicList() {
		for i, p := range t.Partitions {
			f(t, int32(i), p)
		}
	}
}

// alterPartition changes an ISR as the leader asks. Kafka's checks in Kafka's order. A request that leaves the ISR as it
// is counts as a change: the next partition epoch ends all earlier requests that are still under way.
func (e *edit) alterPartition(broker ids.NodeID, c ISRChange) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	if !ok {
		return refuseItem(kerr.UnknownTopicID, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	}
	if bad := e.img.checkISR(broker, p, c); bad.Code != 0 {
		return bad.of(p)
	}
	t := e.img.TopicsByID[c.TopicID]
	p = e.editPartition(c.TopicID, c.Partition)
	next := make([]ids.NodeID, len(c.ISR))
	for i, m := range c.ISR {
		next[i] = m.Node
	}
	e.setISR(t, p, next)
	e.finishReassignment(t, p)
	return ItemResult{}.of(p)
}

func (img *Image) checkISR(broker ids.NodeID, p *Partition, c ISRChange) ItemResult {
	switch {
	case c.LeaderEpoch > p.LeaderEpoch, c.PartitionEpoch > p.PartitionEpoch:
		return refuseItem(kerr.NotController, "epochs %d and %d are unknown here", c.LeaderEpoch, c.PartitionEpoch)
	case c.LeaderEpoch < p.LeaderEpoch:
		return refuseItem(kerr.FencedLeaderEpoch, "leader epoch %d, the current one is %d", c.LeaderEpoch, p.LeaderEpoch)
	case p.Leader != broker:
		return refuseItem(kerr.InvalidRequest, "the leader is %d, not %d", p.Leader, broker)
	case c.PartitionEpoch < p.PartitionEpoch:
		return refuseItem(kerr.InvalidUpdateVersion, "partition epoch %d, the current one is %d", c.PartitionEpoch, p.PartitionEpoch)
	case p.Recovering && len(c.ISR) > 1:
		return refuseItem(kerr.InvalidRequest, "the leader is recovering from an unclean election")
	}
	leader := false
	for i, m := range c.ISR {
		twice := slices.ContainsFunc(c.ISR[:i], func(o ISRMember) bool { return o.Node == m.Node })
		if twice || p.ReplicaOf(m.Node) < 0 {
			return refuseItem(kerr.InvalidRequest, "the ISR names %d twice, or it is no replica", m.Node)
		}
		leader = leader || m.Node == broker
	}
	if !leader {
		return refuseItem(kerr.InvalidRequest, "the ISR lacks the leader")
	}
	for _, m := range c.ISR {
		if m.Node != broker && !img.eligible(m.Node) || m.Epoch >= 0 && m.Epoch != img.Brokers[m.Node].Epoch {
			return refuseItem(kerr.IneligibleReplica, "broker %d is fenced, shutting down, or of another epoch", m.Node)
		}
	}
	return ItemResult{}
}

// leads completes an accepted registration on p, which this edit owns. Raft elects only who holds all that is committed,
// and so all that was exposed: the leader is in sync. r is the report, former the leader it takes over from.
func (e *edit) leads(t *Topic, p *Partition, former ids.NodeID, r LeaderReport) {
	next := p.InSync
	if former != p.Leader && !e.img.eligible(former) {
		next = without(next, former)
	}
	if !p.inISR(p.Leader) {
		next = append(slices.Clone(next), p.Leader)
	}
	e.setISR(t, p, next)
	p.LastKnownELR, p.Recovering, p.Transfer = nil, false, nil
	e.resolveDoubt(t, p)
	if p.BaseOffset == ids.NoOffset {
		p.BaseOffset = r.BaseOffset
		e.settlePending(t, r.Partition, p)
	}
	e.finishReassignment(t, p)
}

// changeVoters notes who votes in the Raft group.
func (e *edit) changeVoters(broker ids.NodeID, c VotersReport) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicID, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	case p.Leader != broker || p.LeaderEpoch != c.LeaderEpoch:
		return refuseItem(kerr.FencedLeaderEpoch, "leader %d in epoch %d", p.Leader, p.LeaderEpoch).of(p)
	case c.At <= p.VotersAt:
		return ItemResult{}.of(p)
	case len(c.Voters) == 0:
		return refuseItem(kerr.InvalidRequest, "a group has voters").of(p)
	}
	p = e.editPartition(c.TopicID, c.Partition)
	p.VotersAt, p.FormerVoters = c.At, nil
	for _, r := range c.Voters {
		if p.NodeOf(r) == ids.NoNode {
			p.FormerVoters = append(p.FormerVoters, r)
		}
	}
	p.Voters = p.inOrder(func(n ids.NodeID) bool { return slices.Contains(c.Voters, p.ReplicaIDs[p.ReplicaOf(n)]) })
	e.finishReassignment(e.img.TopicsByID[c.TopicID], p)
	return ItemResult{}.of(p)
}

// changesMinimum reports whether the change sets or removes min.insync.replicas.
func changesMinimum(cur map[string]string, c ResourceChange) bool {
	_, had := cur[minInsyncReplicas]
	return had && c.Replace || slices.ContainsFunc(c.Ops, func(o ConfigOp) bool { return o.Name == minInsyncReplicas })
}

// minimumChanged empties the ELR of all partitions that the resource's minimum may concern (design, rule 11): who is in it
// was measured against another minimum, and the high watermark may move without it from now on. While the ISR is empty it
// cannot, so the ELR stays; without it only an unclean election could help such a partition. (Kafka empties it all the same.)
func (e *edit) minimumChanged(r Resource) {
	if e.off.Has(rules.MinChangeKeepsELR) || r.Type == BrokerResource && r.Name != "" {
		return
	}
	e.eachPartition(func(t *Topic, i int32, p *Partition) {
		if len(p.ELR) > 0 && len(p.InSync) > 0 && (r.Type == BrokerResource || r.Name == t.Name) {
			e.editPartition(t.ID, i).ELR = nil
		}
	})
}
