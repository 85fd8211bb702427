package broker

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deafCluster is a cluster whose brokers can be made deaf: a deaf broker gets no entries, but is alive otherwise.
type deafCluster struct {
	*testCluster
	deaf [10]atomic.Bool // by broker id
	id   kadm.TopicID
}

// startDeaf starts brokers and a topic "t" with one partition, on all brokers in order, with broker 1 as its leader.
func startDeaf(t *testing.T, brokers int, minimum string, lag time.Duration) *deafCluster {
	t.Helper()
	d := &deafCluster{}
	d.testCluster = &testCluster{
		props: []string{fmt.Sprintf("replica.lag.time.max.ms=%d", lag.Milliseconds())},
		faults: func(id int) raftgroup.Faults {
			return raftgroup.Faults{DropMessage: func(shard ids.ShardID, _, _ ids.ReplicaID, kind string) bool {
				return shard != ids.MetadataShard && kind == "Replicate" && d.deaf[id].Load()
			}}
		},
	}
	d.run(t, brokers)
	cl := d.client(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", -1, -1
	topic.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{}}
	for id := range int32(brokers) {
		topic.ReplicaAssignment[0].Replicas = append(topic.ReplicaAssignment[0].Replicas, id+1)
	}
	cfg := kmsg.NewCreateTopicsRequestTopicConfig()
	cfg.Name, cfg.Value = "min.insync.replicas", &minimum
	topic.Configs = append(topic.Configs, cfg)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(testContext(t), cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("%v %+v", err, resp)
	}
	d.id = resp.Topics[0].TopicID
	cl.Close()
	awaitLeader(t, d.brokers[0], "t", 0)
	return d
}

// leader is the partition on broker 1.
func (d *deafCluster) leader(t *testing.T) *partition {
	t.Helper()
	return awaitLeader(t, d.brokers[0], "t", 0)
}

// awaitISR waits until the metadata of the leader has the ISR.
func (d *deafCluster) awaitISR(t *testing.T, isr ...ids.NodeID) {
	t.Helper()
	err := awaitImage(testContext(t), d.brokers[0].images, func(img *controller.Image) bool {
		p, ok := img.Partition("t", 0)
		return ok && slices.Equal(p.InSync, isr)
	})
	if err != nil {
		p, _ := d.brokers[0].images.Image().Partition("t", 0)
		t.Fatalf("ISR %v, ELR %v, want %v", p.InSync, p.ELR, isr)
	}
}

func (d *deafCluster) produce(t *testing.T, acks int16) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	return dialNode(t, d.brokers[0]).produce(produceReq(9, acks, "t", d.id, 0, testBatch(t, 1)))
}

func TestLaggingFollowerLeavesTheISRAndReturns(t *testing.T) {
	const lag = 400 * time.Millisecond
	d := startDeaf(t, 3, "1", lag)
	defer d.close(t)
	d.awaitISR(t, 1, 2, 3)
	d.deaf[3].Store(true)
	<-time.After(3 * lag)
	d.awaitISR(t, 1, 2, 3) // an idle partition never shrinks
	start := time.Now()
	wantCode(t, "acks=all", d.produce(t, -1).ErrorCode, nil) // answered once 3 has left
	if took := time.Since(start); took < lag || took > 4*lag {
		t.Errorf("answered after %v, the lag time is %v", took, lag)
	}
	d.awaitISR(t, 1, 2)
	p := d.leader(t)
	if hw := p.highWatermark(); hw != 1 {
		t.Errorf("high watermark %d", hw)
	}
	d.deaf[3].Store(false)
	d.awaitISR(t, 1, 2, 3)
	follower, err := d.brokers[2].broker.replicas.lookup("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, func() bool { return follower.highWatermark() == 1 })
	if end := follower.log().End(); end != 1 {
		t.Errorf("log of the follower ends at %d", end)
	}
}

func TestBelowTheMinimumAcks1IsTakenButNotShown(t *testing.T) {
	const lag = 300 * time.Millisecond
	d := startDeaf(t, 3, "2", lag)
	defer d.close(t)
	wantCode(t, "all in sync", d.produce(t, -1).ErrorCode, nil)
	d.deaf[2].Store(true)
	d.deaf[3].Store(true)
	ack1 := d.produce(t, 1)
	wantCode(t, "acks=1", ack1.ErrorCode, nil)
	d.awaitISR(t, 1)
	if p, _ := d.brokers[0].images.Image().Partition("t", 0); !slices.Equal(p.ELR, []ids.NodeID{2, 3}) {
		t.Errorf("ELR %v", p.ELR)
	}
	// One of three voters has no majority, so the partition moves to the next generation meanwhile.
	d.await(t, "next generation", "t", func(img *controller.Image, p *controller.Partition) bool {
		return p.Generation == 1 && img.Leader(p) == 1
	})
	end := d.leader(t).log().End()
	awaitTrue(t, func() bool { return d.produce(t, -1).ErrorCode == kerr.NotEnoughReplicas.Code })
	if d.leader(t).log().End() != end {
		t.Error("something was appended")
	}
	wantCode(t, "acks=1 below the minimum", d.produce(t, 1).ErrorCode, nil)
	if hw := d.leader(t).highWatermark(); hw != 1 {
		t.Errorf("high watermark %d", hw)
	}
	d.deaf[2].Store(false)
	d.await(t, "two in sync", "t", func(_ *controller.Image, p *controller.Partition) bool { return len(p.InSync) >= 2 })
	awaitTrue(t, func() bool { return d.leader(t).highWatermark() == end+1 })
	awaitTrue(t, func() bool { return d.produce(t, -1).ErrorCode == 0 })
}

func TestClampOpenAndShut(t *testing.T) {
	d := startDeaf(t, 2, "3", 300*time.Millisecond)
	defer d.close(t)
	open := d.produce(t, -1)
	wantCode(t, "clamp-open", open.ErrorCode, nil)
	if open.BaseOffset != 0 {
		t.Errorf("at offset %d", open.BaseOffset)
	}
	size, minimum := d.leader(t).inSyncCount()
	if size != 2 || minimum != 2 {
		t.Errorf("%d in sync, minimum %d", size, minimum)
	}
	d.deaf[2].Store(true)
	wantCode(t, "acks=1, so that broker 2 falls behind", d.produce(t, 1).ErrorCode, nil)
	d.awaitISR(t, 1)
	if p, _ := d.brokers[0].images.Image().Partition("t", 0); !slices.Equal(p.ELR, []ids.NodeID{2}) {
		t.Errorf("ELR %v", p.ELR)
	}
	awaitTrue(t, func() bool { return d.produce(t, -1).ErrorCode == kerr.NotEnoughReplicas.Code })
}

// soon is how long after the reason to wait is gone a waiting request may take.
const soon = 100 * time.Millisecond

func TestWaitingProduceCompletesAtOnceWhenTheMissingReplicaLeaves(t *testing.T) {
	d := startDeaf(t, 3, "1", 400*time.Millisecond)
	defer d.close(t)
	d.deaf[3].Store(true)
	raw := dialNode(t, d.brokers[0])
	req := produceReq(9, -1, "t", d.id, 0, testBatch(t, 1))
	raw.send(req)
	d.awaitISR(t, 1, 2)
	left := time.Now()
	wantCode(t, "acks=all", raw.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
	if took := time.Since(left); took > soon {
		t.Errorf("answered %v after the ISR had changed", took)
	}
}

func TestWaitingProduceCompletesAtOnceWhenTheMissingReplicaCatchesUp(t *testing.T) {
	d := startDeaf(t, 3, "1", time.Minute)
	defer d.close(t)
	p := d.leader(t)
	d.deaf[3].Store(true)
	raw := dialNode(t, d.brokers[0])
	req := produceReq(9, -1, "t", d.id, 0, testBatch(t, 1))
	raw.send(req)
	awaitTrue(t, func() bool { return p.watches.len() == 1 })
	d.deaf[3].Store(false)
	follower, err := d.brokers[2].broker.replicas.lookup("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, func() bool { return follower.log().End() == 1 })
	caughtUp := time.Now()
	wantCode(t, "acks=all", raw.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
	if took := time.Since(caughtUp); took > soon {
		t.Errorf("answered %v after the replica had caught up", took)
	}
	d.awaitISR(t, 1, 2, 3)
}

func TestDeletingTheTopicAnswersWhatWaits(t *testing.T) {
	d := startDeaf(t, 2, "1", time.Minute)
	defer d.close(t)
	p := d.leader(t)
	d.deaf[2].Store(true)
	raw := dialNode(t, d.brokers[0])
	req := produceReq(9, -1, "t", d.id, 0, testBatch(t, 1))
	raw.send(req)
	awaitTrue(t, func() bool { return p.watches.len() == 1 })
	if _, err := adminOf(t, d.brokers[1]).DeleteTopics(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "acks=all", raw.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
}

func TestHighWatermarkNeverFallsOverAFailover(t *testing.T) {
	d := startDeaf(t, 3, "2", time.Minute)
	defer d.close(t)
	for range 5 {
		wantCode(t, "acks=all", d.produce(t, -1).ErrorCode, nil)
	}
	hw := d.leader(t).highWatermark()
	if hw != 5 {
		t.Errorf("high watermark %d", hw)
	}
	for _, b := range d.brokers[1:] {
		p, err := b.broker.replicas.lookup("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		awaitTrue(t, func() bool { return p.highWatermark() == hw })
	}
	d.stop(t, 1)
	led := eventually(t, func() *partition {
		for _, b := range d.brokers[1:] {
			if p, err := b.broker.replicas.lookup("t", 0); err == nil && p.isLeader() {
				return p
			}
		}
		return nil
	})
	if now := led.highWatermark(); now < hw {
		t.Errorf("high watermark %d after %d", now, hw)
	}
}
