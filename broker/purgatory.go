package broker

import (
	"container/heap"
	"sync"
	"time"

	"cairn/internal/clock"
)

const (
	// defaultMaxWaiting bounds the parked requests of a broker when the config names no number.
	defaultMaxWaiting = 1 << 18
	// defaultPurgatoryWorkers is how many goroutines complete woken fetches.
	defaultPurgatoryWorkers = 4
)

// parked is a request that waits in the purgatory: for offsets of partitions by its watches, and for its deadline by
// its alarm. Both methods are called without locks held, from any goroutine, must not block, and may come in any
// order and after the request is answered: answering exactly once is the request's own business.
type parked interface {
	// woken tells that what w waited for has come, or that it never will.
	woken(w *watch, cause wakeCause)
	// outlivesReign reports whether it goes on waiting when this broker leads on in the next generation.
	outlivesReign() bool
	// expired tells that the deadline has passed, or that the broker stops.
	expired()
}

// alarm is the deadline of one parked request. Its fields are guarded by purgatory.mu.
type alarm struct {
	op       parked
	deadline time.Time
	position int // in purgatory.alarms plus one; 0: not in it
}

// purgatory holds the requests that wait: an object each, no goroutine. Partitions wake them through their watch
// lists, and one timer goroutine wakes those whose deadline has come. Requests whose completion takes work (fetches,
// which read the log) are completed by a few workers, so that the Raft workers that wake them are not held up.
//
// Invariant: the queue for the workers is no longer than the number of parked requests, as each is queued at most
// once; so the bound on those is the bound on everything here.
type purgatory struct {
	maxWaiting int
	wake       chan struct{} // capacity 1: the earliest deadline changed, or closed
	running    sync.WaitGroup

	mu     sync.Mutex
	jobs   sync.Cond
	alarms alarmHeap // guarded by mu
	queue  []func()  // guarded by mu
	closed bool      // guarded by mu
}

// purgatoryConfig sizes a purgatory; zero fields take the defaults.
type purgatoryConfig struct {
	MaxWaiting int // parked requests at most
	Workers    int // goroutines that complete woken fetches
}

func newPurgatory(cfg purgatoryConfig) *purgatory {
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = defaultMaxWaiting
	}
	if cfg.Workers <= 0 {
		cfg.Workers = defaultPurgatoryWorkers
	}
	p := &purgatory{maxWaiting: cfg.MaxWaiting, wake: make(chan struct{}, 1)}
	p.jobs.L = &p.mu
	p.running.Go(p.runTimer)
	for range cfg.Workers {
		p.running.Go(p.runWorker)
	}
	return p
}

// enter parks op until leave or its deadline. False: the purgatory is full or closed, and op is not parked.
func (p *purgatory) enter(a *alarm, op parked, deadline time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.alarms) >= p.maxWaiting {
		return false
	}
	a.op, a.deadline = op, deadline
	heap.Push(&p.alarms, a)
	if a.position == 1 {
		signal(p.wake)
	}
	return true
}

// leave takes a parked request out; without effect on one that is not parked.
func (p *purgatory) leave(a *alarm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.position > 0 {
		heap.Remove(&p.alarms, a.position-1)
	}
}

// submit has a worker run the completion of a request that is or was parked.
func (p *purgatory) submit(job func()) {
	p.mu.Lock()
	p.queue = append(p.queue, job)
	p.mu.Unlock()
	p.jobs.Signal()
}

// waiting is the number of parked requests.
func (p *purgatory) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.alarms)
}

// close expires everything that is parked, lets nothing in any more, and returns when the goroutines have ended.
func (p *purgatory) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	signal(p.wake)
	p.jobs.Broadcast()
	p.running.Wait()
}

func (p *purgatory) runTimer() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, closed := p.takeDue(clock.Now())
		for _, op := range due {
			op.expired()
		}
		if closed {
			return
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// takeDue removes what has expired by now, or everything once closed. next is the time until the earliest deadline left.
func (p *purgatory) takeDue(now time.Time) (due []parked, next time.Duration, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.alarms) > 0 && (p.closed || !p.alarms[0].deadline.After(now)) {
		a := heap.Pop(&p.alarms).(*alarm)
		due = append(due, a.op)
	}
	next = time.Hour
	if len(p.alarms) > 0 {
		next = p.alarms[0].deadline.Sub(now)
	}
	return due, next, p.closed
}

// runWorker runs completions until the purgatory is closed and none is left.
func (p *purgatory) runWorker() {
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.closed {
			p.jobs.Wait()
		}
		if len(p.queue) == 0 {
			p.mu.Unlock()
			return
		}
		job := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		job()
	}
}

// alarmHeap orders alarms by deadline. It implements heap.Interface.
type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i+1, j+1
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.position = len(*h)
}

func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.position = 0
	return a
}
