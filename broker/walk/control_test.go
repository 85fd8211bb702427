package walk

import (
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"
)

// heartbeat goes to the controller and, with luck, its answer comes back. A fenced broker is unfenced once its metadata
// replica has seen that it was fenced: by then its reign is over.
func (w *world) heartbeat(b *broker) {
	if !b.reach() || !b.registered {
		return
	}
	sent, epoch, seen := w.now, b.epoch, b.seen
	end := controller.LogEnd{LeaderEpoch: ids.NoEpoch, End: b.end(b.saved), AsOfMs: w.now.UnixMilli()}
	for _, e := range b.log[:b.saved] {
		if e.id != 0 {
			end.LeaderEpoch = e.epoch
		}
	}
	w.send(func() {
		br := w.img().Brokers[b.node]
		if br.Epoch != epoch {
			return
		}
		w.heard[b.node] = w.now
		w.ends.Note(b.node, []controller.PartitionEnd{{Partition: w.partition().ID, LogEnd: end}})
		if br.Fenced && !br.ShuttingDown && (w.earlyUnfence || seen >= max(uint64(br.Epoch), br.FencedAt)) {
			w.apply(controller.ChangeBrokers{Changes: []controller.BrokerChange{{ID: b.node, Epoch: epoch, Action: controller.Unfence}}})
		}
		if w.img().Brokers[b.node].Fenced {
			return
		}
		w.send(func() { w.prolong(b, epoch, sent.Add(sessionTimeout)) })
	})
}

// prolong is the answer to a heartbeat: the lease counts from when that was sent.
func (w *world) prolong(b *broker, epoch int64, until time.Time) {
	if b.epoch != epoch || !until.After(b.lease) {
		return
	}
	b.lease = until
	if b.r != nil && b.r.reign != nil {
		b.r.reign.NoteLease(w.leaseOf(b))
	}
}

// fenceExpired fences brokers whose session is over.
func (w *world) fenceExpired() {
	for _, b := range w.brokers {
		if !w.now.Before(w.heard[b.node].Add(sessionTimeout)) {
			w.fence(b)
		}
	}
}

// fenceAnybody fences a broker that is cut off or dead, and now and then a healthy one, long before its session is over.
func (w *world) fenceAnybody(b *broker) {
	if !b.reach() || w.rnd.IntN(4) == 0 {
		w.fence(b)
	}
}

func (w *world) fence(b *broker) {
	br := w.img().Brokers[b.node]
	if br.Fenced {
		return
	}
	if ends := w.ends.Unsaved(w.img(), b.node); len(ends) > 0 && w.rnd.IntN(2) == 0 {
		w.apply(controller.NoteEnds{Broker: b.node, Epoch: br.Epoch, Ends: ends})
	}
	w.apply(controller.ChangeBrokers{Changes: []controller.BrokerChange{{ID: b.node, Epoch: br.Epoch, Action: controller.Fence}}})
	w.say("broker %d is fenced", b.node)
}

func (w *world) facts() controller.Facts {
	f := controller.Facts{
		Now: w.now, Ends: &w.ends, Leaderless: w.watch.Observe(w.img(), w.now), LeaseEnds: map[ids.NodeID]time.Time{},
		ElectionGrace: electionGrace, TransferTimeout: time.Second, Rebalance: w.rnd.IntN(10) == 0, ImbalancePercent: 10,
		Unclean: func(string) bool { return w.unclean && w.rnd.IntN(4) == 0 },
	}
	for n, t := range w.heard {
		if f.LeaseEnds[n] = t.Add(sessionTimeout); w.noWait {
			f.LeaseEnds[n] = w.now
		}
	}
	return f
}

// decide is the active controller's turn.
func (w *world) decide() {
	for _, c := range controller.Decide(w.img(), w.facts()) {
		w.apply(c)
	}
}

// shutDown begins a broker's controlled shutdown, which ends when the process does.
func (w *world) shutDown(b *broker) {
	br := w.img().Brokers[b.node]
	if b.reach() && b.registered && !br.ShuttingDown && br.Epoch == b.epoch {
		w.apply(controller.ChangeBrokers{Changes: []controller.BrokerChange{{ID: b.node, Epoch: b.epoch, Action: controller.Shutdown}}})
		w.say("broker %d shuts down", b.node)
	}
}

// reassign moves the partition to any brokers, or takes a reassignment back.
func (w *world) reassign() {
	if !w.moves {
		return
	}
	c := controller.Reassignment{TopicID: topicID, AtMs: w.now.UnixMilli()}
	for _, i := range w.rnd.Perm(len(w.brokers))[:w.rnd.IntN(len(w.brokers)+1)] {
		c.Replicas = append(c.Replicas, w.brokers[i].node)
	}
	w.say("reassignment to %v", c.Replicas)
	w.apply(controller.AlterReassignments{Partitions: []controller.Reassignment{c}})
}

// handOver does what the controller asks a leader for.
func (w *world) handOver(b *broker) {
	p := partitionIn(w.images[b.seen])
	if !b.up || b.r == nil || b.r.reign == nil || p.Transfer == nil || p.LeaderEpoch != b.r.reign.Epoch() {
		return
	}
	if to := w.broker(p.Transfer.To); w.talk(b, to) {
		w.campaign(to)
	}
}

// anyGeneration asks for a clean generation that nobody needs, with any seed: whether that is right is for Apply to say.
func (w *world) anyGeneration(b *broker) {
	w.apply(controller.NextGenerations{Partitions: []controller.NewGeneration{{
		TopicID: topicID, From: w.partition().Generation, Seed: b.node,
	}}})
}

func (w *world) electUnclean() {
	if !w.unclean {
		return
	}
	step, res := controller.Elect(w.img(), w.facts(), controller.UncleanElection, topicName, 0)
	if res.Code == 0 {
		w.apply(controller.NextGenerations{Partitions: []controller.NewGeneration{*step.Generation}})
	}
}

func (w *world) changeMinimum(n int) {
	w.say("minimum %d", n)
	w.apply(controller.AlterConfigs{Resources: []controller.ResourceChange{{
		Type: controller.TopicResource, Name: topicName,
		Ops: []controller.ConfigOp{{Name: "min.insync.replicas", Value: string(rune('0' + n))}},
	}}})
}

// leaderOf returns the broker that reigns as the image that b has seen shows it, nil if there is none within reach.
func (w *world) leaderOf(b *broker) *broker {
	p := partitionIn(w.images[b.seen])
	if !b.reach() || !b.registered || p.Leader == ids.NoNode {
		return nil
	}
	l := w.broker(p.Leader)
	if !w.talk(b, l) || l.r == nil || l.r.reign == nil || l.r.reign.Epoch() != p.LeaderEpoch {
		return nil
	}
	return l
}

// holds reports whether the log has that very record.
func (b *broker) holds(e entry) bool {
	for _, o := range b.log {
		if o.id == e.id {
			return true
		}
	}
	return false
}

// reportLosses reports what lies in quarantine and is not in the leader's log. It stays due until the controller has
// accepted it: a report that was compared with an earlier leader is refused.
func (w *world) reportLosses(b *broker) {
	l := w.leaderOf(b)
	if l == nil || len(b.quarantine) == 0 && !w.estimated(b.node) {
		return
	}
	if member := partitionIn(w.images[b.seen]).ReplicaOf(b.node) >= 0; member && (b.r == nil || b.r.shard != l.r.shard) {
		return
	}
	report := controller.LossReport{TopicID: topicID, LeaderEpoch: l.r.reign.Epoch(), AtMs: w.now.UnixMilli()}
	due := b.quarantine
	for _, e := range due {
		if !l.holds(e) {
			report.Lost = append(report.Lost, controller.LostRange{LeaderEpoch: e.epoch, From: e.next - 1, To: e.next})
		}
	}
	cmd := controller.ChangeLosses{Broker: b.node, Epoch: b.epoch, Partitions: []controller.LossReport{report}}
	w.send(func() {
		if w.applyItem(cmd) == 0 && len(b.quarantine) >= len(due) {
			b.quarantine = b.quarantine[len(due):]
		}
	})
}

// estimated reports whether a loss that names the broker is an estimate still.
func (w *world) estimated(n ids.NodeID) bool {
	for _, l := range w.img().Losses {
		if l.Estimated && l.Cause != controller.CausePowerCut && l.Holder == n {
			return true
		}
	}
	return false
}

// retractLosses: a leader that holds what was reported lost says so.
func (w *world) retractLosses(b *broker) {
	if !b.reach() || b.r == nil || b.r.reign == nil {
		return
	}
	report := controller.LossReport{TopicID: topicID, LeaderEpoch: b.r.reign.Epoch()}
	for _, l := range w.images[b.seen].Losses {
		for _, e := range b.log {
			if e.id != 0 && e.epoch == l.LeaderEpoch && e.next > l.From && e.next <= l.To {
				report.Found = append(report.Found, controller.LostRange{LeaderEpoch: e.epoch, From: e.next - 1, To: e.next})
			}
		}
	}
	if len(report.Found) > 0 {
		cmd := controller.ChangeLosses{Broker: b.node, Epoch: b.epoch, Partitions: []controller.LossReport{report}}
		w.send(func() { w.apply(cmd) })
	}
}
