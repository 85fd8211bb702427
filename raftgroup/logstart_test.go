package raftgroup

import (
	"fmt"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
)

// The log-start entry moves the log start on every replica, and the Raft log of each follows it.
func TestLogStartMovesDataAndRaftLogOnAllReplicas(t *testing.T) {
	c := newCluster(t)
	ms := threeWay(1, c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{}))
	w := ms[0].lead(t)
	w.write(100, 2000)
	w.logStart(60)
	w.write(10, 2000)
	w.settled()
	for _, m := range ms {
		sameLog(t, ms[0], m)
		eventually(t, fmt.Sprintf("the Raft log of replica %d begins at offset 60", m.Self()), func() bool {
			return m.Log().Start() == 60 && m.Log().LogStartPoint().Next == 60
		})
		m.rec.mu.Lock()
		if m.rec.logStart != 60 {
			t.Errorf("replica %d announced log start %d", m.Self(), m.rec.logStart)
		}
		m.rec.mu.Unlock()
	}
}

// A follower that is away while the log start passes its end, and while the others restart, gets a snapshot at the log start and
// the retained log by appends. It is never reported at a position that it does not hold.
func TestFollowerBelowTheLogStartCatchesUp(t *testing.T) {
	c := newCluster(t)
	a, b, d := c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{})
	ms := threeWay(1, a, b, d)
	w := ms[0].lead(t)
	w.write(50, 2000)
	w.settled()
	for _, m := range ms[1:] {
		sameLog(t, ms[0], m)
	}
	d.stop()
	w.write(200, 2000)
	w.logStart(150)
	w.write(50, 2000)
	w.settled()
	for _, m := range ms[:2] {
		eventually(t, "the Raft log begins at the log start", func() bool { return m.Log().LogStartPoint().Next == 150 })
	}
	for _, n := range []*testNode{a, b} { // both, one after the other
		n.stop()
		n = c.start(n.id, nodeOptions{})
		ms[n.id-1] = n.group(1, ids.ReplicaID(n.id), map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3})
	}
	w = ms[0].lead(t)
	w.write(30, 2000)
	w.settled()
	if ms[0].Log().LogStartPoint().Index == 0 {
		t.Fatal("the leader's log begins at index 1: nothing to test")
	}

	d = c.start(3, nodeOptions{})
	truth := &held{}
	behind := watchProgress(ms[0], 3, truth)
	late := &member{rec: &recorder{}, node: d}
	cfg := GroupConfig{Binding: binding(1, 3), Members: map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3}, Events: truth.follow(late.rec)}
	g, err := d.host.StartGroup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	late.Group = g
	w.write(20, 2000)
	w.settled()
	sameLog(t, ms[0], late)
	sameLog(t, ms[1], late)
	if got := late.Log().Start(); got != 150 {
		t.Errorf("late replica's log starts at %d", got)
	}
	if n := behind(); n > 0 {
		t.Errorf("the leader was told %d times of a position that replica 3 had not saved", n)
	}
	eventually(t, "the leader sees it complete", func() bool { return ms[0].rec.progressOf(3) == ms[0].Log().LastIndex() })

	// And once more after a restart of the one that was late.
	d.stop()
	d = c.start(3, nodeOptions{})
	late = d.group(1, 3, map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3})
	w.write(5, 2000)
	w.settled()
	sameLog(t, ms[0], late)
}

// A replica that was away while the others went on and restarted, above the log start, catches up by appends alone.
func TestFollowerAwayDuringRestartsOfTheOthersCatchesUp(t *testing.T) {
	c := newCluster(t)
	a, b, d := c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{})
	ms := threeWay(1, a, b, d)
	w := ms[0].lead(t)
	w.write(50, 2000)
	w.settled()
	d.stop()
	w.write(500, 20000)
	w.settled()
	for _, n := range []*testNode{a, b} {
		n.stop()
		n = c.start(n.id, nodeOptions{})
		ms[n.id-1] = n.group(1, ids.ReplicaID(n.id), map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3})
	}
	w = ms[1].lead(t)
	begin := time.Now()
	d = c.start(3, nodeOptions{})
	late := d.group(1, 3, map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3})
	w.write(1, 2000)
	w.settled()
	sameLog(t, ms[1], late)
	t.Logf("10 MB behind, caught up after %v", time.Since(begin))
	if took := time.Since(begin); took > 5*time.Second && !raceDetector { // one piece of 2 MiB per heartbeat
		t.Errorf("catching up took %v", took)
	}
}

// held is what a replica has really saved, told before its answer can leave.
type held struct {
	recorder
}

func (h *held) follow(r *recorder) Events { return &tee{r, h} }

type tee struct {
	*recorder
	h *held
}

func (e *tee) Saved(s []engine.SavedEntry) { e.h.Saved(s); e.recorder.Saved(s) }

func (e *tee) Truncated(first ids.RaftIndex, next ids.Offset) {
	e.h.Truncated(first, next)
	e.recorder.Truncated(first, next)
}

// watchProgress counts reports of progress that were ahead of what the replica holds.
func watchProgress(leader *member, r ids.ReplicaID, truth *held) func() int {
	leader.rec.mu.Lock()
	defer leader.rec.mu.Unlock()
	ahead := 0
	leader.rec.onProgress = func(from ids.ReplicaID, index ids.RaftIndex) {
		if from != r {
			return
		}
		truth.mu.Lock()
		defer truth.mu.Unlock()
		if index > truth.saved {
			ahead++
		}
	}
	return func() int {
		leader.rec.mu.Lock()
		defer leader.rec.mu.Unlock()
		return ahead
	}
}
