package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cairn/broker/topicconfig"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// Defaults of Config and ClientConfig; names in Kafka's properties, those of our own marked.
const (
	DefaultSessionTimeout    = 9 * time.Second        // broker.session.timeout.ms
	DefaultHeartbeatInterval = 2 * time.Second        // broker.heartbeat.interval.ms
	DefaultConnectionGrace   = 500 * time.Millisecond // controller.connection.grace.ms, our own
	DefaultProposeTimeout    = 5 * time.Second
	DefaultElectionGrace     = 6 * time.Second // three of Raft's election timeouts
	DefaultTransferTimeout   = 10 * time.Second
)

// Config configures a Controller. Zero values stand for the defaults.
type Config struct {
	Node ids.NodeID
	// Voters are the nodes of controller.quorum.voters; a single node that names none is its own.
	Voters []ids.NodeID
	// ClusterID names a new cluster; empty: a random one. A cluster that has a name keeps it.
	ClusterID string

	// SessionTimeout: a broker that sends no heartbeat for so long is fenced.
	SessionTimeout time.Duration
	// ConnectionGrace: a broker whose control connections are all gone is fenced after so long.
	ConnectionGrace time.Duration
	// ProposeTimeout bounds the commands that no request waits for, and those of requests without a timeout.
	ProposeTimeout time.Duration

	// ElectionGrace, TransferTimeout and ImbalancePercent: see Facts.
	ElectionGrace, TransferTimeout time.Duration
	ImbalancePercent               int
	// RebalanceInterval is how often preferred leaders are restored; 0: never.
	RebalanceInterval time.Duration
	// AskEnds asks a live broker how far its replicas of the partitions reach; it waits no longer than ctx. nil: heartbeats
	// alone tell.
	AskEnds func(ctx context.Context, b *Broker, partitions []ids.PartitionID) ([]PartitionEnd, error)

	// NumPartitions and ReplicationFactor are for topics whose creator leaves them open (num.partitions,
	// default.replication.factor; 1 each).
	NumPartitions     int32
	ReplicationFactor int16
	// InternalReplicas are the replication factors that internal topics get as soon as there are enough brokers, by topic.
	InternalReplicas map[string]int16
	// DeleteTopicsDisabled is the opposite of delete.topic.enable.
	DeleteTopicsDisabled bool
	// Static is this node's broker properties: CreateTopics answers with the effective topic configs.
	Static topicconfig.Layer
	// ValidateBrokerConfig checks a dynamic broker config; nil: topicconfig.ValidateServer, so only the defaults of topic
	// configs can be changed.
	ValidateBrokerConfig func(name, value string) error
	// ValidateGroupConfigs checks the dynamic configs of a consumer group; nil: groups have none.
	ValidateGroupConfigs func(configs map[string]string) error

	// Seed of the random start of replica placement; 0: random.
	Seed   uint64
	Logger *zap.Logger
}

// Validate joins all errors.
func (c Config) Validate() error {
	var errs []error
	if c.Node < 0 {
		errs = append(errs, fmt.Errorf("node id %d is negative", c.Node))
	}
	if len(c.Voters) > 0 && !slices.Contains(c.Voters, c.Node) {
		errs = append(errs, fmt.Errorf("node %d has the controller role but is none of the voters %v", c.Node, c.Voters))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"session timeout", c.SessionTimeout}, {"connection grace", c.ConnectionGrace}, {"propose timeout", c.ProposeTimeout}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s %v is negative", d.name, d.value))
		}
	}
	if c.NumPartitions < 0 || c.ReplicationFactor < 0 {
		errs = append(errs, fmt.Errorf("default of %d partitions, %d replicas: want at least 1", c.NumPartitions, c.ReplicationFactor))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if len(c.Voters) == 0 {
		c.Voters = []ids.NodeID{c.Node}
	}
	setDefault(&c.SessionTimeout, DefaultSessionTimeout)
	setDefault(&c.ConnectionGrace, DefaultConnectionGrace)
	setDefault(&c.ProposeTimeout, DefaultProposeTimeout)
	setDefault(&c.ElectionGrace, DefaultElectionGrace)
	setDefault(&c.TransferTimeout, DefaultTransferTimeout)
	setDefault(&c.NumPartitions, 1)
	setDefault(&c.ReplicationFactor, 1)
	if c.ValidateBrokerConfig == nil {
		c.ValidateBrokerConfig = topicconfig.ValidateServer
	}
	if c.ValidateGroupConfigs == nil {
		c.ValidateGroupConfigs = func(configs map[string]string) error {
			if len(configs) > 0 {
				return errors.New("groups have no configs here")
			}
			return nil
		}
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Group is the metadata group's replica on this node, as the Controller uses it: a raftgroup.MachineGroup.
type Group interface {
	// Propose returns the entry's index and what Store.Apply made of it, once it is applied here. Any error but
	// raftgroup's ErrNotLeader and ErrClosed leaves the outcome unknown.
	Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error)
	// AddNonVoting adds a replica that receives the log; nil if it is a member already.
	AddNonVoting(ctx context.Context, replica ids.ReplicaID, node ids.NodeID) error
	// Remove takes a replica out; nil if it is no member.
	Remove(ctx context.Context, replica ids.ReplicaID) error
	// Followers are the positions that members have saved the log to, as they have answered in the present term, by their nodes.
	Followers() map[ids.NodeID]ids.RaftIndex
	// Campaign asks for an election at once.
	Campaign()
}
