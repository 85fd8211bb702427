package group

import (
	"strings"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of JoinGroup from which on a new dynamic member must come back with the id that it is given, and from
// which on a leader that is to leave the assignment as it is can be told so.
const (
	joinKnownMember    = 4
	joinSkipAssignment = 9
)

// joining is one JoinGroup on its way.
type joining struct {
	client Client
	req    *kmsg.JoinGroupRequest
	now    time.Time
	fx     *coordinator.Effects
	reply  Reply[*kmsg.JoinGroupResponse]
}

// refuse answers with an error.
func (j *joining) refuse(kind *kerr.Error, memberID string) {
	answer(j.fx, j.reply, joinRefusal(kind.Code, memberID))
}

func joinRefusal(code int16, memberID string) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.MemberID, resp.Generation = code, memberID, -1
	return resp
}

// JoinGroup lets a member in or in again. The answer comes when the join phase ends.
func (m *Machine) JoinGroup(client Client, req *kmsg.JoinGroupRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.JoinGroupResponse]) {
	j := &joining{client, req, now, fx, reply}
	session := millis(req.SessionTimeoutMillis)
	switch {
	case req.Group == "":
		j.refuse(kerr.InvalidGroupID, req.MemberID)
		return
	case session < m.cfg.SessionTimeoutMin || session > m.cfg.SessionTimeoutMax:
		j.refuse(kerr.InvalidSessionTimeout, req.MemberID)
		return
	}
	g := m.group(req.Group)
	if g != nil && g.consumer != nil {
		if !g.consumer.empty() {
			m.consumerJoin(g, client, req, now, fx, reply)
			return
		}
		m.dropConsumer(g, fx) // an empty group changes its kind with its first member
	}
	if g == nil || g.classic == nil && g.offsets.empty() {
		if req.MemberID != "" {
			j.refuse(kerr.UnknownMemberID, req.MemberID)
			return
		}
	}
	g = m.addGroup(req.Group)
	isNew := g.classic == nil
	m.join(g, m.classicOf(g, now), j)
	if isNew && g.classic.saved == nil && len(fx.Batches()) == 0 {
		fx.Append(records.Encode(records.GroupKey(g.id), records.EncodeGroup(g.classic.record())))
	}
	m.wakeAt(g, g.classic.deadline())
}

// classicOf returns the group's classic part, which it makes if there is none.
func (m *Machine) classicOf(g *group, now time.Time) *classicGroup {
	if g.classic == nil {
		g.classic = newClassicGroup(now)
	}
	return g.classic
}

func (m *Machine) join(g *group, c *classicGroup, j *joining) {
	id := j.req.MemberID
	switch {
	case !m.hasRoom(c, id):
		c.remove(id)
		j.refuse(kerr.GroupMaxSizeReached, "")
	case !c.supports(j.req.ProtocolType, j.req.Protocols):
		j.refuse(kerr.InconsistentGroupProtocol, id)
	case id == "":
		m.joinNew(g, c, j)
	default:
		m.joinKnown(g, c, j)
	}
}

// hasRoom holds the group to group.max.size.
func (m *Machine) hasRoom(c *classicGroup, id string) bool {
	switch known := c.members.get(id); c.state {
	case statePreparing:
		return known != nil && known.join != nil || c.members.joining() < m.cfg.GroupMaxSize
	case stateCompleting, stateStable:
		return known != nil || c.members.len() < m.cfg.GroupMaxSize
	default:
		return true
	}
}

// joinNew is for a member without an id.
func (m *Machine) joinNew(g *group, c *classicGroup, j *joining) {
	if instance := j.req.InstanceID; instance != nil {
		id := *instance + "-" + m.cfg.NewID()
		if old, ok := c.members.static[*instance]; ok {
			m.replaceStatic(g, c, c.members.get(old), id, j)
			return
		}
		m.addMember(g, c, id, j)
		return
	}
	id := j.client.ID + "-" + m.cfg.NewID()
	if j.req.Version < joinKnownMember {
		m.addMember(g, c, id, j)
		return
	}
	c.issue(id, j.now.Add(millis(j.req.SessionTimeoutMillis)), min(m.cfg.GroupMaxSize, issuedMax))
	j.refuse(kerr.MemberIDRequired, id)
}

// issuedMax is how many member ids of one group may be out. Kafka knows no bound but their time, which a client chooses.
const issuedMax = 1000

// issue notes an id that is handed out. If limit of them are out, the one whose time ends first is forgotten: who comes back with it is told that
// it is unknown, and asks for another.
func (c *classicGroup) issue(id string, until time.Time, limit int) {
	for len(c.issued) >= max(limit, 1) {
		first := ""
		for other, at := range c.issued {
			if at1 := c.issued[first]; first == "" || at.Before(at1) || at.Equal(at1) && other < first {
				first = other
			}
		}
		delete(c.issued, first)
	}
	c.issued[id] = until
}

// joinKnown is for a member with an id: one that it was handed out just now, or that it has already joined with.
func (m *Machine) joinKnown(g *group, c *classicGroup, j *joining) {
	id := j.req.MemberID
	if _, ok := c.issued[id]; ok && j.req.InstanceID == nil {
		delete(c.issued, id)
		m.addMember(g, c, id, j)
		return
	}
	if e := c.check(id, j.req.InstanceID); e != nil {
		answer(j.fx, j.reply, joinRefusal(e.Code, id))
		return
	}
	mb := c.members.get(id)
	same := mb.matches(j.req)
	switch {
	case c.state == stateCompleting && same:
		answer(j.fx, j.reply, c.joined(mb, c.leader == id)) // its answer was lost
	case c.state == stateStable && same && c.leader != id:
		answer(j.fx, j.reply, c.joined(mb, false))
	default:
		m.updateMember(c, mb, j)
		m.rebalanceOrJoin(g, c, j.now, j.fx)
	}
}

// addMember takes a new member in.
func (m *Machine) addMember(g *group, c *classicGroup, id string, j *joining) {
	mb := &member{id: id, clientID: j.client.ID, clientHost: j.client.Host, fresh: true, join: j.reply}
	if j.req.InstanceID != nil {
		instance := strings.Clone(*j.req.InstanceID)
		mb.instance = &instance
	}
	mb.update(j.req)
	mb.deadline = j.now.Add(newMemberJoinTimeout)
	c.members.add(mb)
	if c.leader == "" {
		c.leader = id
	}
	if c.members.len() == 1 {
		c.protocolType = j.req.ProtocolType
	}
	if c.state == statePreparing && c.initial {
		c.newcomers = true
	}
	m.rebalanceOrJoin(g, c, j.now, j.fx)
}

// updateMember takes over a JoinGroup of a member; one that it still waits for is answered, as nobody listens to it.
func (m *Machine) updateMember(c *classicGroup, mb *member, j *joining) {
	mb.answerJoin(j.fx, joinRefusal(kerr.RebalanceInProgress.Code, mb.id))
	c.members.count(mb, -1)
	mb.update(j.req)
	c.members.count(mb, 1)
	mb.join = j.reply
}

// replaceStatic has a static member that came back without its id take its own place.
func (m *Machine) replaceStatic(g *group, c *classicGroup, mb *member, id string, j *joining) {
	oldID, oldLeader := mb.id, c.leader
	mb.answerJoin(j.fx, joinRefusal(kerr.FencedInstanceID.Code, oldID))
	mb.answerSync(j.fx, syncRefusal(kerr.FencedInstanceID.Code))
	c.members.rename(mb, id)
	if c.leader == oldID {
		c.leader = id
	}
	if _, ok := c.unsynced[oldID]; ok {
		delete(c.unsynced, oldID)
		c.unsynced[id] = struct{}{}
	}
	mb.touch(j.now)
	m.updateMember(c, mb, j)
	if c.state != stateStable {
		m.rebalanceOrJoin(g, c, j.now, j.fx)
		return
	}
	if c.selectProtocol() != c.protocol {
		m.prepareRebalance(g, j.now, j.fx)
		return
	}
	m.save(g, c, j.now, j.fx)
	resp := c.joined(mb, false)
	if j.req.Version >= joinSkipAssignment {
		resp = c.joined(mb, c.leader == id)
		resp.SkipAssignment = c.leader == id
	} else {
		resp.LeaderID = oldLeader // an old client that thinks it leads would assign anew
	}
	mb.answerJoin(j.fx, resp)
}

// joined is the answer to a JoinGroup that is part of the current generation.
func (c *classicGroup) joined(mb *member, withMembers bool) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.ProtocolType, resp.Protocol = c.generation, ptr(c.protocolType), ptr(c.protocol)
	resp.LeaderID, resp.MemberID = c.leader, mb.id
	if !withMembers {
		return resp
	}
	for _, other := range c.members.list {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = other.id, other.instance, other.metadata(c.protocol)
		resp.Members = append(resp.Members, rm)
	}
	return resp
}
