package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// partition is one hosted replica of a partition, in one generation: what Raft, the metadata image and the log say
// about it, and what clients may do with it. A new generation is a new partition object.
//
// Clients are served during a reign only: from the moment that this replica leads its Raft group, is registered as
// leader with the controller, and has its epoch-start entry saved, until Raft or the image says otherwise.
//
// The Raft workers call its methods of raftgroup.Events; none of those blocks. Lock order: mu, then replication's, the
// sequencer's and the watch list's; no request is woken with a lock held.
type partition struct {
	topic      string
	topicID    ids.UUID
	index      int32
	id         ids.PartitionID
	shard      ids.ShardID
	generation int32
	baseOffset ids.Offset
	node       ids.NodeID
	self       ids.ReplicaID
	owner      *replicaManager

	settings atomic.Pointer[topicSettings]
	reign    atomic.Pointer[reign]
	core     atomic.Pointer[core]
	seq      *sequencer
	watches  *watchList   // goes on in the next generation if this broker is its seed
	coord    coordination // who is told of what happens here; nil: nobody, it is no internal topic
	stable   watchList    // what waits for the last stable offset
	hw       atomic.Int64
	// lossesDue: something may be in quarantine here that the controller does not know of.
	lossesDue atomic.Bool
	// registeredAt is when it was last said that Raft has elected this replica; nil: never.
	registeredAt atomic.Pointer[time.Time]
	heard        atomic.Int64 // the highest high watermark that a leader told
	// retentionMove is the log start that retention has proposed last.
	retentionMove atomic.Pointer[retentionMove]

	mu         sync.Mutex
	raftLeader ids.ReplicaID // guarded by mu; 0: none known
	raftTerm   ids.Term      // guarded by mu
	savedTerm  ids.Term      // guarded by mu; the highest term of a saved entry heard of
	starting   *reign        // guarded by mu; a reign whose epoch-start entry is not saved yet
	stopped    bool          // guarded by mu
	lost       chan struct{} // guarded by mu; closed at the next change of leader; nil while nobody waits for it

	replication replication
	followers   followers
	positions   positions
}

// positions are how far the replica's log is committed and saved.
type positions struct {
	mu               sync.Mutex
	committed, saved ids.RaftIndex // guarded by mu
}

// both is what is both committed and saved here. A leader's own save counts because followers' answers can overtake it,
// and a single voter commits before it saves.
func (p *positions) both() ids.RaftIndex {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.committed, p.saved)
}

// core is what the partition has once its Raft group runs.
type core struct {
	group *raftgroup.Group
	log   *engine.Log
}

func newPartition(owner *replicaManager, info engine.PartitionInfo, p *controller.Partition, self ids.ReplicaID) *partition {
	part := &partition{
		topic: info.Topic, topicID: info.TopicID, index: info.Partition, id: info.ID,
		shard: p.Shard, generation: p.Generation, baseOffset: p.BaseOffset,
		node: owner.cfg.NodeID, self: self, owner: owner,
	}
	part.watches = new(watchList)
	part.coord = owner.cfg.Coordinations[info.Topic]
	part.seq = newSequencer(part.propose, part.savedProducer)
	return part
}

// attach gives the partition its running group. Events may have come before.
func (p *partition) attach(group *raftgroup.Group) {
	log := group.Log()
	p.raiseHighWatermark(min(log.HighWatermark(), log.End()))
	p.core.Store(&core{group: group, log: log})
	p.positions.mu.Lock()
	p.positions.saved = max(p.positions.saved, log.LastIndex())
	p.positions.mu.Unlock()
	if p.coord != nil {
		p.coord.Attach(p.index, replicaLog{p})
	}
	p.advance()
	if leader, term, ok := group.Leader(); ok {
		p.LeaderChanged(leader, term)
	}
	if term, leads := p.leaderTerm(); leads {
		p.owner.elected(p, term)
	}
}

// log is the partition's log; only for partitions that lookup returned, which are attached.
func (p *partition) log() *engine.Log { return p.core.Load().log }

// isLeader reports whether clients are served here.
func (p *partition) isLeader() bool { return p.serving() != nil }

// serving is the reign under which clients are served; nil: they are not.
func (p *partition) serving() *reign {
	r := p.reign.Load()
	if r == nil || r.closing.Load() {
		return nil
	}
	return r
}

// debug logs a change of the partition's role.
func (p *partition) debug(what string, fields ...zap.Field) {
	if ce := p.owner.cfg.Log.Check(zap.DebugLevel, what); ce != nil {
		ce.Write(append(p.fields(), fields...)...)
	}
}

// fields name the partition in log messages.
func (p *partition) fields() []zap.Field {
	return []zap.Field{zap.String("topic", p.topic), zap.Int32("partition", p.index)}
}

// highWatermark is the offset below which consumers read. On a leader it never goes back.
func (p *partition) highWatermark() ids.Offset { return ids.Offset(p.hw.Load()) }

// lastStableOffset is where read_committed consumers stop: at the first transaction whose end they cannot see below the high watermark.
// It is never below the log start, as in Kafka.
func (p *partition) lastStableOffset() ids.Offset {
	log, hw := p.log(), p.highWatermark()
	return max(log.LastStable(hw), min(log.Start(), hw))
}

func (p *partition) propose(ctx context.Context, data []byte) (ticket, error) {
	t, err := p.core.Load().group.Propose(ctx, data)
	if err != nil {
		return nil, err
	}
	p.owner.throttle.spare.produced.Add(int64(len(data)))
	return t, nil
}

// savedProducer is the saved state of a producer.
func (p *partition) savedProducer(id int64) (producer.Entry, bool) { return p.log().Producer(id) }

// LeaderChanged implements raftgroup.Events.
func (p *partition) LeaderChanged(leader ids.ReplicaID, term ids.Term) {
	p.mu.Lock()
	if p.stopped || term < p.raftTerm || (term == p.raftTerm && leader == p.raftLeader) {
		p.mu.Unlock()
		return
	}
	p.raftLeader, p.raftTerm = leader, term
	elected := leader == p.self
	ended := p.endReignLocked()
	if p.lost != nil {
		close(p.lost)
		p.lost = nil
	}
	p.mu.Unlock()
	p.finishReign(ended)
	p.seq.leave(term)
	p.debug("raft leader", zap.Uint64("replica", uint64(leader)), zap.Uint64("term", uint64(term)), zap.Bool("self", elected))
	if elected {
		p.owner.elected(p, term)
	}
}

// Saved implements raftgroup.Events. entries is borrowed until return.
func (p *partition) Saved(entries []engine.SavedEntry) {
	last := entries[len(entries)-1]
	p.positions.mu.Lock()
	p.positions.saved = last.Index
	p.positions.mu.Unlock()
	p.noteTerm(last.Term)
	p.advance() // before clients are answered: that asks what is saved
	p.seq.onSaved(entries)
}

// Truncated implements raftgroup.Events.
func (p *partition) Truncated(first ids.RaftIndex, _ ids.Offset) {
	p.lossesDue.Store(true)
	p.positions.mu.Lock()
	p.positions.saved = first - 1
	p.positions.mu.Unlock()
	if p.coord != nil {
		p.coord.Advanced(p.index)
	}
}

// Committed implements raftgroup.Events.
func (p *partition) Committed(index ids.RaftIndex) {
	p.positions.mu.Lock()
	p.positions.committed = max(p.positions.committed, index)
	p.positions.mu.Unlock()
	p.advance()
}

// Progress implements raftgroup.Events.
func (p *partition) Progress(from ids.ReplicaID, index ids.RaftIndex, term ids.Term) {
	p.followers.note(from, index, term)
	p.noteProgress(from, index, term)
}

// HighWatermark implements raftgroup.Events.
func (p *partition) HighWatermark(hw ids.Offset) {
	for {
		old := p.heard.Load()
		if int64(hw) <= old {
			return
		}
		if p.heard.CompareAndSwap(old, int64(hw)) {
			break
		}
	}
	p.advance()
}

// LogStart implements raftgroup.Events. Readers take the log start from the log.
func (p *partition) LogStart(ids.Offset) {}

// noteTerm hears of saved entries. The first one of a term tells that all that the leader of that term started with is
// saved, which it must know before it asks its log whether there is a genesis.
func (p *partition) noteTerm(term ids.Term) {
	p.mu.Lock()
	risen := term > p.savedTerm
	p.savedTerm = max(p.savedTerm, term)
	elected := risen && p.raftLeader == p.self && p.raftTerm == term && !p.stopped
	p.mu.Unlock()
	if elected {
		p.owner.begin(p)
	}
}

// raiseHighWatermark reports whether the high watermark was below next.
func (p *partition) raiseHighWatermark(next ids.Offset) bool {
	for {
		hw := p.hw.Load()
		if int64(next) <= hw {
			return false
		}
		if p.hw.CompareAndSwap(hw, int64(next)) {
			return true
		}
	}
}

// leaderTerm returns the term in which this replica leads its Raft group.
func (p *partition) leaderTerm() (ids.Term, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raftTerm, p.raftLeader == p.self && !p.stopped
}
