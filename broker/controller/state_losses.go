package controller

import (
	"cmp"
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// noteEnd keeps where a replica's log ended when its broker was last heard.
func (e *edit) noteEnd(broker ids.NodeID, c PartitionEnd) ItemResult {
	t, i, ok := e.img.PartitionByID(c.Partition)
	if !ok || t.Partitions[i].ReplicaOf(broker) < 0 {
		return refuseItem(kerr.UnknownTopicOrPartition, "broker %d has no partition with id %d", broker, c.Partition)
	}
	p := e.editPartition(t.ID, i)
	p.Ends = slices.DeleteFunc(slices.Clone(p.Ends), func(r ReplicaEnd) bool {
		return r.Node == broker || p.ReplicaOf(r.Node) < 0
	})
	p.Ends = append(p.Ends, ReplicaEnd{broker, c.LogEnd})
	slices.SortFunc(p.Ends, func(a, b ReplicaEnd) int { return cmp.Compare(a.Node, b.Node) })
	return ItemResult{}.of(p)
}

// and joins what a generation is feared to lose with what the one before, which nobody led, was.
func (l *PendingLoss) and(more *PendingLoss) *PendingLoss {
	if l == nil || more == nil {
		return cmp.Or(l, more)
	}
	both := *more
	both.Ends = slices.Clone(more.Ends)
	for _, end := range l.Ends {
		if !slices.ContainsFunc(both.Ends, func(o ReplicaEnd) bool { return o.Node == end.Node }) {
			both.Ends = append(both.Ends, end)
		}
	}
	return &both
}

// settlePending makes losses of what the generation was feared to lose, now that its base is known. They are estimates,
// until the holder comes back and reports what it had to give up.
func (e *edit) settlePending(t *Topic, index int32, p *Partition) {
	if p.Pending == nil {
		return
	}
	for _, end := range p.Pending.Ends {
		if end.End > p.BaseOffset {
			e.addLoss(Loss{
				TopicID: t.ID, Topic: t.Name, Partition: index, LostRange: LostRange{end.LeaderEpoch, p.BaseOffset, end.End},
				Cause: p.Pending.Cause, Holder: end.Node, Estimated: true, AtMs: p.Pending.AtMs,
			})
		}
	}
	p.Pending = nil
}

// addLoss adds a loss unless it is known.
func (e *edit) addLoss(l Loss) {
	if !slices.ContainsFunc(e.img.Losses, func(o Loss) bool { return o.covers(l) }) {
		e.img.Losses = append(slices.Clip(e.img.Losses), l)
		e.tidyLosses(l.TopicID, l.Partition)
	}
}

// changeLosses takes a broker's report of what it gave up, or of what turned up again. What was estimated that it held is
// void, as it has come back and tells, but for what a power cut took from it.
func (e *edit) changeLosses(broker ids.NodeID, c LossReport) ItemResult {
	p, ok := e.img.PartitionOf(c.TopicID, c.Partition)
	switch {
	case !ok:
		return refuseItem(kerr.UnknownTopicID, "there is no partition %d of topic id %s", c.Partition, c.TopicID)
	case p.LeaderEpoch != c.LeaderEpoch || p.Leader == ids.NoNode:
		return refuseItem(kerr.FencedLeaderEpoch, "compared with the leader of epoch %d, now it is %d", c.LeaderEpoch, p.LeaderEpoch).of(p)
	case len(c.Found) > 0 && p.Leader != broker:
		return refuseItem(kerr.InvalidRequest, "only the leader knows what is not lost").of(p)
	}
	for _, r := range c.Lost {
		if r.From < 0 || r.From >= r.To {
			return refuseItem(kerr.InvalidRequest, "a loss of [%d, %d)", r.From, r.To).of(p)
		}
	}
	t := e.img.TopicsByID[c.TopicID]
	if len(c.Found) == 0 {
		e.img.Losses = slices.DeleteFunc(slices.Clone(e.img.Losses), func(l Loss) bool {
			return l.Estimated && l.Cause != CausePowerCut && l.Holder == broker && l.TopicID == c.TopicID && l.Partition == c.Partition
		})
	}
	for _, r := range c.Found {
		e.found(c.TopicID, c.Partition, r)
	}
	for _, r := range c.Lost {
		e.addLoss(Loss{
			TopicID: c.TopicID, Topic: t.Name, Partition: c.Partition, LostRange: r, Cause: CauseDivergent, Holder: broker, AtMs: c.AtMs,
		})
	}
	return ItemResult{}.of(p)
}

// found takes the range out of the partition's losses. What a merged line is about is not known well enough for that.
func (e *edit) found(topic ids.UUID, partition int32, r LostRange) {
	var left []Loss
	for _, l := range e.img.Losses {
		if l.TopicID != topic || l.Partition != partition || l.Merged > 0 || l.LeaderEpoch != r.LeaderEpoch || l.To <= r.From || r.To <= l.From {
			left = append(left, l)
			continue
		}
		if l.From < r.From {
			part := l
			part.To = r.From
			left = append(left, part)
		}
		if r.To < l.To {
			part := l
			part.From = r.To
			left = append(left, part)
		}
	}
	e.img.Losses = left
}

// LossesOf returns the losses of one partition. The caller owns the slice.
func (img *Image) LossesOf(topic ids.UUID, partition int32) []Loss {
	return slices.DeleteFunc(slices.Clone(img.Losses), func(l Loss) bool { return l.TopicID != topic || l.Partition != partition })
}
