package controller

import (
	"cmp"
	"slices"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeQuorum answers DescribeQuorum: how far each replica of the metadata log is, the leader's own included. As in Kafka a log end is the
// offset after the last entry; it is the entry's Raft index here.
func (c *Controller) describeQuorum(req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		return resp
	}
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition = p.Partition
			switch {
			case t.Topic != metadataTopic || p.Partition != 0:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case !c.describeReplicas(&rp):
				rp.ErrorCode = kerr.NotLeaderForPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// describeReplicas fills in what the active controller knows; false on any other one.
func (c *Controller) describeReplicas(rp *kmsg.DescribeQuorumResponseTopicPartition) bool {
	img := c.store.Image()
	now := clock.Now()
	c.mu.Lock()
	group, term := c.group, c.activeTerm
	heard := map[ids.NodeID]time.Time{}
	for id, s := range c.sessions {
		heard[id] = s.heard
	}
	c.mu.Unlock()
	if group == nil || term == 0 {
		return false
	}
	followers := group.Followers()
	end := ids.RaftIndex(img.Index)
	for _, at := range followers {
		end = max(end, at)
	}
	rp.LeaderID, rp.LeaderEpoch, rp.HighWatermark = int32(c.cfg.Node), int32(term), int64(img.Index)+1
	state := func(n ids.NodeID) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp = int32(n), -1, -1, -1
		if b := img.Brokers[n]; b != nil {
			s.ReplicaDirectoryID = b.Directory
		}
		at, known := followers[n]
		if n == c.cfg.Node {
			at, known = end, true
		}
		if known {
			s.LogEndOffset = int64(at) + 1
		}
		if t, ok := heard[n]; ok {
			s.LastFetchTimestamp = t.UnixMilli()
		}
		if known && at >= end {
			s.LastFetchTimestamp, s.LastCaughtUpTimestamp = now.UnixMilli(), now.UnixMilli()
		}
		return s
	}
	for _, n := range c.cfg.Voters {
		rp.CurrentVoters = append(rp.CurrentVoters, state(n))
	}
	for _, b := range img.BrokerList() {
		if !slices.Contains(c.cfg.Voters, b.ID) {
			rp.Observers = append(rp.Observers, state(b.ID))
		}
	}
	slices.SortFunc(rp.CurrentVoters, func(x, y kmsg.DescribeQuorumResponseTopicPartitionReplicaState) int {
		return cmp.Compare(x.ReplicaID, y.ReplicaID)
	})
	return true
}
