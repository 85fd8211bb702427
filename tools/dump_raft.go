package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cairn/engine"
	"cairn/internal/ids"
)

// raftStateLine is the JSON form of the state: it comes before the entries, and its kind tells it from them.
type raftStateLine struct {
	Kind string `json:"kind"`
	engine.RaftView
}

func dumpStoredRaft(ctx context.Context, l *engine.Log, f DumpFilter, out Output) error {
	v := l.ViewRaft()
	if err := printRaftState(&v, out); err != nil {
		return err
	}
	var stop error
	err := l.ScanEntryViews(0, func(e engine.EntryView) bool {
		if stop = ctx.Err(); stop == nil && f.takesEntry(&e) {
			stop = printEntry(&e, out)
		}
		return stop == nil
	})
	return errors.Join(err, stop)
}

func printRaftState(v *engine.RaftView, out Output) error {
	if out.JSON {
		return out.writeJSON(raftStateLine{"state", *v})
	}
	var s strings.Builder
	fmt.Fprintf(&s, "shard: %d replica: %d generation: %d baseOffset: %d startIndex: %d lastIndex: %d term: %d vote: %d commitIndex: %d appliedIndex: %d "+
		"logStartOffset: %d highWatermark: %d logEndOffset: %d\n",
		v.Shard, v.Replica, v.Generation, v.BaseOffset, v.StartIndex, v.LastIndex, v.Term, v.Vote, v.Commit, v.Applied, v.LogStart, v.HighWater, v.LogEnd)
	fmt.Fprintf(&s, "membersIndex: %d voters: [%s] nonVoters: [%s]\n", v.MembersIndex, membersText(v.Voters), membersText(v.NonVoters))
	for _, e := range v.Epochs {
		fmt.Fprintf(&s, "leaderEpoch: %d startOffset: %d index: %d\n", e.Epoch, e.Start, e.Index)
	}
	_, err := out.Out.Write([]byte(s.String()))
	return err
}

func membersText(m map[ids.ReplicaID]string) string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%d=%s", id, m[id]))
	}
	return strings.Join(list, ",")
}

func printEntry(e *engine.EntryView, out Output) error {
	if out.JSON {
		return out.writeJSON(e)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "index: %d term: %d kind: %s ordinal: %d/%d leaderEpoch: %d nextOffset: %d",
		e.Index, e.Term, e.Kind, e.OrdinalTerm, e.Ordinal, e.LeaderEpoch, e.NextOffset)
	switch {
	case e.Data != nil:
		fmt.Fprintf(&s, " baseOffset: %d count: %d size: %d maxTimestamp: %d producerId: %d", e.Data.BaseOffset, e.Data.Records, e.Data.Bytes, e.Data.MaxTimestamp, e.Data.ProducerID)
	case e.Void != nil && e.Void.Kind == "":
		s.WriteString(" proposed: unreadable")
	case e.Void != nil:
		fmt.Fprintf(&s, " proposed: %s %d/%d leaderEpoch: %d", e.Void.Kind, e.Void.Term, e.Void.Ordinal, e.Void.LeaderEpoch)
	case e.Member != nil:
		fmt.Fprintf(&s, " change: %s replica: %d address: %s", e.Member.Change, e.Member.Replica, e.Member.Address)
	case e.Generation != nil:
		fmt.Fprintf(&s, " generation: %d", *e.Generation)
	case e.LogStart != nil:
		fmt.Fprintf(&s, " logStartOffset: %d", *e.LogStart)
	}
	s.WriteByte('\n')
	_, err := out.Out.Write([]byte(s.String()))
	return err
}
