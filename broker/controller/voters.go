package controller

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"cairn/internal/ids"
)

// ParseVoters reads controller.quorum.voters: id@host:port, separated by commas.
func ParseVoters(s string) (map[ids.NodeID]string, error) {
	voters := map[ids.NodeID]string{}
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		id, addr, _ := strings.Cut(part, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil || n < 0 || ids.ReplicaID(n) >= firstReplica-1 {
			return nil, fmt.Errorf("controller.quorum.voters: %q: want id@host:port with an id below %d", part, firstReplica-1)
		}
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return nil, fmt.Errorf("controller.quorum.voters: %q: want id@host:port", part)
		}
		if _, twice := voters[ids.NodeID(n)]; twice {
			return nil, fmt.Errorf("controller.quorum.voters: node %d is named twice", n)
		}
		voters[ids.NodeID(n)] = addr
	}
	return voters, nil
}

// VoterReplica is the metadata replica of a voter: its node id, or one past all voters' for node 0, since Raft has no
// replica 0.
func VoterReplica(n ids.NodeID) ids.ReplicaID {
	if n == 0 {
		return firstReplica - 1
	}
	return ids.ReplicaID(n)
}

// VoterMembers returns the first members of the metadata group. The caller owns the map.
func VoterMembers(voters []ids.NodeID) map[ids.ReplicaID]ids.NodeID {
	m := make(map[ids.ReplicaID]ids.NodeID, len(voters))
	for _, n := range voters {
		m[VoterReplica(n)] = n
	}
	return m
}

// sortedVoters returns the voters' ids in order.
func sortedVoters(voters map[ids.NodeID]string) []ids.NodeID { return slices.Sorted(maps.Keys(voters)) }
