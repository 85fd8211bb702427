package controller

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"cairn/internal/ids"

	"pgregory.net/rapid"
)

// history remembers what must never come again or go back.
type history struct {
	partitions map[ids.PartitionID]bool
	shards     map[ids.ShardID]bool
	replicas   map[ids.ReplicaID]bool
	topics     map[ids.UUID]bool // those that exist or existed
	producers  int64
	epochs     map[ids.PartitionID]*Partition // the last state of each
	brokers    map[ids.NodeID]int64
}

// observe checks the image after a command against all that was seen before.
func (h *history) observe(t *rapid.T, img *Image) {
	for _, topic := range img.TopicList() {
		for i, p := range topic.Partitions {
			old := h.epochs[p.ID]
			h.epochs[p.ID] = p
			if k, ok := img.partitions[p.ID]; !ok || k != (partitionKey{topic.ID, int32(i)}) {
				t.Fatalf("partition %d is not found by its id", p.ID)
			}
			if old == nil {
				h.firstSeen(t, p)
				continue
			}
			if p.LeaderEpoch < old.LeaderEpoch || p.PartitionEpoch < old.PartitionEpoch || p.LeaderTerm < old.LeaderTerm {
				t.Fatalf("an epoch or term went back: %+v, then %+v", old, p)
			}
			if p.PartitionEpoch == old.PartitionEpoch && !reflect.DeepEqual(p, old) {
				t.Fatalf("changed within a partition epoch: %+v, then %+v", old, p)
			}
			if p.LeaderEpoch == old.LeaderEpoch && p.Leader != old.Leader && p.Leader != ids.NoNode {
				t.Fatalf("two leaders in an epoch: %+v, then %+v", old, p)
			}
		}
	}
	for id, b := range img.Brokers {
		if b.Epoch < h.brokers[id] {
			t.Fatalf("broker epoch went back: %+v", b)
		}
		h.brokers[id] = b.Epoch
	}
	if img.NextProducer < h.producers {
		t.Fatalf("producer ids went back to %d", img.NextProducer)
	}
	h.producers = img.NextProducer
}

func (h *history) firstSeen(t *rapid.T, p *Partition) {
	if h.partitions[p.ID] || h.shards[p.Shard] || p.Shard == ids.MetadataShard {
		t.Fatalf("id used again: %+v", p)
	}
	h.partitions[p.ID], h.shards[p.Shard] = true, true
	for _, r := range p.ReplicaIDs {
		if h.replicas[r] || r < firstReplica {
			t.Fatalf("replica id %d used again: %+v", r, p)
		}
		h.replicas[r] = true
	}
}

// drawCommand makes a command that mostly makes sense in the image.
func drawCommand(t *rapid.T, img *Image) Command {
	node := func() ids.NodeID { return ids.NodeID(rapid.IntRange(0, 4).Draw(t, "node")) }
	topic := func() *Topic {
		if len(img.Topics) == 0 {
			return &Topic{Name: "none", ID: testID(200)}
		}
		return rapid.SampledFrom(img.TopicList()).Draw(t, "topic")
	}
	epoch := func(n ids.NodeID) int64 {
		if b := img.Brokers[n]; b != nil && rapid.IntRange(0, 9).Draw(t, "stale") > 0 {
			return b.Epoch
		}
		return 1
	}
	replicas := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) ids.NodeID {
		return ids.NodeID(rapid.IntRange(0, 4).Draw(t, "replica"))
	}), 1, 3, rapid.ID), 1, 3)
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		c := registerCmd(node(), byte(rapid.IntRange(0, 3).Draw(t, "incarnation")), byte(rapid.IntRange(0, 1).Draw(t, "dir")))
		c.Voter = c.ID == 0
		return c
	case 2, 3:
		n := node()
		return ChangeBrokers{[]BrokerChange{{n, epoch(n), rapid.SampledFrom([]BrokerAction{Fence, Unfence, Unfence, Shutdown}).Draw(t, "action")}}}
	case 4:
		return CreateTopics{[]NewTopic{{
			Name: fmt.Sprintf("t%d", rapid.IntRange(0, 3).Draw(t, "name")), ID: testID(byte(rapid.IntRange(0, 255).Draw(t, "id"))),
			Partitions: replicas.Draw(t, "partitions"), Configs: map[string]string{"retention.ms": "1"},
		}}}
	case 5:
		return DeleteTopics{[]ids.UUID{topic().ID}}
	case 6:
		tp := topic()
		return CreatePartitions{[]MorePartitions{{tp.ID, len(tp.Partitions), replicas.Draw(t, "partitions")}}}
	case 7:
		return AlterConfigs{[]ResourceChange{{Type: TopicResource, Name: topic().Name, Replace: rapid.Bool().Draw(t, "replace"), Ops: []ConfigOp{
			{Name: "cleanup.policy", Op: OpType(rapid.IntRange(0, 3).Draw(t, "op")), Value: "compact", Default: "delete"},
		}}}}
	case 8:
		n := node()
		return AllocateProducerIDs{n, epoch(n), 10}
	default:
		return drawReport(t, img, topic(), epoch)
	}
}

func drawReport(t *rapid.T, img *Image, topic *Topic, epoch func(ids.NodeID) int64) Command {
	if len(topic.Partitions) == 0 {
		return RegisterLeaders{}
	}
	i := rapid.IntRange(0, len(topic.Partitions)-1).Draw(t, "partition")
	p := topic.Partitions[i]
	n := rapid.SampledFrom(p.Replicas).Draw(t, "leader")
	term := p.LeaderTerm + ids.Term(rapid.IntRange(0, 2).Draw(t, "term"))
	return RegisterLeaders{n, epoch(n), []LeaderReport{{topic.ID, int32(i), p.Generation, term, p.ReplicaIDs[p.ReplicaOf(n)], 0}}}
}

// TestReplayAndCounters runs random commands. A replica that starts from a snapshot taken anywhere must end where one that
// saw the whole log does; no id is given out twice; epochs only grow; images never change.
func TestReplayAndCounters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{
			partitions: map[ids.PartitionID]bool{}, shards: map[ids.ShardID]bool{}, replicas: map[ids.ReplicaID]bool{},
			topics: map[ids.UUID]bool{}, epochs: map[ids.PartitionID]*Partition{}, brokers: map[ids.NodeID]int64{},
		}
		img, _ := Apply(NewImage(), 1, Proposal{1, Claim{1, "c"}})
		restored := img
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for i := 2; i < 2+steps; i++ {
			raw := EncodeCommand(Proposal{1, drawCommand(t, img)})
			p, err := DecodeCommand(raw)
			if err != nil {
				t.Fatal(err)
			}
			before := snapshotOf(t, img)
			next, res := Apply(img, uint64(i), p)
			if !bytes.Equal(before, snapshotOf(t, img)) {
				t.Fatalf("%s changed the image it was applied to", raw)
			}
			other, otherRes := Apply(restored, uint64(i), p)
			if !reflect.DeepEqual(res, otherRes) || !bytes.Equal(snapshotOf(t, next), snapshotOf(t, other)) {
				t.Fatalf("%s: %+v from the log, %+v from the snapshot:\n%s\n%s", raw, res, otherRes, snapshotOf(t, next), snapshotOf(t, other))
			}
			h.observe(t, next)
			img, restored = next, other
			if rapid.IntRange(0, 4).Draw(t, "snapshot") == 0 {
				if restored, err = DecodeSnapshot(snapshotOf(t, img)); err != nil {
					t.Fatal(err)
				}
			}
		}
		again, err := DecodeSnapshot(snapshotOf(t, img))
		if err != nil || !reflect.DeepEqual(again.partitions, img.partitions) || len(again.TopicsByID) != len(img.TopicsByID) {
			t.Fatalf("restored image differs: %v", err)
		}
	})
}

func snapshotOf(t *rapid.T, img *Image) []byte {
	b, err := EncodeSnapshot(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzDecode: no input panics a decoder, and what decodes survives being encoded again.
func FuzzDecode(f *testing.F) {
	f.Add(EncodeCommand(Proposal{1, Claim{1, "c"}}))
	f.Add(EncodeCommand(Proposal{1, registerCmd(1, 1, 1)}))
	f.Add(EncodeCommand(Proposal{2, CreateTopics{[]NewTopic{{Name: "a", ID: testID(1), Partitions: nodes([]ids.NodeID{1})}}}}))
	img, _ := Apply(NewImage(), 1, Proposal{1, Claim{1, "c"}})
	b, _ := EncodeSnapshot(img)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := DecodeCommand(b); err == nil {
			again, err := DecodeCommand(EncodeCommand(p))
			if err != nil || !reflect.DeepEqual(mustMarshal(again.Command), mustMarshal(p.Command)) {
				t.Fatalf("%+v came back as %+v, %v", p, again, err)
			}
		}
		if img, err := DecodeSnapshot(b); err == nil {
			again, err := DecodeSnapshot(mustSnapshot(t, img))
			if err != nil || !bytes.Equal(mustSnapshot(t, again), mustSnapshot(t, img)) {
				t.Fatalf("snapshot did not come back: %v", err)
			}
		}
		var req RegisterLeadersRequest
		var resp RegisterLeadersResponse
		_ = req.ReadFrom(b)
		_ = resp.ReadFrom(b)
	})
}
