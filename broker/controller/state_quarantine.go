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

// dropped is the loss in parts: what lies outside the range, and what is marked as dropped.
func (l Loss) dropped(r LostRange, atMs int64) []Loss {
	part, ok := l.Of(r)
	if !ok {
		return []Loss{l}
	}
	if l.Merged > 0 {
		return l.droppedOfMerged(part, atMs)
	}
	return l.split(part, func(l *Loss) { l.DroppedMs = atMs })
}

// split is the loss in parts: what lies outside the range, which is within it, and what is marked.
func (l Loss) split(r LostRange, mark func(*Loss)) []Loss {
	var parts []Loss
	part := func(from, to ids.Offset, mark func(*Loss)) {
		if from < to {
			p := l
			p.From, p.To = from, to
			mark(&p)
			parts = append(parts, p)
		}
	}
	as := func(*Loss) {}
	part(l.From, r.From, as)
	part(r.From, r.To, mark)
	part(r.To, l.To, as)
	return parts
}

// NoteRecovered says that somebody has produced records in quarantine to a topic.
type NoteRecovered struct {
	Partitions []RecoveredRanges `json:"partitions"`
}

// RecoveredRanges is one partition of NoteRecovered.
type RecoveredRanges struct {
	Partition ids.PartitionID `json:"partition"`
	Ranges    []LostRange     `json:"ranges"`
	To        string          `json:"to"`
	AtMs      int64           `json:"atMs"`
}

func (NoteRecovered) kind() string { return "noteRecovered" }

// noteRecovered marks the ranges, whoever holds them: they are the same records everywhere. Merged lines do not say which
// records they are about, and get no mark.
func (e *edit) noteRecovered(c RecoveredRanges) ItemResult {
	t, index, ok := e.img.PartitionByID(c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition with id %d", c.Partition)
	case c.To == "":
		return refuseItem(kerr.InvalidRequest, "recovered to no topic")
	}
	for _, r := range c.Ranges {
		var losses []Loss
		for _, l := range e.img.Losses {
			if part, ok := l.Of(r); ok && l.of(t.ID, index) && l.Merged == 0 {
				losses = append(losses, l.split(part, func(l *Loss) { l.RecoveredTo, l.RecoveredMs = c.To, c.AtMs })...)
				continue
			}
			losses = append(losses, l)
		}
		e.img.Losses = losses
		e.tidyLosses(t.ID, index)
	}
	return ItemResult{}.of(t.Partitions[index])
}
