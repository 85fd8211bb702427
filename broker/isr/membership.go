package isr

import (
	"slices"

	"cairn/internal/ids"
)

// MemberAction is what a MemberChange does.
type MemberAction uint8

// The member actions.
const (
	AddNonVoting MemberAction = iota + 1
	Promote                   // a non-voting member becomes a voter
	Remove
)

// MemberChange is a change of the Raft group's membership. Node is NoNode for a replica that the assignment does not know.
type MemberChange struct {
	Action  MemberAction
	Replica ids.ReplicaID
	Node    ids.NodeID
}

// NextMember returns the next change that brings the Raft group's members, as Raft tells them, in line with the view. One
// change at a time: the caller asks again once it is applied.
//
// Replicas that the assignment no longer knows go first: a dead voter weakens the majority. Then come the missing ones, as
// non-voters; then in-sync non-voters that hold all that is committed become voters. Those that a reassignment removes go
// last, when all that stay are in sync and vote, and never the leader itself, which hands over first.
func (l *Leader) NextMember(voters, nonVoters []ids.ReplicaID) (MemberChange, bool) {
	for _, r := range slices.Concat(voters, nonVoters) {
		if r != l.cfg.Self && l.memberOf(r) == nil {
			return MemberChange{Remove, r, ids.NoNode}, true
		}
	}
	ready := true
	for i := range l.members {
		m := &l.members[i]
		votes := slices.Contains(voters, m.Replica)
		ready = ready && (m.Leaving || votes && m.InSync)
		switch {
		case m.Leaving || votes:
		case !slices.Contains(nonVoters, m.Replica):
			return MemberChange{AddNonVoting, m.Replica, m.Node}, true
		case m.InSync && m.Eligible && m.end >= l.committed:
			return MemberChange{Promote, m.Replica, m.Node}, true
		}
	}
	for i := range l.members {
		m := &l.members[i]
		present := slices.Contains(voters, m.Replica) || slices.Contains(nonVoters, m.Replica)
		if ready && m.Leaving && present && m.Replica != l.cfg.Self {
			return MemberChange{Remove, m.Replica, m.Node}, true
		}
	}
	return MemberChange{}, false
}

func (l *Leader) memberOf(r ids.ReplicaID) *member {
	for i := range l.members {
		if l.members[i].Replica == r {
			return &l.members[i]
		}
	}
	return nil
}
