package controller

import (
	"slices"
	"testing"
	"time"

	"cairn/internal/ids"
)

func TestInternalTopicsGetTheReplicasTheyLack(t *testing.T) {
	img := NewImage()
	for id := ids.NodeID(1); id <= 4; id++ {
		img.Brokers[id] = &Broker{ID: id, Fenced: id == 4}
	}
	one := func(replicas ...ids.NodeID) *Partition {
		return &Partition{Replicas: replicas, Leader: replicas[0], InSync: replicas}
	}
	leaderless, moving := one(1), one(1)
	leaderless.Leader = ids.NoNode
	moving.Adding = []ids.NodeID{1}
	topic := &Topic{Name: "__consumer_offsets", ID: ids.UUID{1}, Internal: true, Partitions: []*Partition{
		one(1), one(2, 1), one(1, 2, 3), leaderless, moving, one(3, 4),
	}}
	img.Topics[topic.Name], img.TopicsByID[topic.ID] = topic, topic
	now := time.UnixMilli(5)

	raised := func(target int16) map[int32][]ids.NodeID {
		cmd, some := raiseInternal(img, map[string]int16{topic.Name: target, "__transaction_state": 3}, now)
		if some != (len(cmd.Partitions) > 0) {
			t.Errorf("any is %v of %+v", some, cmd)
		}
		got := map[int32][]ids.NodeID{}
		for _, r := range cmd.Partitions {
			if r.TopicID != topic.ID || r.AtMs != 5 {
				t.Errorf("%+v", r)
			}
			got[r.Partition] = r.Replicas
		}
		return got
	}
	for target, want := range map[int16]map[int32][]ids.NodeID{
		1: {},
		2: {0: {1, 2}},
		3: {0: {1, 3, 2}, 1: {2, 1, 3}, 5: {3, 4, 2}},
		9: {0: {1, 3, 2}, 1: {2, 1, 3}, 5: {3, 4, 2}}, // no more than there are live brokers
	} {
		got := raised(target)
		if len(got) != len(want) {
			t.Errorf("target %d: %v, want %v", target, got, want)
		}
		for i, replicas := range want {
			slices.Sort(replicas[1:])
			have := slices.Clone(got[i])
			if len(have) > 0 {
				slices.Sort(have[1:])
			}
			if !slices.Equal(have, replicas) {
				t.Errorf("target %d, partition %d: %v, want %v", target, i, got[i], replicas)
			}
		}
	}
}
