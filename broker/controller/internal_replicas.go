package controller

import (
	"cmp"
	"slices"
	"time"

	"cairn/internal/ids"
)

// internalRaisedAtOnce bounds the reassignments of internal topics that are begun in one step.
const internalRaisedAtOnce = 64

// raiseInternal adds replicas to partitions of internal topics, which were created when there were fewer brokers: each gets as
// many as its topic is to have, or as many as there are live brokers if that is less. Replicas are never taken away.
// targets are the replication factors by topic.
func raiseInternal(img *Image, targets map[string]int16, now time.Time) (cmd AlterReassignments, any bool) {
	var live []ids.NodeID
	for _, b := range img.BrokerList() {
		if !b.Fenced && !b.ShuttingDown {
			live = append(live, b.ID)
		}
	}
	for name, target := range targets {
		t := img.Topics[name]
		if t == nil {
			continue
		}
		load := map[ids.NodeID]int{}
		for _, p := range t.Partitions {
			for _, n := range p.Replicas {
				load[n]++
			}
		}
		for i, p := range t.Partitions {
			missing := min(int(target), len(live)) - len(p.Replicas)
			if missing <= 0 || len(p.Adding)+len(p.Removing) > 0 || img.Leader(p) == ids.NoNode || len(cmd.Partitions) >= internalRaisedAtOnce {
				continue
			}
			free := keep(live, func(n ids.NodeID) bool { return p.ReplicaOf(n) < 0 })
			slices.SortFunc(free, func(a, b ids.NodeID) int { return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(a, b)) })
			added := free[:min(missing, len(free))]
			if len(added) == 0 {
				continue
			}
			for _, n := range added {
				load[n]++
			}
			cmd.Partitions = append(cmd.Partitions, Reassignment{
				TopicID: t.ID, Partition: int32(i), Replicas: slices.Concat(p.Replicas, added), AtMs: now.UnixMilli(),
			})
		}
	}
	return cmd, len(cmd.Partitions) > 0
}
