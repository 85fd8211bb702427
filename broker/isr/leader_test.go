package isr

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cairn/broker/internal/rules"
	"cairn/internal/ids"
)

const lag = 30 * time.Second

var t0 = time.Unix(1_000_000, 0)

func at(d time.Duration) time.Time { return t0.Add(d) }

// view is three replicas on nodes 1 to 3, with replica ids 101 to 103; node 1 leads in epoch 4.
func view(index uint64, epoch int32, minimum int, inSync ...ids.NodeID) View {
	v := View{Index: index, Leader: 1, LeaderEpoch: 4, PartitionEpoch: epoch, MinISR: minimum}
	for n := ids.NodeID(1); n <= 3; n++ {
		v.Members = append(v.Members, Member{
			Node: n, Replica: ids.ReplicaID(100 + n), InSync: slices.Contains(inSync, n), Eligible: true, Voter: true,
		})
	}
	return v
}

func newLeader(v View, start, hw ids.Offset) *Leader {
	l := New(Config{Self: 101, LagTimeMax: lag}, v, start, hw, t0)
	l.NoteLease(at(time.Hour))
	return l
}

func wantHW(t *testing.T, l *Leader, hw ids.Offset, when string) {
	t.Helper()
	if l.HighWatermark() != hw {
		t.Errorf("%s: high watermark %d, want %d", when, l.HighWatermark(), hw)
	}
}

func mustView(t *testing.T, l *Leader, v View) Change {
	t.Helper()
	c, over := l.NoteView(v)
	if over {
		t.Fatalf("reign is over at %+v", v)
	}
	return c
}

func TestHighWatermarkWaitsForCommitSaveAndAllInSync(t *testing.T) {
	steps := []struct {
		name string
		do   func(*Leader) Change
		hw   ids.Offset
	}{
		{"commit of all", func(l *Leader) Change { return l.NoteCommitted(20) }, 5},
		{"one follower", func(l *Leader) Change { return l.NoteProgress(102, 18) }, 5},
		{"the other follower, before the leader's own save", func(l *Leader) Change { return l.NoteProgress(103, 15) }, 10},
		{"own save", func(l *Leader) Change { return l.NoteSaved(20, at(1)) }, 15},
		{"a late answer", func(l *Leader) Change { return l.NoteProgress(103, 12) }, 15},
		{"a stranger", func(l *Leader) Change { return l.NoteProgress(999, 20) }, 15},
		{"the slower follower", func(l *Leader) Change { return l.NoteProgress(103, 20) }, 18},
		{"the other one", func(l *Leader) Change { return l.NoteProgress(102, 25) }, 20},
		{"own save beyond the commit", func(l *Leader) Change { return l.NoteSaved(30, at(2)) }, 20},
		{"a commit that repeats", func(l *Leader) Change { return l.NoteCommitted(19) }, 20},
	}
	l := newLeader(view(1, 0, 1, 1, 2, 3), 10, 5)
	for _, s := range steps {
		before := l.HighWatermark()
		c := s.do(l)
		wantHW(t, l, s.hw, s.name)
		if c.HighWatermark != (s.hw > before) {
			t.Errorf("%s: change %+v", s.name, c)
		}
	}
}

func TestHighWatermarkStandsStillBelowTheMinimum(t *testing.T) {
	l := newLeader(view(1, 0, 2, 1, 2), 10, 10)
	l.NoteCommitted(10)
	l.NoteProgress(102, 10)
	l.NoteSaved(20, at(1))
	l.NoteCommitted(20)
	mustView(t, l, view(2, 1, 2, 1))
	wantHW(t, l, 10, "one of two in sync")
	if c := mustView(t, l, view(3, 2, 2, 1, 3)); c.HighWatermark {
		t.Error("moved for a member that holds nothing")
	}
	if c := l.NoteProgress(103, 20); !c.HighWatermark {
		t.Error("did not move once the new member had caught up")
	}
	wantHW(t, l, 20, "two in sync again")
	mustView(t, l, view(4, 3, 3, 1, 3))
	l.NoteSaved(30, at(2))
	l.NoteCommitted(30)
	l.NoteProgress(103, 30)
	wantHW(t, l, 20, "a higher minimum")
	if c := mustView(t, l, view(5, 4, 1, 1, 3)); !c.HighWatermark {
		t.Error("a lower minimum did not free it")
	}
	wantHW(t, l, 30, "a lower minimum")
}

// TestProposedMemberCounts is rule 2: from the moment it is proposed, also when the answer is lost, until the partition
// epoch has moved.
func TestProposedMemberCounts(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2), 10, 10)
	l.NoteProgress(102, 10)
	l.NoteProgress(103, 10)
	p, ok := l.Propose(at(1))
	if !ok || !slices.Equal(p.ISR, []ids.NodeID{1, 2, 3}) || p.LeaderEpoch != 4 || p.PartitionEpoch != 0 {
		t.Fatalf("proposal %+v, %v", p, ok)
	}
	grow := func(end ids.Offset) {
		l.NoteSaved(end, at(2))
		l.NoteCommitted(end)
		l.NoteProgress(102, end)
	}
	grow(20)
	wantHW(t, l, 10, "proposal under way")
	if _, again := l.Propose(at(3)); again {
		t.Error("two proposals under way")
	}
	l.Answered()
	grow(21)
	wantHW(t, l, 10, "proposal answered, whatever the answer")
	mustView(t, l, view(2, 0, 1, 1, 2))
	wantHW(t, l, 10, "a newer image in the same partition epoch")
	mustView(t, l, view(3, 1, 1, 1, 2))
	wantHW(t, l, 21, "the partition epoch has moved without it")
}

// TestUnsettledProposalIsSettled: a member that was proposed, by a proposal of unknown fate, and is not wanted any more
// would hold up the high watermark for ever. The ISR as it is, proposed again, moves the partition epoch.
func TestUnsettledProposalIsSettled(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2), 10, 10)
	l.NoteProgress(102, 10)
	l.NoteProgress(103, 10)
	l.Propose(at(1))
	l.Answered()
	gone := view(2, 0, 1, 1, 2)
	gone.Members[2].Eligible = false
	mustView(t, l, gone)
	p, ok := l.Propose(at(2))
	if !ok || !slices.Equal(p.ISR, []ids.NodeID{1, 2}) || p.PartitionEpoch != 0 {
		t.Errorf("proposal %+v, %v, want the ISR as it is", p, ok)
	}
	l.Answered()
	mustView(t, l, view(3, 1, 1, 1, 2))
	l.NoteProgress(103, 0)
	if p, ok := l.Propose(at(3)); !ok || !slices.Equal(p.ISR, []ids.NodeID{1, 2, 3}) {
		t.Errorf("settled: proposal %+v, %v, want the member again", p, ok)
	}
}

// TestExpansion is rule 3, and who may come back at all.
func TestExpansion(t *testing.T) {
	cases := []struct {
		name  string
		start ids.Offset
		hw    ids.Offset
		end   ids.Offset
		edit  func(*View)
		off   rules.Off
		want  bool
	}{
		{name: "holds everything", start: 10, hw: 10, end: 10, want: true},
		{name: "below the high watermark", start: 10, hw: 10, end: 9},
		{name: "above the leader's own high watermark, below where it registered", start: 10, hw: 5, end: 9},
		{name: "the same without rule 3", start: 10, hw: 5, end: 9, off: rules.NoEpochStart, want: true},
		{name: "fenced or shutting down", start: 10, hw: 10, end: 10, edit: func(v *View) { v.Members[2].Eligible = false }},
		{name: "in sync already", start: 10, hw: 10, end: 10, edit: func(v *View) { v.Members[2].InSync = true }},
		{name: "nothing known of it", start: 10, hw: 10, end: ids.NoOffset},
		{name: "an empty log", start: 0, hw: 0, end: 0, want: true},
	}
	for _, c := range cases {
		v := view(1, 0, 1, 1, 2)
		if c.edit != nil {
			c.edit(&v)
		}
		l := New(Config{Self: 101, LagTimeMax: lag, Off: c.off}, v, c.start, c.hw, t0)
		l.NoteProgress(102, c.start)
		change := l.NoteProgress(103, c.end)
		p, ok := l.Propose(at(time.Second))
		if ok != c.want || ok && !slices.Contains(p.ISR, 3) {
			t.Errorf("%s: proposal %+v, %v, want %v", c.name, p, ok, c.want)
		}
		if c.want && !change.Propose {
			t.Errorf("%s: progress did not ask for a proposal", c.name)
		}
	}
}

func TestViews(t *testing.T) {
	l := newLeader(view(5, 3, 1, 1, 2), 10, 10)
	if c, over := l.NoteView(view(4, 2, 1, 1)); c != (Change{}) || over {
		t.Errorf("older image: %+v, %v", c, over)
	}
	if size, _ := l.InSync(); size != 2 {
		t.Errorf("older image was taken: %d in sync", size)
	}
	next := view(6, 4, 1, 2)
	next.LeaderEpoch = 5
	if _, over := l.NoteView(next); !over {
		t.Error("reign goes on in another leader epoch")
	}
	next = view(6, 4, 1, 2)
	next.Leader = ids.NoNode
	if _, over := l.NoteView(next); !over {
		t.Error("reign goes on without a leader")
	}
	// A node's new replica has to start anew.
	l.NoteProgress(102, 10)
	renewed := view(7, 5, 1, 1, 2)
	renewed.Members[1].Replica = 999
	mustView(t, l, renewed)
	l.NoteSaved(11, at(1))
	l.NoteCommitted(11)
	l.NoteProgress(102, 11)
	wantHW(t, l, 10, "progress of a former replica")
	l.NoteProgress(999, 11)
	wantHW(t, l, 11, "progress of the new replica")
}

func TestChecks(t *testing.T) {
	l := newLeader(view(1, 0, 2, 1, 2), 10, 10)
	l.NoteLease(at(9 * time.Second))
	l.NoteProgress(102, 10)
	if err := l.CheckAppend(true, at(8*time.Second)); err != nil {
		t.Error(err)
	}
	if err := l.CheckAppend(false, at(9*time.Second)); !errors.Is(err, ErrLease) {
		t.Errorf("lease over: %v", err)
	}
	l.NoteSaved(12, at(1))
	if done, err := l.Settled(12, false, at(1)); !done || err != nil {
		t.Errorf("acks=1 after the save: %v, %v", done, err)
	}
	if done, _ := l.Settled(13, false, at(1)); done {
		t.Error("acks=1 before the save")
	}
	if done, _ := l.Settled(12, true, at(1)); done {
		t.Error("acks=all before the high watermark")
	}
	l.NoteCommitted(12)
	l.NoteProgress(102, 12)
	if done, err := l.Settled(12, true, at(1)); !done || err != nil {
		t.Errorf("acks=all behind the high watermark: %v, %v", done, err)
	}
	if done, err := l.Settled(12, true, at(10*time.Second)); !done || !errors.Is(err, ErrLease) {
		t.Errorf("acks=all after the lease: %v, %v", done, err)
	}
	mustView(t, l, view(2, 1, 2, 1))
	if err := l.CheckAppend(true, at(1)); !errors.Is(err, ErrNotEnoughReplicas) {
		t.Errorf("below the minimum: %v", err)
	}
	if err := l.CheckAppend(false, at(1)); err != nil {
		t.Errorf("acks=1 below the minimum: %v", err)
	}
	if done, err := l.Settled(12, true, at(1)); !done || !errors.Is(err, ErrNotEnoughReplicas) {
		t.Errorf("acks=all shrunk meanwhile: %v, %v", done, err)
	}
}

func TestNextMember(t *testing.T) {
	leaving := view(1, 0, 1, 1, 2)
	leaving.Members[2].Leaving = true
	selfLeaving := view(1, 0, 1, 1, 2, 3)
	selfLeaving.Members[0].Leaving = true
	r := func(r ...ids.ReplicaID) []ids.ReplicaID { return r }
	cases := []struct {
		name              string
		view              View
		voters, nonVoters []ids.ReplicaID
		end               ids.Offset // what 102 and 103 hold; 10 is committed
		want              MemberChange
	}{
		{"all vote", view(1, 0, 1, 1, 2, 3), r(101, 102, 103), nil, 10, MemberChange{}},
		{"a former voter first", view(1, 0, 1, 1, 2, 3), r(101, 77), nil, 10, MemberChange{Remove, 77, ids.NoNode}},
		{"missing", view(1, 0, 1, 1), r(101), r(102), 10, MemberChange{AddNonVoting, 103, 3}},
		{"in sync", view(1, 0, 1, 1, 2), r(101), r(102, 103), 10, MemberChange{Promote, 102, 2}},
		{"in sync, but behind the commit", view(1, 0, 1, 1, 2), r(101), r(102, 103), 9, MemberChange{}},
		{"not in sync", view(1, 0, 1, 1), r(101), r(102, 103), 10, MemberChange{}},
		{"leaving", leaving, r(101, 102, 103), nil, 10, MemberChange{Remove, 103, 3}},
		{"leaving, others not ready", leaving, r(101, 103), r(102), 9, MemberChange{}},
		{"leaving and not there yet", leaving, r(101, 102), nil, 10, MemberChange{}},
		{"the leader itself", selfLeaving, r(101, 102, 103), nil, 10, MemberChange{}},
	}
	for _, c := range cases {
		l := newLeader(c.view, 10, 5)
		l.NoteCommitted(10)
		l.NoteProgress(102, c.end)
		l.NoteProgress(103, c.end)
		got, ok := l.NextMember(c.voters, c.nonVoters)
		if got != c.want || ok != (c.want != MemberChange{}) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, ok, c.want)
		}
	}
}

func TestProgressDoesNotAllocate(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2, 3), 0, 0)
	end := ids.Offset(0)
	n := testing.AllocsPerRun(1000, func() {
		end++
		now := at(time.Duration(end) * time.Millisecond)
		l.NoteSaved(end, now)
		l.NoteProgress(102, end)
		l.NoteProgress(103, end)
		l.NoteCommitted(end)
		if done, err := l.Settled(end, true, now); !done || err != nil {
			t.Fatal(done, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	wantHW(t, l, end, "after the run")
}
