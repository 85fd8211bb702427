package broker

import (
	"context"
	"sync/atomic"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// reign is one time of leadership, as clients see it.
type reign struct {
	term  ids.Term
	epoch ids.LeaderEpoch
	// start is the offset at which the leader epoch begins. ListOffsets does not answer "latest" before the high
	// watermark is there. It is set before the reign is shown to clients.
	start ids.Offset
	// closing: leadership is being handed over. New requests are refused, those under way still complete.
	closing atomic.Bool
	// membersKnown: the controller knows who votes in the Raft group, as of this reign.
	membersKnown atomic.Bool
	// members of the Raft group as this leader read them last; nil: to be read.
	members atomic.Pointer[raftgroup.Membership]
	// ctx ends with the reign, and so do waits for room in the group's queue.
	ctx    context.Context
	cancel context.CancelFunc
}

// follow ends the reign if the image shows that it is over, and begins one if the image shows this replica as the
// registered leader of the term in which it leads. The caller opens a begun reign with openReign.
func (p *partition) follow(state *controller.Partition) (begun *reign) {
	p.mu.Lock()
	var ended *reign
	if p.overtakenLocked(state) {
		ended = p.endReignLocked()
	}
	if p.mayBeginLocked(state) {
		begun = &reign{term: p.raftTerm, epoch: state.LeaderEpoch}
		begun.ctx, begun.cancel = context.WithCancel(context.Background())
		p.starting = begun
	}
	p.mu.Unlock()
	if ended != nil && p.seedsNext(state) {
		p.watches.hold(ended)
	}
	p.finishReign(ended)
	return begun
}

// leaveTo ends the reign because the metadata wants the replica of another generation. Requests whose batches are in the log go
// on waiting if that begins here.
func (p *partition) leaveTo(next *controller.Partition) {
	p.mu.Lock()
	ended := p.endReignLocked()
	p.mu.Unlock()
	if ended != nil && p.seedsNext(next) {
		p.watches.hold(ended)
	}
	p.finishReign(ended)
}

// seedsNext reports whether the partition goes on, in its next generation, with the log that is here.
func (p *partition) seedsNext(state *controller.Partition) bool {
	return state.Generation == p.generation+1 && len(state.Founders) == 1 && state.Founders[0].Node == p.node && state.BaseOffset == ids.NoOffset
}

// needsFollow reports whether follow would do something.
func (p *partition) needsFollow(state *controller.Partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overtakenLocked(state) || p.mayBeginLocked(state)
}

// registered reports whether the image has this replica as leader.
func (p *partition) registered(state *controller.Partition) bool {
	return state.Shard == p.shard && state.Leader == p.node && state.LeaderReplica == p.self
}

// overtakenLocked reports whether the image shows a leader other than the current reign. An older image does not.
func (p *partition) overtakenLocked(state *controller.Partition) bool {
	r := p.currentLocked()
	return r != nil && (state.LeaderEpoch > r.epoch || (state.LeaderEpoch == r.epoch && !p.registered(state)))
}

func (p *partition) mayBeginLocked(state *controller.Partition) bool {
	leads := p.raftLeader == p.self && p.savedTerm >= p.raftTerm && !p.stopped && p.core.Load() != nil
	return leads && p.currentLocked() == nil && p.registered(state) && state.LeaderTerm == p.raftTerm
}

// currentLocked is the reign that runs or is being opened.
func (p *partition) currentLocked() *reign {
	if r := p.reign.Load(); r != nil {
		return r
	}
	return p.starting
}

// openWait bounds the wait for room in the group's queue when a reign is opened: others wait for the same worker.
const openWait = time.Second

// openReign proposes what begins a reign: the genesis when the log of this generation has none, and the epoch-start
// entry, whose save opens the partition to clients. After an error the reign is to be abandoned.
func (p *partition) openReign(r *reign) error {
	p.seq.begin(r)
	if !p.log().HasGenesis() {
		data := engine.EncodeGenesis(engine.Header{Kind: engine.KindGenesis},
			engine.Genesis{Generation: p.generation, BaseOffset: p.baseOffset, Epochs: p.log().EpochStarts(), Producers: p.log().ProducersSnapshot()})
		if err := p.submitControl(r, engine.KindGenesis, data, &opening{p, r}); err != nil {
			return err
		}
	}
	data := engine.EncodeEpochStart(engine.Header{Kind: engine.KindEpochStart})
	return p.submitControl(r, engine.KindEpochStart, data, &opening{p, r})
}

func (p *partition) submitControl(r *reign, kind engine.EntryKind, data []byte, w appendWaiter) error {
	sub := submission{data: data, kind: kind, waiter: w, slot: int(kind)}
	sub.batch.ProducerID = -1
	ctx, cancel := context.WithTimeout(r.ctx, openWait)
	defer cancel()
	_, _, err := p.seq.submit(ctx, r, sub)
	return err
}

// opening waits for the entries that open a reign; slot is their kind.
type opening struct {
	p *partition
	r *reign
}

func (o *opening) appended(slot int, _, next ids.Offset, _ int64) {
	if engine.EntryKind(slot) == engine.KindEpochStart {
		o.p.accept(o.r, next)
	}
}

// dropped implements appendWaiter.
func (o *opening) dropped(int) { o.p.abandon(o.r) }

// abandon gives up a reign that did not open. The replica manager begins it anew while Raft leads here.
func (p *partition) abandon(r *reign) {
	p.mu.Lock()
	var ended *reign
	if p.starting == r {
		ended = p.endReignLocked()
	}
	p.mu.Unlock()
	p.finishReign(ended)
}

// accept opens the partition to clients: the epoch of r starts at offset start, durably.
func (p *partition) accept(r *reign, start ids.Offset) {
	p.mu.Lock()
	if p.starting != r {
		p.mu.Unlock()
		return
	}
	if !p.beginReplication(r, start) {
		p.mu.Unlock()
		return // the image that says so ends the reign
	}
	r.start = start
	p.starting = nil
	lost, reached := p.watches.open(p, r, p.highWatermark())
	lostStable, _ := p.stable.open(p, r, p.lastStableOffset())
	p.reign.Store(r)
	p.mu.Unlock()
	wakeAll(lostStable, wakeLost)
	wakeAll(lost, wakeLost)
	wakeAll(reached, wakeReached)
	if p.coord != nil {
		p.coord.Began(p.index, partitionReign{p, r})
		if p.reign.Load() != r { // over already, and its end may have been told first
			p.coord.Ended(p.index, partitionReign{p, r}, p.watches.holds())
		}
	}
	p.advance()
	p.owner.isr.wants(p)
	p.debug("reign begins", zap.Int32("leaderEpoch", int32(r.epoch)), zap.Uint64("term", uint64(r.term)), zap.Int64("start", int64(start)))
}

// endReignLocked takes the reign from clients and returns it for finishReign, nil when there was none.
func (p *partition) endReignLocked() *reign {
	r := p.currentLocked()
	p.starting = nil
	p.reign.Store(nil)
	p.endReplication()
	return r
}

// finishReign fails and wakes all that waited in a reign that endReignLocked ended.
func (p *partition) finishReign(r *reign) {
	if r == nil {
		return
	}
	r.cancel()
	p.seq.end(r)
	p.watches.close(r)
	p.stable.close(r)
	if p.coord != nil {
		p.coord.Ended(p.index, partitionReign{p, r}, p.watches.holds())
	}
	p.debug("reign ends", zap.Int32("leaderEpoch", int32(r.epoch)), zap.Uint64("term", uint64(r.term)))
}

// stop takes the partition from clients for good, before its group is stopped.
func (p *partition) stop() {
	p.mu.Lock()
	p.stopped = true
	ended := p.endReignLocked()
	p.mu.Unlock()
	p.finishReign(ended)
}
