package group

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// commitMemberEpoch is the version of OffsetCommit from which on it knows member epochs.
const commitMemberEpoch = 9

// checkCommit refuses a commit to a consumer group as a whole, or says which partitions it may be for: an epoch that is
// behind is good for partitions that the member has had since no later than that (KIP-1251), since nobody else can have
// had them meanwhile.
func (c *consumerGroup) checkCommit(id string, instance *string, epoch int32, version int16, transactional bool) (partitionCheck, *Error) {
	switch {
	case epoch < 0 && c.empty(): // an operator, or a consumer without a group
		return nil, nil
	case transactional && epoch == -1 && id == "" && instance == nil: // a producer that names no member
		return nil, nil
	}
	m := c.members[id]
	switch {
	case m == nil:
		return nil, refusal(kerr.UnknownMemberID, "the group has no member "+id)
	case !transactional && !m.usesClassic() && version < commitMemberEpoch:
		return nil, refusal(kerr.UnsupportedVersion, fmt.Sprintf("members of the consumer protocol commit with OffsetCommit version %d or above", commitMemberEpoch))
	case epoch == m.epoch:
		return nil, nil
	case epoch > m.epoch:
		return nil, m.stale(fmt.Sprintf("epoch %d is above the member's, which is %d", epoch, m.epoch))
	}
	return func(topic string, topicID [16]byte, partition int32) *Error {
		since, ok := m.assigned[topicID][partition]
		if !ok {
			since, ok = m.revoking[topicID][partition]
		}
		switch {
		case !ok:
			return m.stale(fmt.Sprintf("%s-%d is not the member's", topic, partition))
		case epoch < since:
			return m.stale(fmt.Sprintf("%s-%d is the member's since epoch %d, not %d", topic, partition, since, epoch))
		}
		return nil
	}, nil
}

// checkFetch refuses to tell committed offsets to who is no member at its epoch. Who names no member may ask.
func (c *consumerGroup) checkFetch(id *string, epoch int32) *Error {
	if id == nil && epoch < 0 {
		return nil
	}
	m := c.members[deref(id)]
	switch {
	case m == nil:
		return refusal(kerr.UnknownMemberID, "the group has no member "+deref(id))
	case epoch != m.epoch:
		return m.stale(fmt.Sprintf("epoch %d is not the member's, which is %d", epoch, m.epoch))
	}
	return nil
}

// stale is the refusal in the words of the member's protocol.
func (c *consumerMember) stale(message string) *Error {
	if c.usesClassic() {
		return refusal(kerr.IllegalGeneration, message)
	}
	return refusal(kerr.StaleMemberEpoch, message)
}
