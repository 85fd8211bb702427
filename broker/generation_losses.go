package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"go.uber.org/zap"
)

// lossesEvery is how often reports of losses that are due are tried, and leaders look for what turned up again.
const lossesEvery = 250 * time.Millisecond

// runLosses reports to the controller what replicas here had to give up, and what leaders here hold of what counts as lost.
func (m *replicaManager) runLosses(ctx context.Context) {
	ticker := time.NewTicker(lossesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.reportLosses(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (m *replicaManager) reportLosses(ctx context.Context) {
	img := m.cfg.Images.Image()
	lost := map[ids.UUID]bool{}
	for _, l := range img.Losses {
		lost[l.TopicID] = true
	}
	for _, p := range m.partitions() {
		state, ok := img.PartitionOf(p.topicID, p.index)
		if !ok || !p.is(state) || ctx.Err() != nil {
			continue
		}
		if p.lossesDue.Load() {
			m.reportLost(ctx, p, img, state)
		}
		if r := p.serving(); r != nil && lost[p.topicID] && r.epoch == state.LeaderEpoch {
			m.retractLost(ctx, p, img, state)
		}
	}
}

// reportLost reports what is in quarantine and not in the leader's log. It stays due until the controller has accepted it: a
// report that was compared with an earlier leader is refused.
func (m *replicaManager) reportLost(ctx context.Context, p *partition, img *controller.Image, state *controller.Partition) {
	if img.Leader(state) == ids.NoNode {
		return
	}
	kept, err := quarantinedRanges(p.log())
	if err != nil {
		m.noise.error(m.cfg.Log, "quarantine cannot be read", append(p.fields(), zap.Error(err))...)
		return
	}
	reported, estimated := m.reportedLosses(img, p.log().Info(), kept)
	for _, r := range reported {
		kept = subtract(kept, r)
	}
	if len(kept) == 0 && !estimated {
		p.lossesDue.Store(false)
		return
	}
	spans, ok := m.leaderSpans(p, img, state)
	if !ok {
		return
	}
	for _, r := range spans {
		kept = subtract(kept, r)
	}
	if len(kept) == 0 && !estimated {
		p.lossesDue.Store(false)
		return
	}
	err = m.changeLosses(ctx, controller.LossReport{
		TopicID: p.topicID, Partition: p.index, LeaderEpoch: state.LeaderEpoch, Lost: kept, AtMs: clock.Now().UnixMilli(),
	})
	if err != nil {
		p.debug("losses not reported yet", zap.Error(err))
		return
	}
	p.lossesDue.Store(false)
}

// reportedLosses are what this broker has reported of the ranges, and whether there are estimates that name it.
func (m *replicaManager) reportedLosses(
	img *controller.Image, info engine.PartitionInfo, of []controller.LostRange,
) (reported []controller.LostRange, estimated bool) {
	for _, l := range img.LossesOf(info.TopicID, info.Partition) {
		switch {
		case l.Holder != m.cfg.NodeID:
		case !l.Estimated:
			for _, r := range of {
				if part, ok := l.Of(r); ok {
					reported = append(reported, part)
				}
			}
		case l.Cause != controller.CausePowerCut:
			estimated = true
		}
	}
	return reported, estimated
}

// leaderSpans are the offsets of each epoch in the leader's log.
func (m *replicaManager) leaderSpans(p *partition, img *controller.Image, state *controller.Partition) ([]controller.LostRange, bool) {
	if img.Leader(state) == m.cfg.NodeID {
		if r := p.serving(); r == nil || r.epoch != state.LeaderEpoch {
			return nil, false
		}
		return epochSpans(p.log().EpochStarts(), p.log().End()), true
	}
	leader, err := m.dialLeader(p.log().Info(), state)
	if err == nil {
		var about *logPrefixResponse
		if about, err = leader.ask(ids.NoOffset); err == nil {
			return epochSpans(about.epochs, about.end), true
		}
	}
	p.debug("losses not compared with the leader yet", zap.Error(err))
	return nil, false
}

// retractLost says what the leader here holds of what counts as lost.
func (m *replicaManager) retractLost(ctx context.Context, p *partition, img *controller.Image, state *controller.Partition) {
	var found []controller.LostRange
	own := epochSpans(p.log().EpochStarts(), p.log().End())
	for _, l := range img.LossesOf(p.topicID, p.index) {
		if l.Merged > 0 {
			continue // nobody knows any more which of the offsets it is about
		}
		for _, r := range own {
			if part, ok := l.Of(r); ok {
				found = append(found, part)
			}
		}
	}
	if len(found) == 0 {
		return
	}
	report := controller.LossReport{TopicID: p.topicID, Partition: p.index, LeaderEpoch: state.LeaderEpoch, Found: found}
	if err := m.changeLosses(ctx, report); err != nil {
		p.debug("what was found is not reported yet", zap.Error(err))
	}
}

// settleLosses is for a replica that was moved away, before its data is deleted: it reports what nobody else has, and that
// nothing will be left of it. errNotYet until the controller has accepted both.
func (m *replicaManager) settleLosses(info engine.PartitionInfo) error {
	img := m.cfg.Images.Image()
	state, ok := img.PartitionOf(info.TopicID, info.Partition)
	if !ok {
		return nil // the topic is deleted
	}
	stored, found, err := m.cfg.Engine.Stored(info.ID)
	if err != nil || !found {
		return err
	}
	log, err := m.cfg.Engine.OpenLog(info.ID)
	if err != nil {
		return err
	}
	lost, err := quarantinedRanges(log)
	if err != nil {
		return err
	}
	for _, r := range epochSpans(stored.Epochs, stored.End) {
		if r.From = max(r.From, stored.Start); r.From < r.To {
			lost = append(lost, r)
		}
	}
	held := slices.Clone(lost)
	leader, err := m.dialLeader(info, state)
	if err != nil {
		return err
	}
	about, err := leader.ask(ids.NoOffset)
	if err != nil {
		return err
	}
	for _, r := range epochSpans(about.epochs, about.end) {
		lost = subtract(lost, r)
	}
	reported, estimated := m.reportedLosses(img, info, lost)
	for _, r := range reported {
		lost = subtract(lost, r)
	}
	ctx, cancel := m.askContext()
	defer cancel()
	now := clock.Now().UnixMilli()
	if len(lost) > 0 || estimated {
		err := m.changeLosses(ctx, controller.LossReport{
			TopicID: info.TopicID, Partition: info.Partition, LeaderEpoch: state.LeaderEpoch, Lost: lost, AtMs: now,
		})
		if err != nil {
			return err
		}
	}
	if len(lost) == 0 && len(reported) == 0 {
		return nil
	}
	return m.replicaCommand(ctx, controller.DropQuarantined{
		Broker: m.cfg.NodeID, Epoch: m.cfg.Client.Registration().BrokerEpoch,
		Partitions: []controller.DroppedRanges{{Partition: info.ID, Ranges: held, AtMs: now}},
	})
}

// changeLosses sends a report. errNotYet unless the controller has accepted it.
func (m *replicaManager) changeLosses(ctx context.Context, r controller.LossReport) error {
	return m.replicaCommand(ctx, controller.ChangeLosses{
		Broker: m.cfg.NodeID, Epoch: m.cfg.Client.Registration().BrokerEpoch, Partitions: []controller.LossReport{r},
	})
}

// replicaCommand has the controller carry out what is about the losses of one partition. errNotYet unless it does.
func (m *replicaManager) replicaCommand(ctx context.Context, cmd controller.Command) error {
	ctx, cancel := context.WithTimeout(ctx, prefixWithin)
	defer cancel()
	items, err := m.cfg.Client.ReplicaCommand(ctx, cmd)
	switch {
	case err != nil:
		return fmt.Errorf("%w: losses are not reported: %w", errNotYet, err)
	case len(items) != 1 || items[0].Code != 0:
		return fmt.Errorf("%w: the controller does not accept the losses: %v", errNotYet, items)
	}
	return nil
}

// epochSpans are the offsets of each epoch of a log.
func epochSpans(epochs []engine.EpochStart, end ids.Offset) []controller.LostRange {
	var out []controller.LostRange
	for i, e := range epochs {
		if to := epochEnd(epochs, i, end); e.Start < to {
			out = append(out, controller.LostRange{LeaderEpoch: e.Epoch, From: e.Start, To: to})
		}
	}
	return out
}

// quarantinedRanges are the offsets of what is in quarantine, neighbours joined.
func quarantinedRanges(log *engine.Log) ([]controller.LostRange, error) {
	var out []controller.LostRange
	err := log.ScanQuarantine(func(q engine.Quarantined) bool {
		h, err := batch.ParseHeader(q.Batch)
		if err != nil {
			return true // it says nothing of its offsets; `cairn dump --quarantine` shows it
		}
		to := ids.Offset(h.NextOffset())
		if n := len(out); n > 0 && out[n-1].LeaderEpoch == q.LeaderEpoch && out[n-1].To == q.Base {
			out[n-1].To = to
			return true
		}
		out = append(out, controller.LostRange{LeaderEpoch: q.LeaderEpoch, From: q.Base, To: to})
		return true
	})
	return out, err
}

// subtract takes the range r out of the ranges.
func subtract(ranges []controller.LostRange, r controller.LostRange) []controller.LostRange {
	var out []controller.LostRange
	for _, x := range ranges {
		if x.LeaderEpoch != r.LeaderEpoch || x.To <= r.From || r.To <= x.From {
			out = append(out, x)
			continue
		}
		if x.From < r.From {
			out = append(out, controller.LostRange{LeaderEpoch: x.LeaderEpoch, From: x.From, To: r.From})
		}
		if r.To < x.To {
			out = append(out, controller.LostRange{LeaderEpoch: x.LeaderEpoch, From: r.To, To: x.To})
		}
	}
	slices.SortFunc(out, func(a, b controller.LostRange) int {
		return cmp.Or(cmp.Compare(a.LeaderEpoch, b.LeaderEpoch), cmp.Compare(a.From, b.From))
	})
	return out
}
