package broker

import (
	"context"
	"sync"
	"time"

	"cairn/internal/ids"
)

// caughtUpWait is how long a hand-over waits for a follower that has the whole log, before it takes any.
const caughtUpWait = 300 * time.Millisecond

// followers is what the leader of a term knows of the others: up to where they have said to hold the log durably.
type followers struct {
	mu      sync.Mutex
	term    ids.Term                        // guarded by mu
	acked   map[ids.ReplicaID]ids.RaftIndex // guarded by mu; in term, since the replica's broker was last seen dead
	changed chan struct{}                   // guarded by mu; closed at the next change; nil while nobody waits
}

// note takes an answer. What belongs to an earlier term does not count.
func (f *followers) note(from ids.ReplicaID, index ids.RaftIndex, term ids.Term) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case term < f.term:
		return
	case term > f.term || f.acked == nil:
		f.term, f.acked = term, map[ids.ReplicaID]ids.RaftIndex{}
	}
	f.acked[from] = max(f.acked[from], index)
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// answers are the positions that followers have told in term.
func (f *followers) answers(term ids.Term) []ack {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term != term {
		return nil
	}
	list := make([]ack, 0, len(f.acked))
	for r, index := range f.acked {
		list = append(list, ack{replica: r, index: index})
	}
	return list
}

// forget drops what a replica had answered before its broker died.
func (f *followers) forget(r ids.ReplicaID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.acked, r)
}

// awaitCaughtUp returns the first of the candidates that holds the log up to index in term. If none does within
// caughtUpWait, it is the one that holds most.
func (f *followers) awaitCaughtUp(ctx context.Context, candidates []ids.ReplicaID, term ids.Term, index ids.RaftIndex) ids.ReplicaID {
	ctx, cancel := context.WithTimeout(ctx, caughtUpWait)
	defer cancel()
	for {
		best, acked, changed := f.best(candidates, term)
		if acked >= index {
			return best
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return best
		}
	}
}

// catchesUp reports whether the replica holds the log up to index in term, or does within caughtUpWait.
func (f *followers) catchesUp(ctx context.Context, r ids.ReplicaID, term ids.Term, index ids.RaftIndex) bool {
	f.awaitCaughtUp(ctx, []ids.ReplicaID{r}, term, index)
	_, acked, _ := f.best([]ids.ReplicaID{r}, term)
	return acked >= index
}

func (f *followers) best(candidates []ids.ReplicaID, term ids.Term) (best ids.ReplicaID, acked ids.RaftIndex, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	best = candidates[0]
	if f.term != term {
		return best, 0, f.changed
	}
	for _, r := range candidates {
		if f.acked[r] > acked {
			best, acked = r, f.acked[r]
		}
	}
	return best, acked, f.changed
}
