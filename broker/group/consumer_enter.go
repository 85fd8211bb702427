package group

import (
	"iter"
	"maps"
	"slices"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// entrant is who speaks to the group.
type entrant struct {
	id       string
	instance string // empty: not static
	epoch    int32
	owned    map[ids.UUID][]int32
	join     bool // it may be new
	classic  bool // it speaks the classic protocol, whose requests have no member epoch to be checked
}

// enter finds the member, or makes a new one. A static member that comes with a new id takes the place of the one who
// had its instance id, with all that that one was to have (inherited, nil: nobody is replaced).
func (op *consumerOp) enter(who entrant) (m *consumerMember, inherited assignor.Partitions, e *Error) {
	if who.instance != "" {
		return op.enterStatic(who)
	}
	m = op.c.members[who.id]
	switch {
	case m != nil:
		if !who.classic {
			e = m.checkEpoch(who.epoch, who.owned)
		}
	case who.join:
		m = newMember(who.id)
	default:
		e = refusal(kerr.UnknownMemberID, "the group has no member "+who.id)
	}
	return m, nil, e
}

func newMember(id string) *consumerMember {
	m := &consumerMember{id: id}
	m.RebalanceTimeoutMillis = -1
	return m
}

func (op *consumerOp) enterStatic(who entrant) (m *consumerMember, inherited assignor.Partitions, e *Error) {
	m = op.c.staticMember(who.instance)
	switch {
	case !who.join && m == nil:
		return nil, nil, refusal(kerr.UnknownMemberID, "the group has no member with the instance id "+who.instance)
	case !who.join:
		if e = m.checkInstance(who.id); e == nil && !who.classic {
			e = m.checkEpoch(who.epoch, who.owned)
		}
		return m, nil, e
	case m == nil:
		if known := op.c.members[who.id]; known != nil {
			return known, nil, nil
		}
		return newMember(who.id), nil, nil
	case !who.classic && !m.usesClassic() && m.epoch != epochLeaveStatic:
		return nil, nil, refusal(kerr.UnreleasedInstanceID, "the instance id "+who.instance+" is in use by member "+m.id)
	}
	next, inherited := op.replace(m, who.id)
	return next, inherited, nil
}

// replace collects what puts a member with a new id in the place of another.
func (op *consumerOp) replace(old *consumerMember, id string) (*consumerMember, assignor.Partitions) {
	next := old.with(func(n *consumerMember) { n.id, n.epoch, n.previous = id, epochJoin, epochJoin })
	inherited := op.c.target.members[old.id]
	if inherited == nil {
		inherited = assignor.Partitions{}
	}
	op.drop(old.id)
	op.add(next.metadataRecord(op.id), targetRecord(op.id, id, inherited), next.assignmentRecord(op.id))
	delete(op.gone, id) // it may come back with the id it had
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		if old.id != id {
			delete(g.live.timers, old.id)
		}
	})
	return next, inherited
}

// checkInstance refuses a member id that is not the one of the instance id.
func (c *consumerMember) checkInstance(id string) *Error {
	if c.id != id {
		return refusal(kerr.FencedInstanceID, "the instance id "+c.instance()+" is that of member "+c.id+" now")
	}
	return nil
}

// checkEpoch refuses a member whose epoch is not the one that is known. One behind is good if that is just the one
// before, and the member has nothing that it has not to have: the answer with the new epoch may have been lost.
func (c *consumerMember) checkEpoch(epoch int32, owned map[ids.UUID][]int32) *Error {
	switch {
	case epoch == epochJoin || epoch == c.epoch:
		return nil
	case epoch > c.epoch:
		return refusal(kerr.FencedMemberEpoch, "the member's epoch is above the one that is known: it must give up its partitions and join again")
	case epoch == c.previous && owned != nil && c.hasAll(owned):
		return nil
	}
	return refusal(kerr.FencedMemberEpoch, "the member's epoch is below the one that is known: it must give up its partitions and join again")
}

// hasAll says whether the partitions are assigned to the member.
func (c *consumerMember) hasAll(owned map[ids.UUID][]int32) bool {
	for id, list := range owned {
		for _, p := range list {
			if _, ok := c.assigned[id][p]; !ok {
				return false
			}
		}
	}
	return true
}

// byTopic walks topics in the order of their ids.
func byTopic(parts assignor.Partitions) iter.Seq2[ids.UUID, []int32] {
	return func(yield func(ids.UUID, []int32) bool) {
		for _, id := range slices.SortedFunc(maps.Keys(parts), func(a, b ids.UUID) int { return slices.Compare(a[:], b[:]) }) {
			if !yield(id, parts[id]) {
				return
			}
		}
	}
}
