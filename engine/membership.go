package engine

import (
	"maps"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

func copyMembership(m pb.Membership) pb.Membership {
	return pb.Membership{
		ConfigChangeId: m.ConfigChangeId,
		Addresses:      copyMap(m.Addresses),
		NonVotings:     copyMap(m.NonVotings),
		Witnesses:      copyMap(m.Witnesses),
		Removed:        copyMap(m.Removed),
	}
}

// copyMap never returns nil: the copy is written to.
func copyMap[V any](m map[uint64]V) map[uint64]V {
	if m == nil {
		return map[uint64]V{}
	}
	return maps.Clone(m)
}

// applyConfigChange does what dragonboat's state machine does when it applies the change at index: what it refuses
// has no effect. Groups are configured without ordered changes, and have no witnesses.
func applyConfigChange(m *pb.Membership, c pb.ConfigChange, index uint64) {
	if refusesConfigChange(m, c) {
		return
	}
	m.ConfigChangeId = index
	switch c.Type {
	case pb.AddNode:
		delete(m.NonVotings, c.ReplicaID)
		m.Addresses[c.ReplicaID] = c.Address
	case pb.AddNonVoting:
		m.NonVotings[c.ReplicaID] = c.Address
	case pb.AddWitness:
		m.Witnesses[c.ReplicaID] = c.Address
	case pb.RemoveNode:
		delete(m.Addresses, c.ReplicaID)
		delete(m.NonVotings, c.ReplicaID)
		delete(m.Witnesses, c.ReplicaID)
		m.Removed[c.ReplicaID] = true
	}
}

func refusesConfigChange(m *pb.Membership, c pb.ConfigChange) bool {
	_, voter := m.Addresses[c.ReplicaID]
	if c.Type == pb.RemoveNode {
		return voter && len(m.Addresses) == 1
	}
	if m.Removed[c.ReplicaID] || voter {
		return true
	}
	if _, witness := m.Witnesses[c.ReplicaID]; witness {
		return true
	}
	if address, nonVoting := m.NonVotings[c.ReplicaID]; nonVoting { // a non-voter can only be promoted, as it is
		return c.Type != pb.AddNode || address != c.Address
	}
	return hasAddress(m.Addresses, c.Address) || hasAddress(m.NonVotings, c.Address) || hasAddress(m.Witnesses, c.Address)
}

func hasAddress(members map[uint64]string, address string) bool {
	return slices.Contains(slices.Collect(maps.Values(members)), address)
}
