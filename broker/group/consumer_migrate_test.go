package group

import (
	"maps"
	"slices"
	"testing"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// elder is a client of the classic protocol, with a cooperative assignor.
type elder struct {
	s          *stage
	id         string
	instance   *string
	generation int32
	topics     []string
	has        map[string][]int32
	joining    *kmsg.JoinGroupResponse // the answer to the JoinGroup that was sent last; nil: none yet
	syncing    *kmsg.SyncGroupResponse
}

func (s *stage) elder(topics ...string) *elder { return &elder{s: s, topics: topics} }

// join sends JoinGroup, and again with the id that it gets.
func (e *elder) join() *elder {
	e.s.t.Helper()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, e.topics
	for _, name := range slices.Sorted(maps.Keys(e.has)) {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = name, e.has[name]
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = 9, "g", e.id, e.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 10_000, 20_000, consumerProtocol
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: meta.AppendTo(nil)}}
	e.joining = nil
	e.s.do(func(now time.Time, fx *coordinator.Effects) {
		e.s.m.JoinGroup(Client{ID: "old", Host: "/h"}, req, now, fx, func(r *kmsg.JoinGroupResponse, err error) {
			if e.joining = r; err != nil {
				e.s.t.Fatal(err)
			}
		})
	})
	if e.joining != nil && e.joining.ErrorCode == kerr.MemberIDRequired.Code {
		e.id = e.joining.MemberID
		return e.join()
	}
	return e
}

// sync sends SyncGroup when JoinGroup has been answered; a leader gives out what share says.
func (e *elder) sync(share map[string]map[string][]int32) *elder {
	e.s.t.Helper()
	if e.joining == nil || e.joining.ErrorCode != 0 {
		e.s.t.Fatalf("%s cannot sync: %+v", e.id, e.joining)
	}
	e.id, e.generation = e.joining.MemberID, e.joining.Generation
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, "g", e.id, e.instance, e.generation
	req.ProtocolType, req.Protocol = ptr(consumerProtocol), e.joining.Protocol
	if e.joining.LeaderID == e.id {
		for id, topics := range share {
			a := kmsg.NewConsumerMemberAssignment()
			for name, list := range topics {
				a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: list})
			}
			req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
		}
	}
	e.syncing = nil
	e.s.do(func(now time.Time, fx *coordinator.Effects) {
		e.s.m.SyncGroup(Client{}, req, now, fx, func(r *kmsg.SyncGroupResponse, err error) {
			if e.syncing = r; err != nil {
				e.s.t.Fatal(err)
			}
			var a kmsg.ConsumerMemberAssignment
			if r.ErrorCode == 0 && a.ReadFrom(r.MemberAssignment) == nil {
				e.has = map[string][]int32{}
				for _, t := range a.Topics {
					e.has[t.Topic] = t.Partitions
				}
			}
		})
	})
	return e
}

// beat sends a Heartbeat and returns its error code.
func (e *elder) beat() (code int16) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 4, "g", e.id, e.instance, e.generation
	e.s.do(func(now time.Time, fx *coordinator.Effects) {
		e.s.m.Heartbeat(Client{}, req, now, fx, func(r *kmsg.HeartbeatResponse, _ error) { code = r.ErrorCode })
	})
	return code
}

// follow does what a client does between polls: beat, and join and sync again if it is told to.
func (e *elder) follow() *elder {
	e.s.t.Helper()
	if e.beat() == kerr.RebalanceInProgress.Code {
		if e.join(); e.joining != nil && e.joining.ErrorCode == 0 {
			e.sync(nil)
		}
	}
	return e
}

func (e *elder) leave() (code int16) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: e.id, InstanceID: e.instance}}
	e.s.do(func(now time.Time, fx *coordinator.Effects) {
		e.s.m.LeaveGroup(Client{}, req, now, fx, func(r *kmsg.LeaveGroupResponse, _ error) { code = r.Members[0].ErrorCode })
	})
	return code
}

func (e *elder) count() (n int) {
	for _, list := range e.has {
		n += len(list)
	}
	return n
}

// classicPair is two members of the classic protocol that have six partitions each.
func classicPair(s *stage) (a, b *elder) {
	s.t.Helper()
	s.topics.set("t", 12)
	a, b = s.elder("t").join(), s.elder("t").join()
	s.pass(4 * time.Second)
	s.pass(4 * time.Second)
	leader, other := a, b
	if a.joining == nil || b.joining == nil {
		s.t.Fatalf("the first rebalance does not end: %+v, %+v", a.joining, b.joining)
	}
	if b.joining.LeaderID == b.id {
		leader, other = b, a
	}
	leader.sync(map[string]map[string][]int32{
		leader.id: {"t": {0, 1, 2, 3, 4, 5}}, other.id: {"t": {6, 7, 8, 9, 10, 11}},
	})
	other.sync(nil)
	if a.count() != 6 || b.count() != 6 {
		s.t.Fatalf("%d and %d", a.count(), b.count())
	}
	return a, b
}

func TestClassicGroupBecomesConsumerGroupAndBackWhileItWorks(t *testing.T) {
	s := newStage(t)
	a, b := classicPair(s)
	x := s.actor("x", "t").beat()
	if x.last.ErrorCode != 0 || s.m.group("g").consumer == nil {
		t.Fatalf("x joins the classic group: %d", x.last.ErrorCode)
	}
	s.requireSound()
	for range 6 {
		a.follow()
		b.follow()
		x.beat()
		s.requireSound()
	}
	if a.count() != 4 || b.count() != 4 || x.count() != 4 || s.state() != consumerStable {
		t.Fatalf("%d, %d and %d partitions, %s", a.count(), b.count(), x.count(), s.state())
	}
	s.elect() // the next leader has it all from the log
	s.requireSound()
	if a.beat() != 0 || b.follow().count() != 4 {
		t.Error("members are not known to the next leader")
	}

	if x.leave(epochLeave).ErrorCode != 0 {
		t.Fatal("x cannot leave")
	}
	g := s.m.group("g")
	if g.consumer != nil || g.classic == nil {
		t.Fatal("the group is not a classic one after its last member of the consumer protocol has left")
	}
	for _, e := range []*elder{a, b} {
		if code := e.beat(); code != kerr.RebalanceInProgress.Code {
			t.Fatalf("%s is told %d", e.id, code)
		}
	}
	a.join()
	b.join()
	leader, other := a, b
	if b.joining.LeaderID == b.id {
		leader, other = b, a
	}
	leader.sync(map[string]map[string][]int32{leader.id: {"t": {0, 1, 2}}, other.id: {"t": {3}}})
	other.sync(nil)
	if leader.count() != 3 || other.count() != 1 || g.classic.state != stateStable {
		t.Errorf("%d, %d, %v", leader.count(), other.count(), g.classic.state)
	}
}

func TestClassicMembersOfConsumerGroupsAreTimed(t *testing.T) {
	s := newStage(t)
	a, b := classicPair(s)
	x := s.actor("x", "t").beat()
	for range 6 {
		a.follow()
		b.follow()
		x.beat()
	}
	// a says nothing more: its own session timeout, not the group's.
	for range 3 {
		s.pass(4 * time.Second)
		b.follow()
		x.beat()
	}
	if _, there := s.m.group("g").consumer.members[a.id]; there {
		t.Fatal("a was silent for its session and is still there")
	}
	// b beats, but does not join again when there is a rebalance: its rebalance timeout.
	s.topics.set("t", 14)
	for range 9 {
		s.pass(4 * time.Second)
		b.beat()
		x.beat()
	}
	if _, there := s.m.group("g").consumer.members[b.id]; there || x.count() != 14 {
		t.Fatalf("b does not join again and is still there; x has %d", x.count())
	}
	s.requireSound()
	// It joins again and does not sync.
	b.has, b.id = nil, ""
	if b.join(); b.joining.ErrorCode != 0 {
		t.Fatal(b.joining.ErrorCode)
	}
	b.id, b.generation = b.joining.MemberID, b.joining.Generation
	for range 9 {
		s.pass(4 * time.Second)
		b.beat()
		x.beat()
	}
	if _, there := s.m.group("g").consumer.members[b.id]; there {
		t.Error("b does not sync and is still there")
	}
	if b.beat() != kerr.UnknownMemberID.Code || b.leave() != kerr.UnknownMemberID.Code {
		t.Error("b is known")
	}
}

func TestMigrationPolicy(t *testing.T) {
	for _, c := range []struct {
		policy   MigrationPolicy
		up, down bool
	}{{MigrateBothWays, true, true}, {MigrateUp, true, false}, {MigrateDown, false, true}, {MigrateNot, false, false}} {
		s := newStage(t)
		s.cfg.Consumer.Migration = c.policy
		s.elect()
		a, _ := classicPair(s)
		if x := s.actor("x", "t").beat(); (x.last.ErrorCode == 0) != c.up {
			t.Errorf("%s: x is told %d", c.policy, x.last.ErrorCode)
		} else if !c.up && x.last.ErrorCode != kerr.GroupIDNotFound.Code {
			t.Errorf("%s: x is told %d", c.policy, x.last.ErrorCode)
		}
		if a.beat() != 0 && !c.up {
			t.Errorf("%s: the refused upgrade disturbs the group", c.policy)
		}

		s = newStage(t)
		s.cfg.Consumer.Migration = c.policy
		s.elect()
		x := s.actor("x", "t").beat()
		e := s.elder("t")
		if e.join(); c.policy == MigrateNot {
			if e.joining.ErrorCode != kerr.InconsistentGroupProtocol.Code {
				t.Errorf("%s: a classic member is told %d", c.policy, e.joining.ErrorCode)
			}
			continue
		}
		e.sync(nil)
		x.leave(epochLeave)
		if g := s.m.group("g"); (g.classic != nil) != c.down {
			t.Errorf("%s: classic %v", c.policy, g.classic != nil)
		}
	}
}

func TestEmptyGroupsChangeTheirProtocol(t *testing.T) {
	s := newStage(t)
	a, b := classicPair(s)
	a.leave()
	b.leave()
	x := s.actor("x", "t").beat()
	if x.count() != 12 || s.m.group("g").classic != nil {
		t.Fatalf("x has %d of an empty classic group's partitions", x.count())
	}
	s.requireSound()
	x.leave(epochLeave)
	e := s.elder("t").join()
	s.pass(4 * time.Second)
	s.pass(4 * time.Second)
	if e.joining == nil || e.joining.LeaderID == "" || s.m.group("g").consumer != nil {
		t.Fatalf("%+v", e.joining)
	}
	e.sync(map[string]map[string][]int32{e.id: {"t": {0}}})
	if f := s.follower().group("g"); f.consumer != nil || f.classic == nil {
		t.Error("a follower has the consumer group still")
	}
}

// A static member restarts with the other protocol, each way.
func TestStaticMemberChangesItsProtocol(t *testing.T) {
	s := newStage(t)
	s.topics.set("t", 4)
	x := s.actor("x", "t")
	x.instance = ptr("i")
	x.beat()
	e := s.elder("t")
	e.instance = ptr("i")
	if e.join(); e.joining == nil || e.joining.ErrorCode != 0 || s.m.group("g").classic == nil {
		t.Fatalf("%+v; classic %v", e.joining, s.m.group("g").classic != nil)
	}
	if e.sync(nil); e.count() != 4 || e.beat() != 0 {
		t.Fatalf("it has %d of 4 after the group became classic, %+v", e.count(), e.syncing)
	}
	y := s.actor("y", "t")
	y.instance = ptr("i")
	if y.beat(); y.last.ErrorCode != 0 || y.count() != 4 || s.m.group("g").consumer == nil {
		t.Fatalf("y is told %d and has %d", y.last.ErrorCode, y.count())
	}
	s.requireSound()
}
