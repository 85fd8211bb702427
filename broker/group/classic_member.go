package group

import (
	"bytes"
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocol is one that a member can do, with its metadata for the leader.
type protocol struct {
	name     string
	metadata []byte
}

// member is one member of a classic group.
type member struct {
	id         string
	instance   *string // set for a static member
	clientID   string
	clientHost string

	rebalanceTimeout time.Duration
	sessionTimeout   time.Duration
	protocols        []protocol // the preferred one first
	assignment       []byte

	// fresh: it has not been part of a generation yet; it may be given up while it waits.
	fresh    bool
	deadline time.Time // of its session
	// What it waits for; nil: nothing.
	join Reply[*kmsg.JoinGroupResponse]
	sync Reply[*kmsg.SyncGroupResponse]
}

// savedMember makes a member of what was saved of it.
func savedMember(s *records.GroupMember, selected string) *member {
	return &member{
		id: s.MemberID, instance: s.InstanceID, clientID: s.ClientID, clientHost: s.ClientHost,
		rebalanceTimeout: millis(s.RebalanceTimeoutMillis), sessionTimeout: millis(s.SessionTimeoutMillis),
		protocols: []protocol{{selected, s.Subscription}}, assignment: s.Assignment,
	}
}

// record is what is saved of the member.
func (m *member) record(selected string) records.GroupMember {
	r := kmsg.NewGroupMetadataValueMember()
	r.MemberID, r.InstanceID, r.ClientID, r.ClientHost = m.id, m.instance, m.clientID, m.clientHost
	r.RebalanceTimeoutMillis, r.SessionTimeoutMillis = int32(m.rebalanceTimeout.Milliseconds()), int32(m.sessionTimeout.Milliseconds())
	r.Subscription, r.Assignment = m.metadata(selected), m.assignment
	return r
}

// update takes over what a JoinGroup says. Bytes are copied, as the request's belong to its frame.
func (m *member) update(req *kmsg.JoinGroupRequest) {
	m.sessionTimeout = millis(req.SessionTimeoutMillis)
	m.rebalanceTimeout = m.sessionTimeout
	if req.Version >= 1 {
		m.rebalanceTimeout = millis(req.RebalanceTimeoutMillis)
	}
	m.protocols = make([]protocol, 0, len(req.Protocols))
	for _, p := range req.Protocols {
		m.protocols = append(m.protocols, protocol{p.Name, bytes.Clone(p.Metadata)})
	}
}

// matches reports whether a JoinGroup changes nothing.
func (m *member) matches(req *kmsg.JoinGroupRequest) bool {
	return slices.EqualFunc(m.protocols, req.Protocols, func(a protocol, b kmsg.JoinGroupRequestProtocol) bool {
		return a.name == b.Name && bytes.Equal(a.metadata, b.Metadata)
	})
}

// metadata is the member's metadata for a protocol.
func (m *member) metadata(name string) []byte {
	for _, p := range m.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

// waits reports whether the session stands still, because the member waits for an answer.
func (m *member) waits() bool { return !m.fresh && (m.join != nil || m.sync != nil) }

// touch starts the session anew.
func (m *member) touch(now time.Time) { m.deadline = now.Add(m.sessionTimeout) }

// fail answers what the member waits for with the end of this coordinator.
func (m *member) fail() {
	if m.join != nil {
		m.join(nil, coordinator.ErrNotCoordinator)
	}
	if m.sync != nil {
		m.sync(nil, coordinator.ErrNotCoordinator)
	}
	m.join, m.sync = nil, nil
}

// answerJoin answers a waiting JoinGroup, if there is one.
func (m *member) answerJoin(fx *coordinator.Effects, resp *kmsg.JoinGroupResponse) bool {
	reply := m.join
	if m.join = nil; reply == nil {
		return false
	}
	answer(fx, reply, resp)
	return true
}

// answerSync answers a waiting SyncGroup, if there is one.
func (m *member) answerSync(fx *coordinator.Effects, resp *kmsg.SyncGroupResponse) bool {
	reply := m.sync
	if m.sync = nil; reply == nil {
		return false
	}
	answer(fx, reply, resp)
	return true
}

// members are the members of a classic group in the order in which they joined.
type members struct {
	list   []*member
	byID   map[string]*member
	static map[string]string // member id by instance id
	byName map[string]int    // how many members have a protocol
}

func (s *members) len() int { return len(s.list) }

func (s *members) get(id string) *member { return s.byID[id] }

// joining counts those whose JoinGroup waits.
func (s *members) joining() int {
	n := 0
	for _, m := range s.list {
		if m.join != nil {
			n++
		}
	}
	return n
}

// supporting counts the members that have a protocol.
func (s *members) supporting(name string) int { return s.byName[name] }

func (s *members) add(m *member) {
	if s.byID == nil {
		s.byID, s.static, s.byName = map[string]*member{}, map[string]string{}, map[string]int{}
	}
	s.list = append(s.list, m)
	s.enter(m)
}

func (s *members) enter(m *member) {
	s.byID[m.id] = m
	if m.instance != nil {
		s.static[*m.instance] = m.id
	}
	s.count(m, 1)
}

// count keeps byName. Call it with -1 before and 1 after protocols change.
func (s *members) count(m *member, n int) {
	for i, p := range m.protocols {
		if !slices.ContainsFunc(m.protocols[:i], func(q protocol) bool { return q.name == p.name }) {
			s.byName[p.name] += n
		}
	}
}

func (s *members) leave(m *member) {
	delete(s.byID, m.id)
	if m.instance != nil {
		delete(s.static, *m.instance)
	}
	s.count(m, -1)
}

func (s *members) remove(id string) {
	if m := s.byID[id]; m != nil {
		s.leave(m)
		s.list = slices.DeleteFunc(s.list, func(x *member) bool { return x == m })
	}
}

// rename gives a member another id.
func (s *members) rename(m *member, id string) {
	s.leave(m)
	m.id = id
	s.enter(m)
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }
