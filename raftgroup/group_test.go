package raftgroup

import (
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
)

func TestSingleReplicaSavesBeforeItCommits(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	var savedTo ids.RaftIndex
	early := 0
	m.rec.mu.Lock()
	m.rec.onSaved = func(e engine.SavedEntry) { savedTo = e.Index }
	m.rec.onCommit = func(i ids.RaftIndex) {
		if i > savedTo {
			early++
		}
	}
	m.rec.mu.Unlock()
	w := m.lead(t)
	w.write(200, 1000)
	w.settled()
	if early > 0 {
		t.Errorf("%d commits came before their save", early)
	}
	if got := m.Log().End(); got != 200 {
		t.Errorf("log ends at %d", got)
	}
	eventually(t, "all is committed", func() bool { return m.rec.committedTo() == m.Log().LastIndex() })
	eventually(t, "nothing is in flight", func() bool { return m.InflightBytes()+m.h.budget.inUse() == 0 })
}

func TestStartToFirstCommitIsQuick(t *testing.T) {
	c := newCluster(t)
	begin := time.Now()
	n := c.start(1, nodeOptions{})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	w := m.lead(t)
	w.write(1, 1000)
	w.settled()
	took := time.Since(begin)
	t.Logf("start to first commit: %v", took)
	if took > 2*time.Second && !raceDetector { // Raft's own timer would take 2 s to 4 s
		t.Errorf("took %v: did not campaign at once", took)
	}
}

func TestRestartKeepsLogAndAppliedPosition(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	w := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1}).lead(t)
	w.write(100, 500)
	w.settled()
	last := w.m.Log().LastIndex()
	n.stop()
	n = c.start(1, nodeOptions{})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	if got := m.Log().LastIndex(); got != last {
		t.Fatalf("last index %d, was %d", got, last)
	}
	w = m.lead(t)
	w.write(10, 500)
	w.settled()
	if got := m.Log().End(); got != 110 {
		t.Fatalf("log ends at %d", got)
	}
}

func TestThreeReplicasHoldTheSameLog(t *testing.T) {
	c := newCluster(t)
	a, b, d := c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{})
	ms := threeWay(1, a, b, d)
	w := ms[0].lead(t)
	w.write(300, 3000)
	w.settled()
	sameLog(t, ms[0], ms[1])
	sameLog(t, ms[0], ms[2])
	last := ms[0].Log().LastIndex()
	for _, r := range []ids.ReplicaID{2, 3} {
		eventually(t, "the leader knows the progress", func() bool { return ms[0].rec.progressOf(r) == last })
	}
	if at := ms[1].rec.progressOf(1) + ms[1].rec.progressOf(3); at != 0 {
		t.Errorf("a follower was told of progress to %d", at)
	}
	eventually(t, "followers commit", func() bool { return ms[1].rec.committedTo() == last && ms[2].rec.committedTo() == last })
}
