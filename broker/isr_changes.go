package broker

import (
	"context"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/isr"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

const (
	// defaultLagTime is replica.lag.time.max.ms when nobody sets it.
	defaultLagTime = 30 * time.Second
	// Between two looks at all partitions for members that fall behind, which say nothing, lies a part of the lag time.
	minLagTick, maxLagTick = 20 * time.Millisecond, 500 * time.Millisecond
	lagTicks               = 64
)

// isrChanges asks the controller for other ISRs, for all partitions led here: at once when something has happened, and on
// one timer.
type isrChanges struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[*partition]struct{} // guarded by mu; led partitions that may want another ISR
}

func newISRChanges() isrChanges {
	return isrChanges{wake: make(chan struct{}, 1), dirty: map[*partition]struct{}{}}
}

// wants notes that the partition's leader may want another ISR. It does not block.
func (c *isrChanges) wants(p *partition) {
	c.mu.Lock()
	c.dirty[p] = struct{}{}
	c.mu.Unlock()
	signal(c.wake)
}

func (c *isrChanges) take() map[*partition]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	dirty := c.dirty
	c.dirty = map[*partition]struct{}{}
	return dirty
}

// runISR proposes ISRs until ctx ends.
func (m *replicaManager) runISR(ctx context.Context) {
	ticker := time.NewTicker(min(max(m.cfg.LagTimeMax/lagTicks, minLagTick), maxLagTick))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, p := range m.partitions() {
				p.lookAtISR()
			}
		case <-m.isr.wake:
			for p := range m.isr.take() {
				p.proposeISR()
			}
		case <-ctx.Done():
			return
		}
	}
}

// lookAtISR is what the timer does for one partition.
func (p *partition) lookAtISR() {
	if p.reign.Load() == nil {
		return
	}
	p.noteImage()
	p.advance()
	p.proposeISR()
}

// proposeISR asks the controller for the ISR that the leader wants, if that is another one than there is, and no earlier
// change is under way.
func (p *partition) proposeISR() {
	rep := &p.replication
	rep.mu.Lock()
	l := rep.leader
	if l == nil {
		rep.mu.Unlock()
		return
	}
	proposal, ok := l.Propose(p.owner.cfg.Now())
	img := rep.seen.img
	rep.mu.Unlock()
	if !ok || p.plantedISR(l, proposal) {
		return
	}
	change := controller.ISRChange{
		TopicID: p.topicID, Partition: p.index, LeaderEpoch: proposal.LeaderEpoch, PartitionEpoch: proposal.PartitionEpoch,
	}
	for _, n := range proposal.ISR {
		change.ISR = append(change.ISR, controller.ISRMember{Node: n, Epoch: brokerEpoch(img, n)})
	}
	p.owner.cfg.Client.AlterPartition(change, func(err error) { p.isrAnswered(l, proposal, err) })
}

// brokerEpoch is the epoch under which the image knows a broker, -1 if it does not.
func brokerEpoch(img *controller.Image, node ids.NodeID) int64 {
	if b := img.Brokers[node]; b != nil {
		return b.Epoch
	}
	return -1
}

// isrAnswered lets the leader propose again. What became of the ISR it learns from the metadata alone. After a refusal the
// timer tries again: mostly news of the partition is on its way here.
func (p *partition) isrAnswered(l *isr.Leader, proposal isr.Proposal, err error) {
	rep := &p.replication
	rep.mu.Lock()
	current := rep.leader == l
	if current {
		l.Answered()
	}
	rep.mu.Unlock()
	level := zap.InfoLevel
	if err != nil {
		level = zap.DebugLevel
	}
	if ce := p.owner.cfg.Log.Check(level, "in-sync replicas asked for"); ce != nil {
		ce.Write(append(p.fields(), zap.Any("isr", proposal.ISR), zap.Int32("leaderEpoch", int32(proposal.LeaderEpoch)),
			zap.Int32("partitionEpoch", proposal.PartitionEpoch), zap.Error(err))...)
	}
	if current && err == nil {
		p.owner.isr.wants(p)
	}
}
