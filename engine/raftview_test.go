package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// TestRaftViewTellsEveryKindOfEntry: what people see of a log with all of them, and of its start point.
func TestRaftViewTellsEveryKindOfEntry(t *testing.T) {
	g := verifiedLog(t, vfs.NewMem())
	defer closeEngine(t, g.e)
	g.save(g.configChange(pb.ConfigChange{Type: pb.AddNode, ReplicaID: 7, Address: "node-7"}),
		g.configChange(pb.ConfigChange{Type: pb.AddNonVoting, ReplicaID: 8, Address: "node-8"}),
		g.configChange(pb.ConfigChange{Type: pb.RemoveNode, ReplicaID: 7}), g.logStart(9))
	v := g.log.ViewRaft()
	if v.LogStart != 5 || v.LogEnd != g.log.End() || v.HighWater != 7 || v.LastIndex != g.log.LastIndex() || v.Commit != g.log.Commit() || v.Term == 0 {
		t.Errorf("state %+v", v)
	}
	if n := len(v.Epochs); n == 0 || v.Epochs[n-1].Epoch != 2 || v.StartIndex == 0 {
		t.Errorf("epochs %+v behind %d", v.Epochs, v.StartIndex)
	}
	var text strings.Builder
	if err := g.log.ScanEntryViews(0, func(e EntryView) bool {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(b, '\n'))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"kind":"raft"`, `"kind":"epoch-start",`, `"kind":"data",`, `"data":{"baseOffset":11,"records":1,`,
		`"kind":"void",`, `"void":{"kind":""`, `"member":{"change":"add-voter","replica":7,"address":"node-7"}`,
		`"member":{"change":"add-non-voter","replica":8,"address":"node-8"}`, `"member":{"change":"remove","replica":7}`,
		`"logStartOffset":9`, fmt.Sprintf(`{"index":%d,`, v.StartIndex+1), fmt.Sprintf(`{"index":%d,`, v.LastIndex),
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
}

// TestRaftViewOfAGenesisAndAVoidProposal: a proposal out of order is void, and shows what it was to be.
func TestRaftViewOfAGenesisAndAVoidProposal(t *testing.T) {
	g := startGroup(t, openMem(t, vfs.NewMem(), nil), testBinding(1))
	defer closeEngine(t, g.e)
	g.save(g.data(1, 10))
	g.ordinal++
	g.save(g.data(1, 10))
	var kinds []string
	if err := g.log.ScanEntryViews(0, func(e EntryView) bool {
		kind := e.Kind
		if e.Void != nil {
			kind += fmt.Sprintf("(%s %d/%d)", e.Void.Kind, e.Void.Term, e.Void.Ordinal)
		}
		if e.Generation != nil {
			kind += fmt.Sprintf("(%d)", *e.Generation)
		}
		kinds = append(kinds, kind)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if text, want := strings.Join(kinds, " "), "raft genesis(0) epoch-start data void(data 1/5)"; text != want {
		t.Errorf("kinds %s, want %s", text, want)
	}
}
