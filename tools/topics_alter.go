package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/internal/nearest"
)

// AlterTopicOptions says what to change of the selected topics: the number of partitions, dynamic configs, or both.
type AlterTopicOptions struct {
	TopicSelection
	Partitions        int32    // the new total; 0: leave it
	ReplicaAssignment string   // of all partitions, the existing ones included; only with Partitions
	Configs           []string // NAME=VALUE to set
	DeleteConfigs     []string // names to reset to their defaults
}

// AlterTopics changes the selected topics. Like Kafka it prints nothing on success, unless JSON is wanted.
func AlterTopics(ctx context.Context, conn Connection, o AlterTopicOptions, out Output) error {
	if err := o.validate(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		topics, _, err := o.find(ctx, cl)
		if err != nil {
			return err
		}
		if err := o.known(ctx, cl, topics); err != nil {
			return err
		}
		altered := []string{}
		for _, t := range topics {
			if o.Partitions > 0 {
				if err := o.addPartitions(ctx, cl, t); err != nil {
					return err
				}
			}
			if len(o.Configs)+len(o.DeleteConfigs) > 0 {
				if err := o.setConfigs(ctx, cl, *t.Topic); err != nil {
					return err
				}
			}
			altered = append(altered, *t.Topic)
		}
		if out.JSON {
			return out.writeJSON(map[string][]string{"altered": altered})
		}
		return nil
	})
}

func (o AlterTopicOptions) validate() error {
	switch {
	case o.Topic == "" && o.TopicID == "":
		return errors.New("say which topic with --topic")
	case o.Partitions < 0:
		return fmt.Errorf("--partitions %d: want the new number of partitions", o.Partitions)
	case o.Partitions == 0 && o.ReplicaAssignment != "":
		return errors.New("--replica-assignment needs --partitions")
	case o.Partitions == 0 && len(o.Configs)+len(o.DeleteConfigs) == 0:
		return errors.New("nothing to alter: give --partitions, --config or --delete-config")
	default: // here, because setConfigs comes after the partitions were added
		return splitPairs(map[string]string{}, o.Configs, "--config")
	}
}

// known refuses to reset a config that there is not: brokers take that, and it is misspelt.
func (o AlterTopicOptions) known(ctx context.Context, cl *kgo.Client, topics []kmsg.MetadataResponseTopic) error {
	if len(o.DeleteConfigs) == 0 || len(topics) == 0 {
		return nil
	}
	configs, err := ConfigEntity{Type: topicEntities, Name: *topics[0].Topic}.describe(ctx, cl, true)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, c := range configs {
		names[c.Name] = true
	}
	for _, name := range o.DeleteConfigs {
		if names[name] {
			continue
		}
		hint := "`cairn topics describe` shows what is set"
		if meant := nearest.Name(name, maps.Keys(names)); meant != "" {
			hint = fmt.Sprintf("is %s meant?", meant)
		}
		return fmt.Errorf("--delete-config %s: topics have no such config; %s", name, hint)
	}
	return nil
}

func (o AlterTopicOptions) addPartitions(ctx context.Context, cl *kgo.Client, t kmsg.MetadataResponseTopic) error {
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = *t.Topic, o.Partitions
	if o.ReplicaAssignment != "" {
		assignment, err := parseAssignment(o.ReplicaAssignment)
		if err != nil {
			return err
		}
		if len(assignment) != int(o.Partitions) {
			return fmt.Errorf("--replica-assignment names %d partitions, --partitions %d", len(assignment), o.Partitions)
		}
		for _, replicas := range assignment[min(len(t.Partitions), len(assignment)):] {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = replicas
			rt.Assignment = append(rt.Assignment, a)
		}
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(adminTimeout.Milliseconds() / 2)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, r := range resp.Topics {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return fmt.Errorf("partitions of topic '%s': %w", r.Topic, tooMany(err))
		}
	}
	return nil
}

// Operations of IncrementalAlterConfigs.
const (
	configSet    = 0
	configDelete = 1
)

func (o AlterTopicOptions) setConfigs(ctx context.Context, cl *kgo.Client, topic string) error {
	configs := map[string]string{}
	if err := splitPairs(configs, o.Configs, "--config"); err != nil {
		return err
	}
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = name, configSet, kmsg.StringPtr(configs[name])
		res.Configs = append(res.Configs, c)
	}
	for _, name := range o.DeleteConfigs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = name, configDelete
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return fmt.Errorf("configs of topic '%s': %w", r.ResourceName, err)
		}
	}
	return nil
}
