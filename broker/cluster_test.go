package broker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// testCluster is a controller (node 9) and brokers 1 to n, in this process, with data directories of their own.
type testCluster struct {
	controller *Node
	voters     string
	brokers    []*Node // by id less one; nil when stopped
	dirs       []string
	// props are properties of every broker, faults what befalls the messages that one gets.
	props  []string
	faults func(id int) raftgroup.Faults
	// engineFaults befall the store of one.
	engineFaults func(id int) engine.Faults
	// bootID names the run of the machine that brokers start on; "": the real one.
	bootID string
}

func startCluster(t *testing.T, brokers int) *testCluster {
	t.Helper()
	return (&testCluster{}).run(t, brokers)
}

func (c *testCluster) run(t *testing.T, brokers int) *testCluster {
	t.Helper()
	c.brokers = make([]*Node, brokers)
	// The controller's own address matters to others only, so that its port need not be known before.
	cfg := mustLoad(t, "process.roles=controller", "node.id=9", "controller.quorum.voters=9@127.0.0.1:1", "controller.listener.names=CONTROLLER",
		"listeners=CONTROLLER://127.0.0.1:0", "log.dirs="+t.TempDir())
	n, err := Start(testContext(t), cfg, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	c.controller = n
	c.voters = "9@" + n.server.bound()[0].Addr().String()
	for id := 1; id <= brokers; id++ {
		c.dirs = append(c.dirs, t.TempDir())
		c.start(t, id)
	}
	for _, b := range c.brokers {
		awaitReady(t, b)
	}
	return c
}

// start starts a broker without waiting for it.
func (c *testCluster) start(t *testing.T, id int) {
	t.Helper()
	cfg := mustLoad(t, append([]string{
		"process.roles=broker", fmt.Sprintf("node.id=%d", id), "controller.quorum.voters=" + c.voters, "controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + c.dirs[id-1],
	}, c.props...)...)
	if c.faults != nil {
		cfg.faults = c.faults(id)
	}
	if c.engineFaults != nil {
		cfg.engineFaults = c.engineFaults(id)
	}
	cfg.bootID = c.bootID
	n, err := Start(testContext(t), cfg, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	c.brokers[id-1] = n
}

func (c *testCluster) stop(t *testing.T, id int) {
	t.Helper()
	stopNode(t, c.brokers[id-1])
	c.brokers[id-1] = nil
}

func (c *testCluster) close(t *testing.T) {
	t.Helper()
	for i, b := range c.brokers {
		if b != nil {
			c.stop(t, i+1)
		}
	}
	stopNode(t, c.controller)
}

func (c *testCluster) addresses() []string {
	var list []string
	for _, b := range c.brokers {
		if b != nil {
			list = append(list, clientAddress(b))
		}
	}
	return list
}

func (c *testCluster) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return newTestClient(t, append([]kgo.Opt{kgo.SeedBrokers(c.addresses()...), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
}

func mustProduce(t *testing.T, cl *kgo.Client, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "v%d", i)}).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
}

// mustConsume reads n records of partition 0 from the start and checks that they are v0, v1, and so on.
func mustConsume(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}})
	var got []string
	for len(got) < n {
		fs := cl.PollFetches(testContext(t))
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(got), err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	for i, v := range got {
		if v != fmt.Sprintf("v%d", i) {
			t.Fatalf("record %d is %s", i, v)
		}
	}
}

func TestThreeBrokersServeThroughARollingRestart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	adm := kadm.NewClient(cl)
	created, err := adm.CreateTopic(testContext(t), 1, 3, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	if created.ReplicationFactor != 3 {
		t.Errorf("created with %d replicas", created.ReplicationFactor)
	}
	mustProduce(t, cl, "t", 0, 20)
	for id := 1; id <= 3; id++ {
		c.await(t, "all in sync", "t", whole) // the last one in sync takes the partition with it
		c.stop(t, id)
		fresh := c.client(t)
		mustProduce(t, fresh, "t", 20*id, 20*id+20)
		fresh.Close()
		c.start(t, id)
		awaitReady(t, c.brokers[id-1])
	}
	cl.Close()
	reader := c.client(t)
	mustConsume(t, reader, "t", 80)
	reader.Close()
}

func TestShutdownHandsLeadershipOver(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 6, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	img := func() *controller.Image { return c.controller.images.Image() }
	leader := img().Topics["t"].Partitions[0].Leader
	before := img().Topics["t"].Partitions[0].LeaderEpoch
	c.stop(t, int(leader))
	// Most have a registered leader by now; where a transfer was lost, the death of the process makes the others elect.
	err := awaitImage(testContext(t), c.controller.images, func(img *controller.Image) bool {
		return !slices.ContainsFunc(img.Topics["t"].Partitions, func(p *controller.Partition) bool {
			l := img.Leader(p)
			return l == leader || l == ids.NoNode
		})
	})
	if err != nil {
		t.Fatalf("partitions without a leader after the shutdown of %d", leader)
	}
	if after := img().Topics["t"].Partitions[0].LeaderEpoch; after <= before {
		t.Errorf("leader epoch %d after %d", after, before)
	}
}

func TestBrokerStartsItsMetadataReplicaWithoutAController(t *testing.T) {
	c := startCluster(t, 1)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	c.stop(t, 1)
	stopNode(t, c.controller)

	c.start(t, 1)
	defer c.stop(t, 1)
	ctx := testContext(t)
	if err := awaitImage(ctx, c.brokers[0].images, func(img *controller.Image) bool { return img.Topics["t"] != nil }); err != nil {
		t.Fatalf("metadata not there without a controller: %v", err)
	}
	if err := c.brokers[0].healthy(); err == nil {
		t.Error("ready without a controller")
	}
}

func TestDataDirectoryOfAnotherNodeOrClusterIsRefused(t *testing.T) {
	dir := t.TempDir()
	stopNode(t, startNode(t, dir))
	cfg := mustLoad(t, "log.dirs="+dir, "listeners=PLAINTEXT://127.0.0.1:0", "node.id=2")
	if _, err := Start(testContext(t), cfg, testLog(t)); err == nil {
		t.Error("started on the directory of another node")
	}

	c := startCluster(t, 0)
	defer stopNode(t, c.controller)
	cfg = mustLoad(t, "process.roles=broker", "controller.quorum.voters="+c.voters, "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+dir)
	n, err := Start(testContext(t), cfg, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stopNode(t, n)
	select {
	case <-n.Done():
	case <-n.Ready():
		t.Fatal("joined another cluster")
	case <-testContext(t).Done():
		t.Fatal("neither joined nor failed")
	}
	if !errors.Is(n.Err(), controller.ErrRejected) {
		t.Errorf("got %v", n.Err())
	}
}

func TestThreeControllersElectAnother(t *testing.T) {
	addresses := freeAddresses(t, 3)
	var voters string
	for i, a := range addresses {
		voters += fmt.Sprintf(",%d@%s", i+1, a)
	}
	nodes := make([]*Node, 3)
	for i := range nodes {
		cfg := mustLoad(t, fmt.Sprintf("node.id=%d", i+1), "controller.quorum.voters="+voters[1:], "controller.listener.names=CONTROLLER",
			"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://"+addresses[i], "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"log.dirs="+t.TempDir())
		n, err := Start(testContext(t), cfg, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
	}
	for _, n := range nodes {
		awaitReady(t, n)
	}
	first := nodes[0].images.Image().Controller
	stopNode(t, nodes[first-1])
	rest := slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n.cfg.NodeID == first })
	defer func() {
		for _, n := range rest {
			stopNode(t, n)
		}
	}()
	err := awaitImage(testContext(t), rest[0].images, func(img *controller.Image) bool { return img.Controller != first })
	if err != nil {
		t.Fatalf("no other controller: %v", err)
	}
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(rest[0]), clientAddress(rest[1])))
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 2, nil, "t"); err != nil {
		t.Error(err)
	}
	cl.Close()
}
