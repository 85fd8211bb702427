package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// shard is what the engine keeps in memory of one Raft replica: of the metadata shard, or of the owner of a
// partition's data.
//
// Everything under mu changes only when a save is published or the start point moves, and is read by anyone. Between
// two publishes a save works on copies (see pendingSave), and there is one save of a shard at a time.
type shard struct {
	id  replicaID
	log *Log // nil: the metadata shard, whose entries hold their payload

	saving  atomic.Bool // a save is under way: Raft never runs two of one shard
	pending pendingSave // scratch of that save

	mu       sync.RWMutex
	hard     pb.State
	start    StartPoint // entries from start.Index+1 to last are stored
	last     ids.RaftIndex
	lastTerm ids.Term
	snapshot pb.Snapshot // record saved since the start of the process (metadata shard: or before); may be empty
	recent   recent
	// Entries below or at replayUntil are read without payload as long as Raft reads them in order from the start
	// of its log; replayNext is the next one of that walk. See iterate.go.
	replayNext, replayUntil ids.RaftIndex
}

// recent remembers terms and next offsets of the newest entries: what commit, high watermark and Raft ask for all
// the time. Items are for the indexes first, first+1, ...
type recent struct {
	first ids.RaftIndex
	items []recentEntry
}

type recentEntry struct {
	term ids.Term
	next ids.Offset
}

const recentKept = 1024

func (r *recent) append(index ids.RaftIndex, e recentEntry) {
	if len(r.items) == 0 {
		r.first = index
	}
	if len(r.items) >= 2*recentKept {
		drop := len(r.items) - recentKept
		r.items = r.items[:copy(r.items, r.items[drop:])]
		r.first += ids.RaftIndex(drop)
	}
	r.items = append(r.items, e)
}

func (r *recent) at(index ids.RaftIndex) (recentEntry, bool) {
	if index < r.first || index-r.first >= ids.RaftIndex(len(r.items)) {
		return recentEntry{}, false
	}
	return r.items[index-r.first], true
}

// truncate drops the entries from first on.
func (r *recent) truncate(first ids.RaftIndex) {
	if first <= r.first {
		r.items = r.items[:0]
		return
	}
	if keep := first - r.first; keep < ids.RaftIndex(len(r.items)) {
		r.items = r.items[:keep]
	}
}

// entryAt is term and next offset of a stored entry, or of the start point.
func (e *Engine) entryAt(sh *shard, index ids.RaftIndex) (recentEntry, error) {
	sh.mu.RLock()
	r, ok := sh.recent.at(index)
	start, last := sh.start.Index, sh.last
	if index == start {
		r, ok = recentEntry{term: sh.start.Term, next: sh.start.Next}, true
	}
	sh.mu.RUnlock()
	if ok && index >= start {
		return r, nil
	}
	if index < start || index > last {
		return recentEntry{}, fmt.Errorf("%w: %d, stored are %d to %d", ErrNoEntry, index, start+1, last)
	}
	var row EntryRow
	err := e.readEntryRow(sh.id, index, &row)
	return recentEntry{term: row.Term, next: row.Next}, err
}

// ErrNoEntry says that a Raft entry is not stored (any more, or yet).
var ErrNoEntry = errors.New("engine: no such entry")

// readEntryRow reads a row whole; row.Cmd is a copy.
func (e *Engine) readEntryRow(id replicaID, index ids.RaftIndex, row *EntryRow) error {
	found, err := e.get(appendEntryKey(nil, id.Shard, id.Replica, index), func(v []byte) error {
		err := row.decode(index, v)
		row.Cmd = append([]byte(nil), row.Cmd...)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: row of shard %d replica %d index %d", ErrNoEntry, id.Shard, id.Replica, index)
	}
	return err
}

// loadShard reads hard state, start point and the last entry of a replica. found is false when none of them exists.
func (e *Engine) loadShard(id replicaID) (sh *shard, tip LogState, found bool, err error) {
	sh = &shard{id: id}
	hasState, err := e.get(appendReplicaKey(nil, rowState, id.Shard, id.Replica), func(v []byte) (err error) {
		sh.hard, err = decodeStateRow(v)
		return err
	})
	if err != nil {
		return nil, tip, false, err
	}
	hasStart, err := e.get(appendReplicaKey(nil, rowStart, id.Shard, id.Replica), func(v []byte) (err error) {
		sh.start, err = decodeStartPoint(v)
		return err
	})
	if err != nil {
		return nil, tip, false, err
	}
	last, hasLast, err := e.lastEntryRow(id)
	if err != nil {
		return nil, tip, false, err
	}
	// A snapshot may have been stored without the state that came with it, by a save in several commits. What it holds is committed.
	sh.hard.Commit = max(sh.hard.Commit, uint64(sh.start.Index))
	sh.last, sh.lastTerm, tip = sh.start.Index, sh.start.Term, sh.start.LogState
	if hasLast && last.Index > sh.start.Index {
		sh.last, sh.lastTerm, tip = last.Index, last.Term, last.LogState
	}
	return sh, tip, hasState || hasStart || hasLast, nil
}

func (e *Engine) lastEntryRow(id replicaID) (row EntryRow, found bool, err error) {
	it, err := e.newIter(replicaEntryBounds(id.Shard, id.Replica))
	if err != nil {
		return row, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return row, false, it.Error()
	}
	_, _, index, err := parseEntryKey(it.Key())
	if err != nil {
		return row, false, err
	}
	v, err := it.ValueAndErr()
	if err == nil {
		err = row.decode(index, v)
	}
	row.Cmd = nil
	return row, err == nil, err
}
