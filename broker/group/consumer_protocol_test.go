package group

import (
	"maps"
	"slices"
	"testing"
	"time"

	"cairn/broker/group/records"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The rows of KAFKA's checks of ConsumerGroupHeartbeat that look at the request alone.
func TestHeartbeatRefusesWhatIsWrongInItself(t *testing.T) {
	s := newStage(t)
	for _, c := range []struct {
		name   string
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		{"no member id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }, kerr.InvalidRequest},
		{"no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = " " }, kerr.InvalidRequest},
		{"empty instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = new(string) }, kerr.InvalidRequest},
		{"empty rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = new(string) }, kerr.InvalidRequest},
		{"no rebalance timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		{"owns not told", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		{"owns something", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{Partitions: []int32{1}}}
		}, kerr.InvalidRequest},
		{"no subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, kerr.InvalidRequest},
		{"epoch -2 without instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }, kerr.InvalidRequest},
		{"epoch -3", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }, kerr.InvalidRequest},
		{"assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = ptr("sticky") }, kerr.UnsupportedAssignor},
		{"expression", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("a[") }, kerr.InvalidRegularExpression},
		{"expression that closes what it has not opened", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = ptr("a)|(b") }, kerr.InvalidRegularExpression},
		{"unknown group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 3 }, kerr.GroupIDNotFound},
		{"unknown group to leave", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 }, kerr.GroupIDNotFound},
	} {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "g", "m", 1000
		req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		c.change(req)
		if resp := s.beat(req); resp.ErrorCode != c.want.Code || resp.ErrorMessage == nil {
			t.Errorf("%s: %d %v, want %v", c.name, resp.ErrorCode, resp.ErrorMessage, c.want)
		}
	}
	if len(s.m.groups) > 0 || len(s.log) > 0 {
		t.Errorf("refused requests left %v", s.m.groups)
	}
}

func TestFirstVersionHasTheServerMakeMemberIDs(t *testing.T) {
	s := newStage(t)
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = 1000, []string{}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if resp := s.beat(req); resp.ErrorCode != 0 || deref(resp.MemberID) != "made-1" || resp.MemberEpoch != 1 || resp.HeartbeatIntervalMillis != 5000 {
		t.Errorf("%+v", resp)
	}
}

// One member after the other joins; partitions go from hand to hand, never with two.
func TestMembersGiveBackBeforeOthersGet(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 12)
	a, b := s.actor("a", "t"), s.actor("b", "t")
	if a.beat(); a.count() != 12 || a.epoch != 1 {
		t.Fatalf("a has %d at %d", a.count(), a.epoch)
	}
	if b.beat(); b.count() != 0 || b.epoch != 2 || s.state() != consumerReconciling {
		t.Fatalf("b has %d at %d before a gives back, %s", b.count(), b.epoch, s.state())
	}
	if a.beat(); a.count() != 6 || a.epoch != 1 {
		t.Fatalf("a is told %d at %d", a.count(), a.epoch)
	}
	if b.beat(); b.count() != 0 {
		t.Fatalf("b has %d though a has not said that it gave back", b.count())
	}
	if a.beat(); a.epoch != 2 {
		t.Fatalf("a has given back and stays at %d", a.epoch)
	}
	if b.beat(); b.count() != 6 || s.state() != consumerStable {
		t.Fatalf("b has %d, %s", b.count(), s.state())
	}
	if b.beat(); b.last.Assignment != nil {
		t.Error("nothing has changed, yet the assignment is told")
	}
	s.requireSound()
	if resp := b.leave(epochLeave); resp.ErrorCode != 0 || resp.MemberEpoch != epochLeave {
		t.Fatalf("leaving: %+v", resp)
	}
	if a.beat(); a.count() != 12 {
		t.Errorf("a has %d when b is gone", a.count())
	}
	s.requireSound()
}

// The assignment is told when it changes, to who joins, and to who says everything, as after an answer that was lost.
func TestAssignmentIsToldToWhoSaysEverything(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 4)
	a := s.actor("a", "t")
	if a.beat(); a.last.Assignment == nil {
		t.Error("who joins is told nothing")
	}
	request := func() *kmsg.ConsumerGroupHeartbeatRequest {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, "a", a.epoch, 60_000
		req.SubscribedTopicNames = []string{"t"}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.topics.ids["t"], Partitions: []int32{0, 1, 2, 3}}}
		return req
	}
	for _, row := range []struct {
		name   string
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		told   bool
	}{
		{"everything", func(*kmsg.ConsumerGroupHeartbeatRequest) {}, true},
		{"an expression in place of names", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, new(string)
		}, true},
		{"no rebalance timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, false},
		{"no subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, false},
		{"no partitions", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, false},
	} {
		req := request()
		row.change(req)
		if resp := s.beat(req); resp.ErrorCode != 0 || (resp.Assignment != nil) != row.told {
			t.Errorf("%s: code %d, assignment %v", row.name, resp.ErrorCode, resp.Assignment)
		}
	}
	s.requireSound()
}

func (s *stage) state() string { return s.m.group("g").consumer.state() }

func TestMembersAreFencedByTheirEpochs(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 4)
	a := s.actor("a", "t").beat()
	lost := *a // an answer that is lost: a does not hear of the new epoch
	s.actor("b", "t").beat()
	a.beat()
	a.beat() // has given back
	for _, c := range []struct {
		name  string
		id    string
		epoch int32
		owns  []int32
		want  *kerr.Error
	}{
		{"ahead", "a", a.epoch + 1, nil, kerr.FencedMemberEpoch},
		{"behind, with what it has not to have", "a", lost.epoch, []int32{0, 1, 2, 3}, kerr.FencedMemberEpoch},
		{"far behind", "a", lost.epoch - 10, []int32{}, kerr.InvalidRequest},
		{"unknown", "x", a.epoch, nil, kerr.UnknownMemberID},
		{"behind, with less than it has to have", "a", lost.epoch, []int32{}, nil},
	} {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, c.id, c.epoch, -1
		if c.owns != nil {
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.topics.ids["t"], Partitions: c.owns}}
		}
		resp, want := s.beat(req), int16(0)
		if c.want != nil {
			want = c.want.Code
		}
		if resp.ErrorCode != want {
			t.Errorf("%s: %d, want %d", c.name, resp.ErrorCode, want)
		}
	}
}

func TestSilentMembersAreOut(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 4)
	a, b := s.actor("a", "t").beat(), s.actor("b", "t").beat()
	for range 3 {
		a.beat()
		b.beat()
	}
	s.pass(44 * time.Second)
	a.beat()
	s.pass(2 * time.Second)
	if _, there := s.m.group("g").consumer.members["b"]; there {
		t.Fatal("b was silent for its session and is still there")
	}
	if a.beat(); a.count() != 4 {
		t.Errorf("a has %d of 4", a.count())
	}
	if b.beat(); b.last.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("b is told %d", b.last.ErrorCode)
	}
	s.requireSound()
	s.elect() // a new leader waits for a whole session
	s.pass(44 * time.Second)
	if len(s.m.group("g").consumer.members) != 1 {
		t.Error("a is out before its session with the new leader")
	}
	s.pass(2 * time.Second)
	if s.state() != consumerEmpty {
		t.Error("a is not out")
	}
}

func TestWhoDoesNotGiveBackIsOut(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 4)
	a := s.actor("a", "t")
	a.timeout, a.stubborn = 20_000, true
	a.beat()
	b := s.actor("b", "t").beat()
	for range 5 {
		s.pass(5 * time.Second)
		a.beat()
		b.beat()
	}
	if a.last.ErrorCode != kerr.UnknownMemberID.Code || b.beat().count() != 4 {
		t.Errorf("a is told %d, b has %d", a.last.ErrorCode, b.count())
	}
	s.requireSound()
}

func TestStaticMembersComeBack(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 6)
	a, b := s.actor("a", "t"), s.actor("b", "t")
	a.instance = ptr("i")
	for range 4 {
		a.beat()
		b.beat()
	}
	had, epoch := a.has, s.m.group("g").consumer.epoch
	second := s.actor("a2", "t")
	second.instance = ptr("i")
	if second.beat(); second.last.ErrorCode != kerr.UnreleasedInstanceID.Code {
		t.Fatalf("a second one with the instance id: %d", second.last.ErrorCode)
	}
	if resp := a.leave(epochLeaveStatic); resp.ErrorCode != 0 || resp.MemberEpoch != epochLeaveStatic {
		t.Fatalf("leaving for a while: %+v", resp)
	}
	s.requireSound()
	if second.beat(); second.last.ErrorCode != 0 || !sameLists(second.has, had) {
		t.Fatalf("it came back: %d, %v, had %v", second.last.ErrorCode, second.has, had)
	}
	if got := s.m.group("g").consumer.epoch; got != epoch {
		t.Errorf("its return moved the group from epoch %d to %d", epoch, got)
	}
	s.requireSound()
	a.epoch = epoch
	if a.beat(); a.last.ErrorCode != kerr.FencedInstanceID.Code {
		t.Errorf("the one before it is told %d", a.last.ErrorCode)
	}
	if second.leave(epochLeaveStatic); s.m.group("g").consumer.members["a2"] == nil {
		t.Fatal("gone at once")
	}
	s.pass(40 * time.Second)
	b.beat()
	s.pass(10 * time.Second)
	if b.beat(); b.count() != 6 {
		t.Errorf("it stayed away, and b has %d", b.count())
	}
}

func sameLists(a, b map[ids.UUID][]int32) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]int32]) && len(a) > 0
}

func TestTopicsThatComeGoAndGrow(t *testing.T) {
	s := newStage(t)
	a := s.actor("a", "t", "later").beat()
	if a.count() != 0 || a.epoch != 1 {
		t.Fatalf("%d at %d without topics", a.count(), a.epoch)
	}
	s.topics.set("other", 3)
	if a.beat(); a.epoch != 1 {
		t.Error("a topic that nobody wants moved the group")
	}
	for _, step := range []struct {
		name       string
		partitions int32
		want       int
	}{{"t", 3, 3}, {"t", 5, 5}, {"later", 2, 7}, {"t", 0, 2}, {"t", 4, 6}} {
		s.topics.set(step.name, step.partitions)
		for range 3 {
			a.beat()
		}
		if a.count() != step.want {
			t.Fatalf("%s has %d partitions, a %d, want %d", step.name, step.partitions, a.count(), step.want)
		}
	}
	s.requireSound()
}

func TestExpressionsAreResolvedByTheGroup(t *testing.T) {
	s := newStage(t)
	s.topics.set("logs-a", 2)
	s.topics.set("logs-b", 2)
	s.topics.set("xlogs-a", 2)
	a, b := s.actor("a"), s.actor("b", "xlogs-a")
	a.regex = ptr("logs-.*|none")
	if a.beat(); a.count() != 4 {
		t.Fatalf("a has %d", a.count())
	}
	if b.beat(); b.count() != 2 {
		t.Fatalf("b has %d", b.count())
	}
	s.topics.set("logs-c", 3)
	if a.beat(); a.count() != 4 {
		t.Fatal("resolved again too soon")
	}
	s.pass(11 * time.Second)
	if a.beat(); a.count() != 7 {
		t.Fatalf("a has %d after a topic came", a.count())
	}
	s.requireSound()
	s.elect()
	s.topics.set("logs-a", 0)
	s.pass(11 * time.Second)
	for range 2 {
		a.beat()
	}
	if a.count() != 5 {
		t.Fatalf("a has %d after a topic went", a.count())
	}
	if a.leave(epochLeave); len(s.m.group("g").consumer.regexes) != 0 {
		t.Error("the expression stays when its last member has left")
	}
	s.requireSound()
}

func TestGroupsAreNotLargerThanAllowed(t *testing.T) {
	s := newStage(t)
	s.cfg.Consumer.MaxSize = 1
	s.elect()
	s.actor("a").beat()
	if b := s.actor("b").beat(); b.last.ErrorCode != kerr.GroupMaxSizeReached.Code {
		t.Errorf("b: %d", b.last.ErrorCode)
	}
}

func TestTheAssignorThatMostWantDivides(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 3)
	join := func(id, assignor string) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.MemberID, req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 1, id, 1000, []string{"t"}
		req.Topics, req.ServerAssignor = []kmsg.ConsumerGroupHeartbeatRequestTopic{}, ptr(assignor)
		if resp := s.beat(req); resp.ErrorCode != 0 {
			t.Fatal(resp.ErrorCode)
		}
	}
	join("a", "")
	for _, c := range []struct{ id, assignor, want string }{{"b", "range", "range"}, {"c", "uniform", "range"}, {"d", "uniform", "uniform"}} {
		join(c.id, c.assignor)
		if got := mostWanted(s.m.group("g").consumer.sorted(), s.cfg.Consumer); got != c.want {
			t.Errorf("after %s asked for %s: %s", c.id, c.assignor, got)
		}
	}
}

func TestTheTargetIsNotMadeMoreOftenThanTheInterval(t *testing.T) {
	s := newStage(t)
	s.cfg.Consumer.AssignmentInterval = time.Second
	s.elect()
	s.topics.set("t", 4)
	a := s.actor("a", "t").beat()
	s.pass(100 * time.Millisecond)
	b := s.actor("b", "t").beat()
	if a.count() != 4 || s.state() != consumerAssigning {
		t.Fatalf("a has %d, %s", a.count(), s.state())
	}
	s.pass(time.Second)
	for range 3 {
		a.beat()
		b.beat()
	}
	if a.count() != 2 || b.count() != 2 || s.state() != consumerStable {
		t.Errorf("a has %d, b %d, %s", a.count(), b.count(), s.state())
	}
}

func TestCommitsOfMembersAreCheckedAgainstTheirEpochs(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 2)
	a, b := s.actor("a", "t").beat(), s.actor("b", "t")
	for range 3 {
		b.beat()
		a.beat()
	}
	c, id := s.m.group("g").consumer, s.topics.ids["t"]
	kept := a.has[id][0]
	for _, row := range []struct {
		name   string
		member string
		epoch  int32
		v      int16
		txn    bool
		want   *kerr.Error
	}{
		{"its epoch", "a", a.epoch, 9, false, nil},
		{"ahead", "a", a.epoch + 1, 9, false, kerr.StaleMemberEpoch},
		{"old version", "a", a.epoch, 8, false, kerr.UnsupportedVersion},
		{"unknown", "x", 1, 9, false, kerr.UnknownMemberID},
		{"nobody", "", -1, 9, false, kerr.UnknownMemberID},
		{"a producer that names nobody", "", -1, 5, true, nil},
		{"a producer that names a member", "a", a.epoch + 1, 5, true, kerr.StaleMemberEpoch},
	} {
		if _, e := c.checkCommit(row.member, nil, row.epoch, row.v, row.txn); e.code() != codeOf(row.want) {
			t.Errorf("%s: %v", row.name, e)
		}
	}
	check, e := c.checkCommit("a", nil, 1, 9, false)
	if e != nil || check("t", id, kept) != nil {
		t.Errorf("a partition that it has had since epoch 1 cannot be committed with epoch 1: %v", e)
	}
	if e := check("t", id, 1-kept); e.code() != kerr.StaleMemberEpoch.Code {
		t.Errorf("a partition that it has lost: %v", e)
	}
	for _, row := range []struct {
		member *string
		epoch  int32
		want   *kerr.Error
	}{{nil, -1, nil}, {ptr("a"), a.epoch, nil}, {ptr("a"), 1, kerr.StaleMemberEpoch}, {ptr("x"), 1, kerr.UnknownMemberID}} {
		if e := c.checkFetch(row.member, row.epoch); e.code() != codeOf(row.want) {
			t.Errorf("fetch by %s at %d: %v", deref(row.member), row.epoch, e)
		}
	}
}

func codeOf(k *kerr.Error) int16 {
	if k == nil {
		return 0
	}
	return k.Code
}

func TestOldMetadataRecordsGoWithTheNextEpoch(t *testing.T) {
	s := newStage(t)
	a := s.actor("a", "t").beat()
	s.log = append(s.log, records.Encode(groupKey(records.KindPartitionMetadata, "g"), []byte{0, 0}))
	s.elect()
	if !s.m.group("g").consumer.oldMetadata {
		t.Fatal("not noticed")
	}
	s.topics.set("t", 1)
	a.beat()
	if s.m.group("g").consumer.oldMetadata {
		t.Error("still there")
	}
	s.requireSound()
}
