package controller

import (
	"cmp"
	"maps"
	"slices"

	"cairn/internal/ids"
)

// Image is the cluster's metadata at one position of the metadata log. It is immutable: Apply builds the next one and
// shares what did not change, so a reader may keep an Image, and anything reached through it, for as long as it likes.
type Image struct {
	// Index is the Raft index of the last applied command.
	Index uint64
	// ClusterID is empty until the first metadata leader has chosen it.
	ClusterID string
	// Controller is the node that last became active controller, ControllerTerm the Raft term in which it did. Commands
	// of any other term are refused.
	Controller     ids.NodeID
	ControllerTerm ids.Term

	Brokers    map[ids.NodeID]*Broker
	Topics     map[string]*Topic
	TopicsByID map[ids.UUID]*Topic
	// Configs holds the dynamic configs only, raw text by name.
	Configs map[Resource]map[string]string

	// Invariant: the counters only grow, and name the next value to give out.
	NextPartition ids.PartitionID
	NextShard     ids.ShardID
	NextReplica   ids.ReplicaID
	NextProducer  int64

	// Level is what the metadata can hold, ReplicationLevel from the start: a later program that stores what this one does not
	// know raises it.
	Level int16
	// FeatureLevels has the features whose level was chosen; use Feature to read.
	FeatureLevels map[string]int16
	// Losses lists what is known to be lost, oldest first.
	Losses []Loss

	partitions map[ids.PartitionID]partitionKey
}

// partitionKey finds a partition from its id; it never changes in a partition's life.
type partitionKey struct {
	topic ids.UUID
	index int32
}

// Broker is a registered broker.
type Broker struct {
	ID ids.NodeID `json:"id"`
	// Epoch is the Raft index of the registration, as in Kafka: a later registration has a larger one.
	Epoch int64 `json:"epoch"`
	// Incarnation is new in each process, Directory in each data directory.
	Incarnation ids.UUID   `json:"incarnation"`
	Directory   ids.UUID   `json:"directory"`
	Endpoints   []Endpoint `json:"endpoints"`
	Rack        *string    `json:"rack,omitempty"`
	// Fenced: not to be used by clients, out of every ISR. A broker starts fenced.
	Fenced       bool `json:"fenced"`
	ShuttingDown bool `json:"shuttingDown,omitempty"`
	// FencedAt is the index at which the broker was fenced last. Its own metadata must be there before it is unfenced: by
	// then what it led is over, and it knows.
	FencedAt uint64 `json:"fencedAt,omitempty"`
	// MetadataReplica is the broker's replica of the metadata group: its node id if it is one of the voters.
	MetadataReplica ids.ReplicaID `json:"metadataReplica"`
	// FormerReplicas are those of the broker's earlier data directories: they must be out of the metadata group before
	// MetadataReplica is in it.
	FormerReplicas []ids.ReplicaID `json:"formerReplicas,omitempty"`
	// LogFlush ("always" or "os") and BootID say whether what the broker's log held survives a restart of its machine.
	LogFlush string `json:"logFlush,omitempty"`
	BootID   string `json:"bootId,omitempty"`
	// OpenedNs is when the process opened the data directory, by the clock of the machine's run that BootID names; 0: unknown.
	OpenedNs uint64 `json:"openedNs,omitempty"`
}

// Endpoint is one advertised listener of a broker.
type Endpoint struct {
	Name             string `json:"name"`
	Host             string `json:"host"`
	Port             uint16 `json:"port"`
	SecurityProtocol int16  `json:"securityProtocol"`
}

// Endpoint returns the broker's advertised listener of that name.
func (b *Broker) Endpoint(name string) (Endpoint, bool) {
	i := slices.IndexFunc(b.Endpoints, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return Endpoint{}, false
	}
	return b.Endpoints[i], true
}

// Topic is a topic; partition i is Partitions[i].
type Topic struct {
	Name       string       `json:"name"`
	ID         ids.UUID     `json:"id"`
	Internal   bool         `json:"internal,omitempty"`
	Partitions []*Partition `json:"partitions"`
}

// Partition is the controller's state of one partition. Replicas, ReplicaIDs and Directories run in parallel; the first
// replica is the preferred leader.
type Partition struct {
	ID         ids.PartitionID `json:"id"`
	Replicas   []ids.NodeID    `json:"replicas"`
	ReplicaIDs []ids.ReplicaID `json:"replicaIds"`
	// Directories name the data directory each replica id was given for. A broker with another one (its disk was wiped
	// or replaced) must not start that replica: its votes and log are gone, and Raft would not know.
	Directories []ids.UUID `json:"directories"`

	// Shard is the Raft group of the present generation; BaseOffset is where that generation starts.
	Shard      ids.ShardID `json:"shard"`
	Generation int32       `json:"generation"`
	BaseOffset ids.Offset  `json:"baseOffset"`
	// Voters of the present generation, a subset of Replicas. They are as the leader last reported them, and so are the
	// FormerVoters: voters that are no replicas of this partition any more, but still count in the Raft group.
	Voters       []ids.NodeID    `json:"voters"`
	FormerVoters []ids.ReplicaID `json:"formerVoters,omitempty"`
	VotersAt     ids.RaftIndex   `json:"votersAt,omitempty"`
	// Founders are the members that the generation began with; all others joined it.
	Founders []Founder `json:"founders"`

	// Leader is the replica whose registration was last accepted, NoNode before the first one and after that broker
	// registered as a new process. Clients are shown Image.Leader instead. LeaderTerm and LeaderReplica outlive Leader:
	// they decide which registration is accepted next.
	Leader        ids.NodeID      `json:"leader"`
	LeaderEpoch   ids.LeaderEpoch `json:"leaderEpoch"`
	LeaderTerm    ids.Term        `json:"leaderTerm"`
	LeaderReplica ids.ReplicaID   `json:"leaderReplica"`
	// PartitionEpoch grows by one with every change of this struct.
	PartitionEpoch int32 `json:"partitionEpoch"`

	// InSync is the committed ISR, ELR who left it below the minimum and so holds all that was exposed, LastKnownELR the
	// last leader of a partition that has none; all in assignment order, the first two disjoint.
	InSync       []ids.NodeID `json:"inSync"`
	ELR          []ids.NodeID `json:"elr,omitempty"`
	LastKnownELR []ids.NodeID `json:"lastKnownElr,omitempty"`

	// Recovering: an unclean election was held, and its seed has not registered yet.
	Recovering bool `json:"recovering,omitempty"`
	// Pending is what the present generation is feared to lose; its seed's registration makes a Loss of it.
	Pending *PendingLoss `json:"pending,omitempty"`
	// Ends are the log ends that fenced brokers reported last.
	Ends []ReplicaEnd `json:"ends,omitempty"`
	// Transfer asks the leader to hand over.
	Transfer *Transfer `json:"transfer,omitempty"`
	// Adding and Removing are the replicas that a reassignment adds and removes; both are in Replicas meanwhile.
	Adding       []ids.NodeID `json:"adding,omitempty"`
	Removing     []ids.NodeID `json:"removing,omitempty"`
	ReassignedMs int64        `json:"reassignedMs,omitempty"`
}

// Founder is a member that a generation began with.
type Founder struct {
	Replica ids.ReplicaID `json:"replica"`
	Node    ids.NodeID    `json:"node"`
}

// ReplicaOf returns the position of node in the assignment, or -1.
func (p *Partition) ReplicaOf(node ids.NodeID) int { return slices.Index(p.Replicas, node) }

// NodeOf returns the node that holds the replica id, NoNode if it is none of this partition's.
func (p *Partition) NodeOf(r ids.ReplicaID) ids.NodeID {
	if i := slices.Index(p.ReplicaIDs, r); i >= 0 {
		return p.Replicas[i]
	}
	return ids.NoNode
}

// Members returns the founders of the present generation, as Raft wants them at every start of one of them. A replica that
// is none joins. The caller owns the map.
func (p *Partition) Members() map[ids.ReplicaID]ids.NodeID {
	m := make(map[ids.ReplicaID]ids.NodeID, len(p.Founders))
	for _, f := range p.Founders {
		m[f.Replica] = f.Node
	}
	return m
}

// ResourceType is Kafka's type of a config resource.
type ResourceType int8

// The resource types that have configs here, with Kafka's numbers.
const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4
	GroupResource  ResourceType = 32
)

// Resource is what a dynamic config belongs to. A broker's name is its node id in decimal; the empty name stands for
// the default of all brokers.
type Resource struct {
	Type ResourceType
	Name string
}

// NewImage returns the image of an empty metadata log.
func NewImage() *Image {
	return &Image{
		Controller:    ids.NoNode,
		Brokers:       map[ids.NodeID]*Broker{},
		Topics:        map[string]*Topic{},
		TopicsByID:    map[ids.UUID]*Topic{},
		Configs:       map[Resource]map[string]string{},
		NextPartition: 1,
		NextShard:     ids.MetadataShard + 1,
		NextReplica:   firstReplica,
		Level:         ReplicationLevel,
		partitions:    map[ids.PartitionID]partitionKey{},
	}
}

// firstReplica is the first replica id the counter gives out. Smaller ones are node ids of metadata voters.
const firstReplica ids.ReplicaID = 1<<20 + 1

// Partition returns a partition by topic name and index.
func (img *Image) Partition(topic string, index int32) (*Partition, bool) {
	return img.Topics[topic].partition(index)
}

// PartitionOf returns a partition by topic id and index.
func (img *Image) PartitionOf(topic ids.UUID, index int32) (*Partition, bool) {
	return img.TopicsByID[topic].partition(index)
}

// PartitionByID returns a partition with its topic and index.
func (img *Image) PartitionByID(id ids.PartitionID) (*Topic, int32, bool) {
	k, ok := img.partitions[id]
	return img.TopicsByID[k.topic], k.index, ok
}

func (t *Topic) partition(index int32) (*Partition, bool) {
	if t == nil || index < 0 || int(index) >= len(t.Partitions) {
		return nil, false
	}
	return t.Partitions[index], true
}

// Usable reports whether the node is registered and unfenced.
func (img *Image) Usable(node ids.NodeID) bool {
	b := img.Brokers[node]
	return b != nil && !b.Fenced
}

// Leader returns the leader that clients are shown: the registered one, whose broker is unfenced. NoNode if there is none.
func (img *Image) Leader(p *Partition) ids.NodeID {
	if !img.Usable(p.Leader) {
		return ids.NoNode
	}
	return p.Leader
}

// TopicConfigs returns the topic's dynamic configs. Read-only.
func (img *Image) TopicConfigs(topic string) map[string]string {
	return img.Configs[Resource{TopicResource, topic}]
}

// BrokerConfigs returns the dynamic configs of one broker. Read-only.
func (img *Image) BrokerConfigs(node ids.NodeID) map[string]string {
	return img.Configs[brokerResource(node)]
}

// ClusterConfigs returns the dynamic defaults of all brokers. Read-only.
func (img *Image) ClusterConfigs() map[string]string {
	return img.Configs[Resource{Type: BrokerResource}]
}

// GroupConfigs are the dynamic configs of a consumer group, which need not exist. The map is read only.
func (img *Image) GroupConfigs(group string) map[string]string {
	return img.Configs[Resource{GroupResource, group}]
}

// BrokerList returns the brokers ordered by id. The caller owns the slice.
func (img *Image) BrokerList() []*Broker {
	return slices.SortedFunc(maps.Values(img.Brokers), func(a, b *Broker) int { return cmp.Compare(a.ID, b.ID) })
}

// TopicList returns the topics ordered by name. The caller owns the slice.
func (img *Image) TopicList() []*Topic {
	return slices.SortedFunc(maps.Values(img.Topics), func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
}
