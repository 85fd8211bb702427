package controller

import (
	"context"
	"slices"

	"cairn/broker/topicconfig"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionsPerRequest bounds how many partitions one request may create, as in Kafka.
const partitionsPerRequest = 10_000

// isInternal tells Kafka's own topics.
func isInternal(topic string) bool {
	return topic == "__consumer_offsets" || topic == "__transaction_state" || topic == "__share_group_state"
}

// createTopics answers CreateTopics: each topic by itself, those that pass in one command.
func (c *Controller) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	active := c.Active()
	img := c.store.Image()
	seen := countNames(req.Topics, func(t kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	var cmd CreateTopics
	var answers []int // answers[i] is the response's index of cmd.Topics[i]
	room := partitionsPerRequest
	for _, t := range req.Topics {
		if seen[t.Topic] == 0 {
			continue // a duplicate that was answered
		}
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		var topic NewTopic
		bad := refuseItem(kerr.NotController, "This node is not the active controller.")
		if active {
			topic, bad = c.planTopic(img, t, seen[t.Topic] > 1, &room)
		}
		seen[t.Topic] = 0
		setError(bad, &rt.ErrorCode, &rt.ErrorMessage)
		if bad.Code == 0 {
			c.describeNew(img, topic, &rt)
			answers = append(answers, len(resp.Topics))
			cmd.Topics = append(cmd.Topics, topic)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(cmd.Topics) == 0 || req.ValidateOnly {
		return resp
	}
	for i, r := range c.proposeItems(ctx, cmd, len(cmd.Topics)) {
		rt := &resp.Topics[answers[i]]
		rt.TopicID = cmd.Topics[i].ID
		if r.Code != 0 {
			name := rt.Topic
			*rt = kmsg.NewCreateTopicsResponseTopic()
			rt.Topic = name
			setError(r, &rt.ErrorCode, &rt.ErrorMessage)
		}
	}
	return resp
}

// planTopic checks one topic of the request and chooses its replicas. room is what is left of the partitions a request may
// create.
func (c *Controller) planTopic(img *Image, t kmsg.CreateTopicsRequestTopic, twice bool, room *int) (NewTopic, ItemResult) {
	if twice {
		return NewTopic{}, refuseItem(kerr.InvalidRequest, "Duplicate topic name.")
	}
	if bad := checkTopicName(t.Topic); bad.Code != 0 {
		return NewTopic{}, bad
	}
	if img.Topics[t.Topic] != nil {
		return NewTopic{}, refuseItem(kerr.TopicAlreadyExists, "Topic '%s' already exists.", t.Topic)
	}
	if other, ok := img.collision(t.Topic); ok {
		return NewTopic{}, refuseItem(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", t.Topic, other)
	}
	configs, bad := newTopicConfigs(t.Configs)
	if bad.Code != 0 {
		return NewTopic{}, bad
	}
	var partitions [][]ids.NodeID
	if len(t.ReplicaAssignment) > 0 {
		partitions, bad = manualAssignment(img, t)
	} else {
		partitions, bad = c.spread(img, t, *room)
	}
	if bad.Code != 0 {
		return NewTopic{}, bad
	}
	if *room -= len(partitions); *room < 0 {
		return NewTopic{}, refuseItem(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	return NewTopic{t.Topic, newUUID(), isInternal(t.Topic), partitions, configs}, ItemResult{}
}

func newTopicConfigs(list []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, ItemResult) {
	configs := make(map[string]string, len(list))
	for _, kv := range list {
		if kv.Value == nil {
			return nil, refuseItem(kerr.InvalidConfig, "Null value not supported for topic configs: %s", kv.Name)
		}
		configs[kv.Name] = *kv.Value
	}
	if err := topicconfig.Validate(configs); err != nil {
		return nil, refuseItem(kerr.InvalidConfig, "%v", err)
	}
	return configs, ItemResult{}
}

// spread chooses replicas for a topic that names none.
func (c *Controller) spread(img *Image, t kmsg.CreateTopicsRequestTopic, room int) ([][]ids.NodeID, ItemResult) {
	n, factor := t.NumPartitions, t.ReplicationFactor
	if n == -1 {
		n = c.cfg.NumPartitions
	}
	if factor == -1 {
		factor = c.cfg.ReplicationFactor
	}
	switch {
	case n <= 0:
		return nil, refuseItem(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case factor <= 0:
		return nil, refuseItem(kerr.InvalidReplicationFactor, "Replication factor was set to an invalid non-positive value.")
	case int(n) > room:
		return nil, refuseItem(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	return c.place(img, int(n), int(factor))
}

func (c *Controller) place(img *Image, partitions, factor int) ([][]ids.NodeID, ItemResult) {
	c.mu.Lock()
	p := newPlacement(img, c.rng)
	c.mu.Unlock()
	return p.place(partitions, factor)
}

// manualAssignment checks the replicas that the request names.
func manualAssignment(img *Image, t kmsg.CreateTopicsRequestTopic) ([][]ids.NodeID, ItemResult) {
	switch {
	case t.ReplicationFactor != -1:
		return nil, refuseItem(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	case t.NumPartitions != -1:
		return nil, refuseItem(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	partitions := make([][]ids.NodeID, len(t.ReplicaAssignment))
	for _, a := range t.ReplicaAssignment {
		switch {
		case a.Partition < 0 || int(a.Partition) >= len(partitions):
			return nil, refuseItem(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		case partitions[a.Partition] != nil:
			return nil, refuseItem(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		replicas, bad := img.manualReplicas(a.Partition, a.Replicas)
		if bad.Code != 0 {
			return nil, bad
		}
		partitions[a.Partition] = replicas
	}
	for _, r := range partitions {
		if len(r) != len(partitions[0]) {
			return nil, inconsistentFactor(len(r), len(partitions[0]))
		}
	}
	return partitions, ItemResult{}
}

func inconsistentFactor(n, want int) ItemResult {
	return refuseItem(kerr.InvalidReplicaAssignment,
		"The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", n, want)
}

// manualReplicas checks one partition's named replicas: registered, different, and a majority of them in service. Kafka is content with one,
// whose log is then all that there is; here a new partition needs a majority to elect its first leader. A reassignment needs none, since those
// that join get a vote only once they are in sync: it waits for them, as in Kafka.
func (img *Image) manualReplicas(partition int32, nodes []int32) ([]ids.NodeID, ItemResult) {
	replicas := make([]ids.NodeID, len(nodes))
	for i, n := range nodes {
		replicas[i] = ids.NodeID(n)
	}
	if bad := img.checkAssignments([][]ids.NodeID{replicas}); bad.Code != 0 {
		return nil, bad
	}
	inService := func(n ids.NodeID) bool { return img.Usable(n) && !img.Brokers[n].ShuttingDown }
	if !slices.ContainsFunc(replicas, inService) {
		return nil, refuseItem(kerr.InvalidReplicaAssignment,
			"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", partition)
	}
	if alive := len(keep(replicas, inService)); alive <= len(replicas)/2 {
		return nil, refuseItem(kerr.InvalidReplicaAssignment,
			"Only %d of the %d brokers specified in the manual partition assignment for partition %d are alive: a new partition needs a majority of its "+
				"replicas to elect a leader. Start the others, or name other brokers.", alive, len(replicas), partition)
	}
	return replicas, ItemResult{}
}

// describeNew fills in what version 5 tells of the new topic.
func (c *Controller) describeNew(img *Image, t NewTopic, rt *kmsg.CreateTopicsResponseTopic) {
	rt.NumPartitions, rt.ReplicationFactor = int32(len(t.Partitions)), int16(len(t.Partitions[0]))
	layers := topicconfig.Layers{
		Topic: t.Configs, Broker: img.BrokerConfigs(c.cfg.Node), Cluster: img.ClusterConfigs(), Static: c.cfg.Static,
	}
	rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	for _, e := range topicconfig.Resolve(layers) {
		kc := kmsg.NewCreateTopicsResponseTopicConfig()
		kc.Name, kc.Value, kc.Source = e.Def.Name, kmsg.StringPtr(e.Value), int8(e.Source)
		rt.Configs = append(rt.Configs, kc)
	}
}

// deleteTopics answers DeleteTopics, by name or id.
func (c *Controller) deleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	active := c.Active()
	img := c.store.Image()
	asked := slices.Clone(req.Topics)
	for _, name := range req.TopicNames {
		asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(name)})
	}
	var cmd DeleteTopics
	var answers []int
	for _, a := range asked {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = a.Topic, a.TopicID
		topic, bad := c.findDoomed(img, a, req.Version, active)
		if bad.Code == 0 && slices.Contains(cmd.Topics, topic.ID) {
			bad = refuseItem(kerr.InvalidRequest, "Duplicate topic name or id.")
		}
		setError(bad, &rt.ErrorCode, &rt.ErrorMessage)
		if bad.Code == 0 {
			rt.Topic, rt.TopicID = kmsg.StringPtr(topic.Name), topic.ID
			answers = append(answers, len(resp.Topics))
			cmd.Topics = append(cmd.Topics, topic.ID)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(cmd.Topics) == 0 {
		return resp
	}
	for i, r := range c.proposeItems(ctx, cmd, len(cmd.Topics)) {
		rt := &resp.Topics[answers[i]]
		setError(r, &rt.ErrorCode, &rt.ErrorMessage)
	}
	return resp
}

func (c *Controller) findDoomed(img *Image, a kmsg.DeleteTopicsRequestTopic, version int16, active bool) (*Topic, ItemResult) {
	byID := !ids.UUID(a.TopicID).IsZero()
	switch {
	case !active:
		return nil, refuseItem(kerr.NotController, "This node is not the active controller.")
	case c.cfg.DeleteTopicsDisabled && version < 3:
		return nil, refuseItem(kerr.InvalidRequest, "Topic deletion is disabled.")
	case c.cfg.DeleteTopicsDisabled:
		return nil, refuseItem(kerr.TopicDeletionDisabled, "Topic deletion is disabled.")
	case a.Topic != nil && byID:
		return nil, refuseItem(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case a.Topic == nil && !byID:
		return nil, refuseItem(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	}
	if byID {
		if t := img.TopicsByID[a.TopicID]; t != nil {
			return t, keepInternal(t)
		}
		return nil, refuseItem(kerr.UnknownTopicID, "This server does not host this topic ID.")
	}
	if t := img.Topics[*a.Topic]; t != nil {
		return t, keepInternal(t)
	}
	return nil, refuseItem(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
}

// keepInternal refuses to delete a topic that coordinators keep their state in.
func keepInternal(t *Topic) ItemResult {
	if !t.Internal {
		return ItemResult{}
	}
	return refuseItem(kerr.InvalidRequest, "Topic '%s' is internal: it holds the state of groups or transactions and cannot be deleted.", t.Name)
}

// proposeItems proposes a command of n parts and returns the result of each: an error of the whole is everyone's.
func (c *Controller) proposeItems(ctx context.Context, cmd Command, n int) []ItemResult {
	res, err := c.propose(ctx, cmd)
	if err != nil {
		res.Code, res.Message = errorCode(err)
	}
	if res.Code == 0 && len(res.Items) == n {
		return res.Items
	}
	return slices.Repeat([]ItemResult{{Code: res.Code, Message: res.Message}}, n)
}

func setError(r ItemResult, code *int16, message **string) {
	*code = r.Code
	if r.Code != 0 {
		*message = kmsg.StringPtr(r.Message)
	}
}

func countNames[T any](items []T, name func(T) string) map[string]int {
	m := make(map[string]int, len(items))
	for _, it := range items {
		m[name(it)]++
	}
	return m
}
