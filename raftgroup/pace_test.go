package raftgroup

import (
	"sync"
	"testing"
	"time"

	"cairn/internal/ids"
)

// budget of a test: bytes per second, and what was charged.
type paceTest struct {
	mu      sync.Mutex
	rate    float64
	next    time.Time
	charged int
	off     bool
}

func (p *paceTest) pace(_ ids.ReplicaID, bytes int) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		return 0, false
	}
	p.charged += bytes
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(bytes) / p.rate * float64(time.Second)))
	return p.next.Sub(now), true
}

// TestAPacedMemberCatchesUpAtItsPace: while proposals go on, a member far behind gets the log once, and not faster than allowed.
func TestAPacedMemberCatchesUpAtItsPace(t *testing.T) {
	const entries, size = 400, 64 << 10
	c := newCluster(t)
	leader, joiner := c.start(1, nodeOptions{}), c.start(2, nodeOptions{})
	pace := &paceTest{rate: 16 << 20}
	m := leader.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1}, func(cfg *GroupConfig) { cfg.Pace = pace.pace })
	w := m.lead(t)
	w.write(entries, size)
	w.settled()
	begun := time.Now()
	if err := m.AddNonVoting(testContext(t), 2, 2); err != nil {
		t.Fatal(err)
	}
	f := joiner.group(1, 2, nil, joining)
	ctx := testContext(t)
	for f.Log().End() < entries {
		if ctx.Err() != nil {
			t.Fatalf("the member has %d of %d entries", f.Log().End(), entries)
		}
		w.write(1, 500) // dragonboat sends with each proposal
		w.settled()
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(begun)
	eventually(t, "the member has everything", func() bool { return f.Log().End() == m.Log().End() })
	pace.mu.Lock()
	defer pace.mu.Unlock()
	total := entries * size
	if least := time.Duration(float64(total-6<<20) / pace.rate * float64(time.Second)); took < least {
		t.Errorf("%d bytes took %v, less than %v", total, took, least)
	}
	if pace.charged > total+total/4 {
		t.Errorf("%d bytes were sent for %d", pace.charged, total)
	}
	t.Logf("%d bytes took %v, %d were charged", total, took.Round(time.Millisecond), pace.charged)
	sameLog(t, m, f)
}

// TestAPaceThatEndsLetsTheMemberGoOn: what was held back is delivered, and nothing is held any more.
func TestAPaceThatEndsLetsTheMemberGoOn(t *testing.T) {
	c := newCluster(t)
	leader, joiner := c.start(1, nodeOptions{}), c.start(2, nodeOptions{})
	pace := &paceTest{rate: 3 << 20}
	m := leader.group(1, 1, map[ids.ReplicaID]ids.NodeID{1: 1}, func(cfg *GroupConfig) { cfg.Pace = pace.pace })
	w := m.lead(t)
	w.write(300, 64<<10)
	w.settled()
	if err := m.AddNonVoting(testContext(t), 2, 2); err != nil {
		t.Fatal(err)
	}
	f := joiner.group(1, 2, nil, joining)
	eventually(t, "the member has a piece", func() bool { return f.Log().End() > 0 })
	pace.mu.Lock()
	pace.off = true
	pace.mu.Unlock()
	begun := time.Now()
	eventually(t, "the member has everything", func() bool { return f.Log().End() == m.Log().End() })
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("without a pace it took %v", took)
	}
	sameLog(t, m, f)
}
