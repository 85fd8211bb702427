package controller

import (
	"context"
	"errors"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

const (
	// decideEvery is how often the controller looks for what is due though the metadata has not changed.
	decideEvery = 200 * time.Millisecond
	// decideGap is the least time between two looks: changes come in crowds, and each look is at all partitions.
	decideGap = 10 * time.Millisecond
)

// runActions proposes what Decide says, whenever the metadata changes and every so often, while this node is active.
func (c *Controller) runActions(ctx context.Context) {
	changed, stop := c.store.Watch()
	defer stop()
	ticker := time.NewTicker(decideEvery)
	defer ticker.Stop()
	balanced := clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
		if !c.Active() {
			continue
		}
		rebalance := c.cfg.RebalanceInterval > 0 && time.Since(balanced) >= c.cfg.RebalanceInterval
		if rebalance {
			balanced = clock.Now()
		}
		if err := c.act(ctx, rebalance); err != nil && ctx.Err() == nil && !errors.Is(err, errNotActive) {
			c.log.Warn("cannot do yet what partitions need", zap.Error(err))
		}
		if !pauseFor(ctx, decideGap) {
			return
		}
	}
}

// pauseFor reports whether ctx lasted as long.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// act does what is due now.
func (c *Controller) act(ctx context.Context, rebalance bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProposeTimeout)
	defer cancel()
	if cmd, ok := c.staticMinimum(); ok {
		if _, err := c.propose(ctx, cmd); err != nil {
			return err
		}
	}
	if cmd, ok := raiseInternal(c.store.Image(), c.cfg.InternalReplicas, clock.Now()); ok {
		res, err := c.propose(ctx, cmd)
		if err != nil {
			return err
		}
		c.acted(cmd, res)
	}
	cmds := c.decide(rebalance)
	if doubtful := c.doubtful(cmds); len(doubtful) > 0 {
		c.askEnds(ctx, c.store.Image(), doubtful)
		cmds = c.decide(rebalance)
	}
	for _, cmd := range cmds {
		res, err := c.propose(ctx, cmd)
		if err != nil {
			return err
		}
		c.acted(cmd, res)
	}
	return nil
}

// staticMinimum carries min.insync.replicas of this node's properties over to the cluster's config, unless that has one
// already: the minimum counts from the metadata alone, so that controller and leaders cannot differ on it.
func (c *Controller) staticMinimum() (Command, bool) {
	value, ok := c.cfg.Static[minInsyncReplicas]
	if _, set := c.store.Image().ClusterConfigs()[minInsyncReplicas]; set || !ok {
		return nil, false
	}
	return AlterConfigs{[]ResourceChange{{Type: BrokerResource, Ops: []ConfigOp{{Name: minInsyncReplicas, Value: value}}}}}, true
}

func (c *Controller) decide(rebalance bool) (cmds []Command) {
	c.withFacts(func(img *Image, f Facts) {
		f.Rebalance, f.ReassignmentTimeout = rebalance, 0
		cmds = Decide(img, f)
	})
	return cmds
}

// doubtful lists the partitions whose seed was chosen among several by how far their logs reach: by what was heard last,
// which may have changed since.
func (c *Controller) doubtful(cmds []Command) []*Partition {
	img := c.store.Image()
	var list []*Partition
	for _, cmd := range cmds {
		g, ok := cmd.(NextGenerations)
		if !ok {
			continue
		}
		for _, n := range g.Partitions {
			p, ok := img.PartitionOf(n.TopicID, n.Partition)
			if ok && img.Leader(p) != n.Seed && len(img.seeds(p, n.Unclean)) > 1 {
				list = append(list, p)
			}
		}
	}
	return list
}

// seeds are the nodes that a seed is chosen from.
func (img *Image) seeds(p *Partition, unclean bool) []ids.NodeID {
	switch {
	case unclean:
		return img.eligibleOf(p.Replicas)
	case len(p.InSync) > 0:
		return img.eligibleOf(p.InSync)
	}
	return img.eligibleOf(p.ELR)
}

// acted logs what was done, and gives new generations the time that elections have.
func (c *Controller) acted(cmd Command, res Result) {
	if res.Code != 0 {
		c.log.Info("step refused", zap.String("step", cmd.kind()), zap.String("reason", res.Message))
		return
	}
	g, ok := cmd.(NextGenerations)
	if !ok {
		return
	}
	img := c.store.Image()
	var begun []ids.PartitionID
	for i, n := range g.Partitions {
		t := img.TopicsByID[n.TopicID]
		if t == nil || i >= len(res.Items) {
			continue
		}
		fields := []zap.Field{
			zap.String("topic", t.Name), zap.Int32("partition", n.Partition), zap.Int32("generation", n.From+1),
			zap.Int32("seed", int32(n.Seed)), zap.Bool("unclean", n.Unclean),
		}
		if r := res.Items[i]; r.Code != 0 {
			c.log.Debug("generation refused", append(fields, zap.String("reason", r.Message))...)
			continue
		}
		c.log.Info("next generation", fields...)
		if p, ok := img.PartitionOf(n.TopicID, n.Partition); ok {
			begun = append(begun, p.ID)
		}
	}
	c.forgetLeaderless(begun...)
}

// saveEnds notes in the metadata how far the replicas of brokers that are about to be fenced were known to reach, for a later
// controller. It is worth an attempt, no more: fencing must not wait for it.
func (c *Controller) saveEnds(ctx context.Context, changes []BrokerChange) {
	img := c.store.Image()
	for _, b := range changes {
		ends := c.unsavedEnds(img, b.ID)
		if len(ends) == 0 {
			continue
		}
		res, err := c.propose(ctx, NoteEnds{Broker: b.ID, Epoch: b.Epoch, Ends: ends})
		if err != nil || res.Code != 0 && res.Code != kerr.StaleBrokerEpoch.Code {
			c.log.Warn("log ends not noted", zap.Int32("broker", int32(b.ID)), zap.String("reason", res.Message), zap.Error(err))
		}
	}
}
