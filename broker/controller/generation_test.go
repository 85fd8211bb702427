package controller

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A leader may begin the next generation of a partition with which nothing is wrong, and of no other.
func TestLeaderBeginsAnew(t *testing.T) {
	m := newReplicated(t, "2")
	ask := func(broker ids.NodeID, epoch ids.LeaderEpoch) ItemResult {
		t.Helper()
		res := m.apply(BeginAnew{broker, m.epoch(broker), []BeginItem{{testID(50), 0, epoch}}})
		if res.Code != 0 || len(res.Items) != 1 {
			t.Fatalf("%+v", res)
		}
		return res.Items[0]
	}
	refused := func(what string, broker ids.NodeID, epoch ids.LeaderEpoch, want *kerr.Error) {
		t.Helper()
		before := *m.p()
		if got := ask(broker, epoch); got.Code != want.Code || m.p().Generation != before.Generation {
			t.Errorf("%s: %+v, generation %d", what, got, m.p().Generation)
		}
	}
	refused("a follower", 2, m.p().LeaderEpoch, kerr.FencedLeaderEpoch)
	refused("another epoch", 1, m.p().LeaderEpoch-1, kerr.FencedLeaderEpoch)
	m.must(m.alter(1, 2))
	refused("not all are in sync", 1, m.p().LeaderEpoch, kerr.IneligibleReplica)
	m.must(m.alter(1, 2, 3))
	m.must(TransferLeaders{[]LeaderTransfer{{testID(50), 0, m.p().LeaderEpoch, 2, 1000}}})
	refused("a transfer is under way", 1, m.p().LeaderEpoch, kerr.IneligibleReplica)
	m.must(TransferLeaders{[]LeaderTransfer{{testID(50), 0, m.p().LeaderEpoch, ids.NoNode, 1000}}})
	before := *m.p()
	if got := ask(1, before.LeaderEpoch); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	m.want("it has begun", isrState{ids.NoNode, n(1), n(2, 3), n(1)})
	if p := m.p(); p.Generation != before.Generation+1 || p.Shard == before.Shard || p.BaseOffset != ids.NoOffset || !slices.Equal(p.Voters, n(1)) {
		t.Errorf("after: %+v", p)
	}
	refused("it has begun already", 1, before.LeaderEpoch, kerr.FencedLeaderEpoch)
}

func TestNextGeneration(t *testing.T) {
	m := newReplicated(t, "2")
	before := m.p()
	m.must(m.change(2, Fence))
	m.must(m.change(3, Fence))
	m.want("only the leader is left", isrState{1, n(1), n(3), nil})
	m.must(m.generation(1, false))
	p := m.p()
	m.want("seed chosen", isrState{ids.NoNode, n(1), n(3), n(1)})
	if p.Generation != before.Generation+1 || p.Shard <= before.Shard || p.BaseOffset != ids.NoOffset || p.LeaderTerm != 0 {
		t.Errorf("generation %+v after %+v", p, before)
	}
	for i, r := range p.ReplicaIDs {
		if slices.Contains(before.ReplicaIDs, r) {
			t.Errorf("replica %d keeps id %d", i, r)
		}
	}
	if got := p.Members(); !slices.Equal(p.Voters, n(1)) || len(got) != 1 || got[p.ReplicaIDs[0]] != 1 {
		t.Errorf("voters %v, members %v", p.Voters, got)
	}
	if res := m.apply(m.generation(1, false)); res.Items[0].Code != 0 {
		t.Errorf("a further generation: %+v", res)
	}
	stale := m.generation(1, false)
	stale.Partitions[0].From--
	if res := m.apply(stale); res.Items[0].Code != kerr.InvalidUpdateVersion.Code {
		t.Errorf("the same again: %+v", res)
	}
	epoch := m.p().LeaderEpoch
	m.must(m.seeded(1, 70))
	m.want("seed registered", isrState{1, n(1), n(3), nil})
	if m.p().BaseOffset != 70 || m.p().LeaderEpoch != epoch+1 {
		t.Errorf("partition %+v", m.p())
	}
	m.must(m.report("t", 0, 1, 2))
	if m.p().BaseOffset != 70 {
		t.Errorf("a later registration moved the base to %d", m.p().BaseOffset)
	}
}

func TestSeeds(t *testing.T) {
	fence := func(nodes ...ids.NodeID) func(*machine) {
		return func(m *machine) {
			for _, n := range nodes {
				m.must(m.change(n, Fence))
			}
		}
	}
	cases := []struct {
		name    string
		min     string
		prepare func(*machine)
		seed    ids.NodeID
		unclean bool
		code    int16
		isUncl  bool
	}{
		{"of the ISR", "1", fence(), 3, false, 0, false},
		{"dead", "1", fence(3), 3, false, kerr.IneligibleReplica.Code, false},
		{"no replica", "1", fence(), 9, false, kerr.IneligibleReplica.Code, false},
		{"of the ELR while the ISR is not empty", "3", func(m *machine) { m.must(m.alter(1, 2)) }, 3, false, kerr.EligibleLeadersNotAvailable.Code, false},
		{"of the ELR", "3", func(m *machine) { m.must(m.alter(1, 2)); fence(1, 2)(m) }, 3, false, 0, false},
		{"outside both", "1", func(m *machine) { m.must(m.alter(1)); fence(1)(m) }, 3, false, kerr.EligibleLeadersNotAvailable.Code, false},
		{"outside both, unclean", "1", func(m *machine) { m.must(m.alter(1)); fence(1)(m) }, 3, true, 0, true},
		{"unclean while a member of the ISR is alive", "1", func(m *machine) { m.must(m.alter(1)) }, 3, true, kerr.ElectionNotNeeded.Code, false},
		{"unclean, but of the ELR", "3", func(m *machine) { m.must(m.alter(1, 2)); fence(1, 2)(m) }, 3, true, 0, false},
	}
	for _, c := range cases {
		m := newReplicated(t, c.min)
		c.prepare(m)
		before := m.p()
		res := m.apply(m.generation(c.seed, c.unclean))
		if res.Items[0].Code != c.code || (m.p() != before) != (c.code == 0) {
			t.Errorf("%s: %+v, want code %d", c.name, res, c.code)
		}
		if c.code == 0 && (m.p().Recovering != c.isUncl || !slices.Equal(m.p().InSync, n(c.seed)) || c.isUncl && m.p().ELR != nil) {
			t.Errorf("%s: %+v", c.name, m.p())
		}
	}
}

// offline is a partition whose only in-sync replica, 1, has died after it reported log end 100; replica 3 holds 40.
func offline(t *testing.T) (*machine, Facts) {
	m := newReplicated(t, "1")
	ends := &Ends{}
	ends.Note(1, []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 100, AppendMs: 5, AsOfMs: 1000}}})
	ends.Note(3, []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 40, AppendMs: 4, AsOfMs: 1500}}})
	m.must(m.change(2, Fence))
	m.must(m.alter(1))
	m.must(NoteEnds{1, m.epoch(1), ends.Unsaved(m.img, 1)})
	m.must(m.change(1, Fence))
	return m, Facts{
		Now: time.UnixMilli(3000), Ends: ends, LeaseEnds: map[ids.NodeID]time.Time{1: time.UnixMilli(2000), 2: {}},
		Unclean: func(string) bool { return true },
	}
}

func TestPreviewCountsOnceWhatTwoReplicasHold(t *testing.T) {
	m, f := offline(t)
	f.Ends.Note(2, []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 90, AppendMs: 5, AsOfMs: 1000}}})
	if got := PreviewElection(f, m.img, m.p())[2].Lost; !reflect.DeepEqual(got, []LostRange{{0, 40, 100}}) {
		t.Errorf("promoting 3 would lose %+v", got)
	}
}

func TestUncleanElectionTellsWhatIsLost(t *testing.T) {
	m, f := offline(t)
	m.want("offline", isrState{ids.NoNode, nil, n(1), n(1)})
	early := f
	early.Now = time.UnixMilli(1999)
	if cmds := Decide(m.img, early); len(cmds) != 0 {
		t.Errorf("decided %+v while the old leader's lease holds", cmds)
	}
	no := f
	no.Unclean = func(string) bool { return false }
	if cmds := Decide(m.img, no); len(cmds) != 0 {
		t.Errorf("decided %+v without permission", cmds)
	}
	preview := PreviewElection(Facts{Now: f.Now}, m.img, m.p())[0]
	if !preview.Known || preview.End != 100 || preview.Age != 2*time.Second || preview.Alive {
		t.Errorf("the dead broker's end, by the metadata alone: %+v", preview)
	}
	if got := PreviewElection(f, m.img, m.p())[2].Lost; !reflect.DeepEqual(got, []LostRange{{0, 40, 100}}) {
		t.Errorf("promoting 3 would lose %+v", got)
	}
	cmds := Decide(m.img, f)
	if len(cmds) != 1 {
		t.Fatalf("decided %+v", cmds)
	}
	m.must(cmds[0])
	if cmds := Decide(m.img, f); len(cmds) != 0 {
		t.Errorf("decided %+v while the seed is on its way", cmds)
	}
	m.must(m.seeded(3, 41))
	m.want("unclean", isrState{3, n(3), nil, nil})
	want := Loss{TopicID: testID(50), Topic: "t", LostRange: LostRange{0, 41, 100}, Cause: CauseUnclean, Holder: 1, Estimated: true, AtMs: 3000}
	if !reflect.DeepEqual(m.img.Losses, []Loss{want}) {
		t.Errorf("losses %+v, want %+v", m.img.Losses, want)
	}
	// The old leader comes back and tells exactly.
	m.must(m.change(1, Unfence))
	report := LossReport{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, Lost: []LostRange{{0, 38, 99}}, AtMs: 4000}
	m.must(ChangeLosses{1, m.epoch(1), []LossReport{report}})
	m.must(ChangeLosses{1, m.epoch(1), []LossReport{report}})
	want = Loss{TopicID: testID(50), Topic: "t", LostRange: LostRange{0, 38, 99}, Cause: CauseDivergent, Holder: 1, AtMs: 4000}
	if !reflect.DeepEqual(m.img.Losses, []Loss{want}) {
		t.Errorf("losses %+v, want %+v", m.img.Losses, want)
	}
	found := LossReport{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, Found: []LostRange{{0, 50, 60}}}
	if res := m.apply(ChangeLosses{1, m.epoch(1), []LossReport{found}}); res.Items[0].Code != kerr.InvalidRequest.Code {
		t.Errorf("found by a follower: %+v", res)
	}
	m.must(ChangeLosses{3, m.epoch(3), []LossReport{found}})
	left := []LostRange{}
	for _, l := range m.img.LossesOf(testID(50), 0) {
		left = append(left, l.LostRange)
	}
	if !reflect.DeepEqual(left, []LostRange{{0, 38, 50}, {0, 60, 99}}) {
		t.Errorf("losses left: %+v", left)
	}
	report.LeaderEpoch--
	if res := m.apply(ChangeLosses{1, m.epoch(1), []LossReport{report}}); res.Items[0].Code != kerr.FencedLeaderEpoch.Code {
		t.Errorf("compared with an earlier leader: %+v", res)
	}
}

func TestElect(t *testing.T) {
	cases := []struct {
		name    string
		prepare func(*testing.T) (*machine, Facts)
		kind    ElectionType
		topic   string
		code    int16
		want    string // the step
	}{
		{"unknown topic", plain, PreferredElection, "x", kerr.UnknownTopicOrPartition.Code, ""},
		{"bad type", plain, 7, "t", kerr.InvalidRequest.Code, ""},
		{"preferred leads", plain, PreferredElection, "t", kerr.ElectionNotNeeded.Code, ""},
		{"unclean with a leader", plain, UncleanElection, "t", kerr.ElectionNotNeeded.Code, ""},
		{"preferred follows", ledBy2, PreferredElection, "t", 0, "transfer to 1"},
		{"preferred not in sync", func(t *testing.T) (*machine, Facts) {
			m, f := ledBy2(t)
			m.must(m.alter(2, 3))
			return m, f
		}, PreferredElection, "t", kerr.PreferredLeaderNotAvailable.Code, ""},
		{"preferred, nobody leads, others in sync", func(t *testing.T) (*machine, Facts) {
			m, f := plain(t)
			m.must(m.change(1, Fence))
			return m, f
		}, PreferredElection, "t", 0, "clean 2"},
		{"preferred, nobody alive", offline, PreferredElection, "t", kerr.PreferredLeaderNotAvailable.Code, ""},
		{"unclean", offline, UncleanElection, "t", 0, "unclean 3"},
		{"unclean, a lease may hold", func(t *testing.T) (*machine, Facts) {
			m, f := offline(t)
			f.LeaseEnds = nil
			return m, f
		}, UncleanElection, "t", kerr.LeaderNotAvailable.Code, ""},
		{"unclean, nobody alive", func(t *testing.T) (*machine, Facts) {
			m, f := offline(t)
			m.must(m.change(3, Fence))
			return m, f
		}, UncleanElection, "t", kerr.EligibleLeadersNotAvailable.Code, ""},
	}
	for _, c := range cases {
		m, f := c.prepare(t)
		step, res := Elect(m.img, f, c.kind, c.topic, 0)
		got := ""
		switch {
		case step.Transfer != nil:
			got = "transfer to " + string(rune('0'+step.Transfer.To))
			m.must(TransferLeaders{[]LeaderTransfer{*step.Transfer}})
		case step.Generation != nil && step.Generation.Unclean:
			got = "unclean " + string(rune('0'+step.Generation.Seed))
		case step.Generation != nil:
			got = "clean " + string(rune('0'+step.Generation.Seed))
		}
		if res.Code != c.code || got != c.want {
			t.Errorf("%s: %+v, step %q, want code %d, step %q", c.name, res, got, c.code, c.want)
		}
		if step.Generation != nil {
			m.must(NextGenerations{[]NewGeneration{*step.Generation}})
		}
	}
}

func plain(t *testing.T) (*machine, Facts) { return newReplicated(t, "1"), Facts{} }

func ledBy2(t *testing.T) (*machine, Facts) {
	m, f := plain(t)
	m.must(m.report("t", 0, 2, 6))
	return m, f
}

func TestDecideGenerations(t *testing.T) {
	m := newReplicated(t, "2")
	if cmds := Decide(m.img, Facts{}); len(cmds) != 0 {
		t.Fatalf("decided %+v for a healthy partition", cmds)
	}
	m.must(m.change(3, Fence))
	if cmds := Decide(m.img, Facts{}); len(cmds) != 0 {
		t.Fatalf("decided %+v with a majority of voters in sync", cmds)
	}
	m.must(m.change(2, Fence))
	want := []Command{m.generation(1, false)}
	if cmds := Decide(m.img, Facts{}); !reflect.DeepEqual(cmds, want) {
		t.Fatalf("decided %+v without a majority, want %+v", cmds, want)
	}
	m.must(want[0])
	m.must(m.seeded(1, 5))
	m.must(m.change(2, Unfence))
	m.must(m.alter(1, 2))
	r := m.p().ReplicaIDs
	m.must(ChangeVoters{1, m.epoch(1), []VotersReport{{testID(50), 0, m.p().LeaderEpoch, 9, []ids.ReplicaID{r[0], r[1]}}}})
	if !slices.Equal(m.p().Voters, n(1, 2)) {
		t.Fatalf("voters %v", m.p().Voters)
	}
	m.must(m.change(1, Fence))
	want = []Command{m.generation(2, false)}
	if cmds := Decide(m.img, Facts{}); !reflect.DeepEqual(cmds, want) {
		t.Errorf("decided %+v with one of two voters, want %+v", cmds, want)
	}
}

func TestRaftIsGivenTimeWhereAMajorityIsAlive(t *testing.T) {
	m := newReplicated(t, "2")
	m.must(m.change(1, Fence))
	var w Watch
	begin := time.Unix(100, 0)
	f := Facts{ElectionGrace: 5 * time.Second, Ends: &Ends{}}
	f.Ends.Note(2, []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 7}}})
	f.Ends.Note(3, []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 8}}})
	for s := range 5 {
		f.Now = begin.Add(time.Duration(s) * time.Second)
		f.Leaderless = w.Observe(m.img, f.Now)
		if cmds := Decide(m.img, f); len(cmds) != 0 {
			t.Fatalf("decided %+v after %d s", cmds, s)
		}
	}
	f.Now = begin.Add(5 * time.Second)
	f.Leaderless = w.Observe(m.img, f.Now)
	want := []Command{m.generation(3, false)}
	if cmds := Decide(m.img, f); !reflect.DeepEqual(cmds, want) {
		t.Errorf("decided %+v, want %+v: the highest log end", cmds, want)
	}
	m.must(m.report("t", 0, 2, 6))
	if left := w.Observe(m.img, f.Now); len(left) != 0 {
		t.Errorf("leaderless %v with a leader", left)
	}
}

// TestASingleVoterElectsItselfAfterARestart: the controller must not begin a generation that would bring nothing.
func TestASingleVoterElectsItselfAfterARestart(t *testing.T) {
	m := newReplicated(t, "1")
	m.must(m.alter(1))
	m.must(m.generation(1, false))
	m.must(m.seeded(1, 5))
	m.restart(registerCmd(1, 1, 1))
	m.want("restarted", isrState{ids.NoNode, nil, n(1), n(1)})
	var w Watch
	f := Facts{ElectionGrace: 5 * time.Second, Ends: &Ends{}, Now: time.Unix(100, 0)}
	f.Leaderless = w.Observe(m.img, f.Now)
	if cmds := Decide(m.img, f); len(cmds) != 0 {
		t.Errorf("decided %+v at once", cmds)
	}
	f.Now = f.Now.Add(5 * time.Second)
	f.Leaderless = w.Observe(m.img, f.Now)
	if cmds := Decide(m.img, f); !reflect.DeepEqual(cmds, []Command{m.generation(1, false)}) {
		t.Errorf("decided %+v when it had its time", cmds)
	}
}

func TestPreferredLeaders(t *testing.T) {
	m, _ := ledBy2(t)
	f := Facts{Rebalance: true, ImbalancePercent: 10, Now: time.UnixMilli(1000), TransferTimeout: time.Second}
	cmds := Decide(m.img, f)
	want := []Command{TransferLeaders{[]LeaderTransfer{{testID(50), 0, m.p().LeaderEpoch, 1, 1000}}}}
	if !reflect.DeepEqual(cmds, want) {
		t.Fatalf("decided %+v, want %+v", cmds, want)
	}
	if idle := Decide(m.img, Facts{}); len(idle) != 0 {
		t.Errorf("decided %+v while no rebalance is due", idle)
	}
	m.must(cmds[0])
	if cmds := Decide(m.img, f); len(cmds) != 0 {
		t.Errorf("decided %+v while the request stands", cmds)
	}
	f.Now = time.UnixMilli(2001)
	cmds = Decide(m.img, f)
	if len(cmds) != 1 || cmds[0].(TransferLeaders).Partitions[0].To != ids.NoNode {
		t.Fatalf("decided %+v for a request that stands too long", cmds)
	}
	f.Now = time.UnixMilli(-3_600_000)
	if cmds := Decide(m.img, f); len(cmds) != 1 || cmds[0].(TransferLeaders).Partitions[0].To != ids.NoNode {
		t.Errorf("decided %+v for a request from before the clock was set back", cmds)
	}
	f.Now = time.UnixMilli(2001)
	m.must(cmds[0])
	if m.p().Transfer != nil {
		t.Error("the request still stands")
	}
	f.ImbalancePercent = 100
	if cmds := Decide(m.img, f); len(cmds) != 0 {
		t.Errorf("decided %+v within the tolerated imbalance", cmds)
	}
}

func TestReassignment(t *testing.T) {
	m := newReplicated(t, "1")
	m.startBrokers(4, 5)
	m.must(AlterReassignments{[]Reassignment{{TopicID: testID(50), Replicas: n(3, 4, 5), AtMs: 1000}}})
	p := m.p()
	if !slices.Equal(p.Replicas, n(3, 4, 5, 1, 2)) || !slices.Equal(p.Adding, n(4, 5)) || !slices.Equal(p.Removing, n(1, 2)) {
		t.Fatalf("%+v", p)
	}
	m.want("under way", isrState{1, n(3, 1, 2), nil, nil})
	late := Facts{Now: time.UnixMilli(2001), ReassignmentTimeout: time.Second, TransferTimeout: time.Hour}
	var kinds []string
	for _, c := range Decide(m.img, late) {
		kinds = append(kinds, c.kind())
	}
	if !slices.Equal(kinds, []string{"transferLeaders", "alterReassignments"}) {
		t.Errorf("decided %v: the leader is to leave, and time is up", kinds)
	}
	voters := func(nodes ...ids.NodeID) {
		t.Helper()
		r := VotersReport{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, At: m.p().VotersAt + 1}
		for _, n := range nodes {
			r.Voters = append(r.Voters, m.p().ReplicaIDs[m.p().ReplicaOf(n)])
		}
		m.must(ChangeVoters{m.p().Leader, m.epoch(m.p().Leader), []VotersReport{r}})
	}
	m.must(m.report("t", 0, 3, 6))
	m.must(m.alter(1, 2, 3, 4, 5))
	voters(1, 2, 3, 4, 5)
	if len(m.p().Replicas) != 5 {
		t.Fatal("completed while leaving replicas vote")
	}
	voters(2, 3, 4, 5)
	voters(3, 4, 5)
	m.want("done", isrState{3, n(3, 4, 5), nil, nil})
	if p := m.p(); !slices.Equal(p.Replicas, n(3, 4, 5)) || len(p.Adding)+len(p.Removing) != 0 || len(p.ReplicaIDs) != 3 || len(p.Directories) != 3 {
		t.Errorf("done: %+v", p)
	}
	none := AlterReassignments{[]Reassignment{{TopicID: testID(50)}}}
	if res := m.apply(none); res.Items[0].Code != kerr.NoReassignmentInProgress.Code {
		t.Errorf("cancel of nothing: %+v", res)
	}
	m.must(AlterReassignments{[]Reassignment{{TopicID: testID(50), Replicas: n(3, 1)}}})
	m.must(none)
	if p := m.p(); !slices.Equal(p.Replicas, n(3, 4, 5)) || len(p.Adding)+len(p.Removing) != 0 {
		t.Errorf("cancelled before anything had come of it: %+v", p)
	}
	if res := m.apply(AlterReassignments{[]Reassignment{{TopicID: testID(50), Replicas: n(3, 9)}}}); res.Items[0].Code != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("unknown broker: %+v", res)
	}
}

// TestReassignmentEmptiesTheELRWithTheMinimum: another number of replicas may be another effective minimum.
func TestReassignmentEmptiesTheELRWithTheMinimum(t *testing.T) {
	m := newReplicated(t, "9")
	m.startBrokers(4)
	m.must(m.alter(1, 2))
	m.want("before", isrState{1, n(1, 2), n(3), nil})
	m.must(AlterReassignments{[]Reassignment{{TopicID: testID(50), Replicas: n(1, 2, 3, 4)}}})
	m.want("one more replica", isrState{1, n(1, 2), nil, nil})
}
