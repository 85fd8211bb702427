package raftgroup

import (
	"slices"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine"
	"cairn/internal/ids"
)

func leadingReplica(term ids.Term) (*localReplica, *recorder) {
	rec := &recorder{}
	lr := newLocalReplica(101, 1, nil, func(ids.ReplicaID, ids.Term) {})
	lr.group = &Group{events: rec, lr: lr}
	lr.announce(1, term)
	return lr, rec
}

func TestCommitIsLoweredToTheSendersOwnSave(t *testing.T) {
	for name, tc := range map[string]struct {
		m       raftpb.Message
		durable ids.RaftIndex
		want    uint64
		repeat  bool // the member is to hear of the commit as soon as it has answered
	}{
		"saved":               {raftpb.Message{Type: raftpb.Replicate, To: 2, Commit: 9}, 9, 9, false},
		"not saved":           {raftpb.Message{Type: raftpb.Replicate, To: 2, LogIndex: 9, Commit: 10, Entries: []raftpb.Entry{{Index: 10}}}, 9, 9, true},
		"nothing saved":       {raftpb.Message{Type: raftpb.Replicate, To: 2, Commit: 1}, 0, 0, true},
		"heartbeat not saved": {raftpb.Message{Type: raftpb.Heartbeat, To: 2, Commit: 10}, 9, 9, false},
	} {
		lr, _ := leadingReplica(3)
		lr.observeSend(2, &tc.m, tc.durable)
		if tc.m.Commit != tc.want {
			t.Errorf("%s: commit %d leaves, want %d", name, tc.m.Commit, tc.want)
		}
		answer := raftpb.Message{Type: raftpb.ReplicateResp, From: 2, To: 1, Term: 3, LogIndex: 10}
		if before, _ := lr.observeAnswer(&answer, 10); before != tc.repeat {
			t.Errorf("%s: heartbeat answer before the acceptance: %v", name, before)
		}
		if before, _ := lr.observeAnswer(&answer, 10); before {
			t.Errorf("%s: repeated twice", name)
		}
	}
}

func TestAFollowerFarBehindIsSentTheNextPieceAtOnce(t *testing.T) {
	lr, rec := leadingReplica(3)
	send := func(prev, n uint64) {
		lr.observeSend(2, &raftpb.Message{Type: raftpb.Replicate, To: 2, LogIndex: prev, Entries: make([]raftpb.Entry, n)}, 100)
	}
	answer := func(index uint64) bool {
		_, after := lr.observeAnswer(&raftpb.Message{From: 2, To: 1, Term: 3, LogIndex: index}, 100)
		return after
	}
	send(0, 10)
	if !answer(10) {
		t.Error("all that was sent has arrived and 90 entries are missing: not hurried")
	}
	send(10, 10)
	send(20, 10)
	if answer(20) {
		t.Error("hurried although more is on its way")
	}
	send(30, 70)
	if answer(100) {
		t.Error("hurried although it has everything")
	}
	if got := rec.progressOf(2); got != 100 {
		t.Errorf("progress %d", got)
	}
}

func TestProgressIgnoresOtherTermsAndSurvivesALateAnnouncement(t *testing.T) {
	lr, rec := leadingReplica(3)
	lr.observeAnswer(&raftpb.Message{From: 2, To: 1, Term: 2, LogIndex: 50}, 100) // of a past leadership
	if got := rec.progressOf(2); got != 0 {
		t.Fatalf("progress %d of another term", got)
	}
	lr.observeAnswer(&raftpb.Message{From: 2, To: 1, Term: 4, LogIndex: 60}, 100) // overtakes the announcement of term 4
	if got := rec.progressOf(2); got != 0 {
		t.Fatalf("progress %d before the announcement", got)
	}
	lr.announce(1, 4)
	if got := rec.progressOf(2); got != 60 {
		t.Fatalf("progress %d after the announcement, want 60", got)
	}
	follower := newLocalReplica(101, 1, nil, func(ids.ReplicaID, ids.Term) {})
	follower.group = lr.group
	follower.announce(3, 5)
	follower.observeAnswer(&raftpb.Message{From: 2, To: 1, Term: 5, LogIndex: 90}, 100)
	if got := rec.progressOf(2); got != 60 {
		t.Fatalf("a follower reports progress %d", got)
	}
}

func TestAnEntryWithoutItsPayloadIsNeverSent(t *testing.T) {
	m := raftpb.Message{Type: raftpb.Replicate, To: 2, ShardID: 101, Entries: []raftpb.Entry{
		{Index: 1, Type: raftpb.ApplicationEntry},
		{Index: 2, Type: raftpb.ConfigChangeEntry, Cmd: []byte{1}},
		{Index: 3, Type: raftpb.EncodedEntry, Cmd: make([]byte, 1+engine.HeaderLen)}, // void: its header is all there is
	}}
	if !carriesPayload(&m) {
		t.Error("whole entries are not sent")
	}
	stub := make([]byte, 1+engine.HeaderLen+2)
	stub[1+engine.HeaderLen-1] = 2
	damaged := m
	damaged.Entries = append(slices.Clone(m.Entries), raftpb.Entry{Index: 4, Type: raftpb.EncodedEntry, Cmd: stub})
	if carriesPayload(&damaged) {
		t.Error("a damaged entry is sent")
	}
	m.Entries = append(m.Entries, raftpb.Entry{Index: 4, Type: raftpb.EncodedEntry, Cmd: []byte{0}})
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "entry 4 of shard 101") {
			t.Fatalf("got %q", p)
		}
	}()
	carriesPayload(&m)
}

func TestForwardedDataIsDroppedAndMembershipChangesAreNot(t *testing.T) {
	data := raftpb.Message{Type: raftpb.Propose, Entries: []raftpb.Entry{{Type: raftpb.EncodedEntry}}}
	change := raftpb.Message{Type: raftpb.Propose, Entries: []raftpb.Entry{{Type: raftpb.ConfigChangeEntry}}}
	if !forwardsData(&data) || forwardsData(&change) {
		t.Fatal("data is forwarded or a membership change dropped")
	}
}
