package controller

import (
	"fmt"

	"cairn/internal/ids"
)

// ReplicationLevel is the level of metadata with ISR, ELR and generations: the lowest there is.
const ReplicationLevel int16 = 1

// SetLevel raises the level of the metadata, once all controllers understand the new one.
type SetLevel struct {
	Level int16 `json:"level"`
}

// AlterPartitions are changes of ISRs, by the leader of the partitions: a broker of that epoch.
type AlterPartitions struct {
	Broker     ids.NodeID  `json:"broker"`
	Epoch      int64       `json:"epoch"`
	Partitions []ISRChange `json:"partitions"`
}

// ISRChange is the ISR that the leader of LeaderEpoch wants for the partition as it was at PartitionEpoch.
type ISRChange struct {
	TopicID        ids.UUID        `json:"topicId"`
	Partition      int32           `json:"partition"`
	LeaderEpoch    ids.LeaderEpoch `json:"leaderEpoch"`
	PartitionEpoch int32           `json:"partitionEpoch"`
	ISR            []ISRMember     `json:"isr"`
}

// ISRMember is a member of a proposed ISR. Epoch is the broker epoch under which the leader knows it, -1 for any.
type ISRMember struct {
	Node  ids.NodeID `json:"node"`
	Epoch int64      `json:"epoch"`
}

// ChangeVoters reports the voters of Raft groups, by their leader.
type ChangeVoters struct {
	Broker     ids.NodeID     `json:"broker"`
	Epoch      int64          `json:"epoch"`
	Partitions []VotersReport `json:"partitions"`
}

// VotersReport says that the group has these voters since the membership change at index At.
type VotersReport struct {
	TopicID     ids.UUID        `json:"topicId"`
	Partition   int32           `json:"partition"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	At          ids.RaftIndex   `json:"at"`
	Voters      []ids.ReplicaID `json:"voters"`
}

// NextGenerations starts the next generation of partitions.
type NextGenerations struct {
	Partitions []NewGeneration `json:"partitions"`
}

// NewGeneration starts the generation after From with Seed as its only voter. Unclean lets the seed be any live replica
// when no member of ISR or ELR is alive. Pending is what that is feared to lose.
type NewGeneration struct {
	TopicID   ids.UUID     `json:"topicId"`
	Partition int32        `json:"partition"`
	From      int32        `json:"from"`
	Seed      ids.NodeID   `json:"seed"`
	Unclean   bool         `json:"unclean,omitempty"`
	Pending   *PendingLoss `json:"pending,omitempty"`
}

// BeginAnew has partitions that the broker of that epoch leads begin their next generation with it as the seed, though nothing is wrong with the present
// one: the next one's Raft log has no entries of what is below its base.
type BeginAnew struct {
	Broker     ids.NodeID  `json:"broker"`
	Epoch      int64       `json:"epoch"`
	Partitions []BeginItem `json:"partitions"`
}

// BeginItem applies while the partition is led in LeaderEpoch.
type BeginItem struct {
	TopicID     ids.UUID        `json:"topicId"`
	Partition   int32           `json:"partition"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
}

// TransferLeaders asks leaders to hand over, or takes that back.
type TransferLeaders struct {
	Partitions []LeaderTransfer `json:"partitions"`
}

// LeaderTransfer applies while the partition is led in LeaderEpoch. To is NoNode to take a request back.
type LeaderTransfer struct {
	TopicID     ids.UUID        `json:"topicId"`
	Partition   int32           `json:"partition"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	To          ids.NodeID      `json:"to"`
	AtMs        int64           `json:"atMs"`
}

// Transfer is a request to the leader that is not done yet. AtMs is the controller's wall clock.
type Transfer struct {
	To   ids.NodeID `json:"to"`
	AtMs int64      `json:"atMs"`
}

// AlterReassignments moves partitions to other replicas.
type AlterReassignments struct {
	Partitions []Reassignment `json:"partitions"`
}

// Reassignment is the replicas that a partition is to have; none to cancel the reassignment that is under way.
type Reassignment struct {
	TopicID   ids.UUID     `json:"topicId"`
	Partition int32        `json:"partition"`
	Replicas  []ids.NodeID `json:"replicas,omitempty"`
	AtMs      int64        `json:"atMs"`
}

// RenewReplicas gives new replica ids to replicas of a broker of that epoch that must not go on as who they were: their
// data is damaged.
type RenewReplicas struct {
	Broker   ids.NodeID      `json:"broker"`
	Epoch    int64           `json:"epoch"`
	Replicas []ids.ReplicaID `json:"replicas"`
}

// NoteEnds keeps the log ends that a broker of that epoch reported last. It goes before the broker is fenced, so that a
// later controller knows them.
type NoteEnds struct {
	Broker ids.NodeID     `json:"broker"`
	Epoch  int64          `json:"epoch"`
	Ends   []PartitionEnd `json:"ends"`
}

// PartitionEnd is the end of one replica's log.
type PartitionEnd struct {
	Partition ids.PartitionID `json:"partition"`
	LogEnd
}

// LogEnd is the end of a log: End is exclusive, LeaderEpoch that of its last batch. AppendMs is the wall clock of the last
// append, AsOfMs that of the controller when the broker told.
type LogEnd struct {
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	End         ids.Offset      `json:"end"`
	AppendMs    int64           `json:"appendMs"`
	AsOfMs      int64           `json:"asOfMs"`
}

// ReplicaEnd is the log end of the replica on a node.
type ReplicaEnd struct {
	Node ids.NodeID `json:"node"`
	LogEnd
}

// ChangeLosses adds losses that a broker of that epoch has found on its disk, and takes back those that the partition's
// leader found in its log after all.
type ChangeLosses struct {
	Broker     ids.NodeID   `json:"broker"`
	Epoch      int64        `json:"epoch"`
	Partitions []LossReport `json:"partitions"`
}

// LossReport says what of its former log a replica had to give up when it followed the leader of LeaderEpoch. Found is what
// the leader of LeaderEpoch holds of what counted as lost. It applies only in that epoch: the next leader may hold
// something else.
type LossReport struct {
	TopicID     ids.UUID        `json:"topicId"`
	Partition   int32           `json:"partition"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	Lost        []LostRange     `json:"lost,omitempty"`
	Found       []LostRange     `json:"found,omitempty"`
	AtMs        int64           `json:"atMs"`
}

// LostRange is the offsets [From, To) of one leader epoch. Offsets alone would not do: they are given out again.
type LostRange struct {
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	From        ids.Offset      `json:"from"`
	To          ids.Offset      `json:"to"`
}

// LossCause says how records came to be lost.
type LossCause string

// The causes of losses.
const (
	CauseUnclean   LossCause = "unclean election"
	CauseDivergent LossCause = "divergent tail"
	CausePowerCut  LossCause = "power cut without log.flush=always"
)

// Loss is a range of records that were stored once and are in no log that is read.
type Loss struct {
	TopicID   ids.UUID `json:"topicId"`
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	LostRange
	Cause LossCause `json:"cause"`
	// Holder is the broker that has, or had, the records. Estimated: by what it reported before; it has not come back since.
	Holder    ids.NodeID `json:"holder"`
	Estimated bool       `json:"estimated,omitempty"`
	AtMs      int64      `json:"atMs"`
	// DroppedMs is when the holder deleted the records from quarantine; 0: it has them.
	DroppedMs int64 `json:"droppedMs,omitempty"`
	// RecoveredTo is the topic that somebody produced the records to, at RecoveredMs; "": nobody has.
	RecoveredTo string `json:"recoveredTo,omitempty"`
	RecoveredMs int64  `json:"recoveredMs,omitempty"`
	// Merged is how many ranges were made this line when a partition had too many; 0: it is a range of its own. They lie in
	// the offsets [From, To) of the epochs LeaderEpoch to LastEpoch, and held this many Records.
	Merged    int64           `json:"merged,omitempty"`
	LastEpoch ids.LeaderEpoch `json:"lastEpoch,omitempty"`
	Records   int64           `json:"records,omitempty"`
}

// PendingLoss is what the holders' logs are known to have held when a generation began without them. The part behind the
// generation's base is lost.
type PendingLoss struct {
	Cause LossCause    `json:"cause"`
	Ends  []ReplicaEnd `json:"ends"`
	AtMs  int64        `json:"atMs"`
}

func (SetLevel) kind() string           { return "setLevel" }
func (AlterPartitions) kind() string    { return "alterPartitions" }
func (ChangeVoters) kind() string       { return "changeVoters" }
func (NextGenerations) kind() string    { return "nextGenerations" }
func (BeginAnew) kind() string          { return "beginAnew" }
func (TransferLeaders) kind() string    { return "transferLeaders" }
func (AlterReassignments) kind() string { return "alterReassignments" }
func (RenewReplicas) kind() string      { return "renewReplicas" }
func (NoteEnds) kind() string           { return "noteEnds" }
func (ChangeLosses) kind() string       { return "changeLosses" }

// decodeReplication is decodeBody for the commands of this file.
func decodeReplication(kind string, body []byte) (Command, error) {
	switch kind {
	case SetLevel{}.kind():
		return decodeAs[SetLevel](body)
	case AlterPartitions{}.kind():
		return decodeAs[AlterPartitions](body)
	case ChangeVoters{}.kind():
		return decodeAs[ChangeVoters](body)
	case NextGenerations{}.kind():
		return decodeAs[NextGenerations](body)
	case BeginAnew{}.kind():
		return decodeAs[BeginAnew](body)
	case TransferLeaders{}.kind():
		return decodeAs[TransferLeaders](body)
	case AlterReassignments{}.kind():
		return decodeAs[AlterReassignments](body)
	case RenewReplicas{}.kind():
		return decodeAs[RenewReplicas](body)
	case NoteEnds{}.kind():
		return decodeAs[NoteEnds](body)
	case ChangeLosses{}.kind():
		return decodeAs[ChangeLosses](body)
	case DropQuarantined{}.kind():
		return decodeAs[DropQuarantined](body)
	case NoteRecovered{}.kind():
		return decodeAs[NoteRecovered](body)
	default:
		return nil, fmt.Errorf("unknown kind")
	}
}

// applyReplication is apply for the commands of this file.
func (e *edit) applyReplication(c Command) Result {
	switch c := c.(type) {
	case SetLevel:
		return e.setLevel(c)
	case AlterPartitions:
		return byBroker(e, c.Broker, c.Epoch, c.Partitions, e.alterPartition)
	case ChangeVoters:
		return byBroker(e, c.Broker, c.Epoch, c.Partitions, e.changeVoters)
	case NextGenerations:
		return eachItem(c.Partitions, e.nextGeneration)
	case BeginAnew:
		return byBroker(e, c.Broker, c.Epoch, c.Partitions, e.beginAnew)
	case TransferLeaders:
		return eachItem(c.Partitions, e.transferLeader)
	case AlterReassignments:
		return eachItem(c.Partitions, e.reassign)
	case RenewReplicas:
		return byBroker(e, c.Broker, c.Epoch, c.Replicas, e.renewByID)
	case NoteEnds:
		return byBroker(e, c.Broker, c.Epoch, c.Ends, e.noteEnd)
	case ChangeLosses:
		return byBroker(e, c.Broker, c.Epoch, c.Partitions, e.changeLosses)
	case DropQuarantined:
		return byBroker(e, c.Broker, c.Epoch, c.Partitions, e.dropQuarantined)
	case NoteRecovered:
		return eachItem(c.Partitions, e.noteRecovered)
	default:
		panic(fmt.Sprintf("BUG: no transition for %T", c))
	}
}

// byBroker is eachItem for what a broker of that epoch sent.
func byBroker[T any](e *edit, node ids.NodeID, epoch int64, items []T, apply func(ids.NodeID, T) ItemResult) Result {
	if bad := e.img.checkEpoch(node, epoch); bad.Code != 0 {
		return Result{Code: bad.Code, Message: bad.Message}
	}
	return eachItem(items, func(it T) ItemResult { return apply(node, it) })
}
