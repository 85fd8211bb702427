package broker

import (
	"context"
	"strconv"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The topics that coordinators keep their state in.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
	shareTopic        = "__share_group_state"
)

// isInternalTopic tells the topics that Kafka keeps its own state in.
func isInternalTopic(name string) bool {
	return name == offsetsTopic || name == transactionsTopic || name == shareTopic
}

// createInternalTimeout bounds the wait of a request for an internal topic that is being created.
const createInternalTimeout = 2 * time.Second

// internalTopics creates internal topics at their first use, each by one request at a time.
type internalTopics struct {
	mu       sync.Mutex
	creating map[string]chan struct{} // guarded by mu; closed once the attempt is over
}

// ensureInternalTopic returns an internal topic. If there is none it has it created and waits a moment for it; nil: it is not
// there yet.
func (b *Broker) ensureInternalTopic(ctx context.Context, name string) *controller.Topic {
	if t := b.images.Image().Topics[name]; t != nil {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, createInternalTimeout)
	defer cancel()
	c := &b.internal
	c.mu.Lock()
	attempt, running := c.creating[name]
	if !running {
		attempt = make(chan struct{})
		if c.creating == nil {
			c.creating = map[string]chan struct{}{}
		}
		c.creating[name] = attempt
	}
	c.mu.Unlock()
	if running {
		select {
		case <-attempt:
		case <-ctx.Done():
		}
		return b.images.Image().Topics[name]
	}
	defer func() {
		c.mu.Lock()
		delete(c.creating, name)
		c.mu.Unlock()
		close(attempt)
	}()
	b.autoCreate(ctx, []string{name})
	return b.images.Image().Topics[name]
}

// internalTopic fills in how an internal topic is created. It never waits for more brokers than there are: the controller
// adds replicas as brokers join.
func (b *Broker) internalTopic(t *kmsg.CreateTopicsRequestTopic) {
	v := valueReader{b.cfg.values}
	live := 0
	for _, br := range b.images.Image().Brokers {
		if !br.Fenced {
			live++
		}
	}
	set := func(name, value string) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		t.Configs = append(t.Configs, c)
	}
	properties := "offsets.topic."
	switch t.Topic {
	case transactionsTopic:
		properties = "transaction.state.log."
		set("min.insync.replicas", v.text("transaction.state.log.min.isr"))
		set("unclean.leader.election.enable", "false")
	case shareTopic:
		properties = "share.coordinator.state.topic."
		set("min.insync.replicas", v.text("share.coordinator.state.topic.min.isr"))
	}
	t.NumPartitions = int32(v.number(properties + "num.partitions"))
	t.ReplicationFactor = int16(min(v.number(properties+"replication.factor"), int64(max(live, 1))))
	set("cleanup.policy", "compact")
	set("segment.bytes", strconv.FormatInt(v.number(properties+"segment.bytes"), 10))
}

// internalReplicas are the replication factors that the topics of coordinators are to have.
func (c *Config) internalReplicas() map[string]int16 {
	v := valueReader{c.values}
	return map[string]int16{
		offsetsTopic:      int16(v.number("offsets.topic.replication.factor")),
		transactionsTopic: int16(v.number("transaction.state.log.replication.factor")),
	}
}

// partitionsOf is how many partitions a topic has at the moment; 0: there is no such topic.
func (b *Broker) partitionsOf(topic string) int32 {
	if t := b.images.Image().Topics[topic]; t != nil {
		return int32(len(t.Partitions))
	}
	return 0
}

// handleCreateTopics has the controller create topics, but not internal ones: they have their own way to come about.
func handleCreateTopics(b *Broker, r *request) {
	req := r.msg.(*kmsg.CreateTopicsRequest)
	var refused []kmsg.CreateTopicsResponseTopic
	var rest []kmsg.CreateTopicsRequestTopic
	for _, t := range req.Topics {
		if !isInternalTopic(t.Topic) {
			rest = append(rest, t)
			continue
		}
		item := kmsg.NewCreateTopicsResponseTopic()
		item.Topic, item.ErrorCode = t.Topic, kerr.InvalidRequest.Code
		item.ErrorMessage = kmsg.StringPtr("Creation of internal topic " + t.Topic + " is prohibited: it is created at its first use.")
		if topic := b.images.Image().Topics[t.Topic]; topic != nil {
			item.ErrorCode, item.ErrorMessage = kerr.TopicAlreadyExists.Code, kmsg.StringPtr("Topic '"+t.Topic+"' already exists.")
		}
		refused = append(refused, item)
	}
	if len(refused) == 0 {
		handleForward(b, r)
		return
	}
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	if len(rest) > 0 {
		req.Topics = rest
		resp = b.forward(r.conn.context, req).(*kmsg.CreateTopicsResponse)
		if !req.ValidateOnly {
			b.awaitTopics(r.conn.context, succeeded(resp))
		}
	}
	resp.Topics = append(resp.Topics, refused...)
	r.reply(resp)
}

// coordinatorOf finds who coordinates a key of an internal topic. Its code is COORDINATOR_NOT_AVAILABLE while nobody does.
func (b *Broker) coordinatorOf(topic *controller.Topic, partition int32, listener string) (node ids.NodeID, host string, port int32, ok bool) {
	if topic == nil || int(partition) >= len(topic.Partitions) {
		return ids.NoNode, "", -1, false
	}
	img := b.images.Image()
	node = img.Leader(topic.Partitions[partition])
	host, port, _, ok = b.endpoint(img, node, listener)
	if !ok {
		return ids.NoNode, "", -1, false
	}
	return node, host, port, true
}
