package controller

import (
	"slices"

	"cairn/broker/internal/rules"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// nextGeneration starts a partition's next generation: a new Raft group with new ids on all replicas, and the seed, with
// what its log holds, as its only voter (design, rule 5). Where the generation starts is known once the seed has stopped
// its old group and looked: its registration as leader tells. Until then nobody else can join.
func (e *edit) nextGeneration(c NewGeneration) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	if !ok {
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	}
	if bad := e.checkSeed(p, c); bad.Code != 0 {
		return bad.of(p)
	}
	clean := p.inISR(c.Seed) || p.inELR(c.Seed) || e.off.Has(rules.SeedOutsideISR)
	t := e.img.TopicsByID[c.TopicID]
	p = e.editPartition(c.TopicID, c.Partition)
	p.leaveLeader()
	p.LeaderTerm, p.LeaderReplica = 0, 0
	p.Generation++
	p.Shard, e.img.NextShard = e.img.NextShard, e.img.NextShard+1
	p.BaseOffset = ids.NoOffset
	p.Pending = p.Pending.and(c.Pending)
	p.FormerVoters, p.VotersAt = nil, 0
	p.Voters = []ids.NodeID{c.Seed}
	if e.off.Has(rules.AllSurvivorsVote) {
		p.Voters = p.inOrder(func(n ids.NodeID) bool { return n == c.Seed || p.inISR(n) || p.inELR(n) })
	}
	e.renewAll(p)
	if !clean {
		p.InSync, p.ELR = nil, nil
		p.Recovering = true
	}
	e.setISR(t, p, []ids.NodeID{c.Seed})
	return ItemResult{}.of(p)
}

// beginAnew is nextGeneration for a leader that asks for it. It is refused while anything is wrong with the partition, or it is on its way to other replicas.
func (e *edit) beginAnew(broker ids.NodeID, c BeginItem) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	case p.Leader != broker || p.LeaderEpoch != c.LeaderEpoch:
		return refuseItem(kerr.FencedLeaderEpoch, "leader %d in epoch %d", p.Leader, p.LeaderEpoch).of(p)
	case !p.Settled() || len(e.img.eligibleOf(p.InSync)) < len(p.Replicas):
		return refuseItem(kerr.IneligibleReplica, "not all replicas are in sync and stay").of(p)
	}
	return e.nextGeneration(NewGeneration{TopicID: c.TopicID, Partition: c.Partition, From: p.Generation, Seed: broker})
}

// Settled reports whether all replicas are in sync, and none is to come, to go, or to take over.
func (p *Partition) Settled() bool {
	return len(p.InSync) == len(p.Replicas) && len(p.Adding) == 0 && len(p.Removing) == 0 && p.Transfer == nil && p.BaseOffset != ids.NoOffset
}

// checkSeed is rule 7 of the design: seeds come from the ISR, and only when that is empty from the ELR. An unclean one may
// be any other live replica, when nobody of either is alive.
func (e *edit) checkSeed(p *Partition, c NewGeneration) ItemResult {
	i := p.ReplicaOf(c.Seed)
	live := func(n ids.NodeID) bool { return e.img.Usable(n) }
	switch {
	case c.From != p.Generation:
		return refuseItem(kerr.InvalidUpdateVersion, "generation %d, the current one is %d", c.From, p.Generation)
	case i < 0 || !e.img.Usable(c.Seed):
		return refuseItem(kerr.IneligibleReplica, "broker %d is no live replica", c.Seed)
	case e.off.Has(rules.SeedOutsideISR), p.inISR(c.Seed), len(p.InSync) == 0 && p.inELR(c.Seed):
		return ItemResult{}
	case !c.Unclean:
		return refuseItem(kerr.EligibleLeadersNotAvailable, "broker %d is not in sync", c.Seed)
	case slices.ContainsFunc(p.InSync, live), len(p.InSync) == 0 && slices.ContainsFunc(p.ELR, live):
		return refuseItem(kerr.ElectionNotNeeded, "an eligible leader is alive")
	}
	return ItemResult{}
}

// renewAll gives all replicas of p, which this edit owns, the ids of a new generation, for the data directories that their
// brokers have now.
func (e *edit) renewAll(p *Partition) {
	p.ReplicaIDs = make([]ids.ReplicaID, len(p.Replicas))
	p.Directories = make([]ids.UUID, len(p.Replicas))
	p.Founders = nil
	for i, n := range p.Replicas {
		p.ReplicaIDs[i] = e.nextReplica()
		if b := e.img.Brokers[n]; b != nil {
			p.Directories[i] = b.Directory
		}
		if slices.Contains(p.Voters, n) {
			p.Founders = append(p.Founders, Founder{p.ReplicaIDs[i], n})
		}
	}
}

// restarted takes a new process of a broker out of every ISR and leadership, and decides what its data is worth. A killed
// process has lost nothing that it had saved; it stays in the ELR. Another data directory, or a restart of the machine
// after a run with log.flush=os that was not closed in order, makes each replica a stranger to its Raft group: it gets
// a new id and leaves ISR and ELR. closed: the broker was shut down in order.
func (e *edit) restarted(old, b *Broker, closed bool) {
	if old.Incarnation == b.Incarnation {
		return
	}
	e.outOfSync(b.ID, Fence)
	doubtful := old.LogFlush == logFlushOS && old.BootID != b.BootID && !closed
	e.eachPartition(func(t *Topic, i int32, p *Partition) {
		at := p.ReplicaOf(b.ID)
		switch {
		case at < 0 || p.Directories[at].IsZero():
		case p.Directories[at] != b.Directory:
			e.renewReplica(t, i, at)
		case doubtful && p.lastHope(b.ID):
			e.doubt(t, i, at)
		case doubtful:
			e.renewReplica(t, i, at)
		}
	})
}

const logFlushOS = "os"

// lastHope reports whether nobody else of ISR and ELR is left.
func (p *Partition) lastHope(node ids.NodeID) bool {
	return p.inELR(node) && len(p.InSync) == 0 && len(p.ELR) == 1
}

// doubt lets the last replica lead again though it may have lost the end of its log, as the seed of the next generation:
// its Raft group may have lost votes with it. What it had reported is noted; without a directory it cannot start before.
func (e *edit) doubt(t *Topic, index int32, at int) {
	p := e.editPartition(t.ID, index)
	p.Directories = slices.Clone(p.Directories)
	p.Directories[at] = ids.UUID{}
	p.Pending = nil
	for _, end := range p.Ends {
		if end.Node == p.Replicas[at] {
			p.Pending = &PendingLoss{Cause: CausePowerCut, Ends: []ReplicaEnd{end}, AtMs: end.AsOfMs}
		}
	}
}

// resolveDoubt makes a stranger of a doubted replica of p, which this edit owns, once somebody else leads: it was not the
// last hope after all.
func (e *edit) resolveDoubt(t *Topic, p *Partition) {
	for at, n := range p.Replicas {
		if n != p.Leader && p.Doubted(n) {
			e.renew(t, p, at)
			p.Pending = nil
		}
	}
}

// Doubted reports whether the node's replica may lead only as the seed of the next generation.
func (p *Partition) Doubted(node ids.NodeID) bool {
	i := p.ReplicaOf(node)
	return i >= 0 && p.Directories[i].IsZero()
}

// renewReplica gives the replica at that position a new id, for its broker's present directory, in the present generation.
func (e *edit) renewReplica(t *Topic, index int32, at int) {
	e.renew(t, e.editPartition(t.ID, index), at)
}

// renew is renewReplica for a partition that this edit owns.
func (e *edit) renew(t *Topic, p *Partition, at int) {
	node, former := p.Replicas[at], p.ReplicaIDs[at]
	if slices.Contains(p.Voters, node) {
		p.FormerVoters = append(slices.Clone(p.FormerVoters), former)
	}
	p.Voters = without(p.Voters, node)
	p.ReplicaIDs, p.Directories = slices.Clone(p.ReplicaIDs), slices.Clone(p.Directories)
	p.ReplicaIDs[at] = e.nextReplica()
	p.Directories[at] = e.img.Brokers[node].Directory
	if p.Leader == node {
		p.leaveLeader()
	}
	if p.inISR(node) {
		e.setISR(t, p, without(p.InSync, node))
	}
	p.ELR = without(p.ELR, node)
}

// renewByID is renewReplica for a replica that its broker found damaged. It is refused while nobody else that is alive is in
// sync: there would be nobody to copy from, and what of the replica is whole would be lost.
func (e *edit) renewByID(broker ids.NodeID, r ids.ReplicaID) ItemResult {
	result := refuseItem(kerr.UnknownTopicOrPartition, "broker %d has no replica %d", broker, r)
	e.eachPartition(func(t *Topic, i int32, p *Partition) {
		at := slices.Index(p.ReplicaIDs, r)
		switch {
		case at < 0 || p.Replicas[at] != broker:
		case len(without(e.img.eligibleOf(p.InSync), broker)) == 0:
			result = refuseItem(kerr.EligibleLeadersNotAvailable, "no other replica that is alive is in sync")
		default:
			e.renewReplica(t, i, at)
			result = ItemResult{}
		}
	})
	return result
}

// transferLeader notes whom the leader is to hand over to.
func (e *edit) transferLeader(c LeaderTransfer) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	case p.Leader == ids.NoNode || p.LeaderEpoch != c.LeaderEpoch:
		return refuseItem(kerr.FencedLeaderEpoch, "leader %d in epoch %d", p.Leader, p.LeaderEpoch).of(p)
	case c.To == ids.NoNode && p.Transfer == nil:
		return ItemResult{}.of(p)
	case c.To == p.Leader:
		return refuseItem(kerr.ElectionNotNeeded, "broker %d leads already", c.To).of(p)
	case c.To != ids.NoNode && !e.img.mayTake(p, c.To):
		return refuseItem(kerr.PreferredLeaderNotAvailable, "broker %d cannot lead now", c.To).of(p)
	}
	p = e.editPartition(c.TopicID, c.Partition)
	if p.Transfer = nil; c.To != ids.NoNode {
		p.Transfer = &Transfer{c.To, c.AtMs}
	}
	return ItemResult{}.of(p)
}

// mayTake reports whether Raft leadership can be handed to the node.
func (img *Image) mayTake(p *Partition, node ids.NodeID) bool {
	return img.eligible(node) && p.inISR(node) && slices.Contains(p.Voters, node)
}
