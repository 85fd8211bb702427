package broker

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *testCluster) partition(topic string) *controller.Partition {
	p, _ := c.controller.images.Image().Partition(topic, 0)
	return p
}

func (c *testCluster) await(t *testing.T, what, topic string, ok func(*controller.Image, *controller.Partition) bool) {
	t.Helper()
	err := awaitImage(testContext(t), c.controller.images, func(img *controller.Image) bool {
		p, found := img.Partition(topic, 0)
		return found && ok(img, p)
	})
	if err != nil {
		t.Fatalf("%s: %v: %+v", what, err, c.partition(topic))
	}
}

// whole: all replicas are in sync and vote.
func whole(_ *controller.Image, p *controller.Partition) bool {
	return len(p.InSync) == len(p.Replicas) && len(p.Voters) == len(p.Replicas) && len(p.FormerVoters) == 0
}

func TestLastReplicaGoesOnAndTheOthersReturn(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 10)
	c.await(t, "in sync", "t", whole)
	for round := range 2 {
		before := c.partition("t")
		last := before.Replicas[(round+1)%3]
		for id := 1; id <= 3; id++ {
			if ids.NodeID(id) != last {
				c.stop(t, id)
			}
		}
		c.await(t, "the last one leads", "t", func(img *controller.Image, p *controller.Partition) bool { return img.Leader(p) == last })
		fresh := c.client(t)
		mustProduce(t, fresh, "t", 10+20*round, 30+20*round)
		fresh.Close()
		after := c.partition("t")
		if after.Generation <= before.Generation || after.Shard == before.Shard || after.LeaderEpoch <= before.LeaderEpoch {
			t.Errorf("generation %d shard %d epoch %d after %d, %d, %d", after.Generation, after.Shard, after.LeaderEpoch,
				before.Generation, before.Shard, before.LeaderEpoch)
		}
		for id := 1; id <= 3; id++ {
			if ids.NodeID(id) != last {
				c.start(t, id)
				awaitReady(t, c.brokers[id-1])
			}
		}
		c.await(t, "all returned", "t", whole)
	}
	cl.Close()
	reader := c.client(t)
	mustConsume(t, reader, "t", 50)
	reader.Close()
	if l := c.controller.images.Image().Losses; len(l) != 0 {
		t.Errorf("losses %v", l)
	}
	// Whoever leads next has all of it.
	for i := range c.brokers {
		p, err := c.brokers[i].broker.replicas.lookup("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		if end := p.log().End(); end != 50 {
			t.Errorf("log of broker %d ends at %d", i+1, end)
		}
	}
}

func TestReplicaWithoutItsDataCopiesThePrefix(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 300<<10) // a few prefixes of it
	for range 10 {
		if err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: "t", Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cl.Close()
	c.await(t, "in sync", "t", whole)
	last := int(c.partition("t").Replicas[0])
	wiped := last%3 + 1
	for id := 1; id <= 3; id++ {
		if id != last {
			c.stop(t, id)
		}
	}
	c.await(t, "the last one leads", "t", func(img *controller.Image, p *controller.Partition) bool {
		return img.Leader(p) == ids.NodeID(last) && p.Generation > 0
	})
	c.dirs[wiped-1] = t.TempDir()
	for id := 1; id <= 3; id++ {
		if id != last {
			c.start(t, id)
			awaitReady(t, c.brokers[id-1])
		}
	}
	c.await(t, "all returned", "t", whole)
	p, err := c.brokers[wiped-1].broker.replicas.lookup("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := p.log().ScanBatches(0, func(ids.Offset, []byte) bool { n++; return true }); err != nil || n != 10 || p.log().End() != 10 {
		t.Errorf("%d batches, end %d: %v", n, p.log().End(), err)
	}
}

// TestGenerationWaitsForALateSave is rule 9 of the design: a save of the old group that is under way when the controller moves on
// lands before the next generation looks where the log ends.
func TestGenerationWaitsForALateSave(t *testing.T) {
	var held atomic.Uint64 // the shard whose saves wait on broker 1
	entered, gate := make(chan struct{}, 1), make(chan struct{})
	c := &testCluster{engineFaults: func(id int) engine.Faults {
		return engine.Faults{SaveDelay: func(shard ids.ShardID) {
			if id == 1 && held.Load() == uint64(shard) {
				signal(entered)
				<-gate
			}
		}}
	}}
	c.run(t, 3)
	defer c.close(t)
	cl := c.client(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", -1, -1
	topic.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 2, 3}}}
	req.Topics = append(req.Topics, topic)
	if resp, err := req.RequestWith(testContext(t), cl); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("%v %+v", err, resp)
	}
	mustProduce(t, cl, "t", 0, 10)
	c.await(t, "in sync", "t", whole)
	old := c.partition("t")
	held.Store(uint64(old.Shard))
	done := make(chan error, 1)
	cl.Produce(testContext(t), &kgo.Record{Topic: "t", Value: []byte("v10")}, func(_ *kgo.Record, err error) { done <- err })
	select {
	case <-entered:
	case <-testContext(t).Done():
		t.Fatal("no save came")
	}
	c.stop(t, 2)
	c.stop(t, 3)
	c.await(t, "next generation", "t", func(_ *controller.Image, p *controller.Partition) bool { return p.Generation > old.Generation })
	if err := awaitImage(testContext(t), c.brokers[0].images, func(img *controller.Image) bool {
		p, ok := img.Partition("t", 0)
		return ok && p.Generation > old.Generation
	}); err != nil {
		t.Fatal(err)
	}
	if b, _, err := c.brokers[0].engine.Owner(old.ID); err != nil || b.Shard != old.Shard {
		t.Errorf("owner %+v while a save of shard %d is under way: %v", b, old.Shard, err)
	}
	held.Store(0)
	close(gate)
	c.await(t, "leader", "t", func(img *controller.Image, p *controller.Partition) bool { return img.Leader(p) == 1 })
	if err := <-done; err != nil {
		t.Errorf("the record that was being saved: %v", err)
	}
	if p := c.partition("t"); p.BaseOffset < 10 {
		t.Errorf("base offset %d", p.BaseOffset)
	}
	for id := 2; id <= 3; id++ {
		c.start(t, id)
		awaitReady(t, c.brokers[id-1])
	}
	c.await(t, "all returned", "t", whole)
	cl.Close()
	reader := c.client(t)
	mustConsume(t, reader, "t", 11)
	reader.Close()
}

func TestAgreementOfLogs(t *testing.T) {
	epochs := func(pairs ...int64) (out []engine.EpochStart) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, engine.EpochStart{Epoch: ids.LeaderEpoch(pairs[i]), Start: ids.Offset(pairs[i+1]), Index: ids.RaftIndex(i)})
		}
		return out
	}
	for name, c := range map[string]struct {
		local     []engine.EpochStart
		localEnd  ids.Offset
		leader    []engine.EpochStart
		leaderEnd ids.Offset
		want      ids.Offset
	}{
		"same":                  {epochs(0, 0), 10, epochs(0, 0), 10, 10},
		"behind":                {epochs(0, 0), 7, epochs(0, 0, 2, 10), 20, 7},
		"ahead in an old epoch": {epochs(0, 0), 12, epochs(0, 0, 2, 10), 20, 10},
		"an epoch of its own":   {epochs(0, 0, 1, 8), 12, epochs(0, 0, 2, 10), 20, 8},
		"epochs of both":        {epochs(0, 0, 3, 5, 4, 9), 12, epochs(0, 0, 3, 5, 6, 9), 20, 9},
		"nothing in common":     {epochs(1, 0), 12, epochs(2, 0), 20, 0},
		"empty":                 {nil, 0, epochs(2, 0), 20, 0},
	} {
		if got := agreement(c.local, c.localEnd, c.leader, c.leaderEnd); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestSubtractRanges(t *testing.T) {
	r := func(epoch ids.LeaderEpoch, from, to ids.Offset) controller.LostRange {
		return controller.LostRange{LeaderEpoch: epoch, From: from, To: to}
	}
	got := subtract([]controller.LostRange{r(1, 0, 10), r(2, 0, 10)}, r(1, 3, 5))
	if want := []controller.LostRange{r(1, 0, 3), r(1, 5, 10), r(2, 0, 10)}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := subtract([]controller.LostRange{r(1, 3, 5)}, r(1, 0, 10)); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if got := fmt.Sprint(subtract([]controller.LostRange{r(1, 3, 5)}, r(1, 5, 10))); got != fmt.Sprint([]controller.LostRange{r(1, 3, 5)}) {
		t.Errorf("got %v", got)
	}
}
