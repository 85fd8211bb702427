package controller

import (
	"reflect"
	"slices"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// newReplicated is a machine with ISR and generations, brokers 1 to 3 and topic t with one partition on them, led by 1 in
// Raft term 5.
func newReplicated(t testing.TB, minimum string) *machine {
	m := newMachine(t)
	m.startBrokers(1, 2, 3)
	m.must(CreateTopics{[]NewTopic{{
		Name: "t", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2, 3}), Configs: map[string]string{minInsyncReplicas: minimum},
	}}})
	m.must(m.report("t", 0, 1, 5))
	return m
}

func (m *machine) p() *Partition { return m.img.Topics["t"].Partitions[0] }

// alter is the leader's request for an ISR.
func (m *machine) alter(isr ...ids.NodeID) AlterPartitions {
	c := ISRChange{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, PartitionEpoch: m.p().PartitionEpoch}
	for _, n := range isr {
		c.ISR = append(c.ISR, ISRMember{n, -1})
	}
	return AlterPartitions{m.p().Leader, m.epoch(m.p().Leader), []ISRChange{c}}
}

// restart registers a new process of the broker and unfences it.
func (m *machine) restart(c RegisterBroker) {
	m.t.Helper()
	c.Incarnation = testID(byte(200 + m.index))
	m.must(c)
	m.must(m.change(c.ID, Unfence))
}

func (m *machine) generation(seed ids.NodeID, unclean bool) NextGenerations {
	return NextGenerations{[]NewGeneration{{TopicID: testID(50), From: m.p().Generation, Seed: seed, Unclean: unclean}}}
}

// seeded reports the seed as leader of its generation, which starts at base.
func (m *machine) seeded(seed ids.NodeID, base ids.Offset) RegisterLeaders {
	c := m.report("t", 0, seed, 1)
	c.Leaders[0].BaseOffset = base
	return c
}

type isrState struct {
	leader   ids.NodeID
	isr, elr []ids.NodeID
	last     []ids.NodeID
}

func (m *machine) want(when string, w isrState) {
	m.t.Helper()
	p := m.p()
	got := isrState{p.Leader, p.InSync, p.ELR, p.LastKnownELR}
	if got.leader != w.leader || !slices.Equal(got.isr, w.isr) || !slices.Equal(got.elr, w.elr) || !slices.Equal(got.last, w.last) {
		m.t.Errorf("%s: %+v, want %+v", when, got, w)
	}
}

func n(n ...ids.NodeID) []ids.NodeID { return n }

func TestAlterPartitionChecks(t *testing.T) {
	cases := []struct {
		name string
		edit func(*machine, *AlterPartitions, *ISRChange)
		code int16
	}{
		{"as it should be", func(*machine, *AlterPartitions, *ISRChange) {}, 0},
		{"unknown topic", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.TopicID = testID(9) }, kerr.UnknownTopicID.Code},
		{"newer leader epoch", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.LeaderEpoch++ }, kerr.NotController.Code},
		{"newer partition epoch", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.PartitionEpoch++ }, kerr.NotController.Code},
		{"older leader epoch", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.LeaderEpoch-- }, kerr.FencedLeaderEpoch.Code},
		{"older partition epoch", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.PartitionEpoch-- }, kerr.InvalidUpdateVersion.Code},
		{"not the leader", func(m *machine, a *AlterPartitions, _ *ISRChange) { a.Broker, a.Epoch = 2, m.epoch(2) }, kerr.InvalidRequest.Code},
		{"without the leader", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.ISR = c.ISR[1:] }, kerr.InvalidRequest.Code},
		{"a stranger", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.ISR[1].Node = 9 }, kerr.InvalidRequest.Code},
		{"twice", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.ISR[1].Node = 1 }, kerr.InvalidRequest.Code},
		{"another broker epoch", func(_ *machine, _ *AlterPartitions, c *ISRChange) { c.ISR[1].Epoch = 1 }, kerr.IneligibleReplica.Code},
		{"its broker epoch", func(m *machine, _ *AlterPartitions, c *ISRChange) { c.ISR[1].Epoch = m.epoch(2) }, 0},
		{"fenced member", func(m *machine, a *AlterPartitions, c *ISRChange) {
			m.must(m.change(2, Fence))
			c.PartitionEpoch = m.p().PartitionEpoch
		}, kerr.IneligibleReplica.Code},
		{"member that shuts down", func(m *machine, a *AlterPartitions, c *ISRChange) {
			m.must(m.change(2, Shutdown))
			c.PartitionEpoch = m.p().PartitionEpoch
		}, kerr.IneligibleReplica.Code},
	}
	for _, c := range cases {
		m := newReplicated(t, "1")
		cmd := m.alter(1, 2)
		c.edit(m, &cmd, &cmd.Partitions[0])
		before := m.p()
		res := m.apply(cmd)
		if len(res.Items) != 1 || res.Items[0].Code != c.code {
			t.Errorf("%s: %+v, want code %d", c.name, res, c.code)
		}
		if changed := m.p() != before; changed != (c.code == 0) {
			t.Errorf("%s: changed is %v", c.name, changed)
		}
	}
	m := newReplicated(t, "1")
	cmd := m.alter(1)
	cmd.Epoch--
	if res := m.apply(cmd); res.Code != kerr.StaleBrokerEpoch.Code {
		t.Errorf("stale broker epoch: %+v", res)
	}
}

// TestUnchangedISRMovesThePartitionEpoch: the leader uses it to end earlier requests of unknown fate.
func TestUnchangedISRMovesThePartitionEpoch(t *testing.T) {
	m := newReplicated(t, "1")
	late := m.alter(1, 2)
	m.must(m.alter(1, 2, 3))
	if res := m.apply(late); res.Items[0].Code != kerr.InvalidUpdateVersion.Code {
		t.Errorf("late request: %+v", res)
	}
}

func TestELR(t *testing.T) {
	m := newReplicated(t, "2")
	m.want("created", isrState{1, n(1, 2, 3), nil, nil})
	m.must(m.alter(1, 2))
	m.want("shrunk to the minimum", isrState{1, n(1, 2), nil, nil})
	m.must(m.change(2, Fence))
	m.want("below the minimum", isrState{1, n(1), n(2), nil})
	epoch := m.p().LeaderEpoch
	m.must(m.change(1, Fence))
	m.want("leader fenced", isrState{ids.NoNode, nil, n(1, 2), n(1)})
	if m.p().LeaderEpoch != epoch+1 {
		t.Errorf("leader epoch %d after the leader was fenced, want %d", m.p().LeaderEpoch, epoch+1)
	}
	m.must(m.change(1, Unfence))
	m.want("unfenced, not registered again", isrState{ids.NoNode, nil, n(1, 2), n(1)})
	m.must(m.report("t", 0, 1, 5))
	m.want("registered at the same term", isrState{1, n(1), n(2), nil})
	if m.p().LeaderEpoch != epoch+2 {
		t.Errorf("leader epoch %d, want %d", m.p().LeaderEpoch, epoch+2)
	}
	m.must(m.change(2, Unfence))
	m.must(m.alter(1, 3))
	m.want("at the minimum again", isrState{1, n(1, 3), nil, nil})
}

func TestMinimumChangeEmptiesTheELR(t *testing.T) {
	change := func(rt ResourceType, name string, ops ...ConfigOp) AlterConfigs {
		return AlterConfigs{[]ResourceChange{{Type: rt, Name: name, Ops: ops}}}
	}
	minimum := ConfigOp{Name: minInsyncReplicas, Value: "3"}
	cases := []struct {
		name string
		cmd  AlterConfigs
		elr  []ids.NodeID
	}{
		{"of the topic", change(TopicResource, "t", minimum), nil},
		{"of the topic, removed", change(TopicResource, "t", ConfigOp{Name: minInsyncReplicas, Op: OpDelete}), nil},
		{"of the cluster", change(BrokerResource, "", minimum), nil},
		{"something else of the topic", change(TopicResource, "t", ConfigOp{Name: "retention.ms", Value: "1"}), n(2)},
		{"something else of the cluster", change(BrokerResource, "", ConfigOp{Name: "log.retention.ms", Value: "1"}), n(2)},
		{"all of the topic replaced", AlterConfigs{[]ResourceChange{{Type: TopicResource, Name: "t", Replace: true}}}, nil},
	}
	for _, c := range cases {
		m := newReplicated(t, "2")
		m.must(m.alter(1, 2))
		m.must(m.change(2, Fence))
		before := m.p().PartitionEpoch
		m.must(c.cmd)
		m.want(c.name, isrState{1, n(1), c.elr, nil})
		if moved := m.p().PartitionEpoch != before; moved != (c.elr == nil) {
			t.Errorf("%s: partition epoch moved: %v", c.name, moved)
		}
	}
}

func TestEffectiveMinimum(t *testing.T) {
	m := newReplicated(t, "9")
	if got := m.img.MinISR("t", m.p()); got != 3 {
		t.Errorf("clamped to the replicas: %d", got)
	}
	m.must(AlterConfigs{[]ResourceChange{{Type: BrokerResource, Ops: []ConfigOp{{Name: minInsyncReplicas, Value: "2"}}}}})
	if got := m.img.MinISR("t", m.p()); got != 3 {
		t.Errorf("the topic's own goes first: %d", got)
	}
	if got := m.img.MinISR("other", m.p()); got != 2 {
		t.Errorf("the cluster's: %d", got)
	}
}

// TestRestart: what a broker's data is worth when a new process of it registers.
func TestRestart(t *testing.T) {
	cases := []struct {
		name       string
		flush      string
		edit       func(*machine, *RegisterBroker)
		isr        []ids.NodeID // before: of the partition of minimum 2, led by 1
		elr        []ids.NodeID
		renewed    bool
		mayNotLead bool
	}{
		{"killed", "always", func(*machine, *RegisterBroker) {}, n(1, 2), n(2), false, false},
		{"killed under os, the machine went on", "os", func(*machine, *RegisterBroker) {}, n(1, 2), n(2), false, false},
		{"power cut", "always", func(_ *machine, c *RegisterBroker) { c.BootID = "next" }, n(1, 2), n(2), false, false},
		{"power cut under os", "os", func(_ *machine, c *RegisterBroker) { c.BootID = "next" }, n(1, 2), nil, true, false},
		{"the same with the setting changed meanwhile", "os", func(_ *machine, c *RegisterBroker) { c.BootID, c.LogFlush = "next", "always" }, n(1, 2), nil, true, false},
		{"clean shutdown under os", "os", func(m *machine, c *RegisterBroker) { c.BootID, c.PreviousEpoch = "next", m.epoch(2) }, n(1, 2), n(2), false, false},
		{"another shutdown was clean", "os", func(m *machine, c *RegisterBroker) { c.BootID, c.PreviousEpoch = "next", m.epoch(2)-1 }, n(1, 2), nil, true, false},
		{"wiped", "always", func(_ *machine, c *RegisterBroker) { c.Directory = testID(99) }, n(1, 2), nil, true, false},
	}
	for _, c := range cases {
		m := newReplicated(t, "2")
		reg := registerCmd(2, 2, 2)
		reg.LogFlush, reg.BootID = c.flush, "boot"
		m.restart(reg)
		m.must(m.alter(c.isr...))
		before := m.p()
		c.edit(m, &reg)
		m.restart(reg)
		m.want(c.name, isrState{1, n(1), c.elr, nil})
		p := m.p()
		if renewed := p.ReplicaIDs[1] != before.ReplicaIDs[1]; renewed != c.renewed || renewed == slices.Contains(p.Voters, 2) {
			t.Errorf("%s: replica %d, was %d, voters %v", c.name, p.ReplicaIDs[1], before.ReplicaIDs[1], p.Voters)
		}
		if c.renewed && (!slices.Equal(p.FormerVoters, []ids.ReplicaID{before.ReplicaIDs[1]}) || p.Directories[1] != m.img.Brokers[2].Directory) {
			t.Errorf("%s: former voters %v, directories %v", c.name, p.FormerVoters, p.Directories)
		}
	}
}

// TestLastHopeAfterAPowerCut: the only replica left leads again, in a new generation, and what it reported before and does
// not have is listed as lost.
func TestLastHopeAfterAPowerCut(t *testing.T) {
	m := newReplicated(t, "1")
	reg := registerCmd(1, 1, 1)
	reg.LogFlush, reg.BootID = "os", "boot"
	m.restart(reg)
	m.must(m.report("t", 0, 1, 6))
	m.must(m.alter(1))
	m.must(NoteEnds{1, m.epoch(1), []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 2, End: 100, AsOfMs: 7}}}})
	reg.BootID = "next"
	m.restart(reg)
	m.want("after the power cut", isrState{ids.NoNode, nil, n(1), n(1)})
	if !m.p().Doubted(1) {
		t.Fatal("the replica may start in its old group")
	}
	cmds := Decide(m.img, Facts{})
	if len(cmds) != 1 {
		t.Fatalf("decided %+v, want a generation", cmds)
	}
	m.must(cmds[0])
	m.must(m.seeded(1, 90))
	m.want("seeded", isrState{1, n(1), nil, nil})
	want := []Loss{{TopicID: testID(50), Topic: "t", LostRange: LostRange{2, 90, 100}, Cause: CausePowerCut, Holder: 1, Estimated: true, AtMs: 7}}
	if m.p().Doubted(1) || !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("doubted %v, losses %+v, want %+v", m.p().Doubted(1), m.img.Losses, want)
	}
}

func TestShutdown(t *testing.T) {
	m := newReplicated(t, "1")
	m.must(m.change(2, Shutdown))
	m.want("a follower shuts down", isrState{1, n(1, 3), nil, nil})
	m.must(m.change(1, Shutdown))
	m.want("the leader shuts down: it leads until another is registered", isrState{1, n(1, 3), nil, nil})
	m.must(m.report("t", 0, 3, 6))
	m.want("handed over", isrState{3, n(3), nil, nil})
}

// TestDamagedReplicasAreRenewedWhileSomebodyElseIsInSync: a damaged leader steps down and is a stranger to its group; the last one
// in sync stays what it is.
func TestDamagedReplicasAreRenewedWhileSomebodyElseIsInSync(t *testing.T) {
	m := newReplicated(t, "1")
	m.must(m.alter(1, 2))
	before := *m.p()
	m.must(RenewReplicas{1, m.epoch(1), []ids.ReplicaID{before.ReplicaIDs[0]}})
	m.want("the leader was renewed", isrState{ids.NoNode, n(2), nil, nil})
	p := m.p()
	if p.LeaderEpoch <= before.LeaderEpoch || p.ReplicaIDs[0] == before.ReplicaIDs[0] || !slices.Equal(p.Voters, n(2, 3)) ||
		!slices.Equal(p.FormerVoters, []ids.ReplicaID{before.ReplicaIDs[0]}) {
		t.Errorf("after: %+v", p)
	}
	last := *m.p()
	res := m.apply(RenewReplicas{2, m.epoch(2), []ids.ReplicaID{last.ReplicaIDs[1]}})
	if len(res.Items) != 1 || res.Items[0].Code != kerr.EligibleLeadersNotAvailable.Code {
		t.Errorf("the last one in sync: %+v", res)
	}
	m.must(m.change(2, Fence))
	if res := m.apply(RenewReplicas{3, m.epoch(3), []ids.ReplicaID{last.ReplicaIDs[2]}}); len(res.Items) != 1 || res.Items[0].Code == 0 {
		t.Errorf("nobody is alive to copy from: %+v", res)
	}
}
