package group

import (
	"maps"
	"slices"

	"cairn/broker/group/assignor"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// reconciliation is one step of one member on its way to the target: it gives back first, and gets then.
type reconciliation struct {
	member *consumerMember
	// epoch and target are where it is to go.
	epoch  int32
	target assignor.Partitions
	// wants says whether the member subscribes to a topic that exists.
	wants func(topic ids.UUID) bool
	// taken says whether anybody has the partition, the member included.
	taken func(topic ids.UUID, partition int32) bool
	// owned is what the member says it has; nil: it says nothing.
	owned map[ids.UUID][]int32
	// resubscribed: the member's subscription changes with this very request.
	resubscribed bool
}

// next is the member after the step; the member itself if there is nothing to do or it has to do something first.
func (r reconciliation) next() (*consumerMember, *Error) {
	switch r.member.state {
	case memberUnreleased:
		return r.step(r.member.epoch), nil
	case memberUnrevoked:
		if !r.owns(r.member.revoking) {
			return r.step(r.member.epoch), nil
		}
	case memberStable:
		if r.member.epoch != r.epoch {
			return r.step(r.member.epoch), nil
		}
	default:
		if r.owned == nil || len(r.owned) > 0 {
			return nil, refusal(kerr.FencedMemberEpoch, "the member's state is of a later version: it must give up its partitions and join again")
		}
		return r.step(r.epoch), nil
	}
	if r.resubscribed {
		return r.strip(), nil
	}
	return r.member, nil
}

// owns says whether the member still has one of the partitions, as far as anybody knows.
func (r reconciliation) owns(parts partitionEpochs) bool {
	if r.owned == nil {
		return true
	}
	for id, list := range r.owned {
		for _, p := range list {
			if _, ok := parts[id][p]; ok {
				return true
			}
		}
	}
	return false
}

// step brings the member as far as it can go now. epoch is the one it keeps while it has to give back.
func (r reconciliation) step(epoch int32) *consumerMember {
	assigned, revoking := partitionEpochs{}, partitionEpochs{}
	for id, has := range r.member.assigned {
		target := r.targetOf(id)
		for p, since := range has {
			if _, ok := slices.BinarySearch(target, p); ok {
				put(assigned, id, p, since)
			} else {
				put(revoking, id, p, since)
			}
		}
	}
	if len(revoking) > 0 && r.owns(revoking) {
		return r.member.with(func(n *consumerMember) {
			n.state, n.epoch, n.previous = memberUnrevoked, epoch, r.member.epoch
			n.assigned, n.revoking = assigned, revoking
		})
	}
	state := memberStable
	for id := range r.target {
		for _, p := range r.targetOf(id) {
			if _, has := assigned[id][p]; has {
				continue
			}
			if _, mine := r.member.revoking[id][p]; r.taken(id, p) && !mine {
				state = memberUnreleased
				continue
			}
			put(assigned, id, p, r.epoch)
		}
	}
	return r.member.with(func(n *consumerMember) {
		n.state, n.epoch, n.previous = state, r.epoch, r.member.epoch
		n.assigned, n.revoking = assigned, nil
	})
}

// targetOf is what the member is to have of a topic: nothing if it does not subscribe to it any more.
func (r reconciliation) targetOf(id ids.UUID) []int32 {
	if list := r.target[id]; len(list) > 0 && r.wants(id) {
		return list
	}
	return nil
}

// strip takes topics that the member has unsubscribed from out of what it has, at its epoch.
func (r reconciliation) strip() *consumerMember {
	assigned, revoking := maps.Clone(r.member.assigned), maps.Clone(r.member.revoking)
	if revoking == nil {
		revoking = partitionEpochs{}
	}
	for id, has := range r.member.assigned {
		if r.wants(id) {
			continue
		}
		delete(assigned, id)
		all := maps.Clone(has)
		maps.Copy(all, r.member.revoking[id])
		revoking[id] = all
	}
	if len(assigned) == len(r.member.assigned) {
		return r.member
	}
	return r.member.with(func(n *consumerMember) {
		n.previous, n.assigned = r.member.epoch, assigned
		if r.owns(revoking) {
			n.state, n.revoking = memberUnrevoked, revoking
		}
	})
}

func put(parts partitionEpochs, id ids.UUID, p, epoch int32) {
	if parts[id] == nil {
		parts[id] = map[int32]int32{}
	}
	parts[id][p] = epoch
}
