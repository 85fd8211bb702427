package broker

import (
	"sync/atomic"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestNoPartitionStartsOnOldMetadata is rule 12 of the design: a broker that comes back and knows the metadata of before a generation
// move starts no group of the generation that is over, however long the news take.
func TestNoPartitionStartsOnOldMetadata(t *testing.T) {
	var held atomic.Bool // broker 2 hears nothing of the metadata group
	c := &testCluster{faults: func(id int) raftgroup.Faults {
		return raftgroup.Faults{DropMessage: func(shard ids.ShardID, _, _ ids.ReplicaID, _ string) bool {
			return id == 2 && shard == ids.MetadataShard && held.Load()
		}}
	}}
	c.run(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 10)
	cl.Close()
	c.await(t, "in sync", "t", whole)
	old := c.partition("t")
	c.stop(t, 2)
	c.stop(t, 3)
	c.await(t, "next generation", "t", func(img *controller.Image, p *controller.Partition) bool {
		return p.Generation > old.Generation && img.Leader(p) == 1
	})
	before := c.controller.images.Image().Brokers[2].Epoch
	held.Store(true)
	c.start(t, 2)
	c.await(t, "registered", "t", func(img *controller.Image, _ *controller.Partition) bool { return img.Brokers[2].Epoch > before })
	two := c.brokers[1]
	known := eventually(t, func() *controller.Partition { // from its own disk
		p, _ := two.images.Image().Partition("t", 0)
		return p
	})
	if known.Generation != old.Generation {
		t.Fatalf("broker 2 knows %+v", known)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 50 { // nothing tells that it goes on waiting
		<-tick.C
		if bound, ok := two.engine.Log(old.ID); ok {
			t.Fatalf("%+v was started", bound.Binding())
		}
	}
	held.Store(false)
	awaitReady(t, two)
	c.start(t, 3)
	c.await(t, "all returned", "t", whole)
	if l := c.controller.images.Image().Losses; len(l) != 0 {
		t.Errorf("losses %v", l)
	}
}
