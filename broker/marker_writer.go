package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"
)

const (
	// markerQueue bounds the markers that wait to be proposed, of all partitions.
	markerQueue = 8192
	// markerWorkers is how many are proposed at a time: that may wait for room in the queue of a partition's group. No more than
	// markersPatient of the workers are with partitions that had none before.
	markerWorkers  = 8
	markersPatient = markerWorkers / 2
	// markerRoom is the wait for room of a partition that had it so far, markerPatience of one that had none.
	markerRoom     = 50 * time.Millisecond
	markerPatience = time.Second
	// markerRepeats bounds those who wait for the same marker.
	markerRepeats = 64
)

// markerTarget is a marker and where it goes. Two that are equal end the same transaction. It is appended in no other reign than that in which it
// was queued: the leader between may have written it, too, and with a transaction.version below 2 it would end the producer's next transaction.
type markerTarget struct {
	topicPartition
	reign  ids.LeaderEpoch
	marker marker
}

// markerJob is a marker that is to be appended, or is in the log and waits for the high watermark.
type markerJob struct {
	target   markerTarget
	deadline time.Time
	done     []func(error) // guarded by the writer's mu
}

// markerLine is what waits for one partition. It is in fresh, in stalled, or with a worker.
type markerLine struct {
	jobs []*markerJob // guarded by the writer's mu
}

// appendMarkerFunc appends a marker as partition.appendMarker does: nil says that done hears once what became of it. room bounds the wait for
// room in the group's queue, timeout all of it.
type appendMarkerFunc func(to markerTarget, room, timeout time.Duration, done func(error)) error

// markerWriter appends the markers of transaction coordinators, this broker's own and others', to partitions led here.
//
// It is fair between partitions: each has a line of its own, one worker at a time, and goes behind the others after each marker. One whose
// group has no room gets a short wait, and from then on only a part of the workers; so however many partitions stand still, the others'
// transactions end. A line holds no more than what is left free of the whole queue.
//
// A marker that is under way already is not appended once more: who asks again waits for the same.
type markerWriter struct {
	append  appendMarkerFunc
	timeout time.Duration
	running sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond                      // something is in fresh or stalled, or closed
	closed  bool                           // guarded by mu
	jobs    map[markerTarget]*markerJob    // guarded by mu; all whose outcome is not known
	lines   map[topicPartition]*markerLine // guarded by mu; those with jobs to propose
	fresh   []*markerLine                  // guarded by mu
	stalled []*markerLine                  // guarded by mu; had no room
	queued  int                            // guarded by mu; jobs in lines
	patient int                            // guarded by mu; workers with lines that were stalled
}

func newMarkerWriter(append appendMarkerFunc, timeout time.Duration) *markerWriter {
	w := &markerWriter{append: append, timeout: timeout, jobs: map[markerTarget]*markerJob{}, lines: map[topicPartition]*markerLine{}}
	w.work.L = &w.mu
	for range markerWorkers {
		w.running.Go(func() {
			for w.serve() {
			}
		})
	}
	return w
}

// close ends the workers, and refuses what is not proposed yet.
func (w *markerWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.work.Broadcast()
	w.running.Wait()
	w.mu.Lock()
	var left []*markerJob
	for _, line := range w.lines {
		left = append(left, line.jobs...)
	}
	clear(w.lines)
	w.mu.Unlock()
	for _, j := range left {
		w.finish(j, errRequestTimedOut)
	}
}

// write queues a marker; done hears once what became of it. It does not block: without room in the queue that is errRequestTimedOut, upon
// which a coordinator tries again.
func (w *markerWriter) write(to markerTarget, done func(error)) {
	if plantedMarker(to, done) {
		return
	}
	if !w.enqueue(to, done) {
		done(errRequestTimedOut)
	}
}

func (w *markerWriter) enqueue(to markerTarget, done func(error)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if j := w.jobs[to]; j != nil {
		if len(j.done) >= markerRepeats {
			return false
		}
		j.done = append(j.done, done)
		return true
	}
	line := w.lines[to.topicPartition]
	if line == nil {
		line = &markerLine{}
	}
	if len(line.jobs) >= markerQueue-w.queued {
		return false
	}
	j := &markerJob{target: to, deadline: clock.Now().Add(w.timeout), done: []func(error){done}}
	w.jobs[to] = j
	line.jobs = append(line.jobs, j)
	w.queued++
	if w.lines[to.topicPartition] == nil {
		w.lines[to.topicPartition] = line
		w.fresh = append(w.fresh, line)
		w.work.Signal()
	}
	return true
}

// next waits for a line that is to be served; nil: the writer is closed.
func (w *markerWriter) next() (line *markerLine, j *markerJob, patient bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.closed:
			return nil, nil, false
		case len(w.stalled) > 0 && w.patient < markersPatient:
			line, w.stalled = w.stalled[0], w.stalled[1:]
			w.patient++
			return line, line.jobs[0], true
		case len(w.fresh) > 0:
			line, w.fresh = w.fresh[0], w.fresh[1:]
			return line, line.jobs[0], false
		}
		w.work.Wait()
	}
}

// serve proposes the first marker of the next line; false: the writer is closed.
func (w *markerWriter) serve() bool {
	line, j, patient := w.next()
	if line == nil {
		return false
	}
	room := markerRoom
	if patient {
		room = markerPatience
	}
	err := error(errRequestTimedOut)
	left := time.Until(j.deadline)
	if left > 0 {
		err = w.append(j.target, min(room, left), left, func(err error) { w.finish(j, err) })
	}
	again := errors.Is(err, errProposeTimeout) && errors.Is(err, context.DeadlineExceeded) && left > room
	w.putBack(line, j, patient, again)
	if err != nil && !again {
		w.finish(j, err)
	}
	return true
}

// putBack puts a line that was served behind the others. With again its first job stays the first, for want of room.
func (w *markerWriter) putBack(line *markerLine, j *markerJob, patient, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if patient {
		w.patient--
	}
	if !again {
		line.jobs = line.jobs[1:]
		w.queued--
	}
	switch {
	case len(line.jobs) == 0:
		delete(w.lines, j.target.topicPartition)
	case again:
		w.stalled = append(w.stalled, line)
	default:
		w.fresh = append(w.fresh, line)
	}
	w.work.Signal()
}

// finish tells all who wait for a marker what became of it.
func (w *markerWriter) finish(j *markerJob, err error) {
	w.mu.Lock()
	done := j.done
	if w.jobs[j.target] == j {
		delete(w.jobs, j.target)
	}
	w.mu.Unlock()
	for _, f := range done {
		f(err)
	}
}
