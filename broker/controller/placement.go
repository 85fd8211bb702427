package controller

import (
	"math/rand/v2"
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// placement spreads the replicas of new partitions over the unfenced brokers: leaders in turn, from a random start;
// followers in turn behind the leader, at a distance that grows by one each round, so that a broker's followers do not
// all sit on its neighbour. Where brokers have racks, they are taken in turn by rack, and a partition uses as many racks
// as it can. A broker that is fenced gets followers only where the others are too few, as in Kafka, so that topics can be
// created while a broker is down.
type placement struct {
	brokers []*Broker
	fenced  []*Broker
	next    int // leader of the next partition
	shift   int
}

// newPlacement prepares a spread over the image's brokers that are not shutting down.
func newPlacement(img *Image, rng *rand.Rand) *placement {
	p := &placement{}
	byRack := map[string][]*Broker{}
	var racks []string
	for _, b := range img.BrokerList() {
		if b.ShuttingDown {
			continue
		}
		if b.Fenced {
			p.fenced = append(p.fenced, b)
			continue
		}
		if _, ok := byRack[b.rack()]; !ok {
			racks = append(racks, b.rack())
		}
		byRack[b.rack()] = append(byRack[b.rack()], b)
	}
	slices.Sort(racks)
	for i, more := 0, true; more; i++ {
		more = false
		for _, r := range racks {
			if i < len(byRack[r]) {
				p.brokers, more = append(p.brokers, byRack[r][i]), true
			}
		}
	}
	if n := len(p.brokers); n > 0 {
		p.next, p.shift = rng.IntN(n), rng.IntN(n)
	}
	return p
}

func (b *Broker) rack() string {
	if b.Rack == nil {
		return ""
	}
	return *b.Rack
}

// place returns the replicas of so many new partitions. Code INVALID_REPLICATION_FACTOR if there are too few brokers, or
// too few alive: a majority of the replicas has to be, since a new partition has nobody else to elect a leader.
func (p *placement) place(partitions int, factor int) ([][]ids.NodeID, ItemResult) {
	switch alive, all := len(p.brokers), len(p.brokers)+len(p.fenced); {
	case factor > all:
		return nil, refuseItem(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): only %d broker(s) are registered.", factor, all)
	case alive <= factor/2:
		return nil, refuseItem(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): only %d broker(s) are alive.", factor, alive)
	}
	out := make([][]ids.NodeID, partitions)
	for i := range out {
		out[i] = p.replicas(factor)
		if p.next++; p.next%len(p.brokers) == 0 {
			p.shift++
		}
	}
	return out, ItemResult{}
}

// replicas picks one partition's: in turn, first one of each rack, then whoever is left, then the fenced in turn.
func (p *placement) replicas(factor int) []ids.NodeID {
	order := p.order()
	var picked []ids.NodeID
	racks := map[string]bool{}
	for _, b := range order {
		if len(picked) < factor && !racks[b.rack()] {
			picked, racks[b.rack()] = append(picked, b.ID), true
		}
	}
	for _, b := range order {
		if len(picked) < factor && !slices.Contains(picked, b.ID) {
			picked = append(picked, b.ID)
		}
	}
	for i := 0; len(picked) < factor; i++ {
		picked = append(picked, p.fenced[(p.next+i)%len(p.fenced)].ID)
	}
	return picked
}

// order lists all brokers, the next partition's leader first.
func (p *placement) order() []*Broker {
	n := len(p.brokers)
	order := append(make([]*Broker, 0, n), p.brokers[p.next%n])
	for j := 0; j < n-1; j++ {
		order = append(order, p.brokers[(p.next+1+(p.shift+j)%(n-1))%n])
	}
	return order
}
