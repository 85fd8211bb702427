package assignor

// uniform gives all members the same number of partitions, give or take one, as far as subscriptions allow, and moves
// as few as it can from their owners.
func uniform(g Group) map[string]Partitions {
	p := newPlan(g, byID)
	switch {
	case len(p.topics) == 0:
		return map[string]Partitions{}
	case p.homogeneous():
		p.fillEvenly()
	default:
		p.retain(func(int32) bool { return true })
		p.fillLeast()
		p.balance()
	}
	return p.result()
}

// fillEvenly divides partitions that anybody may have. Everybody gets total/members of them, and one more those who had
// more so far, as many as the remainder allows; so nothing moves except from who has too much. What is left goes round
// by turns, which spreads each topic over the members.
func (p *plan) fillEvenly() {
	members := int32(len(p.members))
	quota, extras := int32(len(p.owner))/members, int32(len(p.owner))%members
	p.retain(func(m int32) bool {
		if p.load[m] == quota && extras > 0 {
			extras--
			return true
		}
		return p.load[m] < quota
	})
	missing := int32(0) // until all have their quota, nobody gets an extra one
	for _, load := range p.load {
		missing += max(0, quota-load)
	}
	m := int32(0)
	for n, owner := range p.owner {
		if owner != nobody {
			continue
		}
		limit := quota
		if missing == 0 {
			limit++
		}
		for p.load[m] >= limit {
			m = (m + 1) % members
		}
		missing = max(0, missing-1)
		p.give(int32(n), m)
		m = (m + 1) % members
	}
}

// fillLeast gives each partition without an owner to the subscriber who has the fewest, topics with few subscribers
// first, since those with many have the choice.
func (p *plan) fillLeast() {
	for _, i := range p.byChoice() {
		t := &p.topics[i]
		for n := t.first; n < t.next; n++ {
			if p.owner[n] == nobody {
				p.give(n, p.least(t))
			}
		}
	}
}

// balance moves partitions, one at a time, from who has at least two more than another subscriber of the topic, until
// no such move is left. Each move brings two members' loads together, so it ends.
func (p *plan) balance() {
	order := p.byChoice()
	for moved := true; moved; {
		moved = false
		for _, i := range order {
			moved = p.balanceTopic(&p.topics[i]) || moved
		}
	}
}

// balanceTopic evens out the owners of one topic, and says whether it moved anything.
func (p *plan) balanceTopic(t *topic) (moved bool) {
	owned := make(map[int32][]int32, len(t.subscribers)) // this topic's partitions by owner
	for n := t.first; n < t.next; n++ {
		owned[p.owner[n]] = append(owned[p.owner[n]], n)
	}
	for {
		most := nobody
		for _, m := range t.subscribers {
			if len(owned[m]) > 0 && (most == nobody || p.load[m] > p.load[most]) {
				most = m
			}
		}
		least := p.least(t)
		if most == nobody || p.load[most] <= p.load[least]+1 {
			return moved
		}
		last := len(owned[most]) - 1
		n := owned[most][last]
		owned[most] = owned[most][:last]
		owned[least] = append(owned[least], n)
		p.move(n, least)
		moved = true
	}
}

// least is the subscriber with the fewest partitions, the first of equals.
func (p *plan) least(t *topic) int32 {
	best := t.subscribers[0]
	for _, m := range t.subscribers[1:] {
		if p.load[m] < p.load[best] {
			best = m
		}
	}
	return best
}
