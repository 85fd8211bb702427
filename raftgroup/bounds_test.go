package raftgroup

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
)

func TestProposalsBlockAtTheByteBoundAndGoOn(t *testing.T) {
	c := newCluster(t)
	a := c.start(1, nodeOptions{host: func(c *Config) { c.GroupInflightBytes, c.TotalInflightBytes = 64<<10, 96<<10 }})
	b := c.start(2, nodeOptions{})
	members := map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2}
	m, follower := a.group(1, 1, members), b.group(1, 2, members)
	w := m.lead(t)
	w.settled()
	if err := follower.Stop(testContext(t)); err != nil { // no quorum: nothing is committed
		t.Fatal(err)
	}
	w.write(6, 10<<10)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.propose(short, w.data(10<<10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("proposal over the bound: %v", err)
	}
	eventually(t, "what is accepted is durable here without a quorum", func() bool { return m.Log().End() == 6 })
	if _, err := m.Propose(testContext(t), w.data(65<<10)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("proposal larger than the bound: %v", err)
	}
	w.ordinal--

	blocked := make(chan error, 1)
	data := w.data(10 << 10)
	go func() {
		_, err := m.Propose(testContext(t), data)
		blocked <- err
	}()
	b.group(1, 2, members)
	if err := <-blocked; err != nil {
		t.Fatalf("blocked proposal after the quorum is back: %v", err)
	}
	w.settled()
	if got := m.Log().End(); got != 7 {
		t.Fatalf("log ends at %d", got)
	}
}

func TestHostBoundIsSharedByGroups(t *testing.T) {
	c := newCluster(t)
	var hold atomic.Bool
	gate := make(chan struct{})
	n := c.start(1, nodeOptions{
		host: func(c *Config) { c.GroupInflightBytes, c.TotalInflightBytes = 60<<10, 80<<10 },
		engine: func(c *engine.Config) {
			c.Faults.SaveDelay = func(ids.ShardID) {
				if hold.Load() {
					<-gate
				}
			}
		},
	})
	one := map[ids.ReplicaID]ids.NodeID{1: 1}
	w1, w2 := n.group(1, 1, one).lead(t), n.group(2, 1, one).lead(t)
	w1.settled()
	w2.settled()
	hold.Store(true)
	w1.write(5, 10<<10)
	w2.write(2, 10<<10)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := w2.propose(short, w2.data(20<<10))
	hold.Store(false)
	close(gate)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("proposal over the host's bound: %v", err)
	}
	w2.write(1, 20<<10)
	w1.settled()
	w2.settled()
	eventually(t, "all bytes are given back", func() bool { return n.host.budget.inUse() == 0 })
}

func TestProposeOnAFollowerOrAStoppedGroup(t *testing.T) {
	c := newCluster(t)
	ms := threeWay(1, c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{}))
	w := ms[0].lead(t)
	w.settled()
	data := w.data(1000)
	if _, err := ms[1].Propose(testContext(t), data); !errors.Is(err, ErrNotLeader) {
		t.Errorf("on a follower: %v", err)
	}
	if _, err := ms[0].Propose(testContext(t), []byte("short")); err == nil {
		t.Error("a proposal without header was taken")
	}
	if err := ms[0].Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := ms[0].Propose(testContext(t), data); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("on a stopped group: %v", err)
	}
	if err := ms[0].Stop(testContext(t)); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestASecondStartLeavesTheRunningGroupAlone(t *testing.T) {
	c := newCluster(t)
	n := c.start(1, nodeOptions{})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	w := m.lead(t)
	_, err := n.host.StartGroup(GroupConfig{Binding: binding(1, 1), Members: map[ids.ReplicaID]ids.NodeID{1: 1}, Events: &recorder{}})
	if err == nil {
		t.Fatal("started twice")
	}
	w.write(3, 1000)
	w.settled()
	if got := m.rec.committedTo(); got != m.Log().LastIndex() || m.Log().End() != 3 {
		t.Fatalf("committed %d of %d, log ends at %d", got, m.Log().LastIndex(), m.Log().End())
	}
}

func TestStopWaitsForTheSaveUnderWay(t *testing.T) {
	c := newCluster(t)
	var hold atomic.Bool
	entered, gate := make(chan struct{}), make(chan struct{})
	n := c.start(1, nodeOptions{engine: func(c *engine.Config) {
		c.Faults.SaveDelay = func(ids.ShardID) {
			if hold.CompareAndSwap(true, false) {
				close(entered)
				<-gate
			}
		}
	}})
	m := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	w := m.lead(t)
	w.settled()
	hold.Store(true)
	w.write(1, 1000)
	<-entered
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := m.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("stop returned %v during a save", err)
	}
	close(gate)
	if err := m.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	again := n.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1})
	if got := again.Log().End(); got != 1 {
		t.Fatalf("log ends at %d after the save that Stop waited for", got)
	}
}

// A follower whose process stands still, while its kernel accepts bytes, costs a bounded amount of memory.
func TestFrozenFollowerCostsBoundedMemory(t *testing.T) {
	const bound, table = 2 << 20, 8 << 20
	c := newCluster(t)
	frost := newFrost()
	small := nodeOptions{
		host:   func(c *Config) { c.MaxSendQueueBytes, c.GroupInflightBytes, c.TotalInflightBytes = bound, 2<<20, 4<<20 },
		engine: func(c *engine.Config) { c.MemTableBytes, c.TailBytes, c.BlockCacheBytes = table, 1<<20, 1<<20 },
	}
	a, b := c.start(1, small), c.start(2, small)
	small.wrap = frost.wrap
	d := c.start(3, small)
	var ws []*writer
	var late []*member
	for p := range 4 { // dragonboat has four queues per peer
		ms := threeWay(p+1, a, b, d)
		w := ms[0].lead(t)
		w.write(2, 1000)
		w.settled()
		for _, m := range ms[1:] {
			sameLog(t, ms[0], m)
		}
		ws, late = append(ws, w), append(late, ms[2])
	}
	rounds, size := 40, 256<<10
	if raceDetector {
		rounds = 10
	}
	load := func(rounds int) {
		for range rounds {
			for _, w := range ws {
				w.write(1, size)
			}
		}
		for _, w := range ws {
			w.settled()
		}
	}
	load(rounds) // memtables and tails are full
	before := liveHeap()
	frost.freeze()
	load(4 * rounds)
	grown := int64(liveHeap()) - int64(before)
	t.Logf("%d MiB written past a frozen follower, live heap grew by %d MiB", 4*len(ws)*rounds*size>>20, grown>>20)
	// Bounded are four queues and what a blocked write took from each (16 MiB); a few memtables come and go. Without a bound all 160 MiB stay.
	if grown > 80<<20 && !raceDetector {
		t.Errorf("live heap grew by %d MiB", grown>>20)
	}
	frost.thaw()
	for i, w := range ws {
		w.write(1, 1000)
		w.settled()
		sameLog(t, w.m, late[i])
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return ms.HeapAlloc
}
