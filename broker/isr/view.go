package isr

import "cairn/internal/ids"

// View is the partition in one image of the metadata log. ISR and minimum come from the same image, always: a leader that
// took them from two positions could count a member out under one minimum that the other still needs (design, rule 11).
type View struct {
	// Index is the image's position in the metadata log.
	Index uint64
	// Leader is the registered leader, NoNode for none, LeaderEpoch its epoch.
	Leader      ids.NodeID
	LeaderEpoch ids.LeaderEpoch
	// PartitionEpoch grows with every change of the partition. A Proposal made at one is refused at any later one.
	PartitionEpoch int32
	// MinISR is the effective minimum: min(min.insync.replicas, replicas).
	MinISR int
	// Members are the replicas in assignment order. Not changed by anybody once the View is given away.
	Members []Member
}

// Member is one replica of the partition in a View.
type Member struct {
	Node    ids.NodeID
	Replica ids.ReplicaID
	// InSync: in the committed ISR.
	InSync bool
	// Eligible: its broker is registered, unfenced and not shutting down.
	Eligible bool
	// Voter of the Raft group, as last reported to the controller.
	Voter bool
	// Leaving: a reassignment removes it.
	Leaving bool
}

// Proposal is an ISR that the leader asks the controller for, in an AlterPartition.
type Proposal struct {
	LeaderEpoch    ids.LeaderEpoch
	PartitionEpoch int32
	ISR            []ids.NodeID // in assignment order; the caller's
}
