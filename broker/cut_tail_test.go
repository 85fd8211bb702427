package broker

import (
	"slices"
	"testing"
	"time"

	"cairn/broker/controller"

	"github.com/twmb/franz-go/pkg/kgo"
)

// loseTail has broker 1 acknowledge records [10, 15) alone, with acks=1, and another one lead afterwards. It returns their range.
func (c *deafCluster) loseTail(t *testing.T) controller.LostRange {
	t.Helper()
	cl := c.client(t)
	mustProduce(t, cl, "t", 0, 10)
	cl.Close()
	c.await(t, "in sync", "t", whole)
	before := c.partition("t")
	if before.Leader != 1 {
		t.Fatalf("broker %d leads", before.Leader)
	}
	for id := 2; id <= len(c.brokers); id++ {
		c.deaf[id].Store(true)
	}
	cl = c.client(t, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	mustProduce(t, cl, "t", 10, 15)
	cl.Close()
	c.stop(t, 1)
	for id := range c.deaf {
		c.deaf[id].Store(false)
	}
	c.await(t, "failed over", "t", func(img *controller.Image, p *controller.Partition) bool { return img.Leader(p) > 1 })
	cl = c.client(t)
	mustProduce(t, cl, "t", 10, 13)
	cl.Close()
	if p := c.partition("t"); p.Shard != before.Shard {
		t.Fatalf("a generation move to %+v, where Raft should elect", p)
	}
	return controller.LostRange{LeaderEpoch: before.LeaderEpoch, From: 10, To: 15}
}

func (c *deafCluster) awaitLoss(t *testing.T, lost controller.LostRange, dropped bool) {
	t.Helper()
	c.await(t, "reported", "t", func(img *controller.Image, _ *controller.Partition) bool {
		return slices.ContainsFunc(img.Losses, func(l controller.Loss) bool {
			return l.LostRange == lost && l.Holder == 1 && !l.Estimated && l.Cause == controller.CauseDivergent && l.DroppedMs > 0 == dropped
		}) && len(img.Losses) == 1
	})
}

// TestTailCutInsideAGenerationIsReported: a tail that was acknowledged with acks=1 and that Raft cuts after an ordinary failover
// is quarantined and reported as one that a generation move cuts.
func TestTailCutInsideAGenerationIsReported(t *testing.T) {
	c := startDeaf(t, 3, "1", time.Minute)
	defer c.close(t)
	lost := c.loseTail(t)
	c.start(t, 1)
	awaitReady(t, c.brokers[0])
	c.awaitLoss(t, lost, false)
	p, err := c.brokers[0].broker.replicas.lookup("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := quarantinedRanges(p.log())
	if err != nil || !slices.Equal(kept, []controller.LostRange{lost}) {
		t.Errorf("in quarantine: %v, %v", kept, err)
	}
	reader := c.client(t)
	mustConsume(t, reader, "t", 13)
	reader.Close()
}

// TestLossesOfAMovedReplicaSayThatNothingIsLeft: the quarantine goes with the data of a replica that is moved away.
func TestLossesOfAMovedReplicaSayThatNothingIsLeft(t *testing.T) {
	c := startDeaf(t, 4, "1", time.Minute)
	defer c.close(t)
	lost := c.loseTail(t)
	c.start(t, 1)
	awaitReady(t, c.brokers[0])
	c.awaitLoss(t, lost, false)
	c.await(t, "returned", "t", whole)
	c.reassign(t, 2, 3, 4)
	c.awaitLoss(t, lost, true)
	awaitTrue(t, func() bool {
		_, found, err := c.brokers[0].engine.Stored(c.partition("t").ID)
		if err != nil {
			t.Fatal(err)
		}
		return !found
	})
}
