package broker

import (
	"context"
	"time"

	"cairn/broker/controller"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// elected notes that p leads its Raft group in term, so that it is registered with the controller. It does not block.
func (m *replicaManager) elected(p *partition, term ids.Term) {
	m.elections.Lock()
	m.elections.pending[p] = term
	m.elections.Unlock()
	now := clock.Now()
	p.registeredAt.Store(&now)
	signal(m.electionWake)
}

// runElections registers new leaders, all that there are at a time in one request.
func (m *replicaManager) runElections(ctx context.Context) {
	for {
		select {
		case <-m.electionWake:
			m.registerElected()
		case <-ctx.Done():
			return
		}
	}
}

func (m *replicaManager) registerElected() {
	m.elections.Lock()
	pending := m.elections.pending
	m.elections.pending = map[*partition]ids.Term{}
	m.elections.Unlock()
	img := m.cfg.Images.Image()
	var reports []controller.LeaderReport
	for p, term := range pending {
		state, ok := img.PartitionOf(p.topicID, p.index)
		current, leads := p.leaderTerm()
		switch {
		case !ok || !leads || current != term || state.Shard != p.shard:
		case state.LeaderTerm == term && state.LeaderReplica == p.self && state.Leader == p.node:
			m.follow(p, state)
		default:
			reports = append(reports, controller.LeaderReport{
				TopicID: p.topicID, Partition: p.index, Generation: p.generation, Term: term, Replica: p.self, BaseOffset: p.baseOffset,
			})
		}
	}
	if len(reports) > 0 {
		m.cfg.Client.RegisterLeaders(reports, m.registered)
	}
}

// registered hears what became of a registration. What was granted shows in the image, which opens the reign; what was
// refused is superseded: another replica leads, or will.
func (m *replicaManager) registered(r controller.LeaderReport, g controller.LeaderGrant, err error) {
	m.cfg.Log.Debug("leader registration", zap.String("topicId", r.TopicID.String()), zap.Int32("partition", r.Partition),
		zap.Uint64("term", uint64(r.Term)), zap.Int32("leaderEpoch", int32(g.LeaderEpoch)), zap.Error(err))
}

// begin has p follow the newest image: changes before it was able to have passed it by. It does not block.
func (m *replicaManager) begin(p *partition) {
	img := m.cfg.Images.Image()
	if state, ok := img.PartitionOf(p.topicID, p.index); ok {
		m.applySettings(p, img)
		m.follow(p, state)
	}
}

// follow tells p its state in the image. A reign that this begins is opened by a worker.
func (m *replicaManager) follow(p *partition, state *controller.Partition) {
	if !p.needsFollow(state) {
		return
	}
	m.mu.Lock()
	m.opens[p] = state
	m.mu.Unlock()
	signal(m.openWake)
}

// runOpenings is a worker that ends and begins reigns as the image says.
func (m *replicaManager) runOpenings(ctx context.Context) {
	for {
		select {
		case <-m.openWake:
		case <-ctx.Done():
			return
		}
		for p, state := m.takeOpening(); p != nil; p, state = m.takeOpening() {
			m.openReign(p, state)
		}
	}
}

// takeOpening takes one partition off the list, and wakes another worker when there are more.
func (m *replicaManager) takeOpening() (*partition, *controller.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, state := range m.opens {
		delete(m.opens, p)
		if len(m.opens) > 0 {
			signal(m.openWake)
		}
		return p, state
	}
	return nil, nil
}

func (m *replicaManager) openReign(p *partition, state *controller.Partition) {
	r := p.follow(state)
	if r == nil {
		return
	}
	if err := p.openReign(r); err != nil {
		p.abandon(r)
		p.debug("reign not opened", zap.Error(err))
	}
}

// runTicks does what nobody tells the time for.
func (m *replicaManager) runTicks(ctx context.Context) {
	ticker := time.NewTicker(replicaTick)
	defer ticker.Stop()
	expiry := time.NewTicker(m.cfg.ProducerCheck)
	defer expiry.Stop()
	for {
		select {
		case <-ticker.C:
			m.tick()
		case now := <-expiry.C:
			m.expireProducers(now)
		case <-ctx.Done():
			return
		}
	}
}

// tick finds proposals that Raft dropped, leaders whose reign has not begun, and transitions to try again.
func (m *replicaManager) tick() {
	img := m.cfg.Images.Image()
	for _, p := range m.partitions() {
		term, leads := p.leaderTerm()
		if !leads {
			continue
		}
		p.seq.poll()
		if p.isLeader() {
			continue
		}
		state, ok := img.PartitionOf(p.topicID, p.index)
		switch {
		case !ok || !p.is(state):
		case state.LeaderTerm == term && p.registered(state):
			m.follow(p, state)
		case p.dueToRegister(clock.Now()):
			m.elected(p, term) // a false fencing ended the leadership, and nobody else may be able to take it
		}
	}
	m.retryTransitions()
}

// registerAgain is how often a leader that is not registered says again that Raft has elected it.
const registerAgain = time.Second

// dueToRegister reports whether a leader has waited long enough for its registration to ask again.
func (p *partition) dueToRegister(now time.Time) bool {
	last := p.registeredAt.Load()
	return (last == nil || now.Sub(*last) >= registerAgain) && p.registeredAt.CompareAndSwap(last, &now)
}

// expireProducers forgets producers that have not written for long, on leaders and followers alike.
func (m *replicaManager) expireProducers(now time.Time) {
	ttl := m.cfg.ProducerExpiry()
	for _, p := range m.partitions() {
		p.log().ExpireProducers(now.UnixMilli(), ttl.Milliseconds())
	}
}
