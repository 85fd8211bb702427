package raftgroup

import (
	"testing"
	"time"

	"cairn/internal/ids"
)

func TestHighWatermarkReachesFollowersAtOnce(t *testing.T) {
	c := newCluster(t)
	g := threeWay(1, c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{}))
	w := g[0].lead(t)
	w.write(3, 100)
	w.settled()
	for _, m := range g[1:] {
		eventually(t, "the follower has answered", func() bool { return g[0].rec.progressOf(m.Self()) == g[0].Log().LastIndex() })
	}
	start := time.Now()
	g[0].ShowHighWatermark(2)
	g[0].ShowHighWatermark(1) // does not take it back
	for _, m := range g[1:] {
		eventually(t, "the follower hears of it", func() bool { return m.rec.heardOf() == 2 })
	}
	// A heartbeat would take up to 500 ms.
	if d := time.Since(start); d > 250*time.Millisecond {
		t.Errorf("heard after %v", d)
	}
	if h := g[0].rec.heardOf(); h != 0 {
		t.Errorf("the leader heard %d of itself", h)
	}
}

func TestHighWatermarkTravelsWithHeartbeatsWhenItsOwnFrameIsLost(t *testing.T) {
	c := newCluster(t)
	opts := nodeOptions{host: func(cfg *Config) {
		cfg.Faults.DropMessage = func(_ ids.ShardID, _, _ ids.ReplicaID, kind string) bool { return kind == "HighWatermark" }
	}}
	g := threeWay(1, c.start(1, opts), c.start(2, opts), c.start(3, opts))
	w := g[0].lead(t)
	w.write(3, 100)
	w.settled()
	g[0].ShowHighWatermark(3)
	for _, m := range g[1:] {
		eventually(t, "the follower hears of it", func() bool { return m.rec.heardOf() == 3 })
	}
}

func TestAFollowerTellsNobodyOfAHighWatermark(t *testing.T) {
	c := newCluster(t)
	g := threeWay(1, c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{}))
	w := g[0].lead(t)
	w.write(1, 100)
	w.settled()
	g[1].ShowHighWatermark(1)
	g[0].ShowHighWatermark(1)
	eventually(t, "replica 3 hears of the leader's", func() bool { return g[2].rec.heardOf() == 1 })
	g[1].host().marks.mu.Lock()
	defer g[1].host().marks.mu.Unlock()
	if n := len(g[1].host().marks.senders); n != 0 {
		t.Errorf("the follower has %d senders", n)
	}
}

func (m *member) host() *Host { return m.node.host }
