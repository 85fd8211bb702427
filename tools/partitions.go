package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicPartition names a partition.
type topicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func (p topicPartition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) }

func compareTopicPartitions(a, b topicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

func joinPartitions(list []topicPartition, separator string) string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.String()
	}
	return strings.Join(names, separator)
}

// readPartitionsFile reads Kafka's {"partitions":[{"topic":"t","partition":0}]}.
func readPartitionsFile(path string) ([]topicPartition, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Partitions []struct {
			Topic     *string `json:"topic"`
			Partition *int32  `json:"partition"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf(`%s: %w; want {"partitions":[{"topic":"t","partition":0}]}`, path, err)
	}
	var list []topicPartition
	for i, p := range file.Partitions {
		if p.Topic == nil || p.Partition == nil {
			return nil, fmt.Errorf("%s: entry %d needs a topic and a partition", path, i)
		}
		tp := topicPartition{*p.Topic, *p.Partition}
		if slices.Contains(list, tp) {
			return nil, fmt.Errorf("%s: %s is there twice", path, tp)
		}
		list = append(list, tp)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(`%s names no partition; want {"partitions":[{"topic":"t","partition":0}]}`, path)
	}
	return list, nil
}

// PartitionSelection picks partitions in one of three ways.
type PartitionSelection struct {
	Topic     string // with Partition
	Partition int32
	All       bool
	File      string // of Kafka's JSON
}

// partitions are the chosen ones, nil for all.
func (s PartitionSelection) partitions() ([]topicPartition, error) {
	ways := 0
	for _, chosen := range []bool{s.Topic != "", s.All, s.File != ""} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways != 1:
		return nil, UsageError{errors.New("say which partitions in one way: --topic with --partition, --all-topic-partitions, or --path-to-json-file")}
	case s.All:
		return nil, nil
	case s.File != "":
		return readPartitionsFile(s.File)
	case s.Partition < 0:
		return nil, UsageError{errors.New("--topic needs --partition; --all-topic-partitions takes all of the cluster")}
	}
	return []topicPartition{{s.Topic, s.Partition}}, nil
}

// byTopic groups partitions by topic, in the order in which topics come first.
func byTopic(list []topicPartition) (topics []string, partitions map[string][]int32) {
	partitions = map[string][]int32{}
	for _, p := range list {
		if partitions[p.Topic] == nil {
			topics = append(topics, p.Topic)
		}
		partitions[p.Topic] = append(partitions[p.Topic], p.Partition)
	}
	return topics, partitions
}

// electionTopics are the topics of an ElectLeaders request; null for all partitions.
func electionTopics(list []topicPartition) []kmsg.ElectLeadersRequestTopic {
	if list == nil {
		return nil
	}
	var out []kmsg.ElectLeadersRequestTopic
	topics, partitions := byTopic(list)
	for _, name := range topics {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = name, partitions[name]
		out = append(out, t)
	}
	return out
}
