package broker

import (
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledState is the image's state of a partition, to be changed by a test.
func ledState(t *testing.T, n *Node, topic string) controller.Partition {
	t.Helper()
	state, ok := n.images.Image().Partition(topic, 0)
	if !ok {
		t.Fatal("no such partition")
	}
	return *state
}

func TestReignEndsWhenTheImageShowsAnotherLeader(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *controller.Partition)
		ends   bool
	}{
		{"the same state", func(*controller.Partition) {}, false},
		{"an older state", func(s *controller.Partition) { s.LeaderEpoch--; s.Leader = ids.NoNode }, false},
		{"a later epoch", func(s *controller.Partition) { s.LeaderEpoch++; s.Leader = 77 }, true},
		{"nobody leads in this epoch any more", func(s *controller.Partition) { s.Leader = ids.NoNode }, true},
		{"a new generation", func(s *controller.Partition) { s.Shard++; s.LeaderEpoch++ }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := startNode(t, t.TempDir())
			defer stopNode(t, n)
			mustTopic(t, n, "t", 1, nil)
			p := awaitLeader(t, n, "t", 0)
			r := p.reign.Load()
			state := ledState(t, n, "t")
			tc.change(&state)
			if p.needsFollow(&state) != tc.ends {
				t.Errorf("needs to follow: %v", !tc.ends)
			}
			if begun := p.follow(&state); begun != nil {
				t.Error("another reign began")
			}
			if ended := r.ctx.Err() != nil; ended != tc.ends {
				t.Errorf("ended: %v", ended)
			}
		})
	}
}

func TestLosingLeadershipFailsWaitingProducers(t *testing.T) {
	c := startDeaf(t, 2, "1", time.Minute)
	defer c.close(t)
	c.deaf[2].Store(true) // nothing commits any more
	created, n := c.id, c.brokers[0]
	raw := dialNode(t, n)
	req := produceReq(9, -1, "t", created, 0, testBatch(t, 1))
	raw.send(req)
	p := awaitLeader(t, n, "t", 0)
	awaitTrue(t, func() bool { return p.watches.len() == 1 })
	term, _ := p.leaderTerm()
	start := time.Now()
	p.LeaderChanged(0, term+1)
	answer := raw.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	wantCode(t, "produce", answer.ErrorCode, kerr.NotLeaderForPartition)
	if d := time.Since(start); d > time.Second {
		t.Errorf("answered after %v", d)
	}
	wantCode(t, "produce afterwards", raw.produce(produceReq(9, -1, "t", created, 0, testBatch(t, 1))).ErrorCode, kerr.NotLeaderForPartition)
	if w := n.broker.purgatory.waiting(); w != 0 {
		t.Errorf("%d requests wait", w)
	}
}

// TestWaitingRequestsCompleteWhenTheFollowerReturns parks many acks=all requests on a partition that does not commit, and sees that
// another partition is served and that they complete once it does.
func TestWaitingRequestsCompleteWhenTheFollowerReturns(t *testing.T) {
	c := startDeaf(t, 2, "1", time.Minute)
	defer c.close(t)
	n := c.brokers[0]
	c.deaf[2].Store(true)
	const conns, perConn = 5, 20
	var clients []*rawClient
	var reqs []*kmsg.ProduceRequest
	for range conns {
		client := dialNode(t, n)
		clients = append(clients, client)
		for range perConn {
			req := produceReq(9, -1, "t", c.id, 0, testBatch(t, 1))
			req.TimeoutMillis = 60_000
			client.send(req)
			reqs = append(reqs, req)
		}
	}
	p := awaitLeader(t, n, "t", 0)
	awaitTrue(t, func() bool { return p.watches.len() == conns*perConn })
	wantCode(t, "acks=1 meanwhile", c.produce(t, 1).ErrorCode, nil)
	c.deaf[2].Store(false)
	seen := map[int64]bool{}
	for i, req := range reqs {
		a := clients[i/perConn].receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if a.ErrorCode != 0 || seen[a.BaseOffset] {
			t.Fatalf("request %d: %+v", i, a)
		}
		seen[a.BaseOffset] = true
	}
}

func TestHighWatermarkIsKeptAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	id := mustTopic(t, n, "t", 1, nil)
	dialNode(t, n).fill("t", id, 0, 50)
	if hw := awaitLeader(t, n, "t", 0).highWatermark(); hw != 100 {
		t.Errorf("high watermark %d", hw)
	}
	stopNode(t, n)
	n = startNode(t, dir)
	defer stopNode(t, n)
	p := awaitLeader(t, n, "t", 0)
	awaitTrue(t, func() bool { return p.highWatermark() == 100 })
	if r := p.reign.Load(); r.start != 100 || r.epoch <= 0 {
		t.Errorf("second reign: start %d epoch %d", r.start, r.epoch)
	}
}
