package controller

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

var update = flag.Bool("update", false, "rewrite golden files")

// testID returns an id that differs for each n.
func testID(n byte) ids.UUID { return ids.UUID{15: n, 0: 1} }

func registerCmd(node ids.NodeID, incarnation, dir byte) RegisterBroker {
	return RegisterBroker{
		ID: node, Incarnation: testID(incarnation), Directory: testID(dir), LogFlush: "always",
		Endpoints: []Endpoint{{Name: "PLAINTEXT", Host: "h", Port: uint16(9000 + node)}},
	}
}

// machine applies commands one after the other, as the log would, through their encoded form.
type machine struct {
	t     testing.TB
	img   *Image
	index uint64
	term  ids.Term
}

func newMachine(t testing.TB) *machine {
	m := &machine{t: t, img: NewImage(), term: 1}
	m.apply(Claim{1, "cluster"})
	return m
}

func (m *machine) apply(c Command) Result {
	m.t.Helper()
	return m.applyIn(m.term, c)
}

func (m *machine) applyIn(term ids.Term, c Command) Result {
	m.t.Helper()
	p, err := DecodeCommand(EncodeCommand(Proposal{term, c}))
	if err != nil {
		m.t.Fatal(err)
	}
	m.index++
	before := mustSnapshot(m.t, m.img)
	next, res := Apply(m.img, m.index, p)
	if !bytes.Equal(before, mustSnapshot(m.t, m.img)) {
		m.t.Fatalf("%+v changed the image it was applied to", c)
	}
	m.img = next
	return res
}

// must applies a command that has to succeed in all its parts.
func (m *machine) must(c Command) Result {
	m.t.Helper()
	res := m.apply(c)
	if res.Code != 0 {
		m.t.Fatalf("%+v: code %d: %s", c, res.Code, res.Message)
	}
	for _, it := range res.Items {
		if it.Code != 0 {
			m.t.Fatalf("%+v: code %d: %s", c, it.Code, it.Message)
		}
	}
	return res
}

func (m *machine) epoch(n ids.NodeID) int64 { return m.img.Brokers[n].Epoch }

func (m *machine) change(n ids.NodeID, a BrokerAction) ChangeBrokers {
	return ChangeBrokers{[]BrokerChange{{n, m.epoch(n), a}}}
}

// startBrokers registers and unfences the brokers.
func (m *machine) startBrokers(nodes ...ids.NodeID) {
	for _, n := range nodes {
		m.must(registerCmd(n, byte(n), byte(n)))
		m.must(m.change(n, Unfence))
	}
}

func (m *machine) report(topic string, partition int32, n ids.NodeID, term ids.Term) RegisterLeaders {
	p, ok := m.img.Partition(topic, partition)
	if !ok {
		m.t.Fatalf("no partition %s-%d", topic, partition)
	}
	return RegisterLeaders{Broker: n, Epoch: m.epoch(n), Leaders: []LeaderReport{{
		TopicID: m.img.Topics[topic].ID, Partition: partition, Generation: p.Generation, Term: term,
		Replica: p.ReplicaIDs[p.ReplicaOf(n)],
	}}}
}

func mustSnapshot(t testing.TB, img *Image) []byte {
	b, err := EncodeSnapshot(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// nodes is short for the replicas of several partitions.
func nodes(partitions ...[]ids.NodeID) [][]ids.NodeID { return partitions }

// TestCommandsGolden pins the stored form of every command, its result and the state it leads to.
func TestCommandsGolden(t *testing.T) {
	m := newMachine(t)
	rack := "r1"
	second := registerCmd(2, 2, 2)
	second.Rack, second.BootID, second.Voter = &rack, "boot", true
	var out bytes.Buffer
	step := func(c Command) {
		res := m.apply(c)
		fmt.Fprintf(&out, "%s\n-> %s\n", EncodeCommand(Proposal{m.term, c}), res.encode())
	}
	step(registerCmd(1, 1, 1))
	step(second)
	step(ChangeBrokers{[]BrokerChange{{1, 2, Unfence}, {2, 3, Unfence}, {2, 9, Fence}, {7, 1, Fence}}})
	step(CreateTopics{[]NewTopic{
		{Name: "a", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2}, []ids.NodeID{2, 1}), Configs: map[string]string{"retention.ms": "5"}},
		{Name: "a", ID: testID(51), Partitions: nodes([]ids.NodeID{1})},
		{Name: "__consumer_offsets", ID: testID(52), Internal: true, Partitions: nodes([]ids.NodeID{2})},
	}})
	step(CreatePartitions{[]MorePartitions{{testID(50), 2, nodes([]ids.NodeID{1, 2})}, {testID(50), 2, nodes([]ids.NodeID{1})}, {testID(99), 1, nil}}})
	step(AlterConfigs{[]ResourceChange{
		{Type: TopicResource, Name: "a", Ops: []ConfigOp{{Name: "cleanup.policy", Op: OpAppend, Value: "compact", Default: "delete"}, {Name: "retention.ms", Op: OpDelete}}},
		{Type: BrokerResource, Name: "", Ops: []ConfigOp{{Name: "message.max.bytes", Value: "7"}}},
		{Type: BrokerResource, Name: "2", Replace: true, Ops: []ConfigOp{{Name: "log.retention.ms", Value: "8"}}},
		{Type: TopicResource, Name: "no", Ops: []ConfigOp{{Name: "x", Value: "8"}}},
	}})
	step(AllocateProducerIDs{1, 2, 1000})
	step(AllocateProducerIDs{1, 1, 1000})
	step(m.report("a", 0, 1, 3))
	step(m.report("a", 1, 2, 4))
	step(m.change(2, Shutdown))
	step(registerCmd(2, 3, 2))
	step(DeleteTopics{[]ids.UUID{testID(52), testID(53)}})
	fmt.Fprintf(&out, "%s\n", indent(t, mustSnapshot(t, m.img)))
	golden(t, "commands.golden", out.Bytes())
}

func indent(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", " "); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s differs (rewrite with -update); got:\n%s", path, got)
	}
}

func TestClaimTakesOnlyHigherTermsAndNamesTheClusterOnce(t *testing.T) {
	m := newMachine(t)
	if res := m.applyIn(1, Claim{2, "other"}); res.Code != kerr.NotController.Code {
		t.Errorf("claim of the same term: %+v", res)
	}
	if res := m.applyIn(5, Claim{2, "other"}); res.Code != 0 || res.ClusterID != "cluster" {
		t.Errorf("claim of a higher term: %+v", res)
	}
	if m.img.Controller != 2 || m.img.ControllerTerm != 5 {
		t.Errorf("controller %d in term %d", m.img.Controller, m.img.ControllerTerm)
	}
	// What the controller of term 1 still had under way arrives behind the claim.
	if res := m.applyIn(1, registerCmd(1, 1, 1)); res.Code != kerr.NotController.Code || len(m.img.Brokers) != 0 {
		t.Errorf("command of a deposed controller: %+v, %d brokers", res, len(m.img.Brokers))
	}
}

func TestRegistration(t *testing.T) {
	m := newMachine(t)
	first := m.must(registerCmd(1, 1, 1))
	if !m.img.Brokers[1].Fenced || first.MetadataReplica != firstReplica || first.BrokerEpoch != 2 {
		t.Errorf("first registration: %+v, %+v", first, m.img.Brokers[1])
	}
	m.must(m.change(1, Unfence))
	if again := m.must(registerCmd(1, 1, 1)); again.BrokerEpoch != first.BrokerEpoch || m.img.Brokers[1].Fenced {
		t.Errorf("the same process again: %+v, want its epoch and standing kept", again)
	}
	restart := m.must(registerCmd(1, 2, 1))
	if restart.BrokerEpoch <= first.BrokerEpoch || restart.MetadataReplica != first.MetadataReplica || !m.img.Brokers[1].Fenced {
		t.Errorf("new process: %+v", restart)
	}
	wiped := m.must(registerCmd(1, 3, 9))
	if wiped.MetadataReplica == first.MetadataReplica || !reflect.DeepEqual(wiped.FormerReplicas, []ids.ReplicaID{first.MetadataReplica}) {
		t.Errorf("new directory: %+v, want another metadata replica", wiped)
	}
	if again := m.must(registerCmd(1, 4, 9)); !reflect.DeepEqual(again.FormerReplicas, wiped.FormerReplicas) {
		t.Errorf("process after the wiped one: %+v, want the former replicas still named", again)
	}
	voter := registerCmd(0, 5, 5)
	voter.Voter = true
	if res := m.must(voter); res.MetadataReplica != VoterReplica(0) || res.MetadataReplica == 0 {
		t.Errorf("voter 0: %+v", res)
	}
}

func TestLeaderRegistrationRules(t *testing.T) {
	m := newMachine(t)
	m.startBrokers(1, 2, 3)
	m.must(CreateTopics{[]NewTopic{{Name: "t", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2, 3})}}})
	p := func() *Partition { return m.img.Topics["t"].Partitions[0] }
	if p().LeaderEpoch != ids.NoEpoch || m.img.Leader(p()) != ids.NoNode {
		t.Fatalf("before any registration: %+v", p())
	}
	register := func(n ids.NodeID, term ids.Term, edit func(*LeaderReport)) ItemResult {
		t.Helper()
		c := m.report("t", 0, n, term)
		if edit != nil {
			edit(&c.Leaders[0])
		}
		res := m.apply(c)
		if res.Code != 0 {
			return ItemResult{Code: res.Code}
		}
		return res.Items[0]
	}
	steps := []struct {
		name   string
		node   ids.NodeID
		term   ids.Term
		edit   func(*LeaderReport)
		code   int16
		epoch  ids.LeaderEpoch
		leader ids.NodeID
	}{
		{"first registration gets epoch 0", 1, 7, nil, 0, 0, 1},
		{"its repetition changes nothing", 1, 7, nil, 0, 0, 1},
		{"same term, another replica", 2, 7, nil, kerr.FencedLeaderEpoch.Code, 0, 1},
		{"older term", 2, 6, nil, kerr.FencedLeaderEpoch.Code, 0, 1},
		{"higher term", 2, 8, nil, 0, 1, 2},
		{"the former leader at its old term", 1, 7, nil, kerr.FencedLeaderEpoch.Code, 1, 2},
		{"the same replica at a higher term", 2, 9, nil, 0, 2, 2},
		{"older generation", 3, 99, func(r *LeaderReport) { r.Generation-- }, kerr.FencedLeaderEpoch.Code, 2, 2},
		{"somebody else's replica", 3, 99, func(r *LeaderReport) { r.Replica-- }, kerr.InvalidRequest.Code, 2, 2},
		{"no such partition", 3, 99, func(r *LeaderReport) { r.Partition = 5 }, kerr.UnknownTopicID.Code, 2, 2},
		{"a third broker", 3, 10, nil, 0, 3, 3},
	}
	for _, s := range steps {
		before := p().PartitionEpoch
		res := register(s.node, s.term, s.edit)
		if res.Code != s.code || p().LeaderEpoch != s.epoch || m.img.Leader(p()) != s.leader {
			t.Errorf("%s: result %+v, partition %+v", s.name, res, p())
		}
		if res.Code == 0 && (res.LeaderEpoch != s.epoch || res.PartitionEpoch != p().PartitionEpoch) {
			t.Errorf("%s: result %+v does not tell the state %+v", s.name, res, p())
		}
		if s.code != 0 && p().PartitionEpoch != before {
			t.Errorf("%s: partition epoch moved", s.name)
		}
	}
}

func TestLeaderOfAFencedBrokerIsNotShown(t *testing.T) {
	m := newMachine(t)
	m.startBrokers(1, 2)
	m.must(CreateTopics{[]NewTopic{{Name: "t", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2})}}})
	m.must(m.report("t", 0, 1, 7))
	p := func() *Partition { return m.img.Topics["t"].Partitions[0] }

	m.must(m.change(1, Fence))
	if m.img.Leader(p()) != ids.NoNode || !reflect.DeepEqual(p().InSync, []ids.NodeID{2}) {
		t.Errorf("fenced: leader %d, isr %v", m.img.Leader(p()), p().InSync)
	}
	if res := m.apply(m.report("t", 0, 1, 8)); res.Code != kerr.IneligibleReplica.Code {
		t.Errorf("registration by a fenced broker: %+v", res)
	}
	m.must(m.change(1, Unfence))
	if m.img.Leader(p()) != ids.NoNode {
		t.Errorf("after a false alarm: %+v, want no leader before it registers again", p())
	}
	m.must(m.report("t", 0, 1, 7)) // Raft has no step-down: it may be the same term
	if m.img.Leader(p()) != 1 || p().LeaderEpoch != 2 {
		t.Errorf("registered in the same term: %+v", p())
	}
	// A new process leads nothing, though its broker is unfenced again.
	m.must(registerCmd(1, 9, 1))
	m.must(m.change(1, Unfence))
	if m.img.Leader(p()) != ids.NoNode {
		t.Errorf("after a restart: %+v, want no leader", p())
	}
	// The old process' Raft term is no reason to refuse the same replica.
	m.must(m.report("t", 0, 1, 8))
	if m.img.Leader(p()) != 1 || p().LeaderEpoch != 4 {
		t.Errorf("registered again: %+v", p())
	}
}

func TestTopicLifecycle(t *testing.T) {
	m := newMachine(t)
	m.startBrokers(1, 2)
	create := CreateTopics{[]NewTopic{{Name: "t", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2}), Configs: map[string]string{"retention.ms": "1"}}}}
	m.must(create)
	first := m.img.Topics["t"].Partitions[0]
	if got := first.Members(); len(got) != 2 || got[first.ReplicaIDs[0]] != 1 || got[first.ReplicaIDs[1]] != 2 {
		t.Errorf("members %v of %+v", got, first)
	}
	if topic, i, ok := m.img.PartitionByID(first.ID); !ok || topic.Name != "t" || i != 0 {
		t.Errorf("partition by id: %v %d %v", topic, i, ok)
	}
	m.must(DeleteTopics{[]ids.UUID{testID(50)}})
	if _, _, ok := m.img.PartitionByID(first.ID); ok || len(m.img.Topics)+len(m.img.TopicsByID)+len(m.img.Configs) != 0 {
		t.Errorf("something is left of a deleted topic: %+v", m.img)
	}
	create.Topics[0].ID = testID(51)
	m.must(create)
	second := m.img.Topics["t"].Partitions[0]
	if second.ID == first.ID || second.Shard == first.Shard || second.ReplicaIDs[0] <= first.ReplicaIDs[1] {
		t.Errorf("ids were used again: %+v, then %+v", first, second)
	}
	for name, c := range map[string]NewTopic{
		"taken id":      {Name: "u", ID: testID(51), Partitions: nodes([]ids.NodeID{1})},
		"no partition":  {Name: "u", ID: testID(52)},
		"no replica":    {Name: "u", ID: testID(52), Partitions: nodes(nil)},
		"twice":         {Name: "u", ID: testID(52), Partitions: nodes([]ids.NodeID{1, 1})},
		"not a broker":  {Name: "u", ID: testID(52), Partitions: nodes([]ids.NodeID{1}, []ids.NodeID{3})},
		"existing name": {Name: "t", ID: testID(52), Partitions: nodes([]ids.NodeID{1})},
	} {
		before := m.img.NextPartition
		if res := m.apply(CreateTopics{[]NewTopic{c}}); res.Items[0].Code == 0 || m.img.NextPartition != before || len(m.img.Topics) != 1 {
			t.Errorf("%s: accepted or done in part: %+v", name, res)
		}
	}
}

func TestDecodeCommandRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, s := range []string{
		``, `{}`, `{"v":2,"kind":"claim","term":1,"body":{"node":1,"clusterId":"c"}}`,
		`{"v":1,"kind":"new","term":1,"body":{}}`, `{"v":1,"kind":"claim","term":1,"body":{"node":1,"clusterId":"c","x":1}}`,
		`{"v":1,"kind":"claim","term":1,"body":{"node":1}}{}`, `{"v":1,"kind":"claim","term":1}`,
	} {
		if p, err := DecodeCommand([]byte(s)); err == nil {
			t.Errorf("%s: decoded to %+v", s, p)
		}
	}
}
