package group

import (
	"container/heap"
	"time"
)

// timer is when a group is to be looked at next, and its place in the heap.
type timer struct {
	at       time.Time
	position int // in the heap plus one; 0: not in it
}

// timerHeap is the groups that have a deadline, the earliest first. A group's entry may be earlier than its deadline, as
// when a heartbeat has moved that: the group is looked at and put back then. So a heartbeat costs nothing here.
type timerHeap []*group

// due takes out the first group whose time has come; nil: none has.
func (h *timerHeap) due(now time.Time) *group {
	if len(*h) == 0 || (*h)[0].timer.at.After(now) {
		return nil
	}
	return heap.Pop(h).(*group)
}

// first is the earliest time; zero: none.
func (h timerHeap) first() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].timer.at
}

// wakeAt has the group looked at no later than at; a zero time changes nothing.
func (m *Machine) wakeAt(g *group, at time.Time) {
	switch {
	case at.IsZero() || !m.leading:
	case g.timer.position == 0:
		g.timer.at = at
		heap.Push(&m.timers, g)
	case at.Before(g.timer.at):
		g.timer.at = at
		heap.Fix(&m.timers, g.timer.position-1)
	}
}

// forget takes the group out of the heap.
func (m *Machine) forget(g *group) {
	if g.timer.position > 0 {
		heap.Remove(&m.timers, g.timer.position-1)
	}
}

// earliest is the earliest of the times that are not zero.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].timer.at.Before(h[j].timer.at) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer.position, h[j].timer.position = i+1, j+1
}

// Push appends a group.
func (h *timerHeap) Push(x any) {
	g := x.(*group)
	*h = append(*h, g)
	g.timer.position = len(*h)
}

// Pop removes the last group.
func (h *timerHeap) Pop() any {
	old := *h
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	g.timer = timer{}
	return g
}
