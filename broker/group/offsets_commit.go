package group

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commitGroupNotFound is the version of OffsetCommit from which on a missing group is told as that.
const commitGroupNotFound = 9

// committer is who commits, in the name of which member.
type committer struct {
	group         string
	member        string
	instance      *string
	generation    int32 // or member epoch
	version       int16
	transactional bool
}

// partitionCheck refuses one partition of a commit; nil lets all pass.
type partitionCheck func(topic string, id [16]byte, partition int32) *Error

// OffsetCommit commits offsets. The handler has resolved topic ids to names and has taken out what it refused.
func (m *Machine) OffsetCommit(req *kmsg.OffsetCommitRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.OffsetCommitResponse]) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	who := committer{req.Group, req.MemberID, req.InstanceID, req.Generation, req.Version, false}
	check, refused := m.checkCommit(who, now)
	expires := int64(-1)
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		expires = now.UnixMilli() + req.RetentionTimeMillis
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			o := records.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata), Committed: now.UnixMilli(), Expires: expires, TopicID: t.TopicID}
			e := refused
			if e == nil {
				e = m.checkOffset(t.Topic, p.Partition, o, check)
			}
			if e == nil {
				fx.Append(offsetRecord(req.Group, t.Topic, p.Partition, o))
			}
			rp.Partition, rp.ErrorCode = p.Partition, e.code()
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	answer(fx, reply, resp)
}

// checkOffset refuses one partition's offset.
func (m *Machine) checkOffset(topic string, partition int32, o records.Offset, check partitionCheck) *Error {
	if len(o.Metadata) > m.cfg.OffsetMetadataBytes {
		return refusal(kerr.OffsetMetadataTooLarge)
	}
	if check == nil {
		return nil
	}
	id := o.TopicID
	if id == ([16]byte{}) { // requests that know no ids
		id, _, _ = m.cfg.Topics.Topic(topic)
	}
	return check(topic, id, partition)
}

func offsetRecord(group, topic string, partition int32, o records.Offset) coordinator.Record {
	return records.Encode(records.OffsetKey{Group: group, Topic: topic, Partition: partition}.Encode(), o.Encode())
}

// checkCommit refuses a commit as a whole. A commit of a member of a classic group keeps its session.
func (m *Machine) checkCommit(who committer, now time.Time) (partitionCheck, *Error) {
	g := m.group(who.group)
	switch {
	case who.group == "" && who.generation >= 0:
		return nil, refusal(kerr.InvalidGroupID)
	case g != nil && g.consumer != nil:
		return g.consumer.checkCommit(who.member, who.instance, who.generation, who.version, who.transactional)
	case g == nil && who.generation < 0:
		return nil, nil
	case g == nil && who.version >= commitGroupNotFound && !who.transactional:
		return nil, refusal(kerr.GroupIDNotFound)
	case g == nil:
		return nil, refusal(kerr.IllegalGeneration)
	case g.classic == nil: // offsets alone: as an empty group
		if who.generation < 0 {
			return nil, nil
		}
		return nil, refusal(kerr.UnknownMemberID)
	}
	return nil, m.checkMember(g, who, now)
}

func (m *Machine) checkMember(g *group, who committer, now time.Time) *Error {
	c := g.classic
	switch {
	case who.generation < 0 && c.state == stateEmpty:
		return nil
	case who.generation >= 0 || who.member != "" || who.instance != nil:
		if e := c.check(who.member, who.instance); e != nil {
			return e
		}
		if who.generation != c.generation {
			return refusal(kerr.IllegalGeneration)
		}
	case !who.transactional:
		return refusal(kerr.UnknownMemberID) // only members commit while there are any
	}
	if who.transactional { // old clients name no member, and the session is not theirs
		return nil
	}
	if c.state == stateCompleting {
		return refusal(kerr.RebalanceInProgress)
	}
	if mb := c.members.get(who.member); mb != nil {
		m.touch(g, mb, now)
	}
	return nil
}
