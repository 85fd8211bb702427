package broker

import (
	"context"
	"slices"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The operations that Kafka reports for a resource when there is no authorizer: all it supports, as a bit field.
const (
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// handleMetadata answers with the brokers that clients of this listener can reach and the topics asked for, creating
// unknown ones where that is allowed.
func handleMetadata(b *Broker, r *request) {
	req := r.msg.(*kmsg.MetadataRequest)
	failed := map[string]int16{}
	if missing := b.missingTopics(req); len(missing) > 0 {
		failed = b.autoCreate(r.conn.context, missing)
	}
	img := b.images.Image()
	resp := kmsg.NewPtrMetadataResponse()
	resp.Brokers = b.reachableBrokers(img, r.listenerName())
	if img.ClusterID != "" {
		resp.ClusterID = &img.ClusterID
	}
	resp.ControllerID = int32(b.shownController(img))
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	d := topicDescriber{b: b, img: img, listener: r.listenerName(), version: req.Version}
	if allTopics(req) {
		for _, t := range img.TopicList() {
			resp.Topics = append(resp.Topics, d.topic(t))
		}
	}
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, d.asked(t, failed))
	}
	if req.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			if resp.Topics[i].ErrorCode == 0 {
				resp.Topics[i].AuthorizedOperations = topicOperations
			}
		}
	}
	r.reply(resp)
}

// allTopics reports whether the request asks for everything: an empty list in version 0, null later.
func allTopics(req *kmsg.MetadataRequest) bool {
	return req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
}

// reachableBrokers are the unfenced brokers with an endpoint of the listener's name.
func (b *Broker) reachableBrokers(img *controller.Image, listener string) []kmsg.MetadataResponseBroker {
	var list []kmsg.MetadataResponseBroker
	for _, br := range img.BrokerList() {
		host, port, rack, ok := b.endpoint(img, br.ID, listener)
		if !ok {
			continue
		}
		m := kmsg.NewMetadataResponseBroker()
		m.NodeID, m.Host, m.Port, m.Rack = int32(br.ID), host, port, rack
		list = append(list, m)
	}
	return list
}

// shownController is the broker that clients are to send controller requests to. Any live broker will do, since each
// forwards them; the active controller saves the way when it is a broker too.
func (b *Broker) shownController(img *controller.Image) ids.NodeID {
	switch {
	case img.Usable(img.Controller):
		return img.Controller
	case img.Usable(b.nodeID):
		return b.nodeID
	}
	for _, br := range img.BrokerList() {
		if !br.Fenced {
			return br.ID
		}
	}
	return ids.NoNode
}

// topicDescriber turns topics of one image into metadata for one request.
type topicDescriber struct {
	b        *Broker
	img      *controller.Image
	listener string
	version  int16
}

// asked describes a topic that the request names or gives the id of. failed has the error codes of topics that were
// to be created.
func (d topicDescriber) asked(t kmsg.MetadataRequestTopic, failed map[string]int16) kmsg.MetadataResponseTopic {
	resp := kmsg.NewMetadataResponseTopic()
	if !ids.UUID(t.TopicID).IsZero() {
		t.Topic = nil // as in Kafka, an id comes before a name; Java's client asks by id with an empty one
	}
	resp.Topic, resp.TopicID = t.Topic, t.TopicID
	if t.Topic == nil {
		if topic := d.img.TopicsByID[t.TopicID]; topic != nil {
			return d.topic(topic)
		}
		resp.ErrorCode = kerr.UnknownTopicID.Code
		if d.version < 12 || ids.UUID(t.TopicID).IsZero() { // names are null only from version 12 on
			resp.Topic, resp.ErrorCode = kmsg.StringPtr(""), kerr.InvalidTopicException.Code
		}
		return resp
	}
	resp.TopicID = [16]byte{}
	name := *t.Topic
	if topic := d.img.Topics[name]; topic != nil {
		return d.topic(topic)
	}
	resp.IsInternal = isInternalTopic(name)
	resp.ErrorCode = kerr.UnknownTopicOrPartition.Code
	if controller.ValidateTopicName(name) != nil {
		resp.ErrorCode = kerr.InvalidTopicException.Code
	}
	if code := failed[name]; code != 0 {
		resp.ErrorCode = code
	}
	return resp
}

func (d topicDescriber) topic(t *controller.Topic) kmsg.MetadataResponseTopic {
	resp := kmsg.NewMetadataResponseTopic()
	resp.Topic, resp.TopicID, resp.IsInternal = kmsg.StringPtr(t.Name), t.ID, t.Internal
	resp.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		resp.Partitions[i] = d.partition(int32(i), p)
	}
	return resp
}

func (d topicDescriber) partition(index int32, p *controller.Partition) kmsg.MetadataResponseTopicPartition {
	m := kmsg.NewMetadataResponseTopicPartition()
	m.Partition, m.LeaderEpoch = index, int32(p.LeaderEpoch)
	m.Leader, m.ErrorCode = d.leader(p)
	m.Replicas, m.ISR = nodeIDs(p.Replicas), nodeIDs(p.InSync)
	m.OfflineReplicas = d.offline(p)
	if d.version == 0 { // version 0 knows no offline replicas: it is shown the live ones
		offline := func(n int32) bool { return slices.Contains(m.OfflineReplicas, n) }
		m.Replicas, m.ISR = slices.DeleteFunc(m.Replicas, offline), slices.DeleteFunc(m.ISR, offline)
		if len(m.Replicas) < len(p.Replicas) && m.ErrorCode == 0 {
			m.ErrorCode = kerr.ReplicaNotAvailable.Code
		}
	}
	return m
}

// leader returns the leader to show, or none with the reason.
func (d topicDescriber) leader(p *controller.Partition) (int32, int16) {
	leader := d.img.Leader(p)
	if leader == ids.NoNode {
		return int32(leader), kerr.LeaderNotAvailable.Code
	}
	if _, _, _, ok := d.b.endpoint(d.img, leader, d.listener); !ok {
		if d.version >= 6 {
			return int32(ids.NoNode), kerr.ListenerNotFound.Code
		}
		return int32(ids.NoNode), kerr.LeaderNotAvailable.Code
	}
	return int32(leader), 0
}

// offline are the replicas that this listener's clients cannot reach.
func (d topicDescriber) offline(p *controller.Partition) []int32 {
	list := []int32{}
	for _, n := range p.Replicas {
		if _, _, _, ok := d.b.endpoint(d.img, n, d.listener); !ok {
			list = append(list, int32(n))
		}
	}
	return list
}

func nodeIDs(nodes []ids.NodeID) []int32 {
	list := make([]int32, len(nodes))
	for i, n := range nodes {
		list[i] = int32(n)
	}
	return list
}

// missingTopics are the names to create: unknown, valid, and allowed by request and configuration.
func (b *Broker) missingTopics(req *kmsg.MetadataRequest) []string {
	allowed := req.AllowAutoTopicCreation || req.Version < 4
	if !allowed || !b.cfg.AutoCreateTopics {
		return nil
	}
	img := b.images.Image()
	var names []string
	for _, t := range req.Topics {
		if t.Topic == nil || !ids.UUID(t.TopicID).IsZero() || img.Topics[*t.Topic] != nil || slices.Contains(names, *t.Topic) || controller.ValidateTopicName(*t.Topic) != nil {
			continue
		}
		names = append(names, *t.Topic)
	}
	return names
}

// autoCreate creates topics with the broker's defaults and waits a moment until they have leaders. It returns the codes
// to show for those that were not created.
func (b *Broker) autoCreate(ctx context.Context, names []string) map[string]int16 {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(req.MaxVersion())
	req.TimeoutMillis = int32(b.cfg.RequestTimeout.Milliseconds())
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, b.cfg.NumPartitions, b.cfg.DefaultReplicationFactor
		if isInternalTopic(name) {
			b.internalTopic(&t)
		}
		req.Topics = append(req.Topics, t)
	}
	failed := map[string]int16{}
	var created []string
	for _, t := range b.forward(ctx, req).(*kmsg.CreateTopicsResponse).Topics {
		switch t.ErrorCode {
		case 0, kerr.TopicAlreadyExists.Code:
			created = append(created, t.Topic)
		case kerr.RequestTimedOut.Code, kerr.NotController.Code: // not known, or not now: the client asks again
			failed[t.Topic] = kerr.UnknownTopicOrPartition.Code
		default:
			failed[t.Topic] = t.ErrorCode
		}
	}
	b.awaitTopics(ctx, created)
	return failed
}
