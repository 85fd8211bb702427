package tools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTopicsOptions picks topics and what of them to show. With a partition filter only matching partitions are shown, without topic lines.
type DescribeTopicsOptions struct {
	TopicSelection
	UnderReplicated  bool // fewer in-sync replicas than replicas
	UnderMinISR      bool // fewer in-sync replicas than min.insync.replicas, or no leader
	AtMinISR         bool // exactly min.insync.replicas
	Unavailable      bool // no live leader
	WithOverrides    bool // only topics with configs of their own, and only the topic lines
	PartitionsPerAsk int32
}

func (o DescribeTopicsOptions) filtersPartitions() bool {
	return o.UnderReplicated || o.UnderMinISR || o.AtMinISR || o.Unavailable
}

// topicDescription is the JSON form of a topic.
type topicDescription struct {
	Topic             string                 `json:"topic"`
	TopicID           string                 `json:"topicId"`
	Internal          bool                   `json:"internal"`
	PartitionCount    int                    `json:"partitionCount"`
	ReplicationFactor int                    `json:"replicationFactor"`
	Configs           map[string]string      `json:"configs"`
	Partitions        []partitionDescription `json:"partitions"`

	minISR int
}

// partitionDescription is the JSON form of a partition; a list that the broker did not tell is left out.
type partitionDescription struct {
	Partition    int32   `json:"partition"`
	Leader       int32   `json:"leader"` // -1: none
	LeaderEpoch  int32   `json:"leaderEpoch"`
	Replicas     []int32 `json:"replicas"`
	ISR          []int32 `json:"isr"`
	ELR          []int32 `json:"elr,omitzero"`
	LastKnownELR []int32 `json:"lastKnownElr,omitzero"`
	// What a reassignment adds and removes; absent while there is none.
	Adding   []int32 `json:"addingReplicas,omitempty"`
	Removing []int32 `json:"removingReplicas,omitempty"`

	moving bool
}

// DescribeTopics prints the selected topics with their partitions.
func DescribeTopics(ctx context.Context, conn Connection, o DescribeTopicsOptions, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		found, brokers, err := o.find(ctx, cl)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return o.print(nil, brokers, out)
		}
		topics, err := describePartitions(ctx, cl, found, o.PartitionsPerAsk)
		if err != nil {
			return err
		}
		if err := describeConfigs(ctx, cl, topics); err != nil {
			return err
		}
		if err := describeReassignments(ctx, cl, topics); err != nil {
			return err
		}
		return o.print(topics, brokers, out)
	})
}

// describePartitions asks with DescribeTopicPartitions, page by page; a broker without it leaves the ELR untold.
func describePartitions(ctx context.Context, cl *kgo.Client, found []kmsg.MetadataResponseTopic, limit int32) ([]*topicDescription, error) {
	byName := map[string]*topicDescription{}
	var topics []*topicDescription
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = limit
	for _, m := range found {
		t := &topicDescription{Topic: *m.Topic, TopicID: topicIDText(m.TopicID), Internal: m.IsInternal, Configs: map[string]string{}}
		topics = append(topics, t)
		byName[t.Topic] = t
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = t.Topic
		req.Topics = append(req.Topics, rt)
	}
	known, err := supports(ctx, cl, req.Key())
	if err != nil {
		return nil, err
	}
	if !known {
		fromMetadata(topics, found)
	}
	for known {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return nil, err
		}
		for _, rt := range resp.Topics {
			if err := brokerError(rt.ErrorCode, nil); err != nil {
				return nil, fmt.Errorf("topic '%s': %w", deref(rt.Topic), err)
			}
			if t := byName[deref(rt.Topic)]; t != nil {
				t.addPartitions(rt.Partitions)
			}
		}
		if resp.NextCursor == nil {
			break
		}
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
		req.Cursor = &cursor
	}
	for _, t := range topics {
		slices.SortFunc(t.Partitions, func(a, b partitionDescription) int { return int(a.Partition - b.Partition) })
		t.PartitionCount = len(t.Partitions)
		if t.PartitionCount > 0 {
			t.ReplicationFactor = len(t.Partitions[0].Replicas)
		}
	}
	return topics, nil
}

// supports reports whether the broker offers the API key.
func supports(ctx context.Context, cl *kgo.Client, key int16) (bool, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "cairn", Version
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return false, err
	}
	if err := brokerError(resp.ErrorCode, nil); err != nil {
		return false, fmt.Errorf("asking for the API versions: %w", err)
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key }), nil
}

func (t *topicDescription) addPartitions(parts []kmsg.DescribeTopicPartitionsResponseTopicPartition) {
	for _, p := range parts {
		t.Partitions = append(t.Partitions, partitionDescription{
			Partition: p.Partition, Leader: p.LeaderID, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			ELR: p.EligibleLeaderReplicas, LastKnownELR: p.LastKnownELR,
		})
	}
}

func fromMetadata(topics []*topicDescription, found []kmsg.MetadataResponseTopic) {
	for i, m := range found {
		topics[i].Partitions = nil
		for _, p := range m.Partitions {
			topics[i].Partitions = append(topics[i].Partitions, partitionDescription{
				Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			})
		}
	}
}

// describeReassignments fills in what is under way; a broker that does not tell is taken to move nothing.
func describeReassignments(ctx context.Context, cl *kgo.Client, topics []*topicDescription) error {
	known, err := supports(ctx, cl, int16(kmsg.ListPartitionReassignments))
	if err != nil || !known {
		return err
	}
	active, err := activeReassignments(ctx, cl, nil)
	if err != nil {
		return fmt.Errorf("asking for reassignments: %w", err)
	}
	for _, t := range topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			at := slices.IndexFunc(active, func(a activeReassignment) bool { return a.topicPartition == topicPartition{t.Topic, p.Partition} })
			if at >= 0 {
				p.moving, p.Adding, p.Removing = true, active[at].Adding, active[at].Removing
			}
		}
	}
	return nil
}

// describeConfigs fills in the configs that are not defaults, and min.insync.replicas for the filters.
func describeConfigs(ctx context.Context, cl *kgo.Client, topics []*topicDescription) error {
	byName := map[string]*topicDescription{}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range topics {
		byName[t.Topic] = t
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, t.Topic
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		t := byName[r.ResourceName]
		if t == nil {
			continue
		}
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return fmt.Errorf("configs of topic '%s': %w", t.Topic, err)
		}
		for _, c := range r.Configs {
			if c.Name == "min.insync.replicas" {
				if t.minISR, err = strconv.Atoi(deref(c.Value)); err != nil {
					return fmt.Errorf("configs of topic '%s': min.insync.replicas=%s is no number", t.Topic, deref(c.Value))
				}
			}
			if c.Source != kmsg.ConfigSourceDefaultConfig && c.Value != nil {
				t.Configs[c.Name] = *c.Value
			}
		}
	}
	return nil
}

func (o DescribeTopicsOptions) print(topics []*topicDescription, brokers []int32, out Output) error {
	shown := []*topicDescription{}
	for _, t := range topics {
		if o.WithOverrides && len(t.Configs) == 0 {
			continue
		}
		if o.filtersPartitions() {
			t.Partitions = slices.DeleteFunc(t.Partitions, func(p partitionDescription) bool { return !o.keeps(t, p, brokers) })
			if len(t.Partitions) == 0 {
				continue
			}
		}
		shown = append(shown, t)
	}
	if out.JSON {
		return out.writeJSON(shown)
	}
	var b strings.Builder
	for _, t := range shown {
		if !o.filtersPartitions() {
			t.appendLine(&b)
		}
		if o.WithOverrides {
			continue
		}
		for _, p := range t.Partitions {
			p.appendLine(&b, t.Topic)
		}
	}
	_, err := out.Out.Write([]byte(b.String()))
	return err
}

// keeps reports whether a partition passes one of the filters.
func (o DescribeTopicsOptions) keeps(t *topicDescription, p partitionDescription, brokers []int32) bool {
	return (o.UnderReplicated && len(p.ISR) < len(p.Replicas)-len(p.Adding)) ||
		(o.UnderMinISR && (p.Leader < 0 || len(p.ISR) < t.minISR)) ||
		(o.AtMinISR && len(p.ISR) == t.minISR) ||
		(o.Unavailable && !slices.Contains(brokers, p.Leader))
}

func (t *topicDescription) appendLine(b *strings.Builder) {
	var configs []string
	for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
		configs = append(configs, k+"="+t.Configs[k])
	}
	fmt.Fprintf(b, "Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n",
		t.Topic, t.TopicID, t.PartitionCount, t.ReplicationFactor, strings.Join(configs, ","))
}

func (p partitionDescription) appendLine(b *strings.Builder, topic string) {
	leader := "none"
	if p.Leader >= 0 {
		leader = strconv.Itoa(int(p.Leader))
	}
	moving := ""
	if p.moving {
		moving = fmt.Sprintf("\tAdding Replicas: %s\tRemoving Replicas: %s", joinIDs(p.Adding, ""), joinIDs(p.Removing, ""))
	}
	fmt.Fprintf(b, "\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s%s\tElr: %s\tLastKnownElr: %s\n", topic, p.Partition, leader,
		joinIDs(p.Replicas, ""), joinIDs(p.ISR, ""), moving, joinIDs(p.ELR, "N/A"), joinIDs(p.LastKnownELR, "N/A"))
}

// joinIDs lists broker ids with commas; ifNull stands for a list that the broker did not tell.
func joinIDs(list []int32, ifNull string) string {
	if list == nil {
		return ifNull
	}
	var s []string
	for _, id := range list {
		s = append(s, strconv.Itoa(int(id)))
	}
	return strings.Join(s, ",")
}
