package group

import (
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// stage is a machine that leads, with its log, its clock and its topics, for consumer groups.
type stage struct {
	t      testing.TB
	cfg    Config
	m      *Machine
	now    time.Time
	log    []coordinator.Record
	topics *stageTopics
	mirror *Machine // a follower that has replayed the first shown records
	shown  int
	newIDs int
}

// stageTopics are topics that a test changes.
type stageTopics struct {
	partitions map[string]int32
	ids        map[string]ids.UUID
	version    int64
}

func (s *stageTopics) Topic(name string) ([16]byte, int32, bool) {
	n, ok := s.partitions[name]
	return s.ids[name], n, ok
}

func (s *stageTopics) TopicByID(id [16]byte) (string, int32, bool) {
	for name, other := range s.ids {
		if other == id {
			return name, s.partitions[name], true
		}
	}
	return "", 0, false
}

func (s *stageTopics) Names() iter.Seq[string] { return maps.Keys(s.partitions) }
func (s *stageTopics) Version() int64          { return s.version }

// set makes a topic, or gives it partitions; with none it is deleted.
func (s *stageTopics) set(name string, partitions int32) {
	s.version++
	delete(s.partitions, name)
	if partitions == 0 {
		delete(s.ids, name)
		return
	}
	s.partitions[name] = partitions
	if _, ok := s.ids[name]; !ok {
		var id ids.UUID
		copy(id[:], name)
		binary.BigEndian.PutUint64(id[8:], uint64(s.version))
		s.ids[name] = id
	}
}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_700_000_000_000)}
	s.topics = &stageTopics{partitions: map[string]int32{}, ids: map[string]ids.UUID{}}
	s.cfg.Topics = s.topics
	s.cfg.Consumer.AssignmentInterval = 0 // the target follows at once
	s.cfg.NewID = func() string {
		s.newIDs++
		return fmt.Sprintf("made-%d", s.newIDs)
	}
	if err := s.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s.elect()
	return s
}

// elect has another replica lead, which knows the log alone.
func (s *stage) elect() {
	s.m = s.follower()
	s.do(s.m.Elected)
}

func (s *stage) follower() *Machine {
	m := New(s.cfg, 0)
	for i, r := range s.log {
		if err := m.Replay(coordinator.Meta{Offset: ids.Offset(i), ProducerID: -1}, r); err != nil {
			s.t.Fatalf("replay of record %d: %v", i, err)
		}
	}
	return m
}

// do runs an operation as the runtime does: append, replay, answer; then what is due.
func (s *stage) do(op func(time.Time, *coordinator.Effects)) {
	s.t.Helper()
	s.run(op)
	for i := 0; ; i++ {
		var next time.Time
		s.run(func(now time.Time, fx *coordinator.Effects) { next = s.m.Expire(now, fx) })
		if next.IsZero() || next.After(s.now) {
			return
		}
		if i > 100 {
			s.t.Fatal("Expire wants to be called again and again")
		}
	}
}

func (s *stage) run(op func(time.Time, *coordinator.Effects)) {
	s.t.Helper()
	fx := coordinator.NewEffects(1)
	op(s.now, fx)
	for _, b := range fx.Batches() {
		for _, r := range b.Records {
			s.log = append(s.log, r)
			if err := s.m.Replay(coordinator.Meta{Offset: ids.NoOffset, ProducerID: -1}, r); err != nil {
				s.t.Fatalf("replay of what was appended: %v", err)
			}
		}
	}
	for _, reply := range fx.Replies() {
		reply(nil)
	}
}

// pass lets time go by, calling the machine when it wants to be called.
func (s *stage) pass(d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); ; {
		var next time.Time
		s.run(func(now time.Time, fx *coordinator.Effects) { next = s.m.Expire(now, fx) })
		if next.IsZero() || next.After(end) {
			s.now = end
			return
		}
		if next.After(s.now) {
			s.now = next
		}
	}
}

// beat sends a heartbeat and returns the answer.
func (s *stage) beat(req *kmsg.ConsumerGroupHeartbeatRequest) (resp *kmsg.ConsumerGroupHeartbeatResponse) {
	s.t.Helper()
	if req.Group == "" {
		req.Group = "g"
	}
	s.do(func(now time.Time, fx *coordinator.Effects) {
		s.m.ConsumerGroupHeartbeat(Client{ID: "c", Host: "/h"}, req, now, fx, func(r *kmsg.ConsumerGroupHeartbeatResponse, err error) {
			if err != nil || resp != nil {
				s.t.Fatalf("answered %v, %v", r, err)
			}
			resp = r
		})
	})
	if resp == nil {
		s.t.Fatal("a heartbeat has no answer")
	}
	return resp
}

// actor is a client of the consumer protocol: it does what it is told.
type actor struct {
	s        *stage
	id       string
	instance *string
	epoch    int32
	has      map[ids.UUID][]int32
	topics   []string
	regex    *string
	timeout  int32 // to give back partitions, ms
	stubborn bool  // gives nothing back
	last     *kmsg.ConsumerGroupHeartbeatResponse
}

func (s *stage) actor(id string, topics ...string) *actor {
	return &actor{s: s, id: id, topics: topics, timeout: 60_000}
}

// beat sends what the client has to say and takes over what it is told.
func (a *actor) beat() *actor {
	a.s.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.MemberID, req.InstanceID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, a.id, a.instance, a.epoch, -1
	if a.epoch == 0 {
		a.has = nil
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.SubscribedTopicRegex = a.timeout, append([]string{}, a.topics...), a.regex
	}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for id, list := range byTopic(a.has) {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: id, Partitions: list})
	}
	a.last = a.s.beat(req)
	if a.last.ErrorCode != 0 {
		return a
	}
	a.epoch = a.last.MemberEpoch
	if given := a.last.Assignment; given != nil && !(a.stubborn && a.epoch == req.MemberEpoch) {
		a.has = map[ids.UUID][]int32{}
		for _, t := range given.Topics {
			a.has[t.TopicID] = t.Partitions
		}
	}
	return a
}

// leave sends the epoch that leaves.
func (a *actor) leave(epoch int32) *kmsg.ConsumerGroupHeartbeatResponse {
	a.s.t.Helper()
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.MemberID, req.InstanceID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, a.id, a.instance, epoch, -1
	a.epoch = 0
	return a.s.beat(req)
}

// count is how many partitions the client has.
func (a *actor) count() (n int) {
	for _, list := range a.has {
		n += len(list)
	}
	return n
}

// state is what records tell of consumer groups, in a form that can be compared.
func (m *Machine) consumerState() string {
	var out strings.Builder
	for _, id := range m.sortedGroups() {
		c := m.groups[id].consumer
		if c == nil {
			continue
		}
		fmt.Fprintf(&out, "%s %d %d %v static %v regexes %v owners %v\n", id, c.epoch, c.metadataHash, c.target, c.static, c.regexes, c.owners)
		for member := range c.sorted() {
			fmt.Fprintf(&out, " %s %x %x\n", member.id, member.metadataRecord(id).Value, member.assignmentRecord(id).Value)
		}
	}
	return out.String()
}

// requireSound fails if a follower would differ from the leader, or a partition is with two members.
func (s *stage) requireSound() {
	s.t.Helper()
	if s.mirror == nil {
		s.mirror = New(s.cfg, 0)
	}
	for ; s.shown < len(s.log); s.shown++ {
		if err := s.mirror.Replay(coordinator.Meta{Offset: ids.Offset(s.shown), ProducerID: -1}, s.log[s.shown]); err != nil {
			s.t.Fatalf("replay of record %d: %v", s.shown, err)
		}
	}
	if leader, follower := s.m.consumerState(), s.mirror.consumerState(); leader != follower {
		s.t.Fatalf("leader:\n%s\nfollower:\n%s", leader, follower)
	}
	for id, g := range s.m.groups {
		if g.consumer == nil {
			continue
		}
		owners := map[ids.UUID]map[int32]string{}
		for m := range g.consumer.sorted() {
			for _, parts := range []partitionEpochs{m.assigned, m.revoking} {
				for topic, list := range parts {
					for p := range list {
						if other, taken := owners[topic][p]; taken {
							s.t.Fatalf("group %s: %v-%d is with %s and %s", id, topic, p, other, m.id)
						}
						if owners[topic] == nil {
							owners[topic] = map[int32]string{}
						}
						owners[topic][p] = m.id
					}
				}
			}
		}
		if !reflect.DeepEqual(owners, g.consumer.owners) {
			s.t.Fatalf("group %s: owners %v, members have %v", id, g.consumer.owners, owners)
		}
	}
}
