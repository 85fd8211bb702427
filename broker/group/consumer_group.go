package group

import (
	"iter"
	"maps"
	"slices"

	"cairn/broker/group/assignor"
	"cairn/internal/ids"
)

// The states of a consumer group, by Kafka's names.
const (
	consumerEmpty       = "Empty"
	consumerAssigning   = "Assigning"
	consumerReconciling = "Reconciling"
	consumerStable      = "Stable"
)

// consumerGroup is a group whose partitions the coordinator divides (KIP-848). All of it comes from records.
//
// The group epoch grows with each change of what is to be divided; the target is the division for one of the epochs;
// each member moves to the target's epoch by itself, first giving back what it is to lose, then getting what is free.
type consumerGroup struct {
	epoch        int32
	metadataHash int64 // of the subscribed topics at the epoch
	target       targetAssignment
	members      map[string]*consumerMember
	static       map[string]string // instance id: member id
	// owners is who has a partition or has still to give it back.
	// Invariant: it is in that member's assigned or revoking. So no partition is ever with two members.
	owners  map[ids.UUID]map[int32]string
	regexes map[string]resolvedRegex
	// oldMetadata: there is a record of KindPartitionMetadata, to be deleted with the next change.
	oldMetadata bool
}

// targetAssignment is what members are to have.
type targetAssignment struct {
	epoch     int32 // of the group, that it was made for
	timestamp int64 // when, ms since 1970; 0: not known
	members   map[string]assignor.Partitions
}

func newConsumerGroup() *consumerGroup {
	return &consumerGroup{
		target:  targetAssignment{members: map[string]assignor.Partitions{}},
		members: map[string]*consumerMember{}, static: map[string]string{},
		owners: map[ids.UUID]map[int32]string{}, regexes: map[string]resolvedRegex{},
	}
}

// state is the group's state in Kafka's words.
func (c *consumerGroup) state() string {
	switch {
	case len(c.members) == 0:
		return consumerEmpty
	case c.epoch > c.target.epoch:
		return consumerAssigning
	}
	for _, m := range c.members {
		if !m.reconciledTo(c.target.epoch) {
			return consumerReconciling
		}
	}
	return consumerStable
}

func (c *consumerGroup) empty() bool { return len(c.members) == 0 }

// staticMember is who has the instance id, or nil.
func (c *consumerGroup) staticMember(instanceID string) *consumerMember {
	return c.members[c.static[instanceID]]
}

// sorted walks the members in the order of their ids.
func (c *consumerGroup) sorted() iter.Seq[*consumerMember] {
	return func(yield func(*consumerMember) bool) {
		for _, id := range slices.Sorted(maps.Keys(c.members)) {
			if !yield(c.members[id]) {
				return
			}
		}
	}
}

// subscribed says whether a member subscribes to the topic, by name or by expression.
func (c *consumerGroup) subscribed(topic string) bool {
	for _, m := range c.members {
		if m.wants(topic, c.regexes) {
			return true
		}
	}
	return false
}

// taken says whether a member has the partition, or has still to give it back.
func (c *consumerGroup) taken(topic ids.UUID, partition int32) bool {
	_, taken := c.owners[topic][partition]
	return taken
}

// own notes what a member has now instead of what it had. Of two who claim a partition, the later has it: that happens
// only in a log whose older records are gone.
func (c *consumerGroup) own(before, now *consumerMember) {
	for _, parts := range []partitionEpochs{before.assigned, before.revoking} {
		for id, list := range parts {
			for p := range list {
				if c.owners[id][p] == before.id {
					delete(c.owners[id], p)
				}
			}
			if len(c.owners[id]) == 0 {
				delete(c.owners, id)
			}
		}
	}
	for _, parts := range []partitionEpochs{now.assigned, now.revoking} {
		for id, list := range parts {
			if c.owners[id] == nil {
				c.owners[id] = make(map[int32]string, len(list))
			}
			for p := range list {
				c.owners[id][p] = now.id
			}
		}
	}
}
