package controller

import (
	"slices"
	"time"

	"cairn/internal/ids"
)

// Decide returns the commands that the active controller should propose now: generations for partitions that Raft cannot
// keep going, preferred leaders, and the end of requests that stand for too long. It is a function of the image and the
// facts alone, so a command may be proposed again if the first one got lost: Apply refuses what is out of date.
func Decide(img *Image, f Facts) []Command {
	var generations NextGenerations
	var transfers TransferLeaders
	var reassignments AlterReassignments
	skewed := f.skewed(img)
	for _, t := range img.TopicList() {
		for i, p := range t.Partitions {
			k := partitionKey{t.ID, int32(i)}
			if g, ok := needsGeneration(img, f, t.Name, k, p); ok {
				generations.Partitions = append(generations.Partitions, g)
				continue
			}
			if tr, ok := needsTransfer(img, f, k, p, skewed); ok {
				transfers.Partitions = append(transfers.Partitions, tr)
			}
			if f.ReassignmentTimeout > 0 && p.ReassignedMs > 0 && len(p.Adding) > 0 &&
				f.Now.UnixMilli()-p.ReassignedMs > f.ReassignmentTimeout.Milliseconds() {
				reassignments.Partitions = append(reassignments.Partitions, Reassignment{TopicID: k.topic, Partition: k.index, AtMs: f.Now.UnixMilli()})
			}
		}
	}
	var out []Command
	if len(generations.Partitions) > 0 {
		out = append(out, generations)
	}
	if len(transfers.Partitions) > 0 {
		out = append(out, transfers)
	}
	if len(reassignments.Partitions) > 0 {
		out = append(out, reassignments)
	}
	return out
}

// needsGeneration reports whether the partition needs the next generation, and which: when the ISR has no majority of the
// voters any more, so that Raft cannot commit what all of the ISR holds; when nobody has registered as leader for the
// time that Raft is given; or when the last hope is back from a power cut. Without a clean seed it takes an unclean
// one, if the topic wants that and every other broker's lease is over.
func needsGeneration(img *Image, f Facts, topic string, k partitionKey, p *Partition) (NewGeneration, bool) {
	leader := img.Leader(p)
	g, clean := cleanGeneration(img, f, k, p)
	switch {
	case clean && seeded(p, g.Seed):
		return NewGeneration{}, false // it is on its way
	case clean && p.Doubted(g.Seed):
		return g, true
	case clean && leader == ids.NoNode && p.aloneVotes(g.Seed):
		return g, f.graceOver(p) // it elects itself at once: another generation would bring nothing
	case clean:
		return g, !img.quorate(p) || leader == ids.NoNode && f.graceOver(p)
	case leader != ids.NoNode || len(p.InSync) > 0:
		return NewGeneration{}, false // a leader that shuts down and is alone
	case f.Unclean == nil || !f.Unclean(topic) || f.leaseHeld(img, p) != ids.NoNode:
		return NewGeneration{}, false
	}
	return uncleanGeneration(img, f, k, p)
}

// seeded reports whether the present generation waits for that same seed to register.
func seeded(p *Partition, seed ids.NodeID) bool {
	return p.BaseOffset == ids.NoOffset && len(p.Founders) == 1 && p.Founders[0].Node == seed && !p.Doubted(seed) &&
		p.Founders[0].Replica == p.ReplicaIDs[p.ReplicaOf(seed)]
}

// aloneVotes reports whether the node is the only voter of the present generation, which has begun.
func (p *Partition) aloneVotes(node ids.NodeID) bool {
	return len(p.Voters) == 1 && p.Voters[0] == node && len(p.FormerVoters) == 0 && p.BaseOffset != ids.NoOffset
}

// quorate reports whether the in-sync voters are a majority of all that vote.
func (img *Image) quorate(p *Partition) bool {
	votes := 0
	for _, n := range p.Voters {
		if p.inISR(n) && img.Usable(n) {
			votes++
		}
	}
	return 2*votes > len(p.Voters)+len(p.FormerVoters)
}

func (f Facts) graceOver(p *Partition) bool {
	since, ok := f.Leaderless[p.ID]
	return ok && f.Now.Sub(since) >= f.ElectionGrace
}

// needsTransfer reports whether the leader is to be asked to hand over: to the preferred replica where a rebalance is due,
// or to a replica that stays, where a reassignment removes the leader; or whether a request has stood for too long.
func needsTransfer(img *Image, f Facts, k partitionKey, p *Partition, skewed []ids.NodeID) (LeaderTransfer, bool) {
	preferred := p.Replicas[0]
	switch {
	case img.Leader(p) == ids.NoNode:
		return LeaderTransfer{}, false
	case p.Transfer != nil:
		stale := f.tooOld(p.Transfer.AtMs) || !img.mayTake(p, p.Transfer.To)
		return *f.transfer(k, p, ids.NoNode), stale
	case slices.Contains(p.Removing, p.Leader):
		for _, n := range p.Replicas {
			if !slices.Contains(p.Removing, n) && img.mayTake(p, n) {
				return *f.transfer(k, p, n), true
			}
		}
	case p.Leader != preferred && slices.Contains(skewed, preferred) && img.mayTake(p, preferred):
		return *f.transfer(k, p, preferred), true
	}
	return LeaderTransfer{}, false
}

// tooOld reports whether a request to hand over, made then by the wall clock of whichever controller was active, has stood for too long. One from
// the future was made before a clock was set back, nobody knows how long ago.
func (f Facts) tooOld(atMs int64) bool {
	age := f.Now.Sub(time.UnixMilli(atMs)).Abs()
	return age > f.TransferTimeout
}

// skewed lists the brokers that do not lead more than the tolerated part of what they are preferred for; none while no
// rebalance is due.
func (f Facts) skewed(img *Image) []ids.NodeID {
	if !f.Rebalance {
		return nil
	}
	preferred, missing := map[ids.NodeID]int{}, map[ids.NodeID]int{}
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			preferred[p.Replicas[0]]++
			if p.Leader != p.Replicas[0] {
				missing[p.Replicas[0]]++
			}
		}
	}
	var out []ids.NodeID
	for _, b := range img.BrokerList() {
		if 100*missing[b.ID] > f.ImbalancePercent*preferred[b.ID] {
			out = append(out, b.ID)
		}
	}
	return out
}
