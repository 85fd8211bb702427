package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConfigEntity is what configs belong to: a topic, a group, a broker, or the defaults of all brokers.
type ConfigEntity struct {
	Type    string // topics, groups or brokers, as Kafka's --entity-type
	Name    string // empty: all of the type, for describe
	Default bool   // the brokers' defaults
}

// The types of entities.
const (
	topicEntities  = "topics"
	groupEntities  = "groups"
	brokerEntities = "brokers"
)

// check refuses what cairn has no configs for, and says so.
func (e ConfigEntity) check() error {
	switch e.Type {
	case topicEntities, groupEntities, brokerEntities:
	case "users", "clients", "ips":
		return fmt.Errorf("%s have no configs: cairn has no quotas and no SCRAM credentials yet", e.Type)
	case "client-metrics", "broker-loggers":
		return fmt.Errorf("%s have no configs in cairn; --entity-type topics, groups or brokers have", e.Type)
	default:
		return fmt.Errorf("--entity-type %q: want topics, groups or brokers", e.Type)
	}
	switch {
	case e.Default && (e.Type != brokerEntities || e.Name != ""):
		return errors.New("--entity-default goes with --entity-type brokers and without --entity-name")
	case e.Type == brokerEntities && e.Name != "":
		if n, err := strconv.ParseInt(e.Name, 10, 32); err != nil || n < 0 {
			return fmt.Errorf("--entity-name %s: want the id of a broker", e.Name)
		}
	}
	return nil
}

// words are how Kafka's lines name the entity.
func (e ConfigEntity) words() string {
	switch {
	case e.Default:
		return "default config for brokers in the cluster"
	default:
		return "config for " + e.kind() + " " + e.Name
	}
}

// kind is the type of one entity: topic, group or broker. The flag that is short for it has that name, too.
func (e ConfigEntity) kind() string { return strings.TrimSuffix(e.Type, "s") }

// unreached adds to an error of a broker that gave no answer about itself where to find others.
func (e ConfigEntity) unreached(err error) error {
	if e.Type != brokerEntities || e.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w; `cairn status` lists the brokers", e.words(), err)
}

// refused adds to a broker's error what to look at.
func (e ConfigEntity) refused(err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%s: %w", e.words(), TopicSelection{Topic: e.Name}.missing())
	case errors.Is(err, kerr.InvalidConfig) && e.Name != "":
		return fmt.Errorf("%s: %w; `cairn configs describe --%s %s --all` lists the names with their values", e.words(), err, e.kind(), e.Name)
	default:
		return fmt.Errorf("%s: %w", e.words(), err)
	}
}

// head is the line above its configs.
func (e ConfigEntity) head(all bool) string {
	switch {
	case e.Default:
		return "Default configs for brokers in the cluster are:"
	case all:
		return "All configs for " + strings.TrimPrefix(e.words(), "config for ") + " are:"
	default:
		return "Dynamic configs for " + strings.TrimPrefix(e.words(), "config for ") + " are:"
	}
}

func (e ConfigEntity) resource() (kmsg.ConfigResourceType, string) {
	switch e.Type {
	case topicEntities:
		return kmsg.ConfigResourceTypeTopic, e.Name
	case groupEntities:
		return kmsg.ConfigResourceTypeGroupConfig, e.Name
	default:
		return kmsg.ConfigResourceTypeBroker, e.Name
	}
}

// ownSource is the source of what was set for the entity itself.
func (e ConfigEntity) ownSource() kmsg.ConfigSource {
	switch {
	case e.Type == topicEntities:
		return kmsg.ConfigSourceDynamicTopicConfig
	case e.Type == groupEntities:
		return kmsg.ConfigSourceGroupConfig
	case e.Default:
		return kmsg.ConfigSourceDynamicDefaultBrokerConfig
	default:
		return kmsg.ConfigSourceDynamicBrokerConfig
	}
}

// describedEntity is the JSON form of an entity with its configs.
type describedEntity struct {
	EntityType string            `json:"entityType"`
	EntityName string            `json:"entityName"` // empty: the defaults
	Configs    []describedConfig `json:"configs"`
}

// describedConfig is one config, its synonyms the strongest first.
type describedConfig struct {
	Name      string          `json:"name"`
	Value     *string         `json:"value"`
	Sensitive bool            `json:"sensitive"`
	Synonyms  []configSynonym `json:"synonyms"`
}

type configSynonym struct {
	Source string  `json:"source"`
	Name   string  `json:"name"`
	Value  *string `json:"value"`
}

// DescribeConfigs prints the configs of an entity, or of all of its type: those that were set for it, or all.
func DescribeConfigs(ctx context.Context, conn Connection, e ConfigEntity, all bool, out Output) error {
	if err := e.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		entities, err := e.expand(ctx, cl)
		if err != nil {
			return err
		}
		described := []describedEntity{}
		var b strings.Builder
		for _, one := range entities {
			configs, err := one.describe(ctx, cl, all)
			if err != nil {
				return err
			}
			described = append(described, describedEntity{one.Type, one.Name, configs})
			b.WriteString(one.head(all) + "\n")
			for _, c := range configs {
				b.WriteString(c.line())
			}
		}
		if out.JSON {
			return out.writeJSON(described)
		}
		_, err = out.Out.Write([]byte(b.String()))
		return err
	})
}

// expand lists all entities of the type where none is named, the brokers' defaults behind the brokers. Groups are those that there are: configs
// may be set for others, too, but nothing lists these.
func (e ConfigEntity) expand(ctx context.Context, cl *kgo.Client) ([]ConfigEntity, error) {
	if e.Name != "" || e.Default {
		return []ConfigEntity{e}, nil
	}
	var list []ConfigEntity
	switch e.Type {
	case groupEntities:
		groups, err := listGroups(ctx, cl, nil, nil)
		for _, g := range groups {
			list = append(list, ConfigEntity{Type: e.Type, Name: g.Group})
		}
		return list, err
	case brokerEntities:
		addresses, err := brokerAddresses(ctx, cl)
		if err != nil {
			return nil, err
		}
		for id := range addresses {
			list = append(list, ConfigEntity{Type: e.Type, Name: strconv.Itoa(int(id))})
		}
		slices.SortFunc(list, func(a, b ConfigEntity) int { return cmp.Or(len(a.Name)-len(b.Name), strings.Compare(a.Name, b.Name)) })
		return append(list, ConfigEntity{Type: e.Type, Default: true}), nil
	}
	topics, _, err := TopicSelection{}.find(ctx, cl)
	for _, t := range topics {
		list = append(list, ConfigEntity{Type: e.Type, Name: deref(t.Topic)})
	}
	return list, err
}

func (e ConfigEntity) describe(ctx context.Context, cl *kgo.Client, all bool) ([]describedConfig, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = e.resource()
	req.IncludeSynonyms, req.Resources = true, append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, e.unreached(err)
	}
	configs := []describedConfig{}
	for _, r := range resp.Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, e.refused(err)
		}
		for _, c := range r.Configs {
			if !all && c.Source != e.ownSource() {
				continue
			}
			d := describedConfig{Name: c.Name, Value: c.Value, Sensitive: c.IsSensitive, Synonyms: []configSynonym{}}
			for _, s := range c.ConfigSynonyms {
				d.Synonyms = append(d.Synonyms, configSynonym{sourceName(s.Source), s.Name, s.Value})
			}
			configs = append(configs, d)
		}
	}
	slices.SortFunc(configs, func(a, b describedConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs, nil
}

// sourceName is Kafka's name of a source. The library's differ for one.
func sourceName(s kmsg.ConfigSource) string {
	if s == kmsg.ConfigSourceGroupConfig {
		return "DYNAMIC_GROUP_CONFIG"
	}
	return s.String()
}

// line is Kafka's line.
func (c describedConfig) line() string {
	synonyms := make([]string, len(c.Synonyms))
	for i, s := range c.Synonyms {
		synonyms[i] = fmt.Sprintf("%s:%s=%s", s.Source, s.Name, orNull(s.Value))
	}
	return fmt.Sprintf("  %s=%s sensitive=%t synonyms={%s}\n", c.Name, orNull(c.Value), c.Sensitive, strings.Join(synonyms, ", "))
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}
