package broker

import (
	"container/heap"
	"sync"

	"cairn/internal/ids"
)

// wakeCause says why a watch fired.
type wakeCause uint8

const (
	// wakeReached: the high watermark is at or above the watch's threshold.
	wakeReached wakeCause = iota
	// wakeLost: the partition is not led here any more, or is gone, so the threshold may never be reached.
	wakeLost
)

// watch waits for the high watermark of one partition to reach threshold. It lives inside its request, so waiting
// allocates nothing but a place in the list. position is guarded by the list's mu, the rest is set before add.
type watch struct {
	op        parked
	slot      int // the request's own number of the partition
	threshold ids.Offset
	position  int // in watchList.watches plus one; 0: not in it
	// heir and heirReign have taken the watch over from the generation before; nil: nobody. Set before the watch fires.
	heir      *partition
	heirReign *reign
}

// watchList is what waits for one partition: the keyed half of the purgatory. It is open during one reign of the local
// leader, so that nothing that was appended in one reign waits for the high watermark of another, in which other
// records may stand at the same offsets.
type watchList struct {
	mu      sync.Mutex
	reign   *reign     // guarded by mu; nil: closed
	reached ids.Offset // guarded by mu; the highest high watermark heard of
	watches watchHeap  // guarded by mu
	held    bool       // guarded by mu; closed, but its watches wait for the reign that goes on with the same log
}

// watchAdded is what became of an added watch.
type watchAdded uint8

const (
	watchParked  watchAdded = iota // it will be woken, once
	watchReached                   // the threshold is reached already; it is not in the list
	watchClosed                    // that reign is over; the watch is not in the list
)

// open begins the reign r of p, at high watermark hw. What was held goes on in it. It returns what the caller wakes: what is
// left of another reign, as lost, and what hw has reached.
func (l *watchList) open(p *partition, r *reign, hw ids.Offset) (lost, reached []*watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign, l.reached = r, max(hw, l.reached)
	if !l.held {
		return l.takeLocked(), nil
	}
	l.held = false
	for _, w := range l.watches {
		w.heir, w.heirReign = p, r
	}
	return nil, l.reachedLocked(l.reached)
}

// hold ends the reign r and keeps what can wait for one that goes on with the same log; the rest is woken as lost.
func (l *watchList) hold(r *reign) {
	l.mu.Lock()
	if l.reign != r {
		l.mu.Unlock()
		return
	}
	l.reign, l.held = nil, true
	var lost []*watch
	for _, w := range l.takeLocked() {
		if w.op.outlivesReign() {
			heap.Push(&l.watches, w)
		} else {
			lost = append(lost, w)
		}
	}
	l.mu.Unlock()
	wakeAll(lost, wakeLost)
}

// holds reports whether watches wait for the reign that goes on with the same log.
func (l *watchList) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// abandon wakes what was held as lost: no reign goes on here.
func (l *watchList) abandon() {
	l.mu.Lock()
	if !l.held {
		l.mu.Unlock()
		return
	}
	l.held = false
	lost := l.takeLocked()
	l.mu.Unlock()
	wakeAll(lost, wakeLost)
}

// add puts w into the list while the reign r lasts.
func (l *watchList) add(w *watch, r *reign) watchAdded {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.reign != r:
		return watchClosed
	case w.threshold <= l.reached:
		return watchReached
	}
	heap.Push(&l.watches, w)
	return watchParked
}

// remove takes w out; without effect when it is not in the list.
func (l *watchList) remove(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.position > 0 {
		heap.Remove(&l.watches, w.position-1)
	}
}

// reach wakes all watches with a threshold of at most hw.
func (l *watchList) reach(hw ids.Offset) {
	l.mu.Lock()
	var due []*watch
	if !l.held { // what the old generation heard late is not what the next one holds
		l.reached = max(hw, l.reached)
		due = l.reachedLocked(hw)
	}
	l.mu.Unlock()
	wakeAll(due, wakeReached)
}

func (l *watchList) reachedLocked(hw ids.Offset) (due []*watch) {
	for len(l.watches) > 0 && l.watches[0].threshold <= hw {
		due = append(due, heap.Pop(&l.watches).(*watch))
	}
	return due
}

// close ends the reign r, unless another has begun: everything in the list is woken as lost.
func (l *watchList) close(r *reign) {
	l.mu.Lock()
	if l.reign != r {
		l.mu.Unlock()
		return
	}
	l.reign = nil
	lost := l.takeLocked()
	l.mu.Unlock()
	wakeAll(lost, wakeLost)
}

func (l *watchList) takeLocked() []*watch {
	taken := l.watches
	l.watches = nil
	for _, w := range taken {
		w.position = 0
	}
	return taken
}

func wakeAll(ws []*watch, cause wakeCause) {
	for _, w := range ws {
		w.op.woken(w, cause)
	}
}

// len is the number of watches in the list.
func (l *watchList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watches)
}

// watchHeap orders watches by threshold. Appends come with rising thresholds, so a push mostly stays where it is. It
// implements heap.Interface.
type watchHeap []*watch

func (h watchHeap) Len() int           { return len(h) }
func (h watchHeap) Less(i, j int) bool { return h[i].threshold < h[j].threshold }
func (h watchHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i+1, j+1
}

func (h *watchHeap) Push(x any) {
	w := x.(*watch)
	*h = append(*h, w)
	w.position = len(*h)
}

func (h *watchHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.position = 0
	return w
}
