package group

import (
	"maps"
	"slices"
	"time"

	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicState is a classic group's state, in Kafka's words.
type classicState int8

const (
	stateEmpty classicState = iota
	statePreparing
	stateCompleting
	stateStable
)

func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// consumerProtocol is the protocol type of consumers, whose metadata name topics.
const consumerProtocol = "consumer"

// classicGroup is a group of the classic protocol: members join (JoinGroup), their leader assigns and hands the
// assignment out by SyncGroup.
type classicGroup struct {
	// saved is what the group's last record says; nil: there is none. Replay alone changes it.
	saved *records.Group

	// What follows is the live layer, which the leader of the partition alone has.
	live         bool
	state        classicState
	since        time.Time // of the state
	protocolType string
	protocol     string // selected for this generation; "" none
	generation   int32
	leader       string // member id
	members      members
	// issued are member ids that were handed out and with which nobody has joined yet, with the end of their time.
	issued map[string]time.Time

	// initial: the rebalance under way is one from Empty. It waits for initialDelay, again while members came
	// (newcomers), for initialLeft at most.
	initial      bool
	newcomers    bool
	initialDelay time.Duration
	initialLeft  time.Duration
	joinDeadline time.Time // of the join phase; zero: none
	// unsynced are the members of this generation that have not sent SyncGroup, by syncDeadline.
	unsynced     map[string]struct{}
	syncDeadline time.Time
}

// newClassicGroup makes an empty group whose live layer exists.
func newClassicGroup(now time.Time) *classicGroup {
	c := &classicGroup{since: now}
	c.revive()
	return c
}

// revive makes the live layer of what is saved. Deadlines start with startClassic.
func (c *classicGroup) revive() {
	c.live, c.issued, c.unsynced = true, map[string]time.Time{}, map[string]struct{}{}
	if c.saved == nil {
		return
	}
	s := c.saved
	c.generation, c.protocolType, c.protocol, c.leader = s.Generation, s.ProtocolType, deref(s.Protocol), deref(s.Leader)
	if s.CurrentStateTimestamp >= 0 {
		c.since = time.UnixMilli(s.CurrentStateTimestamp)
	}
	for i := range s.Members {
		c.members.add(savedMember(&s.Members[i], c.protocol))
	}
	if c.members.len() > 0 {
		c.state = stateStable
	}
}

// resign fails what waits and drops the live layer.
func (c *classicGroup) resign() {
	for _, m := range c.members.list {
		m.fail()
	}
	*c = classicGroup{saved: c.saved}
}

// moveTo changes the state.
func (c *classicGroup) moveTo(s classicState, now time.Time) { c.state, c.since = s, now }

// deadline is when the group is to be looked at next; zero: never.
func (c *classicGroup) deadline() time.Time {
	next := earliest(c.joinDeadline, c.syncDeadline)
	for _, at := range c.issued {
		next = earliest(next, at)
	}
	for _, m := range c.members.list {
		if !m.waits() {
			next = earliest(next, m.deadline)
		}
	}
	return next
}

// allJoined reports whether nobody is missing in the join phase.
func (c *classicGroup) allJoined() bool {
	return len(c.issued) == 0 && c.members.joining() == c.members.len()
}

// rebalanceTimeout is the longest of the members'.
func (c *classicGroup) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range c.members.list {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

// remove takes a member out. A leader is followed by the member that is there longest.
func (c *classicGroup) remove(id string) {
	c.members.remove(id)
	delete(c.issued, id)
	delete(c.unsynced, id)
	if c.leader == id {
		c.leader = ""
		if c.members.len() > 0 {
			c.leader = c.members.list[0].id
		}
	}
}

// check refuses a request in the name of a member that is not, or no longer, the one.
func (c *classicGroup) check(id string, instance *string) *Error {
	if instance != nil {
		switch owner, ok := c.members.static[*instance]; {
		case !ok:
			return refusal(kerr.UnknownMemberID)
		case owner != id:
			return refusal(kerr.FencedInstanceID)
		}
	}
	if c.members.get(id) == nil {
		return refusal(kerr.UnknownMemberID)
	}
	return nil
}

// supports reports whether a member with these protocols fits into the group.
func (c *classicGroup) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if c.state == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	if c.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return c.members.supporting(p.Name) == c.members.len() })
}

// selectProtocol is the protocol that all members have and most of them prefer; of equals, that which the members who
// are there longest prefer.
func (c *classicGroup) selectProtocol() string {
	votes, best := map[string]int{}, ""
	var order []string
	for _, m := range c.members.list {
		for _, p := range m.protocols {
			if c.members.supporting(p.name) == c.members.len() {
				if votes[p.name]++; votes[p.name] == 1 {
					order = append(order, p.name)
				}
				break
			}
		}
	}
	for _, name := range order {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// subscribed returns the topics of all members, where they are consumers whose metadata can be read. known is false
// where they are not.
func (c *classicGroup) subscribed() (topics map[string]struct{}, known bool) {
	topics = map[string]struct{}{}
	if c.protocolType != consumerProtocol {
		return nil, false
	}
	if c.members.len() > 0 && c.protocol == "" {
		return nil, false
	}
	for _, m := range c.members.list {
		var meta kmsg.ConsumerMemberMetadata
		if meta.ReadFrom(m.metadata(c.protocol)) != nil {
			return nil, false
		}
		for _, t := range meta.Topics {
			topics[t] = struct{}{}
		}
	}
	return topics, true
}

// record is what is to be saved of the group.
func (c *classicGroup) record() records.Group {
	g := kmsg.NewGroupMetadataValue()
	g.ProtocolType, g.Generation, g.CurrentStateTimestamp = c.protocolType, c.generation, c.since.UnixMilli()
	if c.protocol != "" {
		g.Protocol = &c.protocol
	}
	if c.leader != "" {
		g.Leader = &c.leader
	}
	for _, m := range c.members.list {
		g.Members = append(g.Members, m.record(c.protocol))
	}
	return g
}

// sortedIssued lists the member ids that were handed out.
func (c *classicGroup) sortedIssued() []string { return slices.Sorted(maps.Keys(c.issued)) }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ptr is a pointer to a copy of s, nil for "".
func ptr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
