package broker

import (
	"slices"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func adminOf(t *testing.T, n *Node) *kadm.Client {
	return kadm.NewClient(newTestClient(t, kgo.SeedBrokers(clientAddress(n)), kgo.MetadataMinAge(10*time.Millisecond)))
}

// awaitTrue waits until cond holds.
func awaitTrue(t *testing.T, cond func() bool) {
	t.Helper()
	eventually(t, func() *bool {
		ok := cond()
		return map[bool]*bool{true: &ok}[ok]
	})
}

func storedPartitions(t *testing.T, n *Node) []engine.PartitionInfo {
	t.Helper()
	infos, err := n.engine.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	return infos
}

func TestDeletedTopicLeavesNoData(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 3, nil)
	dialNode(t, n).fill("t", id, 1, 5)
	if got := len(storedPartitions(t, n)); got != 3 {
		t.Fatalf("%d partitions stored", got)
	}
	if _, err := adminOf(t, n).DeleteTopic(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, func() bool { return len(storedPartitions(t, n)) == 0 && len(n.broker.replicas.partitions()) == 0 })
	// A new topic of the same name starts anew.
	id = mustTopic(t, n, "t", 1, nil)
	if p := dialNode(t, n).produce(produceReq(9, -1, "t", id, 0, testBatch(t, 1))); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("%+v", p)
	}
}

func TestTopicDeletedWhileTheBrokerWasAwayIsDeletedAtItsReturn(t *testing.T) {
	c := startCluster(t, 2)
	defer c.close(t)
	adm := kadm.NewClient(c.client(t))
	for _, topic := range []string{"gone", "stays"} {
		if _, err := adm.CreateTopic(testContext(t), 2, 2, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	awaitTrue(t, func() bool { return len(storedPartitions(t, c.brokers[1])) == 4 })
	c.stop(t, 2)
	if _, err := kadm.NewClient(c.client(t)).DeleteTopic(testContext(t), "gone"); err != nil {
		t.Fatal(err)
	}
	c.start(t, 2)
	awaitReady(t, c.brokers[1])
	awaitTrue(t, func() bool { return len(storedPartitions(t, c.brokers[1])) == 2 })
	for _, info := range storedPartitions(t, c.brokers[1]) {
		if info.Topic != "stays" {
			t.Errorf("%s-%d is still stored", info.Topic, info.Partition)
		}
	}
}

func TestTopicConfigsReachTheirPartitions(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	mustTopic(t, n, "t", 2, map[string]string{"max.message.bytes": "1000"})
	p := awaitLeader(t, n, "t", 1)
	if got := p.settings.Load().rules.MaxMessageBytes; got != 1000 {
		t.Fatalf("max.message.bytes %d", got)
	}
	if p.settings.Load() != awaitLeader(t, n, "t", 0).settings.Load() {
		t.Error("two partitions of one topic have settings of their own")
	}
	value := "2000"
	if _, err := adminOf(t, n).AlterTopicConfigs(testContext(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, "t"); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, func() bool { return p.settings.Load().rules.MaxMessageBytes == 2000 })
}

func TestNewPartitionsOfATopicAreServed(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	mustTopic(t, n, "t", 1, nil)
	if _, err := adminOf(t, n).CreatePartitions(testContext(t), 2, "t"); err != nil {
		t.Fatal(err)
	}
	awaitLeader(t, n, "t", 2)
}

// TestShutdownWithManyPartitions starts and stops more replicas than there are workers, twice.
func TestShutdownWithManyPartitions(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	mustTopic(t, n, "many", 200, nil)
	stopNode(t, n)
	start := time.Now()
	n = startNode(t, dir)
	defer stopNode(t, n)
	for i := range int32(200) {
		awaitLeader(t, n, "many", i)
	}
	t.Logf("200 partitions led again %v after the start", time.Since(start))
	if n := len(n.broker.replicas.partitions()); n != 200 {
		t.Errorf("%d partitions hosted", n)
	}
}

func TestReplicaOfAnotherDirectoryIsNeitherStartedNorDeleted(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	mustTopic(t, n, "t", 1, nil)
	m := n.broker.replicas
	other := newReplicaManager(replicaManagerConfig{
		NodeID: m.cfg.NodeID, Directory: ids.UUID{1}, Images: m.cfg.Images, Client: m.cfg.Client, Engine: m.cfg.Engine, Host: m.cfg.Host, Log: m.cfg.Log,
	})
	other.reconcile(m.cfg.Images.Image())
	other.running.Wait()
	if got := len(other.partitions()); got != 0 {
		t.Errorf("%d partitions started", got)
	}
	if got := len(storedPartitions(t, n)); got != 1 {
		t.Errorf("%d partitions stored", got)
	}
}

func TestShouldCampaign(t *testing.T) {
	three := []ids.NodeID{2, 1, 3}
	for _, tc := range []struct {
		name  string
		state controller.Partition
		node  ids.NodeID
		want  bool
	}{
		{"the only voter, always", controller.Partition{Replicas: three, Voters: []ids.NodeID{1}, LeaderTerm: 5}, 1, true},
		{"not the only voter", controller.Partition{Replicas: three, Voters: []ids.NodeID{1}, LeaderTerm: 5}, 2, false},
		{"first replica of a new partition", controller.Partition{Replicas: three, Voters: three}, 2, true},
		{"second replica of a new partition", controller.Partition{Replicas: three, Voters: three}, 1, false},
		{"first replica of one that had a leader", controller.Partition{Replicas: three, Voters: three, LeaderTerm: 1}, 2, false},
	} {
		if got := shouldCampaign(&tc.state, tc.node); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestSuccessors(t *testing.T) {
	usable := func(nodes ...ids.NodeID) *controller.Image {
		img := controller.NewImage()
		for _, n := range nodes {
			img.Brokers[n] = &controller.Broker{ID: n}
		}
		return img
	}
	shutting := usable(4, 5, 6)
	shutting.Brokers[5].ShuttingDown = true
	fenced := usable(4, 5, 6)
	fenced.Brokers[6].Fenced = true
	all := []ids.NodeID{4, 5, 6}
	for _, tc := range []struct {
		name   string
		self   ids.NodeID
		img    *controller.Image
		voters []ids.NodeID
		want   []ids.ReplicaID
	}{
		{"from the first", 4, usable(4, 5, 6), all, []ids.ReplicaID{50, 60}},
		{"from the second", 5, usable(4, 5, 6), all, []ids.ReplicaID{60, 40}},
		{"from the last", 6, usable(4, 5, 6), all, []ids.ReplicaID{40, 50}},
		{"one unknown", 4, usable(4, 6), all, []ids.ReplicaID{60}},
		{"one fenced", 4, fenced, all, []ids.ReplicaID{50}},
		{"one shutting down", 4, shutting, all, []ids.ReplicaID{60}},
		{"one without a vote", 4, usable(4, 5, 6), []ids.NodeID{4, 5}, []ids.ReplicaID{50}},
		{"nobody", 4, usable(4), all, nil},
	} {
		state := &controller.Partition{Replicas: all, ReplicaIDs: []ids.ReplicaID{40, 50, 60}, Voters: tc.voters}
		if got := successors(tc.img, state, tc.self); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestLeaderRegistersAgainThoughTheClockWasSet: back, so that by the wall clock its last try is to come.
func TestLeaderRegistersAgainThoughTheClockWasSet(t *testing.T) {
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		var p partition
		now := time.Now()
		if !p.dueToRegister(now) {
			t.Error("one that never tried is not due")
		}
		if p.dueToRegister(clock.Set(now.Add(registerAgain/2), by)) {
			t.Errorf("set by %v: due again too early", by)
		}
		if !p.dueToRegister(clock.Set(now.Add(registerAgain), by)) {
			t.Errorf("set by %v: not due again", by)
		}
	}
}
