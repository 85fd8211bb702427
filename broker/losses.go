package broker

import (
	"context"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire/private"

	"go.uber.org/zap"
)

// handleDescribeLosses lists what this broker's metadata knows to be lost.
func handleDescribeLosses(b *Broker, r *request) {
	q := r.msg.(*private.LossesRequest).Body
	resp := &private.LossesResponse{Body: private.LossAnswer{Losses: []private.Loss{}}}
	for _, l := range b.images.Image().Losses {
		if (q.Topic == "" || q.Topic == l.Topic) && (q.Partition < 0 || q.Partition == l.Partition) {
			resp.Body.Losses = append(resp.Body.Losses, shownLoss(l))
		}
	}
	r.reply(resp)
}

func shownLoss(l controller.Loss) private.Loss {
	return private.Loss{
		Topic: l.Topic, TopicID: l.TopicID.String(), Partition: l.Partition,
		LostRange: private.LostRange{LeaderEpoch: int32(l.LeaderEpoch), From: int64(l.From), To: int64(l.To)},
		Cause:     string(l.Cause), Broker: int32(l.Holder), Estimated: l.Estimated, AtMs: l.AtMs, DroppedMs: l.DroppedMs,
		Merged: l.Merged, LastEpoch: int32(max(l.LeaderEpoch, l.LastEpoch)), Records: l.Count(),
		RecoveredTo: l.RecoveredTo, RecoveredMs: l.RecoveredMs,
	}
}

// watchLosses logs and counts each loss that comes into the metadata, until ctx ends. What is there already was reported
// before.
func (b *Broker) watchLosses(ctx context.Context) {
	changed, stop := b.images.Watch()
	defer stop()
	known := newKnownLosses(b.images.Image().Losses)
	b.countMerged(b.images.Image().Losses)
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		current := b.images.Image().Losses
		for _, l := range current {
			if known.lines[l] {
				continue
			}
			b.reportLoss(l, known.add(l))
		}
		if len(known.lines) != len(current) { // some were found again, or stand as other lines now
			known = newKnownLosses(current)
			b.countMerged(current)
		}
	}
}

// countMerged shows how many ranges have lost their own line.
func (b *Broker) countMerged(losses []controller.Loss) {
	merged := int64(0)
	for _, l := range losses {
		merged += l.Merged
	}
	b.metrics.mergedLosses.Set(float64(merged))
}

// knownLosses is what was reported: the lines, and the ranges of each partition, which lines of several brokers may share.
type knownLosses struct {
	lines  map[controller.Loss]bool
	ranges map[lostPartition][]controller.LostRange
}

type lostPartition struct {
	topic ids.UUID
	index int32
}

func newKnownLosses(losses []controller.Loss) knownLosses {
	k := knownLosses{lines: map[controller.Loss]bool{}, ranges: map[lostPartition][]controller.LostRange{}}
	for _, l := range losses {
		k.add(l)
	}
	return k
}

// add returns how many offsets of the line were in no other.
func (k knownLosses) add(l controller.Loss) (fresh ids.Offset) {
	k.lines[l] = true
	if l.Merged > 0 { // its ranges were told of one by one
		return 0
	}
	at := lostPartition{l.TopicID, l.Partition}
	left := []controller.LostRange{l.LostRange}
	for _, r := range k.ranges[at] {
		left = subtract(left, r)
	}
	k.ranges[at] = append(k.ranges[at], left...)
	for _, r := range left {
		fresh += r.To - r.From
	}
	return fresh
}

// reportLoss logs a line of which so many offsets are news.
func (b *Broker) reportLoss(l controller.Loss, fresh ids.Offset) {
	fields := []zap.Field{
		zap.String("topic", l.Topic), zap.Int32("partition", l.Partition), zap.Int32("leaderEpoch", int32(l.LeaderEpoch)),
		zap.Int64("from", int64(l.From)), zap.Int64("to", int64(l.To)), zap.String("cause", string(l.Cause)),
		zap.Int32("holder", int32(l.Holder)), zap.Bool("estimated", l.Estimated),
	}
	switch {
	case l.Merged > 0:
		b.log.Warn("too many losses of one partition: the oldest are listed as one, with the number of their records",
			append(fields, zap.Int64("ranges", l.Merged), zap.Int64("records", l.Records), zap.Int32("lastEpoch", int32(l.LastEpoch)))...)
	case fresh > 0:
		b.metrics.lostRecords.WithLabelValues(string(l.Cause)).Add(float64(fresh))
		b.log.Warn("records are lost; `cairn losses` lists them", fields...)
	case l.DroppedMs > 0:
		b.log.Warn("lost records were deleted from quarantine", fields...)
	default:
		b.log.Info("a loss is known better", fields...)
	}
}
