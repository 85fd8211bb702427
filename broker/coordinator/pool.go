package coordinator

import (
	"container/heap"
	"sync"
	"time"
)

// task is what the pool runs: a shard.
type task interface {
	turn()
	clock() *timerPlace
	schedule()
}

// timerPlace is a task's place in the pool's timers; guarded by pool.mu.
type timerPlace struct {
	at       time.Time
	position int // in the heap plus one; 0: not in it
}

// pool runs the turns of shards on a few goroutines, and wakes them when a time has come. A shard is queued at most once,
// so the queue is no longer than the number of shards.
type pool struct {
	now     func() time.Time
	wake    chan struct{} // capacity 1: the earliest time changed, or closed
	running sync.WaitGroup

	mu     sync.Mutex
	jobs   sync.Cond
	queue  []task   // guarded by mu
	timers taskHeap // guarded by mu
	closed bool     // guarded by mu
}

func newPool(workers int, now func() time.Time) *pool {
	p := &pool{now: now, wake: make(chan struct{}, 1)}
	p.jobs.L = &p.mu
	p.running.Go(p.runTimer)
	for range workers {
		p.running.Go(p.runWorker)
	}
	return p
}

// push queues a task. What is pushed after close has ended is not run.
func (p *pool) push(t task) {
	p.mu.Lock()
	p.queue = append(p.queue, t)
	p.mu.Unlock()
	p.jobs.Signal()
}

// at has t scheduled at that time, instead of any before; zero: not at all.
func (p *pool) at(t task, when time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := t.clock()
	if when.Equal(pl.at) && (pl.position > 0) == !when.IsZero() {
		return
	}
	if pl.position > 0 {
		heap.Remove(&p.timers, pl.position-1)
	}
	pl.at = when
	if when.IsZero() || p.closed {
		return
	}
	heap.Push(&p.timers, t)
	if pl.position == 1 {
		p.poke()
	}
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close ends the goroutines once the queue is empty, and waits for them.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.poke()
	p.jobs.Broadcast()
	p.running.Wait()
}

func (p *pool) runWorker() {
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.closed {
			p.jobs.Wait()
		}
		if len(p.queue) == 0 {
			p.mu.Unlock()
			return
		}
		t := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		t.turn()
	}
}

func (p *pool) runTimer() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next, closed := p.takeDue()
		for _, t := range due {
			t.schedule()
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

// takeDue removes the tasks whose time has come. next is the time until the earliest one left.
func (p *pool) takeDue() (due []task, next time.Duration, closed bool) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.timers) > 0 && !p.timers[0].clock().at.After(now) {
		t := heap.Pop(&p.timers).(task)
		t.clock().at = time.Time{}
		due = append(due, t)
	}
	next = time.Hour
	if len(p.timers) > 0 {
		next = p.timers[0].clock().at.Sub(now)
	}
	return due, next, p.closed
}

// taskHeap orders tasks by their times. It implements heap.Interface.
type taskHeap []task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].clock().at.Before(h[j].clock().at) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].clock().position, h[j].clock().position = i+1, j+1
}

func (h *taskHeap) Push(x any) {
	t := x.(task)
	*h = append(*h, t)
	t.clock().position = len(*h)
}

func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.clock().position = 0
	return t
}
