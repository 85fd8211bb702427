package controller

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledTopic creates topic "t" with one partition on the nodes, led by the first.
func (q *quorum) ledTopic(nodes ...ids.NodeID) *Partition {
	q.t.Helper()
	ctl := q.nodes[0].ctl
	do := func(c Command) {
		q.t.Helper()
		res, err := ctl.propose(q.t.Context(), c)
		if err != nil || res.Code != 0 || len(res.Items) > 0 && res.Items[0].Code != 0 {
			q.t.Fatalf("%T: %+v, %v", c, res, err)
		}
	}
	topic := ids.UUID{7}
	do(CreateTopics{[]NewTopic{{Name: "t", ID: topic, Partitions: [][]ids.NodeID{nodes}}}})
	p := q.image().Topics["t"].Partitions[0]
	do(RegisterLeaders{nodes[0], q.image().Brokers[nodes[0]].Epoch, []LeaderReport{{
		TopicID: topic, Term: 1, Replica: p.ReplicaIDs[0],
	}}})
	return q.image().Topics["t"].Partitions[0]
}

func (q *quorum) led() *Partition { return q.image().Topics["t"].Partitions[0] }

// change is the change of the led partition's ISR to the nodes, under the epochs that the image has.
func (q *quorum) change(nodes ...ids.NodeID) ISRChange {
	p := q.led()
	c := ISRChange{TopicID: ids.UUID{7}, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, n := range nodes {
		c.ISR = append(c.ISR, ISRMember{n, q.image().Brokers[n].Epoch})
	}
	return c
}

func TestISRChangesReachTheImageAndAreAnsweredOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		a, b := q.startClient(10), q.startClient(11)
		defer a.Close()
		defer b.Close()
		q.ledTopic(10, 11)
		answers := make(chan error, 10)
		ask := func(c ISRChange) error {
			a.AlterPartition(c, func(err error) { answers <- err })
			return <-answers
		}
		first := q.change(10)
		if err := ask(first); err != nil || !slices.Equal(q.led().InSync, []ids.NodeID{10}) {
			t.Errorf("shrink: %v, ISR %v", err, q.led().InSync)
		}
		if err := ask(first); !errors.Is(err, kerr.InvalidUpdateVersion) {
			t.Errorf("again at the old partition epoch: %v", err)
		}
		old := q.change(10, 11)
		old.LeaderEpoch--
		if err := ask(old); !errors.Is(err, kerr.FencedLeaderEpoch) {
			t.Errorf("old leader epoch: %v", err)
		}
		stranger := q.change(10, 11)
		stranger.ISR[1].Epoch--
		if err := ask(stranger); !errors.Is(err, kerr.IneligibleReplica) {
			t.Errorf("another broker epoch of a member: %v", err)
		}
		if err := ask(q.change(10, 11)); err != nil || !slices.Equal(q.led().InSync, []ids.NodeID{10, 11}) {
			t.Errorf("expand: %v, ISR %v", err, q.led().InSync)
		}
		b.AlterPartition(q.change(11), func(err error) { answers <- err })
		if err := <-answers; !errors.Is(err, kerr.InvalidRequest) {
			t.Errorf("by another broker than the leader: %v", err)
		}
		synctest.Wait()
		if len(answers) != 0 {
			t.Errorf("%d answers too many", len(answers))
		}
	})
}

func TestISRChangeIsAnsweredThoughNoControllerIs(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		q.ledTopic(10)
		q.depose()
		answers := make(chan error, 2)
		start := time.Now()
		c.AlterPartition(q.change(10), func(err error) { answers <- err })
		if err := <-answers; err == nil || time.Since(start) > changeWithin {
			t.Errorf("answered %v after %v", err, time.Since(start))
		}
		c.Close()
		c.AlterPartition(q.change(10), func(err error) { answers <- err })
		if err := <-answers; !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestAlterPartitionOnTheWire(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		a, b := q.startClient(10), q.startClient(11)
		defer a.Close()
		defer b.Close()
		p := q.ledTopic(10, 11)
		for version := int16(2); version <= 3; version++ {
			for _, isr := range [][]int32{{10}, {10, 11}} {
				req := kmsg.NewPtrAlterPartitionRequest()
				req.Version, req.BrokerID, req.BrokerEpoch = version, 10, q.image().Brokers[10].Epoch
				rt := kmsg.NewAlterPartitionRequestTopic()
				rt.TopicID = ids.UUID{7}
				rp := kmsg.NewAlterPartitionRequestTopicPartition()
				rp.LeaderEpoch, rp.PartitionEpoch = int32(p.LeaderEpoch), q.led().PartitionEpoch
				for _, n := range isr {
					if version < 3 {
						rp.NewISR = append(rp.NewISR, n)
						continue
					}
					m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
					m.BrokerID = n // any epoch
					rp.NewEpochISR = append(rp.NewEpochISR, m)
				}
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				resp := q.nodes[0].ctl.alterPartitions(t.Context(), req)
				if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
					t.Fatalf("%+v", resp)
				}
				got := resp.Topics[0].Partitions[0]
				if got.ErrorCode != 0 || !slices.Equal(got.ISR, isr) || got.PartitionEpoch != q.led().PartitionEpoch || got.LeaderID != 10 {
					t.Errorf("version %d: %+v", version, got)
				}
			}
		}
		req := kmsg.NewPtrAlterPartitionRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = 3, 10, q.image().Brokers[10].Epoch-1
		if resp := q.nodes[0].ctl.alterPartitions(t.Context(), req); resp.ErrorCode != kerr.StaleBrokerEpoch.Code {
			t.Errorf("an older broker epoch: %d", resp.ErrorCode)
		}
		q.depose()
		if resp := q.nodes[0].ctl.alterPartitions(t.Context(), req); resp.ErrorCode != kerr.NotController.Code {
			t.Errorf("no active controller: %d", resp.ErrorCode)
		}
	})
}
