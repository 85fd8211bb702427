package broker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// quarantineCheck is how often the limits of the quarantine are looked at.
const quarantineCheck = time.Minute

// limitQuarantine keeps the quarantine within log.quarantine.bytes and log.quarantine.ms until ctx ends. Both are off by
// default: then it returns at once.
func (b *Broker) limitQuarantine(ctx context.Context) {
	if b.cfg.QuarantineBytes < 0 && b.cfg.QuarantineAge < 0 {
		return
	}
	ticker := time.NewTicker(quarantineCheck)
	defer ticker.Stop()
	for {
		if err := b.applyQuarantineLimits(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("quarantine not brought within its limits", zap.Error(err))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *Broker) applyQuarantineLimits(ctx context.Context) error {
	list, err := b.engine.Quarantine()
	if err != nil {
		return err
	}
	excess := beyondLimits(list, b.cfg.QuarantineBytes, b.cfg.QuarantineAge, clock.Now())
	// What is not reported as lost yet has to stay until it is: else nobody would hear of it.
	reported := map[ids.PartitionID]bool{}
	for _, p := range b.replicas.partitions() {
		reported[p.id] = !p.lossesDue.Load()
	}
	excess = slices.DeleteFunc(excess, func(x engine.QuarantineEntry) bool { return !reported[x.Partition] })
	if len(excess) == 0 {
		return nil
	}
	bytes := 0
	for _, x := range excess {
		bytes += x.Bytes
	}
	if err := b.dropQuarantined(ctx, excess); err != nil {
		return err
	}
	b.log.Warn("quarantine is beyond its limits: the oldest batches were deleted", zap.Int("batches", len(excess)), zap.Int("bytes", bytes))
	return nil
}

// beyondLimits lists what has to go, the oldest first in the order in which it was put there; a negative limit is off.
func beyondLimits(list []engine.QuarantineEntry, bytesMax int64, ageMax time.Duration, now time.Time) []engine.QuarantineEntry {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y engine.QuarantineEntry) int {
		return cmp.Or(cmp.Compare(x.AtMs, y.AtMs), cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.LeaderEpoch, y.LeaderEpoch), cmp.Compare(x.Base, y.Base))
	})
	total := int64(0)
	for _, x := range list {
		total += int64(x.Bytes)
	}
	n := 0
	for ; n < len(list); n++ {
		old := ageMax >= 0 && now.Sub(time.UnixMilli(list[n].AtMs)) > ageMax
		if !old && (bytesMax < 0 || total <= bytesMax) {
			break
		}
		total -= int64(list[n].Bytes)
	}
	return list[:n]
}
