package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"cairn/engine/producer"
	"cairn/internal/ids"
)

// Observer hears of the saves of a partition's shard. It is called by the saving worker after the commit returned,
// outside of the engine's locks, in log order, never concurrently for one shard. It must not block.
type Observer interface {
	// Saved gets the saved entries, borrowed until return.
	Saved(entries []SavedEntry)
	// Truncated says that the entries from first on were replaced, before Saved of what replaced them. next is the
	// next offset after the truncation.
	Truncated(first ids.RaftIndex, next ids.Offset)
	// SnapshotInstalled says that the log now begins behind index, with next as its next offset, and is empty.
	SnapshotInstalled(index ids.RaftIndex, next ids.Offset)
}

// SavedEntry is a saved Raft entry. For data, [Base, Next) are its offsets; all other kinds take none, and Next is
// the next offset after the entry.
type SavedEntry struct {
	Index       ids.RaftIndex
	Term        ids.Term
	Kind        EntryKind
	Ordinal     uint64          // of the header, void entries included; 0: the entry has no header
	HeaderTerm  ids.Term        // of the header
	LeaderEpoch ids.LeaderEpoch // of the header
	Base, Next  ids.Offset
	Bytes       int // length of the proposal
}

// Log is one partition's log on this broker.
type Log struct {
	e       *Engine
	binding Binding
	sh      *shard
	obs     Observer // nil in views of OpenLog

	applied atomic.Uint64 // ids.RaftIndex
	hw      atomic.Int64  // ids.Offset
	tail    tail

	// startMu orders the writers of the meta row and the start point. It is the one mutex held over a commit: the
	// rows must reach the store in the order in which they were computed.
	startMu   sync.Mutex
	dropped   ids.Offset // data below is gone, guarded by startMu
	dropBytes int64      // LogBytes at dropped, guarded by startMu
	released  bool       // nothing is written any more, guarded by startMu

	markersGone atomic.Int64 // grows before compaction deletes markers; see ReadCommitted

	// Guarded by sh.mu, and changed as everything there.
	state      LogState
	logStart   ids.Offset
	startBytes int64 // state.LogBytes at logStart
	genesis    ids.RaftIndex
	epochs     []EpochStart // replaced as a whole, never changed in place
	producers  producer.State
	undos      []undo                // of the batches behind the saved commit, oldest first
	txns       producer.Transactions // replaced as a whole, never changed in place
	abortedTo  ids.Offset            // no marker of an aborted transaction is at or above it
	compaction compactionRow         // also needs startMu to change
	appendMs   int64                 // wall clock of the last saved batch, ms; 0: none since the start

	checkpoint storedCheckpoint

	saves saveMarks // belongs to the save under way
}

// undo takes back what a batch did to the producer state.
type undo struct {
	index ids.RaftIndex
	undo  producer.Undo
}

// saveMarks is what a shard's saves remember from one to the next.
type saveMarks struct {
	timeBytes int64 // LogBytes at the last time row
	// A snapshot of the producer state waits here until the entry it stands behind is committed, so that no
	// truncation can reach below a stored one.
	producers      producersRow
	producersReady bool
	producersAt    ids.RaftIndex // index of the newest snapshot
}

// Info names the partition.
func (l *Log) Info() PartitionInfo { return l.binding.Info }

// Binding is the owner of the log.
func (l *Log) Binding() Binding { return l.binding }

// Start is the log start offset.
func (l *Log) Start() ids.Offset {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.logStart
}

// End is the saved log end offset, exclusive.
func (l *Log) End() ids.Offset {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.state.Next
}

// State is what the log knows after its last saved entry.
func (l *Log) State() LogState {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.state
}

// LastIndex is the Raft index of the last saved entry.
func (l *Log) LastIndex() ids.RaftIndex {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.sh.last
}

// LastTerm is the Raft term of the last saved entry.
func (l *Log) LastTerm() ids.Term {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.sh.lastTerm
}

// Commit is the saved Raft commit index.
func (l *Log) Commit() ids.RaftIndex {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return ids.RaftIndex(l.sh.hard.Commit)
}

// HasGenesis says whether the log of this generation has its genesis entry.
func (l *Log) HasGenesis() bool {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.genesis != 0
}

// NextAfter is the end offset of the log up to and including the entry at index. ErrNoEntry when that entry is not
// stored.
func (l *Log) NextAfter(index ids.RaftIndex) (ids.Offset, error) {
	r, err := l.e.entryAt(l.sh, index)
	return r.next, err
}

// TermOf is the Raft term of the entry at index. ErrNoEntry when that entry is not stored.
func (l *Log) TermOf(index ids.RaftIndex) (ids.Term, error) {
	r, err := l.e.entryAt(l.sh, index)
	return r.term, err
}

// EntryKindAt is the kind of the entry at index. ErrNoEntry when it is not stored.
func (l *Log) EntryKindAt(index ids.RaftIndex) (EntryKind, error) {
	var row EntryRow
	err := l.e.readEntryRow(l.sh.id, index, &row)
	return row.Kind, err
}

// LatestEpoch is the leader epoch that started last and its start offset; (NoEpoch, NoOffset) before any.
func (l *Log) LatestEpoch() (ids.LeaderEpoch, ids.Offset) {
	epochs := l.epochStarts()
	if len(epochs) == 0 {
		return ids.NoEpoch, ids.NoOffset
	}
	e := epochs[len(epochs)-1]
	return e.Epoch, e.Start
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest known epoch at or below epoch, and where it ends.
// (NoEpoch, NoOffset) for an epoch above all known ones.
func (l *Log) EndOffsetForEpoch(epoch ids.LeaderEpoch) (ids.LeaderEpoch, ids.Offset) {
	l.sh.mu.RLock()
	epochs, end := l.epochs, l.state.Next
	l.sh.mu.RUnlock()
	if epoch == ids.NoEpoch || len(epochs) == 0 {
		return ids.NoEpoch, ids.NoOffset
	}
	if epoch == epochs[len(epochs)-1].Epoch {
		return epoch, end
	}
	above := slices.IndexFunc(epochs, func(e EpochStart) bool { return e.Epoch > epoch })
	switch above {
	case -1:
		return ids.NoEpoch, ids.NoOffset
	case 0: // older than all known ones: it ends where the first known one begins
		return epoch, epochs[0].Start
	default:
		return epochs[above-1].Epoch, epochs[above].Start
	}
}

// EpochStarts are the known leader epochs, ascending: a copy.
func (l *Log) EpochStarts() []EpochStart { return slices.Clone(l.epochStarts()) }

func (l *Log) epochStarts() []EpochStart {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.epochs
}

// epochAt is the leader epoch of the offset, by the epoch table.
func (l *Log) epochAt(o ids.Offset) ids.LeaderEpoch {
	epoch := ids.NoEpoch
	for _, e := range l.epochStarts() {
		if e.Start > o {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

// EpochBefore is the leader epoch of the record before offset o; NoEpoch when none is known.
func (l *Log) EpochBefore(o ids.Offset) ids.LeaderEpoch { return l.epochAt(o - 1) }

// Producer is the saved state of a producer, a copy; false when the log knows nothing of it.
func (l *Log) Producer(id int64) (producer.Entry, bool) {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.producers.Get(id)
}

// Transactions are the open transactions, and those that have ended above the high watermark: read-only.
func (l *Log) Transactions() producer.Transactions {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.txns
}

// OpenTransactions are the transactions without a saved marker, ascending in their first offsets.
func (l *Log) OpenTransactions() []producer.OpenTransaction {
	t := l.Transactions()
	return t.Open()
}

// LastStable is the last stable offset at a high watermark: the first offset of a transaction that is open there, or the high watermark.
// It may be below the log start, which does not wait for transactions.
func (l *Log) LastStable(highWatermark ids.Offset) ids.Offset {
	t := l.Transactions()
	return t.Stable(highWatermark)
}

// Producers calls fn with a copy of the state of every producer, in no order.
func (l *Log) Producers(fn func(id int64, e producer.Entry)) {
	l.sh.mu.RLock()
	entries := l.producers.Clone()
	l.sh.mu.RUnlock()
	for id, e := range entries {
		fn(id, e)
	}
}

// ExpireProducers forgets producers without a batch for ttlMs (see producer.State.Expire) and returns how many.
func (l *Log) ExpireProducers(nowMs, ttlMs int64) int {
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	return l.producers.Expire(nowMs, ttlMs)
}

// SizeBytes is the size of the stored batches from the log start on.
func (l *Log) SizeBytes() int64 {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.state.LogBytes - l.startBytes - l.compaction.Removed
}

// SetApplied tells what Raft has applied. It is stored with a later save.
func (l *Log) SetApplied(index ids.RaftIndex) { l.applied.Store(uint64(index)) }

// Applied is what SetApplied said last; after Bind the stored index, at most the saved commit. It is what the state
// machine's Open returns.
func (l *Log) Applied() ids.RaftIndex { return ids.RaftIndex(l.applied.Load()) }

// SetHighWatermark tells the high watermark. It is stored with a later save.
func (l *Log) SetHighWatermark(o ids.Offset) { l.hw.Store(int64(o)) }

// HighWatermark is what SetHighWatermark said last; after Bind the stored one.
func (l *Log) HighWatermark() ids.Offset { return ids.Offset(l.hw.Load()) }

// LogStartPoint is where the Raft log starts; Index 0: at its beginning. The membership's maps are shared: read-only.
func (l *Log) LogStartPoint() StartPoint {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.sh.start
}
