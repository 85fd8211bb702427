package controller

import (
	"slices"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ElectionType is Kafka's type of an election.
type ElectionType int8

// The types, with Kafka's numbers.
const (
	PreferredElection ElectionType = 0
	UncleanElection   ElectionType = 1
)

// Election is the step that an election takes: one of the two, for NextGenerations or TransferLeaders. Once that is applied
// the leader changes by itself: the answer waits for Image.Leader.
type Election struct {
	Generation *NewGeneration
	Transfer   *LeaderTransfer
}

// Elect plans what ElectLeaders asks for one partition, with Kafka's codes. Code 0: the election is to be held.
func Elect(img *Image, f Facts, kind ElectionType, topic string, index int32) (Election, ItemResult) {
	p, ok := img.Partition(topic, index)
	if !ok {
		return Election{}, refuseItem(kerr.UnknownTopicOrPartition, "No such topic as %s, or no partition %d of it", topic, index)
	}
	k := partitionKey{img.Topics[topic].ID, index}
	switch kind {
	case PreferredElection:
		return electPreferred(img, f, k, p)
	case UncleanElection:
		return electUnclean(img, f, k, p)
	default:
		return Election{}, refuseItem(kerr.InvalidRequest, "Unknown election type %d", kind)
	}
}

func electPreferred(img *Image, f Facts, k partitionKey, p *Partition) (Election, ItemResult) {
	preferred, leader := p.Replicas[0], img.Leader(p)
	switch {
	case leader == preferred:
		return Election{}, refuseItem(kerr.ElectionNotNeeded, "Leader election not needed for topic partition.")
	case leader == ids.NoNode:
		if g, ok := cleanGeneration(img, f, k, p); ok {
			return Election{Generation: &g}, ItemResult{}
		}
	case img.mayTake(p, preferred):
		return Election{Transfer: f.transfer(k, p, preferred)}, ItemResult{}
	case img.eligible(preferred) && p.inISR(preferred):
		// It is in sync and gets its vote any moment now.
		return Election{}, refuseItem(kerr.LeaderNotAvailable, "broker %d has no vote in its Raft group yet", preferred)
	}
	return Election{}, refuseItem(kerr.PreferredLeaderNotAvailable, "Failed to elect leader for partition under strategy PREFERRED")
}

func (f Facts) transfer(k partitionKey, p *Partition, to ids.NodeID) *LeaderTransfer {
	return &LeaderTransfer{TopicID: k.topic, Partition: k.index, LeaderEpoch: p.LeaderEpoch, To: to, AtMs: f.Now.UnixMilli()}
}

// electUnclean prefers a clean seed where there is one. Otherwise a broker that may still hold its lease, and so answer
// clients, has to be waited for: refused with LEADER_NOT_AVAILABLE, which callers retry.
func electUnclean(img *Image, f Facts, k partitionKey, p *Partition) (Election, ItemResult) {
	if img.Leader(p) != ids.NoNode {
		return Election{}, refuseItem(kerr.ElectionNotNeeded, "Leader election not needed for topic partition.")
	}
	if g, ok := cleanGeneration(img, f, k, p); ok {
		return Election{Generation: &g}, ItemResult{}
	}
	g, ok := uncleanGeneration(img, f, k, p)
	switch {
	case !ok:
		return Election{}, refuseItem(kerr.EligibleLeadersNotAvailable, "Failed to elect leader for partition under strategy UNCLEAN")
	case f.leaseHeld(img, p) != ids.NoNode:
		return Election{}, refuseItem(kerr.LeaderNotAvailable, "broker %d may still act as leader", f.leaseHeld(img, p))
	}
	return Election{Generation: &g}, ItemResult{}
}

// leaseHeld returns a replica's broker that is fenced but may not know yet, NoNode if there is none.
func (f Facts) leaseHeld(img *Image, p *Partition) ids.NodeID {
	for _, n := range p.Replicas {
		b := img.Brokers[n]
		if b == nil || !b.Fenced {
			continue
		}
		if until, ok := f.LeaseEnds[n]; !ok || f.Now.Before(until) {
			return n
		}
	}
	return ids.NoNode
}

// cleanGeneration plans a generation that loses nothing exposed: its seed is in the ISR, or in the ELR if that is empty. The
// present leader if it is alive, else who holds most.
func cleanGeneration(img *Image, f Facts, k partitionKey, p *Partition) (NewGeneration, bool) {
	candidates := p.InSync
	if len(candidates) == 0 {
		candidates = p.ELR
	}
	candidates = keep(candidates, img.eligible)
	if len(candidates) == 0 {
		return NewGeneration{}, false
	}
	seed := img.Leader(p)
	if !slices.Contains(candidates, seed) {
		seed = f.mostComplete(p, candidates)
	}
	return NewGeneration{TopicID: k.topic, Partition: k.index, From: p.Generation, Seed: seed}, true
}

// uncleanGeneration plans a generation whose seed is any live replica, the one that holds most. What others are known to
// hold beyond it is pending.
func uncleanGeneration(img *Image, f Facts, k partitionKey, p *Partition) (NewGeneration, bool) {
	candidates := img.eligibleOf(p.Replicas)
	if len(candidates) == 0 {
		return NewGeneration{}, false
	}
	seed := f.mostComplete(p, candidates)
	return NewGeneration{
		TopicID: k.topic, Partition: k.index, From: p.Generation, Seed: seed, Unclean: true, Pending: f.feared(p, seed),
	}, true
}

// mostComplete returns the candidate with the highest known log end, the first in assignment order among equals.
func (f Facts) mostComplete(p *Partition, candidates []ids.NodeID) ids.NodeID {
	best, bestEnd := ids.NoNode, LogEnd{}
	for _, n := range p.Replicas {
		if !slices.Contains(candidates, n) {
			continue
		}
		end, known := f.Ends.Of(p, n)
		if !known {
			end = LogEnd{LeaderEpoch: ids.NoEpoch}
		}
		if best == ids.NoNode || bestEnd.behind(end) {
			best, bestEnd = n, end
		}
	}
	return best
}

// feared is what a generation seeded by seed loses, as far as it is known.
func (f Facts) feared(p *Partition, seed ids.NodeID) *PendingLoss {
	own, _ := f.Ends.Of(p, seed)
	loss := &PendingLoss{Cause: CauseUnclean, AtMs: f.Now.UnixMilli()}
	for _, n := range p.Replicas {
		if end, ok := f.Ends.Of(p, n); ok && n != seed && own.behind(end) {
			loss.Ends = append(loss.Ends, ReplicaEnd{n, end})
		}
	}
	if len(loss.Ends) == 0 {
		return nil
	}
	return loss
}

// Preview is one replica in the answer to what an election would do.
type Preview struct {
	Node ids.NodeID
	// Alive: registered and unfenced. InISR and InELR as in the image.
	Alive, InISR, InELR bool
	// Known: LogEnd is what the replica reported last, Age how long ago.
	Known bool
	LogEnd
	Age time.Duration
	// Lost is what promoting this replica would lose, by the other replicas' ends. Nothing exposed for a clean one.
	Lost []LostRange
}

// PreviewElection shows, in assignment order, what promoting each replica would lose, as far as it is known.
func PreviewElection(f Facts, img *Image, p *Partition) []Preview {
	out := make([]Preview, len(p.Replicas))
	for i, n := range p.Replicas {
		v := Preview{Node: n, Alive: img.Usable(n), InISR: p.inISR(n), InELR: p.inELR(n)}
		v.LogEnd, v.Known = f.Ends.Of(p, n)
		if v.Known {
			v.Age = f.Now.Sub(time.UnixMilli(v.AsOfMs))
		}
		if loss := f.feared(p, n); loss != nil {
			for _, end := range loss.Ends {
				if end.End > v.End {
					v.lose(end.LeaderEpoch, end.End)
				}
			}
		}
		out[i] = v
	}
	return out
}

// lose adds what another replica has beyond the end of this one. Two that end in the same leader epoch have the same records up to where the
// shorter one ends, so they count once.
func (v *Preview) lose(epoch ids.LeaderEpoch, end ids.Offset) {
	for i, r := range v.Lost {
		if r.LeaderEpoch == epoch {
			v.Lost[i].To = max(r.To, end)
			return
		}
	}
	v.Lost = append(v.Lost, LostRange{epoch, v.End, end})
}
