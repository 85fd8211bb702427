package controller

import (
	"maps"
	"time"

	"cairn/internal/ids"
)

// Facts are what Decide and Elect look at besides the image. None of it is in the metadata log: the active controller
// gathers it, and a new one starts anew.
type Facts struct {
	Now time.Time
	// Ends are the log ends that brokers have reported.
	Ends *Ends
	// Leaderless says since when partitions have been without a registered leader; see Watch.
	Leaderless map[ids.PartitionID]time.Time
	// LeaseEnds says when a broker's lease has run out for certain, by the controller's clock: a session timeout after
	// the last heartbeat that was answered as one of an unfenced broker. A broker that is not listed may still hold one.
	LeaseEnds map[ids.NodeID]time.Time
	// Unclean reports unclean.leader.election.enable of a topic; nil: never.
	Unclean func(topic string) bool
	// ElectionGrace is how long Raft has to elect and register a leader by itself where a majority is alive.
	ElectionGrace time.Duration
	// Rebalance: the preferred leaders are due to be restored where too few lead (auto.leader.rebalance.enable, every
	// leader.imbalance.check.interval.seconds).
	Rebalance bool
	// ImbalancePercent is leader.imbalance.per.broker.percentage.
	ImbalancePercent int
	// TransferTimeout is how long a request to hand over leadership stands. ReassignmentTimeout cancels reassignments that
	// take longer; 0: never.
	TransferTimeout, ReassignmentTimeout time.Duration
}

// Watch tells since when partitions have had no leader. The zero value is ready; it belongs to one goroutine.
type Watch struct{ since map[ids.PartitionID]time.Time }

// Observe looks at a newer image and returns what Facts.Leaderless needs: a map that the caller may keep, not change.
func (w *Watch) Observe(img *Image, now time.Time) map[ids.PartitionID]time.Time {
	since := map[ids.PartitionID]time.Time{}
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if img.Leader(p) != ids.NoNode {
				continue
			}
			since[p.ID] = now
			if before, ok := w.since[p.ID]; ok {
				since[p.ID] = before
			}
		}
	}
	w.since = since
	return since
}

// Forget starts the time anew for a partition: a step was taken that needs its own time.
func (w *Watch) Forget(id ids.PartitionID) { delete(w.since, id) }

// Ends keeps the log ends that brokers report with their heartbeats. The zero value is ready; it belongs to one goroutine
// at a time.
type Ends struct {
	ends map[ids.PartitionID]map[ids.NodeID]LogEnd
}

// Note keeps the ends that a broker reported.
func (s *Ends) Note(node ids.NodeID, reported []PartitionEnd) {
	if s.ends == nil {
		s.ends = map[ids.PartitionID]map[ids.NodeID]LogEnd{}
	}
	for _, r := range reported {
		if s.ends[r.Partition] == nil {
			s.ends[r.Partition] = map[ids.NodeID]LogEnd{}
		}
		s.ends[r.Partition][node] = r.LogEnd
	}
}

// Trim forgets partitions that are gone.
func (s *Ends) Trim(img *Image) {
	maps.DeleteFunc(s.ends, func(id ids.PartitionID, _ map[ids.NodeID]LogEnd) bool {
		_, ok := img.partitions[id]
		return !ok
	})
}

// Of returns the last end known of a node's replica: the reported one, or that which the metadata kept when its broker was
// fenced. What was reported to this controller is no older than what any kept, whatever the wall clocks of the two said.
func (s *Ends) Of(p *Partition, node ids.NodeID) (LogEnd, bool) {
	var known LogEnd
	found := false
	if s != nil {
		known, found = s.ends[p.ID][node]
	}
	for _, end := range p.Ends {
		switch {
		case end.Node != node:
		case !found:
			known, found = end.LogEnd, true
		case end.LeaderEpoch == known.LeaderEpoch && end.End == known.End:
			known.AsOfMs = max(known.AsOfMs, end.AsOfMs)
		}
	}
	return known, found
}

// Unsaved returns the ends of the broker's replicas that the metadata does not have: what NoteEnds is to carry before the
// broker is fenced, in the order of the image.
func (s *Ends) Unsaved(img *Image, node ids.NodeID) []PartitionEnd {
	var out []PartitionEnd
	for _, t := range img.TopicList() {
		for _, p := range t.Partitions {
			end, ok := s.ends[p.ID][node]
			if !ok || p.ReplicaOf(node) < 0 || p.hasEnd(node, end) {
				continue
			}
			out = append(out, PartitionEnd{p.ID, end})
		}
	}
	return out
}

// hasEnd reports whether the metadata knows the node's log end, but for when it was told.
func (p *Partition) hasEnd(node ids.NodeID, end LogEnd) bool {
	for _, r := range p.Ends {
		if r.Node == node {
			return r.End == end.End && r.LeaderEpoch == end.LeaderEpoch
		}
	}
	return false
}

// behind reports whether a log that ends at e is behind one that ends at o. A later leader epoch is ahead of any offset.
func (e LogEnd) behind(o LogEnd) bool {
	if e.LeaderEpoch != o.LeaderEpoch {
		return e.LeaderEpoch < o.LeaderEpoch
	}
	return e.End < o.End
}
