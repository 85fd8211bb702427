package broker

import (
	"sync"
	"testing"
	"time"

	"cairn/broker/controller"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLeaderHandsOverWhenTheImageAsks(t *testing.T) {
	d := startDeaf(t, 3, "1", time.Minute)
	defer d.close(t)
	wantCode(t, "acks=all", d.produce(t, -1).ErrorCode, nil)
	d.leader(t).owner.transfers.request(d.leader(t), d.partition("t").ReplicaIDs[1])
	d.await(t, "broker 2 leads", "t", func(img *controller.Image, p *controller.Partition) bool { return img.Leader(p) == 2 })
	wantCode(t, "at the old leader", d.produce(t, -1).ErrorCode, kerr.NotLeaderForPartition)
	awaitLeader(t, d.brokers[1], "t", 0)
	req := produceReq(9, -1, "t", d.id, 0, testBatch(t, 1))
	wantCode(t, "at the new one", dialNode(t, d.brokers[1]).produce(req).ErrorCode, nil)
}

// TestLeaderGoesOnAfterAHandOverThatFails hands over to a follower that gets no entries, so that Raft gives up.
func TestLeaderGoesOnAfterAHandOverThatFails(t *testing.T) {
	d := startDeaf(t, 3, "1", time.Minute)
	defer d.close(t)
	d.deaf[3].Store(true)
	wantCode(t, "acks=1", d.produce(t, 1).ErrorCode, nil)
	p := d.leader(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.handOverOrGoOn(t.Context(), p.serving(), d.partition("t").ReplicaIDs[2]) })
	awaitTrue(t, func() bool { return !p.isLeader() })
	awaitTrue(t, func() bool { return p.isLeader() })
	awaitTrue(t, func() bool { return d.produce(t, 1).ErrorCode == 0 })
	var last *kmsg.ProduceResponseTopicPartition
	d.deaf[3].Store(false)
	awaitTrue(t, func() bool {
		a := d.produce(t, -1)
		last = &a
		return a.ErrorCode == 0
	})
	if end := p.log().End(); int64(end) != last.BaseOffset+1 {
		t.Errorf("log ends at %d, the last record is at %d", end, last.BaseOffset)
	}
}
