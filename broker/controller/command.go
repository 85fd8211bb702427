package controller

import (
	"bytes"
	"encoding/json"
	"fmt"

	"cairn/internal/ids"
)

// Proposal is one entry of the metadata log: a command and the Raft term in which its proposer was active controller.
type Proposal struct {
	Term    ids.Term
	Command Command
}

// Command is one of the types below.
type Command interface{ kind() string }

// Claim makes its proposer, the leader of the metadata group in the proposal's term, the active controller. It is the
// first command of each term, and with ClusterID it names the cluster if that has no name yet.
type Claim struct {
	Node      ids.NodeID `json:"node"`
	ClusterID string     `json:"clusterId"`
}

// RegisterBroker adds a broker or a new process of a known one, fenced. Voter tells that the node is a voter of the
// metadata group, whose replica id there is its node id.
type RegisterBroker struct {
	ID          ids.NodeID `json:"id"`
	Incarnation ids.UUID   `json:"incarnation"`
	Directory   ids.UUID   `json:"directory"`
	Endpoints   []Endpoint `json:"endpoints"`
	Rack        *string    `json:"rack,omitempty"`
	LogFlush    string     `json:"logFlush,omitempty"`
	BootID      string     `json:"bootId,omitempty"`
	OpenedNs    uint64     `json:"openedNs,omitempty"`
	Voter       bool       `json:"voter,omitempty"`
	// PreviousEpoch is the broker epoch under which the data directory was closed in order; 0: it was not.
	PreviousEpoch int64 `json:"previousEpoch,omitempty"`
}

// BrokerAction is a change of a broker's standing.
type BrokerAction string

// The broker actions.
const (
	Fence    BrokerAction = "fence"
	Unfence  BrokerAction = "unfence"
	Shutdown BrokerAction = "shutdown"
)

// ChangeBrokers changes the standing of brokers, each only while it has the epoch named.
type ChangeBrokers struct {
	Changes []BrokerChange `json:"changes"`
}

// BrokerChange is one change of ChangeBrokers.
type BrokerChange struct {
	ID     ids.NodeID   `json:"id"`
	Epoch  int64        `json:"epoch"`
	Action BrokerAction `json:"action"`
}

// CreateTopics creates topics, each wholly or not at all.
type CreateTopics struct {
	Topics []NewTopic `json:"topics"`
}

// NewTopic is one topic of CreateTopics: the replicas of its partitions and its dynamic configs.
type NewTopic struct {
	Name       string            `json:"name"`
	ID         ids.UUID          `json:"id"`
	Internal   bool              `json:"internal,omitempty"`
	Partitions [][]ids.NodeID    `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
}

// DeleteTopics removes topics by id, with their configs.
type DeleteTopics struct {
	Topics []ids.UUID `json:"topics"`
}

// CreatePartitions adds partitions to topics, each wholly or not at all.
type CreatePartitions struct {
	Topics []MorePartitions `json:"topics"`
}

// MorePartitions is one topic of CreatePartitions: it applies only while the topic has From partitions.
type MorePartitions struct {
	Topic      ids.UUID       `json:"topic"`
	From       int            `json:"from"`
	Partitions [][]ids.NodeID `json:"partitions"`
}

// AlterConfigs changes the dynamic configs of resources, each wholly or not at all.
type AlterConfigs struct {
	Resources []ResourceChange `json:"resources"`
}

// ResourceChange is one resource of AlterConfigs. Replace starts from no configs instead of the present ones.
type ResourceChange struct {
	Type    ResourceType `json:"type"`
	Name    string       `json:"name"`
	Replace bool         `json:"replace,omitempty"`
	Ops     []ConfigOp   `json:"ops"`
}

// OpType is what a ConfigOp does, with Kafka's numbers.
type OpType int8

// The operations of IncrementalAlterConfigs. Append and subtract are for list values.
const (
	OpSet      OpType = 0
	OpDelete   OpType = 1
	OpAppend   OpType = 2
	OpSubtract OpType = 3
)

// ConfigOp is one operation. Default is the list that append and subtract start from if the config is not set.
type ConfigOp struct {
	Name    string `json:"name"`
	Op      OpType `json:"op"`
	Value   string `json:"value,omitempty"`
	Default string `json:"default,omitempty"`
}

// AllocateProducerIDs gives a block of producer ids to a broker of that epoch.
type AllocateProducerIDs struct {
	Broker ids.NodeID `json:"broker"`
	Epoch  int64      `json:"epoch"`
	Count  int32      `json:"count"`
}

// RegisterLeaders registers leaders of Raft groups, all of them replicas of one broker of that epoch.
type RegisterLeaders struct {
	Broker  ids.NodeID     `json:"broker"`
	Epoch   int64          `json:"epoch"`
	Leaders []LeaderReport `json:"leaders"`
}

// LeaderReport says that Replica leads its Raft group, the one of Generation, in Term.
type LeaderReport struct {
	TopicID    ids.UUID      `json:"topicId"`
	Partition  int32         `json:"partition"`
	Generation int32         `json:"generation"`
	Term       ids.Term      `json:"term"`
	Replica    ids.ReplicaID `json:"replica"`
	// BaseOffset is where the generation starts on the log of its seed. It counts in a generation's first report only.
	BaseOffset ids.Offset `json:"baseOffset,omitempty"`
}

func (Claim) kind() string               { return "claim" }
func (RegisterBroker) kind() string      { return "registerBroker" }
func (ChangeBrokers) kind() string       { return "changeBrokers" }
func (CreateTopics) kind() string        { return "createTopics" }
func (DeleteTopics) kind() string        { return "deleteTopics" }
func (CreatePartitions) kind() string    { return "createPartitions" }
func (AlterConfigs) kind() string        { return "alterConfigs" }
func (AllocateProducerIDs) kind() string { return "allocateProducerIds" }
func (RegisterLeaders) kind() string     { return "registerLeaders" }

// formatVersion is the version of the encodings of commands, results and snapshots.
const formatVersion = 1

type envelope struct {
	Version int             `json:"v"`
	Kind    string          `json:"kind"`
	Term    ids.Term        `json:"term"`
	Body    json.RawMessage `json:"body"`
}

// EncodeCommand returns the proposal's bytes in the metadata log: versioned JSON.
func EncodeCommand(p Proposal) []byte {
	body := mustMarshal(p.Command)
	return mustMarshal(envelope{formatVersion, p.Command.kind(), p.Term, body})
}

// DecodeCommand is the inverse of EncodeCommand. b is borrowed until return. Unknown versions, kinds and fields are errors:
// a replica that passed over what it does not know would drift away from the others.
func DecodeCommand(b []byte) (Proposal, error) {
	var e envelope
	if err := strictUnmarshal(b, &e); err != nil {
		return Proposal{}, fmt.Errorf("metadata command: %w", err)
	}
	if e.Version != formatVersion {
		return Proposal{}, fmt.Errorf("metadata command: version %d, this program knows %d", e.Version, formatVersion)
	}
	c, err := decodeBody(e.Kind, e.Body)
	if err != nil {
		return Proposal{}, fmt.Errorf("metadata command %q: %w", e.Kind, err)
	}
	return Proposal{e.Term, c}, nil
}

func decodeBody(kind string, body []byte) (Command, error) {
	switch kind {
	case Claim{}.kind():
		return decodeAs[Claim](body)
	case RegisterBroker{}.kind():
		return decodeAs[RegisterBroker](body)
	case ChangeBrokers{}.kind():
		return decodeAs[ChangeBrokers](body)
	case CreateTopics{}.kind():
		return decodeAs[CreateTopics](body)
	case DeleteTopics{}.kind():
		return decodeAs[DeleteTopics](body)
	case CreatePartitions{}.kind():
		return decodeAs[CreatePartitions](body)
	case AlterConfigs{}.kind():
		return decodeAs[AlterConfigs](body)
	case AllocateProducerIDs{}.kind():
		return decodeAs[AllocateProducerIDs](body)
	case RegisterLeaders{}.kind():
		return decodeAs[RegisterLeaders](body)
	case UpdateFeatures{}.kind():
		return decodeAs[UpdateFeatures](body)
	default:
		return decodeReplication(kind, body)
	}
}

func decodeAs[C Command](body []byte) (Command, error) {
	var c C
	err := strictUnmarshal(body, &c)
	return c, err
}

func strictUnmarshal(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("bytes after the end")
	}
	return nil
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode %T: %v", v, err))
	}
	return b
}

// Result is what applying a command came to. Code is a Kafka error code, 0 for success.
type Result struct {
	Code    int16  `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Items answers a command of several parts, one each in their order; empty if Code is set.
	Items []ItemResult `json:"items,omitempty"`

	ClusterID       string        `json:"clusterId,omitempty"`
	BrokerEpoch     int64         `json:"brokerEpoch,omitempty"`
	MetadataReplica ids.ReplicaID `json:"metadataReplica,omitempty"`
	// FormerReplicas are the metadata replicas that MetadataReplica takes the place of.
	FormerReplicas []ids.ReplicaID `json:"formerReplicas,omitempty"`
	ProducerID     int64           `json:"producerId,omitempty"`
}

// ItemResult is the result of one part of a command. The partition's fields are set for leader registrations, accepted or
// not, when the partition exists.
type ItemResult struct {
	Code           int16           `json:"code,omitempty"`
	Message        string          `json:"message,omitempty"`
	Leader         ids.NodeID      `json:"leader,omitempty"`
	LeaderEpoch    ids.LeaderEpoch `json:"leaderEpoch,omitempty"`
	PartitionEpoch int32           `json:"partitionEpoch,omitempty"`
}

func (r Result) encode() []byte { return mustMarshal(r) }

// DecodeResult reads what Store.Apply returned.
func DecodeResult(b []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return Result{}, fmt.Errorf("metadata result: %w", err)
	}
	return r, nil
}
