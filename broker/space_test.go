package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// disks are the disks of the brokers 1 to n as they tell of their room; 1,000 MiB each, of which 100 are to be kept free.
type disks struct{ free [4]atomic.Uint64 }

const diskMiB = 1 << 20

func (d *disks) set(id, mib int) { d.free[id].Store(uint64(mib) * diskMiB) }

func startDisks(t *testing.T, brokers int) (*testCluster, *disks) {
	t.Helper()
	d := &disks{}
	for id := range d.free {
		d.set(id, 500)
	}
	c := &testCluster{props: []string{"log.min.free.bytes=104857600", "log.ballast.bytes=0", "replica.lag.time.max.ms=1000"}}
	c.engineFaults = func(id int) engine.Faults {
		return engine.Faults{Room: func() (free, total uint64) { return d.free[id].Load(), 1000 * diskMiB }}
	}
	return c.run(t, brokers), d
}

// level waits until a broker has noticed how full its disk is.
func (c *testCluster) level(t *testing.T, id int, want engine.SpaceLevel) {
	t.Helper()
	awaitTrue(t, func() bool { return c.brokers[id-1].engine.SpaceLevel() == want })
}

// produceOnce produces one record without trying again.
func produceOnce(t *testing.T, c *testCluster, topic string) error {
	t.Helper()
	cl := c.client(t, kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	defer cl.Close()
	return cl.ProduceSync(testContext(t), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
}

func TestFullDiskOfALeaderRefusesRecordsAndNothingElse(t *testing.T) {
	c, d := startDisks(t, 1)
	defer c.close(t)
	cl := c.client(t)
	adm := kadm.NewClient(cl)
	for _, topic := range []string{"t", "other"} {
		if _, err := adm.CreateTopic(testContext(t), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	mustProduce(t, cl, "t", 0, 10)
	d.set(1, 99)
	c.level(t, 1, engine.SpaceLow)
	if err := produceOnce(t, c, "t"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce: %v", err)
	}
	mustConsume(t, c.client(t), "t", 10)
	committed := kadm.Offsets{}
	committed.AddOffset("t", 0, 5, -1)
	if err := adm.CommitAllOffsets(testContext(t), "g", committed); err != nil { // a group's records are the broker's own
		t.Errorf("commit: %v", err)
	}
	d.set(1, 49)
	c.level(t, 1, engine.SpaceShort)
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	if err := adm.CommitAllOffsets(ctx, "g", committed); err == nil {
		t.Error("a commit was taken")
	}
	to := kadm.Offsets{}
	to.AddOffset("t", 0, 5, -1)
	if resp, err := adm.DeleteRecords(testContext(t), to); err != nil || resp.Error() != nil {
		t.Errorf("delete records: %v, %v", err, resp.Error())
	}
	if _, err := adm.DeleteTopic(testContext(t), "other"); err != nil {
		t.Errorf("delete topic: %v", err)
	}
	if p, err := c.brokers[0].broker.replicas.lookup("t", 0); err != nil || p.log().Start() != 5 {
		t.Errorf("the log starts at %d: %v", p.log().Start(), err)
	}
	d.set(1, 500)
	mustProduce(t, cl, "t", 10, 20) // the client tries again by itself
}

// TestFullDiskOfAFollowerStandsStill: it leaves the in-sync replicas and comes back by itself, and nothing is lost.
func TestFullDiskOfAFollowerStandsStill(t *testing.T) {
	c, d := startDisks(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 10)
	img := c.brokers[0].images.Image
	state, _ := img().Partition("t", 0)
	follower := 1
	for ids.NodeID(follower) == img().Leader(state) {
		follower++
	}
	log := func() *engine.Log {
		p, err := c.brokers[follower-1].broker.replicas.lookup("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		return p.log()
	}
	awaitTrue(t, func() bool { return log().End() == 10 })
	d.set(follower, 40)
	c.level(t, follower, engine.SpaceShort)
	mustProduce(t, cl, "t", 10, 20) // waits until the follower is out of the in-sync replicas
	if end := log().End(); end != 10 {
		t.Errorf("the full disk took records up to %d", end)
	}
	if state, _ := img().Partition("t", 0); len(state.InSync) != 2 {
		t.Errorf("in sync: %v", state.InSync)
	}
	d.set(follower, 500)
	awaitTrue(t, func() bool {
		state, _ := img().Partition("t", 0)
		return log().End() == 20 && len(state.InSync) == 3
	})
	mustConsume(t, c.client(t), "t", 20)
}
