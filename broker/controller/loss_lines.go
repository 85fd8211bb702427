package controller

import (
	"slices"

	"cairn/internal/ids"
)

// Bounds of the list of losses. A partition that goes beyond one has its oldest lines merged; so a partition keeps a line for
// each kind at least, however full the list is.
const (
	lossesOfPartitionMax = 64
	lossesMax            = 10_000
)

// lossKind is what losses of a partition have in common that may share a line.
type lossKind struct {
	cause     LossCause
	holder    ids.NodeID
	estimated bool
	dropped   bool
	recovered string
}

func (l *Loss) kindOf() lossKind {
	return lossKind{l.Cause, l.Holder, l.Estimated, l.DroppedMs > 0, l.RecoveredTo}
}

func (l *Loss) of(topic ids.UUID, partition int32) bool {
	return l.TopicID == topic && l.Partition == partition
}

// hasEpoch reports whether the line is about records of that epoch.
func (l *Loss) hasEpoch(e ids.LeaderEpoch) bool { return l.LeaderEpoch <= e && e <= l.lastEpoch() }

func (l *Loss) lastEpoch() ids.LeaderEpoch { return max(l.LeaderEpoch, l.LastEpoch) }

// Count is how many offsets are lost.
func (l *Loss) Count() int64 {
	if l.Merged > 0 {
		return l.Records
	}
	return int64(l.To - l.From)
}

// Of is the part of the line's offsets that are of the range's epoch. False: it has none.
func (l *Loss) Of(r LostRange) (LostRange, bool) {
	from, to := max(l.From, r.From), min(l.To, r.To)
	return LostRange{r.LeaderEpoch, from, to}, l.hasEpoch(r.LeaderEpoch) && from < to
}

// covers reports whether l says nothing that the line does not say. An estimate does not make a report superfluous.
func (l *Loss) covers(o Loss) bool {
	return l.of(o.TopicID, o.Partition) && l.Holder == o.Holder && (!l.Estimated || o.Estimated) &&
		l.LeaderEpoch <= o.LeaderEpoch && o.lastEpoch() <= l.lastEpoch() && l.From <= o.From && o.To <= l.To
}

// tidyLosses joins ranges of one kind and epoch that touch, and sees to it that the list stays in its bounds.
func (e *edit) tidyLosses(topic ids.UUID, partition int32) {
	losses := make([]Loss, 0, len(e.img.Losses))
	own := 0
	for _, l := range e.img.Losses {
		if !l.of(topic, partition) {
			losses = append(losses, l)
			continue
		}
		// Joining may close the gap to one more line.
		at := len(losses)
		for i := slices.IndexFunc(losses, l.touches); i >= 0; i = slices.IndexFunc(losses, l.touches) {
			l, at, own = losses[i].joined(l), i, own-1
			losses = slices.Delete(losses, i, i+1)
		}
		losses = slices.Insert(losses, at, l)
		own++
	}
	for own > lossesOfPartitionMax || own > 1 && len(losses) > lossesMax {
		first, second := oldestAlike(losses, topic, partition)
		if second < 0 {
			break
		}
		losses[first] = losses[first].mergedWith(losses[second])
		losses, own = slices.Delete(losses, second, second+1), own-1
	}
	e.img.Losses = losses
}

// touches reports whether both are ranges of one kind and epoch, without a gap between them.
func (l *Loss) touches(o Loss) bool {
	return l.of(o.TopicID, o.Partition) && l.kindOf() == o.kindOf() && l.Merged == 0 && o.Merged == 0 &&
		l.LeaderEpoch == o.LeaderEpoch && l.From <= o.To && o.From <= l.To
}

// joined is both as one range.
func (l Loss) joined(o Loss) Loss {
	l.From, l.To = min(l.From, o.From), max(l.To, o.To)
	l.AtMs, l.DroppedMs, l.RecoveredMs = min(l.AtMs, o.AtMs), max(l.DroppedMs, o.DroppedMs), max(l.RecoveredMs, o.RecoveredMs)
	return l
}

// oldestAlike finds the first two lines of the partition that are of one kind. second is negative if there are none.
func oldestAlike(losses []Loss, topic ids.UUID, partition int32) (first, second int) {
	seen := map[lossKind]int{}
	for i := range losses {
		if l := &losses[i]; l.of(topic, partition) {
			if first, ok := seen[l.kindOf()]; ok {
				return first, i
			}
			seen[l.kindOf()] = i
		}
	}
	return -1, -1
}

// mergedWith is both as one line that says how many records were lost, and no longer which.
func (l Loss) mergedWith(o Loss) Loss {
	m := l.joined(o)
	m.Merged, m.Records = max(l.Merged, 1)+max(o.Merged, 1), l.Count()+o.Count()
	m.LeaderEpoch, m.LastEpoch = min(l.LeaderEpoch, o.LeaderEpoch), max(l.lastEpoch(), o.lastEpoch())
	return m
}

// markedOfMerged takes offsets out of the count of a merged line, and gives them lines of their own that are marked.
func (l Loss) markedOfMerged(ranges []LostRange, mark func(*Loss)) (lines []Loss) {
	for _, r := range ranges {
		if l.Records == 0 {
			break
		}
		gone := min(int64(r.To-r.From), l.Records)
		part := l
		part.LostRange, part.Merged, part.LastEpoch, part.Records = r, 0, 0, 0
		if gone < int64(r.To-r.From) { // not all of the range had been lost
			part.Merged, part.LastEpoch, part.Records = 1, r.LeaderEpoch, gone
		}
		mark(&part)
		lines, l.Records = append(lines, part), l.Records-gone
	}
	if l.Records == 0 {
		return lines
	}
	return append([]Loss{l}, lines...)
}
