package engine

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// tail keeps the newest entries of one log in memory, for consumers and followers that are nearly caught up. It
// copies nothing: entries share the command that Raft holds, and a batch is read as the patched beginning of its own
// plus the rest of that command. What was handed out stays valid after its entry left the tail; the garbage
// collector frees it.
//
// Invariant: items are consecutive in index, and their offset spans follow each other without a gap.
type tail struct {
	owner *tails

	mu     sync.RWMutex
	items  []*tailItem
	bytes  int64
	member bool // in owner's list
}

type tailItem struct {
	entry pb.Entry // Cmd is shared with Raft: read-only
	kind  EntryKind
	base  ids.Offset
	next  ids.Offset
	head  [batchHeadLen]byte
}

// batchHeadLen is how much of a batch differs from its proposal: base offset and length, and up to the leader epoch
// that the proposal carries in its own place.
const batchHeadLen = 16

// tailItemBytes is what an item costs next to its command.
const tailItemBytes = 160

func (i *tailItem) size() int64 { return int64(len(i.entry.Cmd) + tailItemBytes) }

// tails is what all tails share: one budget, divided evenly among those that hold anything.
//
// Lock order: tails.mu before tail.mu.
type tails struct {
	budget int64
	total  atomic.Int64
	count  atomic.Int64 // members

	mu      sync.Mutex
	members []*tail
}

// fair is how much one tail may hold.
func (t *tails) fair() int64 { return t.budget / max(1, t.count.Load()) }

// append adds saved entries and lets go of the oldest.
func (t *tail) append(entries []pb.Entry, saved []SavedEntry) {
	if len(entries) == 0 || t.owner.budget == 0 {
		return
	}
	items := makeItems(entries, saved)
	t.mu.Lock()
	if n := len(t.items); n > 0 && t.items[n-1].entry.Index+1 != entries[0].Index {
		t.clearLocked()
	}
	joins := !t.member
	t.member = true
	for i := range items {
		t.items = append(t.items, &items[i])
		t.add(items[i].size())
	}
	t.mu.Unlock()
	if joins {
		t.owner.join(t)
	}
	t.trim(t.owner.fair())
	if t.owner.total.Load() > t.owner.budget {
		t.owner.trimAll()
	}
}

// makeItems takes one allocation for all entries of a save.
func makeItems(entries []pb.Entry, saved []SavedEntry) []tailItem {
	items := make([]tailItem, len(entries))
	for i := range items {
		it := &items[i]
		it.entry, it.kind, it.base, it.next = entries[i], saved[i].Kind, saved[i].Base, saved[i].Next
		if it.kind == KindData {
			copy(it.head[:], it.entry.Cmd[1:])
			patchBatch(it.head[:], it.base, len(it.entry.Cmd)-1)
		}
	}
	return items
}

func (t *tail) add(n int64) {
	t.bytes += n
	t.owner.total.Add(n)
}

// trim lets go of the oldest items until no more than limit bytes are held.
func (t *tail) trim(limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for ; n < len(t.items) && t.bytes > limit; n++ {
		t.add(-t.items[n].size())
		t.items[n].entry.Cmd = nil // the array of items may live on for a younger one
		t.items[n] = nil
	}
	t.items = t.items[n:] // append moves what is left now and then, so that the front is freed
}

// dropTo lets go of the items up to the one that holds the offset.
func (t *tail) dropTo(o ids.Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for ; n < len(t.items) && t.items[n].base <= o; n++ {
		t.add(-t.items[n].size())
		t.items[n].entry.Cmd = nil
		t.items[n] = nil
	}
	t.items = t.items[n:]
}

// truncate drops the entries from first on.
func (t *tail) truncate(first ids.RaftIndex) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.items)
	for n > 0 && t.items[n-1].entry.Index >= uint64(first) {
		n--
		t.add(-t.items[n].size())
	}
	clear(t.items[n:])
	t.items = t.items[:n]
}

func (t *tail) clearLocked() {
	t.add(-t.bytes)
	t.items = nil
}

func (t *tail) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clearLocked()
}

// from appends the batches that hold offsets from o on to r, within its limits. It returns false, and appends
// nothing, when the tail begins behind o.
func (t *tail) from(o ids.Offset, r *collector) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.items) == 0 || t.items[0].base > o {
		return false
	}
	at := sort.Search(len(t.items), func(i int) bool { return t.items[i].next > o })
	expected := min(len(t.items)-at, 1+r.o.MaxBytes*len(t.items)/int(max(1, t.bytes)))
	r.r.Parts = slices.Grow(r.r.Parts, 2*max(0, expected))
	for _, it := range t.items[at:] {
		if it.kind != KindData {
			continue
		}
		if !r.fits(len(it.entry.Cmd)-1, it.next) {
			break
		}
		r.take(it.base, it.next, it.head[:], it.entry.Cmd[1+batchHeadLen:])
	}
	return true
}

// firstBase is the offset from which on the tail holds everything; end when it holds nothing.
func (t *tail) firstBase(end ids.Offset) ids.Offset {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.items) == 0 {
		return end
	}
	return t.items[0].base
}

// entries appends the Raft entries from index low on, below high, to r. It returns false, and appends nothing, when
// the tail begins behind low.
func (t *tail) entries(low, high ids.RaftIndex, r *entryCollector) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.items) == 0 || t.items[0].entry.Index > uint64(low) {
		return false
	}
	at := uint64(low) - t.items[0].entry.Index
	for ; at < uint64(len(t.items)) && t.items[at].entry.Index < uint64(high); at++ {
		if !r.take(t.items[at].entry) {
			break
		}
	}
	return true
}

func (t *tails) join(member *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.members = append(t.members, member)
	t.count.Store(int64(len(t.members)))
}

// remove forgets a tail that will not be appended to again.
func (t *tails) remove(member *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	member.clear()
	t.members = slices.DeleteFunc(t.members, func(m *tail) bool { return m == member })
	t.count.Store(int64(len(t.members)))
}

// trimAll makes every tail give back what it took when fewer shared the budget. Afterwards all are within it, so
// this runs seldom.
func (t *tails) trimAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fair := t.fair()
	for _, m := range t.members {
		m.trim(fair)
	}
}
