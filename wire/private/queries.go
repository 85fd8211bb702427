package private

import (
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The requests and responses.
type (
	ReplicasRequest    = Request[ReplicaQuery]
	ReplicasResponse   = Response[ReplicaAnswer]
	ElectionsRequest   = Request[ElectionQuery]
	ElectionsResponse  = Response[ElectionAnswer]
	LossesRequest      = Request[LossQuery]
	LossesResponse     = Response[LossAnswer]
	QuarantineRequest  = Request[QuarantineQuery]
	QuarantineResponse = Response[QuarantineAnswer]
	RemovalRequest     = Request[QuarantineRemoval]
	RemovalResponse    = Response[RemovalAnswer]
	RecoveredRequest   = Request[RecoveredRanges]
	RecoveredResponse  = Response[RecoveredAnswer]
)

// Status is a Kafka error code with its reason, 0 for success.
type Status struct {
	Code    int16  `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// ReplicaQuery asks a broker how far its replicas of these partitions reach. Those it does not have are left out.
type ReplicaQuery struct {
	Partitions []ids.PartitionID `json:"partitions"`
}

// ReplicaAnswer answers it.
type ReplicaAnswer struct {
	Replicas []ReplicaEnd `json:"replicas"`
}

// ReplicaEnd is the end of a replica's log, and where it starts: End is exclusive, LeaderEpoch that of its last batch, AppendMs when that was
// saved, in ms since 1970.
type ReplicaEnd struct {
	Partition   ids.PartitionID `json:"partition"`
	Start       ids.Offset      `json:"start"`
	End         ids.Offset      `json:"end"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	AppendMs    int64           `json:"appendMs"`
}

// ElectionQuery asks what an election would lose. No topics: all partitions.
type ElectionQuery struct {
	Type   int8              `json:"type"` // Kafka's: 0 preferred, 1 unclean
	Topics []TopicPartitions `json:"topics,omitempty"`
}

// TopicPartitions are some partitions of a topic.
type TopicPartitions struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// ElectionAnswer answers it.
type ElectionAnswer struct {
	Status
	Partitions []ElectionPreview `json:"partitions"`
}

// ElectionPreview is one partition as it is, what the election would answer, and what it would lose.
type ElectionPreview struct {
	Topic        string           `json:"topic"`
	Partition    int32            `json:"partition"`
	Leader       int32            `json:"leader"` // -1: none
	LeaderEpoch  int32            `json:"leaderEpoch"`
	ISR          []int32          `json:"isr"`
	ELR          []int32          `json:"elr"`
	LastKnownELR []int32          `json:"lastKnownElr"`
	Outcome      Status           `json:"outcome"`
	Elects       int32            `json:"elects"` // the broker that would lead; -1: none would
	Clean        bool             `json:"clean"`  // it holds all that was ever exposed
	Loses        []LostRange      `json:"loses"`  // by what is known
	Replicas     []ReplicaPreview `json:"replicas"`
}

// ReplicaPreview is one replica: how far it reaches, and what promoting it would lose.
type ReplicaPreview struct {
	Broker int32 `json:"broker"`
	Alive  bool  `json:"alive"` // registered and unfenced
	InISR  bool  `json:"inIsr"`
	InELR  bool  `json:"inElr"`
	// Known: the log end is. Live: it was asked for just now; else it is as of AsOfMs, AgeMs ago.
	Known        bool        `json:"known"`
	Live         bool        `json:"live"`
	LeaderEpoch  int32       `json:"leaderEpoch"`
	LogEnd       int64       `json:"logEndOffset"`
	LastAppendMs int64       `json:"lastAppendMs"` // -1: never
	AsOfMs       int64       `json:"asOfMs"`
	AgeMs        int64       `json:"ageMs"`
	WouldLose    []LostRange `json:"wouldLose"`
}

// LostRange is the offsets [From, To) of one leader epoch.
type LostRange struct {
	LeaderEpoch int32 `json:"leaderEpoch"`
	From        int64 `json:"from"`
	To          int64 `json:"to"`
}

// LossQuery asks what is known to be lost. Topic "": of all topics, Partition -1: of all partitions.
type LossQuery struct {
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
}

// LossAnswer answers it, oldest first.
type LossAnswer struct {
	Losses []Loss `json:"losses"`
}

// Loss is a range of records that were stored once and are in no log that is read.
type Loss struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	LostRange
	Cause string `json:"cause"`
	// Broker holds the records, or did. Estimated: by what it reported before; it has not come back since.
	Broker    int32 `json:"broker"`
	Estimated bool  `json:"estimated"`
	AtMs      int64 `json:"atMs"` // ms since 1970
	// DroppedMs is when the broker deleted the records from quarantine, ms since 1970; 0: it has them.
	DroppedMs int64 `json:"droppedMs,omitempty"`
	// RecoveredTo is the topic that somebody produced the records to, at RecoveredMs; "": nobody has.
	RecoveredTo string `json:"recoveredTo,omitempty"`
	RecoveredMs int64  `json:"recoveredMs,omitempty"`
	// Records is how many offsets are lost. Merged is how many ranges are listed together here, 0: just this one. They lie in
	// the offsets and in the leader epochs up to LastEpoch, and are fewer than those.
	Records   int64 `json:"records"`
	Merged    int64 `json:"merged,omitempty"`
	LastEpoch int32 `json:"lastEpoch"`
}

// QuarantineQuery asks a broker for batches that it keeps in quarantine, in the order of leader epoch and offset, from
// the position on. MaxBytes bounds the answer; one batch is returned whatever its size.
type QuarantineQuery struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	From      Quarantine `json:"from"`
	MaxBytes  int        `json:"maxBytes"`
}

// Quarantine is a position in a partition's quarantine.
type Quarantine struct {
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	Offset      ids.Offset      `json:"offset"`
}

// QuarantineAnswer answers it. More: there is more behind the last batch.
type QuarantineAnswer struct {
	Status
	Batches []QuarantinedBatch `json:"batches"`
	More    bool               `json:"more,omitempty"`
}

// QuarantinedBatch is a record batch that was taken out of the log.
type QuarantinedBatch struct {
	Quarantine
	AtMs  int64  `json:"atMs"` // when, ms since 1970
	Batch []byte `json:"batch"`
}

// QuarantineRemoval has a broker delete what it keeps in quarantine of a partition, up to and with a position.
type QuarantineRemoval struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	UpTo      Quarantine `json:"upTo"`
}

// RemovalAnswer answers it.
type RemovalAnswer struct {
	Status
	Batches int   `json:"batches"`
	Bytes   int64 `json:"bytes"`
}

// RecoveredRanges says that somebody has produced records of a partition from quarantine to a topic.
type RecoveredRanges struct {
	Topic     string      `json:"topic"`
	Partition int32       `json:"partition"`
	Ranges    []LostRange `json:"ranges"`
	To        string      `json:"to"`
}

// RecoveredAnswer answers it.
type RecoveredAnswer struct {
	Status
}

func (ReplicaQuery) key() int16                   { return ReplicasKey }
func (ReplicaQuery) response() kmsg.Response      { return &ReplicasResponse{} }
func (ReplicaAnswer) key() int16                  { return ReplicasKey }
func (ReplicaAnswer) request() kmsg.Request       { return &ReplicasRequest{} }
func (ElectionQuery) key() int16                  { return ElectionsKey }
func (ElectionQuery) response() kmsg.Response     { return &ElectionsResponse{} }
func (ElectionAnswer) key() int16                 { return ElectionsKey }
func (ElectionAnswer) request() kmsg.Request      { return &ElectionsRequest{} }
func (LossQuery) key() int16                      { return LossesKey }
func (LossQuery) response() kmsg.Response         { return &LossesResponse{} }
func (LossAnswer) key() int16                     { return LossesKey }
func (LossAnswer) request() kmsg.Request          { return &LossesRequest{} }
func (QuarantineQuery) key() int16                { return QuarantineKey }
func (QuarantineQuery) response() kmsg.Response   { return &QuarantineResponse{} }
func (QuarantineAnswer) key() int16               { return QuarantineKey }
func (QuarantineAnswer) request() kmsg.Request    { return &QuarantineRequest{} }
func (QuarantineRemoval) key() int16              { return RemovalKey }
func (QuarantineRemoval) response() kmsg.Response { return &RemovalResponse{} }
func (RemovalAnswer) key() int16                  { return RemovalKey }
func (RemovalAnswer) request() kmsg.Request       { return &RemovalRequest{} }
func (RecoveredRanges) key() int16                { return RecoveredKey }
func (RecoveredRanges) response() kmsg.Response   { return &RecoveredResponse{} }
func (RecoveredAnswer) key() int16                { return RecoveredKey }
func (RecoveredAnswer) request() kmsg.Request     { return &RecoveredRequest{} }
