package broker

import (
	"context"

	"cairn/broker/controller"

	"go.uber.org/zap"
)

// Compaction deletes data, but no entry of the Raft log: followers that lack it need it. In a log that is written and compacted for ever they would take
// ever more room, and who joins would be sent ever more of them. What is below the base of a generation has no entries. So a partition that has many
// of them begins its next generation, in which its leader is the seed, while all of its replicas are in sync: they copy nothing and join it.

// beginAnew asks for the next generation of the partition that has the most entries, if it is led here, and they are too many. At most one at a time, as clients
// wait for a moment. It comes behind look.
func (c *cleaner) beginAnew(ctx context.Context, s cleanerSettings) {
	now, img := c.m.cfg.Now(), c.m.cfg.Images.Image()
	if now.Sub(c.begunAt) < min(heldAfter, s.Backoff) {
		return
	}
	var most *partition
	var leads *reign
	entries := s.Entries
	for _, mark := range c.held {
		if mark.confirmed == 0 {
			continue
		}
		state, ok := img.PartitionOf(mark.p.topicID, mark.p.index)
		r := mark.p.serving()
		if n := mark.p.entries(); ok && r != nil && n > entries && state.Shard == mark.p.shard && state.Settled() {
			most, leads, entries = mark.p, r, n
		}
	}
	if most == nil {
		return
	}
	c.begunAt = now
	ctx, cancel := context.WithTimeout(ctx, prefixWithin)
	defer cancel()
	items, err := c.m.cfg.Client.ReplicaCommand(ctx, controller.BeginAnew{
		Broker: c.m.cfg.NodeID, Epoch: c.m.cfg.Client.Registration().BrokerEpoch,
		Partitions: []controller.BeginItem{{TopicID: most.topicID, Partition: most.index, LeaderEpoch: leads.epoch}},
	})
	reason := ""
	if len(items) == 1 {
		reason = items[0].Message
	}
	c.m.cfg.Log.Info("a compacted partition begins its next generation, to be rid of its Raft log",
		append(most.fields(), zap.Int64("entries", entries), zap.String("refused", reason), zap.Error(err))...)
}

// entries is how many entries its Raft log has.
func (p *partition) entries() int64 {
	log := p.log()
	return int64(log.LastIndex()) - int64(log.LogStartPoint().Index)
}
