package broker

import (
	"context"

	"cairn/broker/controller"
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
		Cause:     string(l.Cause), Broker: int32(l.Holder), Estimated: l.Estimated, AtMs: l.AtMs,
	}
}

// watchLosses logs and counts each loss that comes into the metadata, until ctx ends. What is there already was reported
// before.
func (b *Broker) watchLosses(ctx context.Context) {
	changed, stop := b.images.Watch()
	defer stop()
	known := map[controller.Loss]bool{}
	for _, l := range b.images.Image().Losses {
		known[l] = true
	}
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		current := b.images.Image().Losses
		for _, l := range current {
			if !known[l] {
				known[l] = true
				b.reportLoss(l)
			}
		}
		if len(known) > 2*len(current)+1000 { // most are void by now
			clear(known)
			for _, l := range current {
				known[l] = true
			}
		}
	}
}

func (b *Broker) reportLoss(l controller.Loss) {
	b.metrics.lostRecords.WithLabelValues(string(l.Cause)).Add(float64(l.To - l.From))
	b.log.Warn("records are lost, `cairn losses` lists them", zap.String("topic", l.Topic), zap.Int32("partition", l.Partition),
		zap.Int32("leaderEpoch", int32(l.LeaderEpoch)), zap.Int64("from", int64(l.From)), zap.Int64("to", int64(l.To)),
		zap.String("cause", string(l.Cause)), zap.Int32("holder", int32(l.Holder)), zap.Bool("estimated", l.Estimated))
}
