package assignor

import (
	"cmp"
	"slices"

	"cairn/internal/ids"
)

// Names of the assignors, in the order of preference of `group.consumer.assignors`.
const (
	Uniform = "uniform"
	Range   = "range"
)

// Partitions of topics. The slices are sorted, without duplicates and never empty.
type Partitions map[ids.UUID][]int32

// Member is one who takes part.
type Member struct {
	ID         string
	InstanceID string     // of a static member; empty: dynamic
	Topics     []ids.UUID // what it subscribes to, in any order
	Assigned   Partitions // its part so far; the assignor reads it only
}

// Group is what is to be divided. Topics that nobody subscribes to and subscriptions to topics that are not there are
// left out of account.
type Group struct {
	Members []Member
	Topics  map[ids.UUID]int32 // the number of partitions
}

// Func divides a group's partitions: each partition of a subscribed topic goes to exactly one of the topic's
// subscribers. Members that get nothing have no entry.
type Func func(Group) map[string]Partitions

// Lookup finds an assignor by its name.
func Lookup(name string) (Func, bool) {
	switch name {
	case Uniform:
		return uniform, true
	case Range:
		return ranges, true
	}
	return nil, false
}

// plan is a group with members and topics as numbers, in an order that depends on nothing but their ids.
type plan struct {
	members []Member
	topics  []topic
	names   map[ids.UUID]int32 // topic's place in topics
	topicOf []int32            // by partition number
	owner   []int32            // by partition number; nobody
	load    []int32            // by member: how many partitions it owns
}

// nobody owns a partition that is not given to a member yet.
const nobody int32 = -1

type topic struct {
	id          ids.UUID
	first, next int32   // its partitions' numbers: [first, next)
	subscribers []int32 // by place in members, rising
}

// newPlan numbers the members and those topics that exist and have subscribers.
func newPlan(g Group, order func(a, b Member) int) *plan {
	p := &plan{members: slices.SortedFunc(slices.Values(g.Members), order), names: make(map[ids.UUID]int32)}
	subscribers := make(map[ids.UUID][]int32, len(g.Topics))
	for i := range p.members {
		for _, id := range p.members[i].Topics {
			s := subscribers[id]
			if g.Topics[id] > 0 && (len(s) == 0 || s[len(s)-1] != int32(i)) {
				subscribers[id] = append(s, int32(i))
			}
		}
	}
	for id, s := range subscribers {
		p.topics = append(p.topics, topic{id: id, subscribers: s})
	}
	slices.SortFunc(p.topics, func(a, b topic) int { return slices.Compare(a.id[:], b.id[:]) })
	var next int32
	for i := range p.topics {
		t := &p.topics[i]
		t.first, t.next = next, next+g.Topics[t.id]
		next = t.next
		p.names[t.id] = int32(i)
	}
	p.topicOf = make([]int32, next)
	for i, t := range p.topics {
		for n := t.first; n < t.next; n++ {
			p.topicOf[n] = int32(i)
		}
	}
	p.owner = slices.Repeat([]int32{nobody}, int(next))
	p.load = make([]int32, len(p.members))
	return p
}

func byID(a, b Member) int { return cmp.Compare(a.ID, b.ID) }

// give makes a member the owner of a partition that has none.
func (p *plan) give(partition, member int32) {
	p.owner[partition] = member
	p.load[member]++
}

// move changes a partition's owner.
func (p *plan) move(partition, to int32) {
	p.load[p.owner[partition]]--
	p.give(partition, to)
}

// retain gives to each member what it owned, as far as it still subscribes and as keep allows, and nobody did before.
func (p *plan) retain(keep func(member int32) bool) {
	for i := range p.members {
		m := int32(i)
		for id, partitions := range inOrder(p.members[i].Assigned) {
			place, ok := p.names[id]
			if !ok {
				continue
			}
			t := &p.topics[place]
			if _, ok = slices.BinarySearch(t.subscribers, m); !ok {
				continue
			}
			for _, n := range partitions {
				if n >= 0 && n < t.next-t.first && p.owner[t.first+n] == nobody && keep(m) {
					p.give(t.first+n, m)
				}
			}
		}
	}
}

// homogeneous says whether all members subscribe to the same topics.
func (p *plan) homogeneous() bool {
	for i := range p.topics {
		if len(p.topics[i].subscribers) != len(p.members) {
			return false
		}
	}
	return true
}

// result is who owns what.
func (p *plan) result() map[string]Partitions {
	out := make(map[string]Partitions, len(p.members))
	for n, m := range p.owner {
		if m == nobody {
			continue
		}
		t := &p.topics[p.topicOf[n]]
		id := p.members[m].ID
		parts := out[id]
		if parts == nil {
			parts = make(Partitions)
			out[id] = parts
		}
		parts[t.id] = append(parts[t.id], int32(n)-t.first)
	}
	return out
}
