package controller

import (
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// DropQuarantined says that a broker of that epoch is about to delete records from quarantine, for a limit or as an
// operator wants: of what is lost there, nothing will be left.
type DropQuarantined struct {
	Broker     ids.NodeID      `json:"broker"`
	Epoch      int64           `json:"epoch"`
	Partitions []DroppedRanges `json:"partitions"`
}

// DroppedRanges is one partition of DropQuarantined.
type DroppedRanges struct {
	Partition ids.PartitionID `json:"partition"`
	Ranges    []LostRange     `json:"ranges"`
	AtMs      int64           `json:"atMs"`
}

func (DropQuarantined) kind() string { return "dropQuarantined" }

// dropQuarantined marks what the broker held of the ranges. What counts as lost nowhere is in the leader's log, and needs no
// mark.
func (e *edit) dropQuarantined(broker ids.NodeID, c DroppedRanges) ItemResult {
	t, index, ok := e.img.PartitionByID(c.Partition)
	if !ok {
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition with id %d", c.Partition)
	}
	for _, r := range c.Ranges {
		again := Loss{TopicID: t.ID, Partition: index, LostRange: r, Holder: broker}
		if slices.ContainsFunc(e.img.Losses, func(l Loss) bool { return l.DroppedMs > 0 && l.covers(again) }) {
			continue
		}
		var losses []Loss
		for _, l := range e.img.Losses {
			if l.TopicID != t.ID || l.Partition != index || l.Holder != broker || l.Estimated || l.DroppedMs > 0 {
				losses = append(losses, l)
				continue
			}
			losses = append(losses, l.dropped(r, c.AtMs)...)
		}
		e.img.Losses = losses
		e.tidyLosses(t.ID, index)
	}
	return ItemResult{}.of(t.Partitions[index])
}

// dropped splits the loss into what lies outside the range and what is marked.
func (l Loss) dropped(r LostRange, atMs int64) []Loss {
	from, to := max(l.From, r.From), min(l.To, r.To)
	if !l.hasEpoch(r.LeaderEpoch) || from >= to {
		return []Loss{l}
	}
	if l.Merged > 0 {
		return l.droppedOfMerged(r.LeaderEpoch, from, to, atMs)
	}
	var parts []Loss
	part := func(from, to ids.Offset, droppedMs int64) {
		if from < to {
			p := l
			p.From, p.To, p.DroppedMs = from, to, droppedMs
			parts = append(parts, p)
		}
	}
	part(l.From, from, 0)
	part(from, to, atMs)
	part(to, l.To, 0)
	return parts
}
