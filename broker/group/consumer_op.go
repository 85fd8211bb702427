package group

import (
	"iter"
	"maps"
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/broker/group/records"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refusedRetry is when a group's timers are looked at again after the partition has refused to take records.
const refusedRetry = time.Second

// consumerOp is one operation on a consumer group: it decides on the group as it is, and collects the records that make
// it as it is to be. Nothing happens before commit, so an operation may be given up at any point.
type consumerOp struct {
	m   *Machine
	id  string
	c   *consumerGroup // as its records tell; not changed
	now time.Time

	recs []coordinator.Record
	// What commit does besides appending: at once, as answering who waits, and when the records are replayed.
	beside []func(*coordinator.Effects)
	later  []func(*group, *coordinator.Effects)

	// How the group will be.
	epoch   int32
	updated *consumerMember          // in the place of the member of its id; nil: none changes
	gone    map[string]bool          // members that leave
	regexes map[string]resolvedRegex // copied before it is changed

	// target is what updated is to have, and targetEpoch for which epoch.
	target      assignor.Partitions
	targetEpoch int32
}

// openConsumer begins an operation on a group. join: the group is made if there is none, and made a consumer group if it
// is a classic one.
func (m *Machine) openConsumer(id string, now time.Time, join bool) (*consumerOp, *Error) {
	g := m.group(id)
	op := &consumerOp{m: m, id: id, now: now}
	switch {
	case g != nil && g.consumer != nil:
		op.c = g.consumer
	case !join && (g == nil || g.classic == nil):
		return nil, refusal(kerr.GroupIDNotFound, "there is no consumer group "+id)
	case !join:
		return nil, refusal(kerr.GroupIDNotFound, "group "+id+" is not a consumer group")
	case g != nil && g.classic != nil:
		if e := op.upgrade(g); e != nil {
			return nil, e
		}
	default:
		op.c = newConsumerGroup()
	}
	op.epoch, op.regexes = op.c.epoch, op.c.regexes
	return op, nil
}

// add collects records.
func (op *consumerOp) add(recs ...coordinator.Record) { op.recs = append(op.recs, recs...) }

// commit appends what was collected, and does the rest once that is replayed.
func (op *consumerOp) commit(fx *coordinator.Effects) {
	m := op.m
	if len(op.recs) == 0 {
		op.finish(fx)
		return
	}
	fx.Append(op.recs...)
	m.later = append(m.later, op)
	fx.Refused(func(error, *coordinator.Effects) {
		m.later = slices.DeleteFunc(m.later, func(other *consumerOp) bool { return other == op })
		if g := m.group(op.id); g != nil && g.consumer != nil {
			m.wakeAt(g, op.now.Add(refusedRetry)) // if this was a member's end, it is to come yet
		}
	})
	for _, do := range op.beside {
		do(fx)
	}
}

// finish does what is to be done when the records are replayed.
func (op *consumerOp) finish(fx *coordinator.Effects) {
	g := op.m.group(op.id)
	if g == nil {
		return
	}
	for _, do := range op.later {
		do(g, fx)
	}
}

// live is what the leader knows of the group beside its records.
func (op *consumerOp) live() consumerLive {
	if g := op.m.group(op.id); g != nil {
		return g.live
	}
	return consumerLive{}
}

// members walks the members as they will be.
func (op *consumerOp) members() iter.Seq[*consumerMember] {
	return func(yield func(*consumerMember) bool) {
		for id, m := range op.c.members {
			if op.gone[id] || op.updated != nil && op.updated.id == id {
				continue
			}
			if !yield(m) {
				return
			}
		}
		if op.updated != nil {
			yield(op.updated)
		}
	}
}

// drop collects what removes a member. The order matters to brokers of Kafka: first what it has, then what it is.
func (op *consumerOp) drop(id string) {
	op.add(
		records.Tombstone(memberKey(records.KindCurrentAssignment, op.id, id)),
		records.Tombstone(memberKey(records.KindTargetMember, op.id, id)),
		records.Tombstone(memberKey(records.KindConsumerMember, op.id, id)),
	)
	if op.gone == nil {
		op.gone = map[string]bool{}
	}
	op.gone[id] = true
}

// bump moves the group to its next epoch.
func (op *consumerOp) bump(hash int64) {
	op.epoch++
	op.add(coordinator.Record{
		Key:   groupKey(records.KindConsumerGroup, op.id),
		Value: records.ConsumerGroup{Epoch: op.epoch, MetadataHash: hash}.Encode(),
	})
	if op.c.oldMetadata {
		op.add(records.Tombstone(groupKey(records.KindPartitionMetadata, op.id)))
	}
}

// reconcile brings updated a step nearer to the target.
func (op *consumerOp) reconcile(owned map[ids.UUID][]int32, resubscribed bool) *Error {
	m := op.updated
	if !resubscribed && m.reconciledTo(op.targetEpoch) {
		return nil
	}
	next, e := reconciliation{
		member: m, epoch: op.targetEpoch, target: op.target, owned: owned, resubscribed: resubscribed,
		taken: op.c.taken,
		wants: func(topic ids.UUID) bool {
			name, _, ok := op.m.cfg.Topics.TopicByID(topic)
			return ok && m.wants(name, op.regexes)
		},
	}.next()
	if e != nil {
		return e
	}
	if !next.sameAssignment(m) {
		op.add(next.assignmentRecord(op.id))
	}
	op.updated = next
	return nil
}

// tombstones appends what deletes the group and returns with how many records.
func (c *consumerGroup) tombstones(id string, fx *coordinator.Effects) int {
	recs := c.deletion(id)
	fx.Append(recs...)
	return len(recs)
}

// deletion is the records that delete the group.
func (c *consumerGroup) deletion(id string) (recs []coordinator.Record) {
	members := slices.Sorted(maps.Keys(c.members))
	for _, kind := range []int16{records.KindCurrentAssignment, records.KindTargetMember} {
		for _, member := range members {
			recs = append(recs, records.Tombstone(memberKey(kind, id, member)))
		}
	}
	recs = append(recs, records.Tombstone(groupKey(records.KindTargetAssignment, id)))
	for _, member := range members {
		recs = append(recs, records.Tombstone(memberKey(records.KindConsumerMember, id, member)))
	}
	for _, regex := range slices.Sorted(maps.Keys(c.regexes)) {
		recs = append(recs, records.Tombstone(memberKey(records.KindRegularExpression, id, regex)))
	}
	if c.oldMetadata {
		recs = append(recs, records.Tombstone(groupKey(records.KindPartitionMetadata, id)))
	}
	return append(recs, records.Tombstone(groupKey(records.KindConsumerGroup, id)))
}
