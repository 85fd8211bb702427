package engine

import (
	"fmt"
	"maps"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// RaftView is what a replica has saved of its Raft state, for people who look at it.
type RaftView struct {
	Shard      ids.ShardID   `json:"shard"`
	Replica    ids.ReplicaID `json:"replica"`
	Generation int32         `json:"generation"`
	BaseOffset ids.Offset    `json:"baseOffset"` // of the generation
	// StartIndex is behind what Raft's log no longer has: the first entry has the next index.
	StartIndex ids.RaftIndex `json:"startIndex"`
	LastIndex  ids.RaftIndex `json:"lastIndex"`
	Term       ids.Term      `json:"term"`
	Vote       ids.ReplicaID `json:"vote"` // 0: none in this term
	Commit     ids.RaftIndex `json:"commitIndex"`
	Applied    ids.RaftIndex `json:"appliedIndex"` // may lag on a stopped broker
	LogStart   ids.Offset    `json:"logStartOffset"`
	HighWater  ids.Offset    `json:"highWatermark"` // may lag on a stopped broker
	LogEnd     ids.Offset    `json:"logEndOffset"`
	Epochs     []EpochView   `json:"leaderEpochs"`
	// The members as of MembersIndex, the last change at or below StartIndex; changes behind it are entries.
	MembersIndex ids.RaftIndex            `json:"membersIndex"`
	Voters       map[ids.ReplicaID]string `json:"voters"`
	NonVoters    map[ids.ReplicaID]string `json:"nonVoters"`
}

// EpochView is where a leader epoch begins; Index is 0 for one from below the generation.
type EpochView struct {
	Epoch ids.LeaderEpoch `json:"epoch"`
	Start ids.Offset      `json:"startOffset"`
	Index ids.RaftIndex   `json:"index"`
}

// EntryView is an entry of the Raft log. The fields without omitempty are in each; NextOffset and LeaderEpoch are those after it.
type EntryView struct {
	Index ids.RaftIndex `json:"index"`
	Term  ids.Term      `json:"term"`
	// Kind is that of EntryKind, and "membership" for Raft's own entries that change the members.
	Kind        string          `json:"kind"`
	Ordinal     uint64          `json:"ordinal"`     // of the last valid proposal up to here
	OrdinalTerm ids.Term        `json:"ordinalTerm"` // of that proposal
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
	NextOffset  ids.Offset      `json:"nextOffset"`
	Data        *DataView       `json:"data,omitempty"`
	Void        *VoidView       `json:"void,omitempty"`
	Member      *MemberView     `json:"member,omitempty"`
	Generation  *int32          `json:"generation,omitempty"` // of a genesis
	LogStart    *ids.Offset     `json:"logStartOffset,omitempty"`
}

// DataView is the batch of an entry, as it was saved.
type DataView struct {
	BaseOffset   ids.Offset `json:"baseOffset"`
	Records      int32      `json:"records"`
	Bytes        int32      `json:"bytes"`
	MaxTimestamp int64      `json:"maxTimestamp"`
	ProducerID   int64      `json:"producerId"`
}

// VoidView is the header of a proposal that took no effect; Kind is "" when it had none.
type VoidView struct {
	Kind        string          `json:"kind"`
	Ordinal     uint64          `json:"ordinal"`
	Term        ids.Term        `json:"term"`
	LeaderEpoch ids.LeaderEpoch `json:"leaderEpoch"`
}

// MemberView is a change of the group's members.
type MemberView struct {
	Change  string        `json:"change"`
	Replica ids.ReplicaID `json:"replica"`
	Address string        `json:"address,omitempty"`
}

// ViewRaft tells the state, without the entries.
func (l *Log) ViewRaft() RaftView {
	v := RaftView{
		Shard: l.binding.Shard, Replica: l.binding.Replica, Generation: l.binding.Generation, BaseOffset: l.binding.BaseOffset,
		Applied: l.Applied(), HighWater: l.HighWatermark(), Epochs: []EpochView{},
	}
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	start := l.sh.start
	v.StartIndex, v.LastIndex, v.LogStart, v.LogEnd = start.Index, l.sh.last, l.logStart, l.state.Next
	v.Term, v.Vote, v.Commit = ids.Term(l.sh.hard.Term), ids.ReplicaID(l.sh.hard.Vote), ids.RaftIndex(l.sh.hard.Commit)
	for _, e := range l.epochs {
		v.Epochs = append(v.Epochs, EpochView(e))
	}
	v.MembersIndex = ids.RaftIndex(start.Membership.ConfigChangeId)
	v.Voters, v.NonVoters = viewMembers(start.Membership.Addresses), viewMembers(start.Membership.NonVotings)
	return v
}

func viewMembers(m map[uint64]string) map[ids.ReplicaID]string {
	out := make(map[ids.ReplicaID]string, len(m))
	for _, id := range slices.Sorted(maps.Keys(m)) {
		out[ids.ReplicaID(id)] = m[id]
	}
	return out
}

// ScanEntryViews calls fn with the stored entries from index from on until it returns false.
func (l *Log) ScanEntryViews(from ids.RaftIndex, fn func(EntryView) bool) error {
	var bad error
	err := l.ScanEntries(from, func(row EntryRow) bool {
		var v EntryView
		if v, bad = viewEntry(&row); bad != nil {
			return false
		}
		return fn(v)
	})
	if err == nil && bad != nil {
		err = fmt.Errorf("%w: %w", ErrCorruptRow, bad)
	}
	return err
}

func viewEntry(row *EntryRow) (EntryView, error) {
	v := EntryView{
		Index: row.Index, Term: row.Term, Kind: row.Kind.String(), Ordinal: row.Ordinal, OrdinalTerm: row.OrdinalTerm,
		LeaderEpoch: row.LeaderEpoch, NextOffset: row.Next,
	}
	switch row.Kind {
	case KindData:
		b := &row.Batch
		v.Data = &DataView{BaseOffset: b.Base, Records: b.Count, Bytes: b.Size, MaxTimestamp: b.MaxTimestamp, ProducerID: b.ProducerID}
	case KindVoid:
		v.Void = &VoidView{}
		if h, ok := row.Header(); ok {
			*v.Void = VoidView{Kind: h.Kind.String(), Ordinal: h.Ordinal, Term: h.Term, LeaderEpoch: h.LeaderEpoch}
		}
	case KindGenesis:
		g, err := DecodeGenesis(row.Cmd[1:])
		v.Generation = &g.Generation
		return v, err
	case KindLogStart:
		start, err := DecodeLogStart(row.Cmd[1:])
		v.LogStart = &start
		return v, err
	case KindRaft:
		if row.Type == pb.ConfigChangeEntry {
			return v, v.viewChange(row.Cmd)
		}
	}
	return v, nil
}

func (v *EntryView) viewChange(cmd []byte) error {
	var c pb.ConfigChange
	if err := c.Unmarshal(cmd); err != nil {
		return err
	}
	v.Kind = "membership"
	v.Member = &MemberView{Replica: ids.ReplicaID(c.ReplicaID), Address: c.Address}
	switch c.Type {
	case pb.AddNode:
		v.Member.Change = "add-voter"
	case pb.AddNonVoting:
		v.Member.Change = "add-non-voter"
	case pb.RemoveNode:
		v.Member.Change = "remove"
	default:
		v.Member.Change = c.Type.String()
	}
	return nil
}
