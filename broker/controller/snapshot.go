package controller

import (
	"cmp"
	"fmt"
	"slices"

	"cairn/internal/ids"
)

// snapshot is the stored form of an Image: versioned JSON, everything in a fixed order, so that equal images give equal
// bytes.
type snapshot struct {
	Version        int               `json:"v"`
	Index          uint64            `json:"index"`
	ClusterID      string            `json:"clusterId"`
	Controller     ids.NodeID        `json:"controller"`
	ControllerTerm ids.Term          `json:"controllerTerm"`
	Brokers        []*Broker         `json:"brokers"`
	Topics         []*Topic          `json:"topics"`
	Configs        []snapshotConfigs `json:"configs"`
	NextPartition  ids.PartitionID   `json:"nextPartition"`
	NextShard      ids.ShardID       `json:"nextShard"`
	NextReplica    ids.ReplicaID     `json:"nextReplica"`
	NextProducer   int64             `json:"nextProducer"`
	Level          int16             `json:"level,omitempty"`
	Features       map[string]int16  `json:"features,omitempty"`
	Losses         []Loss            `json:"losses,omitempty"`
}

type snapshotConfigs struct {
	Type   ResourceType      `json:"type"`
	Name   string            `json:"name"`
	Values map[string]string `json:"values"`
}

// EncodeSnapshot returns the image in its stored form. The caller owns the bytes.
func EncodeSnapshot(img *Image) ([]byte, error) {
	s := snapshot{
		Version: formatVersion, Index: img.Index, ClusterID: img.ClusterID, Controller: img.Controller,
		ControllerTerm: img.ControllerTerm, Brokers: img.BrokerList(), Topics: img.TopicList(),
		NextPartition: img.NextPartition, NextShard: img.NextShard, NextReplica: img.NextReplica, NextProducer: img.NextProducer,
		Level: img.Level, Features: img.FeatureLevels, Losses: img.Losses,
	}
	for r, v := range img.Configs {
		s.Configs = append(s.Configs, snapshotConfigs{r.Type, r.Name, v})
	}
	slices.SortFunc(s.Configs, func(a, b snapshotConfigs) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return mustMarshal(s), nil
}

// DecodeSnapshot is the inverse of EncodeSnapshot. b is borrowed until return.
func DecodeSnapshot(b []byte) (*Image, error) {
	var s snapshot
	if err := strictUnmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("metadata snapshot: %w", err)
	}
	if s.Version != formatVersion {
		return nil, fmt.Errorf("metadata snapshot: version %d, this program knows %d", s.Version, formatVersion)
	}
	img := NewImage()
	img.Index, img.ClusterID, img.Controller, img.ControllerTerm = s.Index, s.ClusterID, s.Controller, s.ControllerTerm
	img.Level, img.FeatureLevels, img.Losses = max(s.Level, ReplicationLevel), s.Features, s.Losses
	img.NextPartition, img.NextShard, img.NextReplica, img.NextProducer = s.NextPartition, s.NextShard, s.NextReplica, s.NextProducer
	for _, br := range s.Brokers {
		if br == nil {
			return nil, fmt.Errorf("metadata snapshot: null broker")
		}
		img.Brokers[br.ID] = br
	}
	for _, c := range s.Configs {
		img.Configs[Resource{c.Type, c.Name}] = c.Values
	}
	for _, t := range s.Topics {
		if err := img.restoreTopic(t); err != nil {
			return nil, fmt.Errorf("metadata snapshot: %w", err)
		}
	}
	return img, nil
}

func (img *Image) restoreTopic(t *Topic) error {
	if t == nil {
		return fmt.Errorf("null topic")
	}
	img.Topics[t.Name], img.TopicsByID[t.ID] = t, t
	for i, p := range t.Partitions {
		if p == nil || len(p.ReplicaIDs) != len(p.Replicas) || len(p.Directories) != len(p.Replicas) {
			return fmt.Errorf("topic %q, partition %d: replicas, ids and directories do not match", t.Name, i)
		}
		for _, v := range p.Voters {
			if p.ReplicaOf(v) < 0 {
				return fmt.Errorf("topic %q, partition %d: voter %d is no replica", t.Name, i, v)
			}
		}
		img.partitions[p.ID] = partitionKey{t.ID, int32(i)}
	}
	return nil
}
