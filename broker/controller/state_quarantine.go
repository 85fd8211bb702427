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
		e.markLosses(t.ID, index, r, func(l *Loss) bool { return l.of(t.ID, index) && l.Holder == broker }, func(l *Loss) bool { return !l.Estimated && l.DroppedMs == 0 },
			func(l *Loss) { l.DroppedMs = c.AtMs })
	}
	return ItemResult{}.of(t.Partitions[index])
}

// markLosses marks what the partition's lines say of the range, of which at least one that is among says something; of those the ones that
// are wanted.
func (e *edit) markLosses(topic ids.UUID, partition int32, r LostRange, among, wanted func(*Loss) bool, mark func(*Loss)) {
	var losses []Loss
	for i, l := range e.img.Losses {
		part, ok := l.Of(r)
		switch {
		case !ok || !among(&l) || !wanted(&l):
			losses = append(losses, l)
		case l.Merged > 0:
			losses = append(losses, l.markedOfMerged(e.onlyIn(i, part, among), mark)...)
		default:
			losses = append(losses, l.split(part, mark)...)
		}
	}
	e.img.Losses = losses
	e.tidyLosses(topic, partition)
}

// onlyIn are the parts of the range that, of the lines among which it is, can only be in that merged one: what another is about is there, and
// of two merged ones nobody knows which has it.
func (e *edit) onlyIn(line int, r LostRange, among func(*Loss) bool) []LostRange {
	parts := []LostRange{r}
	for i, l := range e.img.Losses {
		if i == line || !among(&l) {
			continue
		}
		if _, ok := l.Of(r); ok && l.Merged > 0 {
			return nil
		}
		var left []LostRange
		for _, p := range parts {
			left = append(left, p.without(&l)...)
		}
		parts = left
	}
	return parts
}

// without is the range without what the line, which is not merged, is about.
func (r LostRange) without(l *Loss) (left []LostRange) {
	part, ok := l.Of(r)
	if !ok {
		return []LostRange{r}
	}
	if r.From < part.From {
		left = append(left, LostRange{r.LeaderEpoch, r.From, part.From})
	}
	if part.To < r.To {
		left = append(left, LostRange{r.LeaderEpoch, part.To, r.To})
	}
	return left
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

// noteRecovered marks the ranges, whoever holds them: they are the same records everywhere.
func (e *edit) noteRecovered(c RecoveredRanges) ItemResult {
	t, index, ok := e.img.PartitionByID(c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicOrPartition, "there is no partition with id %d", c.Partition)
	case c.To == "":
		return refuseItem(kerr.InvalidRequest, "recovered to no topic")
	}
	for _, r := range c.Ranges {
		e.markLosses(t.ID, index, r, func(l *Loss) bool { return l.of(t.ID, index) }, func(l *Loss) bool { return l.Merged == 0 || l.RecoveredTo == "" },
			func(l *Loss) { l.RecoveredTo, l.RecoveredMs = c.To, c.AtMs })
	}
	return ItemResult{}.of(t.Partitions[index])
}
