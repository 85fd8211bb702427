package broker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cairn/broker/controller"
	"cairn/broker/topicconfig"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeConfigs answers with the effective configs of topics and of this broker, and where they come from.
func handleDescribeConfigs(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeConfigsRequest)
	d := configDescriber{b: b, img: b.images.Image(), req: req}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, res := range req.Resources {
		item := kmsg.NewDescribeConfigsResponseResource()
		item.ResourceType, item.ResourceName = res.ResourceType, res.ResourceName
		configs, err := d.resource(res)
		if err != nil {
			item.ErrorCode, item.ErrorMessage = err.code, &err.message
		}
		item.Configs = slices.DeleteFunc(configs, func(c kmsg.DescribeConfigsResponseResourceConfig) bool {
			return res.ConfigNames != nil && !slices.Contains(res.ConfigNames, c.Name)
		})
		resp.Resources = append(resp.Resources, item)
	}
	r.reply(resp)
}

// itemError is the error of one item of a response.
type itemError struct {
	code    int16
	message string
}

func newItemError(err *kerr.Error, format string, args ...any) *itemError {
	return &itemError{code: err.Code, message: fmt.Sprintf(format, args...)}
}

// configDescriber describes configs for one request.
type configDescriber struct {
	b   *Broker
	img *controller.Image
	req *kmsg.DescribeConfigsRequest
}

func (d configDescriber) resource(res kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, *itemError) {
	switch res.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := controller.ValidateTopicName(res.ResourceName); err != nil {
			return nil, newItemError(kerr.InvalidTopicException, "%v", err)
		}
		if d.img.Topics[res.ResourceName] == nil {
			return nil, newItemError(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", res.ResourceName)
		}
		return d.topic(res.ResourceName), nil
	case kmsg.ConfigResourceTypeBroker:
		if res.ResourceName == "" {
			return d.clusterDefaults(), nil
		}
		if res.ResourceName != strconv.Itoa(int(d.b.nodeID)) {
			return nil, newItemError(kerr.InvalidRequest, "This is broker %d: it does not know the configuration of %q.", d.b.nodeID, res.ResourceName)
		}
		return d.broker(), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if res.ResourceName == "" {
			return nil, newItemError(kerr.InvalidRequest, "Groups have no default configs: name the group.")
		}
		return d.group(res.ResourceName), nil
	default:
		return nil, newItemError(kerr.InvalidRequest, "Resources of type %d have no configuration here.", res.ResourceType)
	}
}

func (d configDescriber) topic(name string) []kmsg.DescribeConfigsResponseResourceConfig {
	entries := topicconfig.Resolve(topicconfig.Layers{
		Topic: d.img.TopicConfigs(name), Broker: d.img.BrokerConfigs(d.b.nodeID), Cluster: d.img.ClusterConfigs(), Static: d.b.cfg.topicLayer(),
	})
	configs := make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(entries))
	for _, e := range entries {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value = e.Def.Name, kmsg.StringPtr(e.Value)
		c.Source, c.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Def.Type)
		c.IsDefault = e.Source == topicconfig.DefaultSource
		if d.req.IncludeSynonyms {
			for _, s := range e.Synonyms {
				c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(s.Name, &s.Value, kmsg.ConfigSource(s.Source)))
			}
		}
		if d.req.IncludeDocumentation {
			c.Documentation = kmsg.StringPtr(topicDoc(e.Def))
		}
		configs = append(configs, c)
	}
	return configs
}

func topicDoc(def topicconfig.Def) string {
	if def.NoEffect != "" {
		return "No effect: " + def.NoEffect + "."
	}
	return ""
}

func synonym(name string, value *string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, value, source
	return s
}

// clusterDefaults are the dynamic defaults of all brokers, and nothing else, as in Kafka.
func (d configDescriber) clusterDefaults() []kmsg.DescribeConfigsResponseResourceConfig {
	dynamic := d.img.ClusterConfigs()
	var configs []kmsg.DescribeConfigsResponseResourceConfig
	for _, p := range propertyTable {
		if _, ok := dynamic[p.Name]; ok {
			configs = append(configs, d.property(p, nil, dynamic, nil))
		}
	}
	return configs
}

func (d configDescriber) broker() []kmsg.DescribeConfigsResponseResourceConfig {
	own, cluster := d.img.BrokerConfigs(d.b.nodeID), d.img.ClusterConfigs()
	configs := make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(propertyTable))
	for _, p := range propertyTable {
		configs = append(configs, d.property(p, own, cluster, d.b.cfg.values))
	}
	return configs
}

// group describes the dynamic configs of a group, which need not exist.
func (d configDescriber) group(id string) []kmsg.DescribeConfigsResponseResourceConfig {
	own := d.img.GroupConfigs(id)
	var configs []kmsg.DescribeConfigsResponseResourceConfig
	for _, def := range (valueReader{d.b.cfg.values}).consumerGroups().GroupConfigs() {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.ConfigType, c.Source = def.Name, kmsg.ConfigType(typeInt), kmsg.ConfigSourceDefaultConfig
		fallback := strconv.FormatInt(def.Default.Milliseconds(), 10)
		c.Value = &fallback
		if d.req.IncludeSynonyms {
			c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(def.Name, &fallback, c.Source))
		}
		if v, ok := own[def.Name]; ok {
			c.Value, c.Source = &v, kmsg.ConfigSourceGroupConfig
			if d.req.IncludeSynonyms {
				c.ConfigSynonyms = slices.Insert(c.ConfigSynonyms, 0, synonym(def.Name, &v, c.Source))
			}
		}
		c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
		configs = append(configs, c)
	}
	return configs
}

// property describes one broker property from its dynamic, cluster-wide and static values. Without static ones, neither
// they nor the default are shown: the answer is about the cluster then, not about this broker.
func (d configDescriber) property(p property, own, cluster, static map[string]string) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.ConfigType = p.Name, kmsg.ConfigType(p.Type)
	c.ReadOnly, c.IsSensitive = p.Mode == readOnly, p.Type == typePassword
	show := func(v string) *string {
		if c.IsSensitive || v == "" && p.Type != typeList {
			return nil
		}
		return &v
	}
	for _, layer := range []struct {
		values map[string]string
		source kmsg.ConfigSource
	}{
		{own, kmsg.ConfigSourceDynamicBrokerConfig},
		{cluster, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
		{static, kmsg.ConfigSourceStaticBrokerConfig},
		{map[string]string{p.Name: p.Default}, kmsg.ConfigSourceDefaultConfig},
	} {
		raw, ok := layer.values[p.Name]
		if !ok {
			continue
		}
		v := show(strings.TrimSpace(raw))
		if len(c.ConfigSynonyms) == 0 {
			c.Value, c.Source = v, layer.source
		}
		if layer.source == kmsg.ConfigSourceDefaultConfig && (v == nil || static == nil) {
			continue
		}
		c.ConfigSynonyms = append(c.ConfigSynonyms, synonym(p.Name, v, layer.source))
	}
	c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
	if !d.req.IncludeSynonyms {
		c.ConfigSynonyms = nil
	}
	if d.req.IncludeDocumentation {
		_, doc := p.effect()
		c.Documentation = &doc
	}
	return c
}
