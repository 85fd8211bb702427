package group

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"cairn/broker/coordinator"
	"cairn/broker/group/assignor"
	"cairn/broker/group/records"
	"cairn/internal/ids"
)

// knownTopic is a topic that exists.
type knownTopic struct {
	id         ids.UUID
	partitions int32
}

// topics is what the members will subscribe to and exists, by name.
func (op *consumerOp) topics() map[string]knownTopic {
	seen, known := map[string]bool{}, map[string]knownTopic{}
	note := func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if id, partitions, ok := op.m.cfg.Topics.Topic(name); ok {
			known[name] = knownTopic{id, partitions}
		}
	}
	expressions := map[string]bool{}
	for m := range op.members() {
		for _, name := range m.Topics {
			note(name)
		}
		expressions[m.regex()] = true
	}
	for e := range expressions {
		for _, name := range op.regexes[e].topics {
			note(name)
		}
	}
	return known
}

// hashTopics is a number that changes when topics come, go, are made anew or get more partitions; 0 for none.
func hashTopics(topics map[string]knownTopic) int64 {
	if len(topics) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		t := topics[name]
		b := binary.BigEndian.AppendUint32(t.id[:], uint32(t.partitions))
		b = append(b, name...)
		_, _ = h.Write(binary.BigEndian.AppendUint16(b, uint16(len(name)))) // a hash does not fail
	}
	return int64(h.Sum64())
}

// advance moves the group to its next epoch if its members' subscriptions have changed, or the topics that they
// subscribe to, which is looked at when the cluster's topics have changed at all.
func (op *consumerOp) advance(changed bool) {
	live, version := op.live(), op.m.cfg.Topics.Version()
	if !changed && live.seen == version+1 {
		return
	}
	hash := hashTopics(op.topics())
	if changed || hash != op.c.metadataHash {
		op.bump(hash)
	}
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) { g.live.seen = version + 1 })
}

// retarget divides the partitions anew if the group has moved on since they were, and that is not too short ago. Else
// what was decided then stays, and a later heartbeat does it.
func (op *consumerOp) retarget(inherited assignor.Partitions) {
	c := op.c
	op.targetEpoch = c.target.epoch
	op.target = inherited
	if inherited == nil {
		op.target = c.target.members[op.updated.id]
	}
	interval := op.m.consumerAssignmentInterval(op.id).Milliseconds()
	nowMs := op.now.UnixMilli()
	if op.epoch <= c.target.epoch || c.target.timestamp != 0 && interval != 0 && nowMs < c.target.timestamp+interval {
		return
	}
	spec := op.spec(inherited)
	assign, _ := assignor.Lookup(op.preferredAssignor()) // Validate and checkHeartbeat let pass no other
	out := assign(spec)
	for _, m := range spec.Members {
		part := out[m.ID]
		_, had := c.target.members[m.ID]
		if had || inherited != nil && m.ID == op.updated.id {
			if maps.EqualFunc(part, m.Assigned, slices.Equal[[]int32]) {
				continue
			}
		}
		op.add(targetRecord(op.id, m.ID, part))
	}
	op.add(coordinator.Record{
		Key:   groupKey(records.KindTargetAssignment, op.id),
		Value: records.TargetAssignment{Epoch: op.epoch, Timestamp: nowMs}.Encode(),
	})
	op.target, op.targetEpoch = out[op.updated.id], op.epoch
}

func targetRecord(group, member string, part assignor.Partitions) coordinator.Record {
	return coordinator.Record{
		Key:   memberKey(records.KindTargetMember, group, member),
		Value: records.TargetMember{Partitions: part}.Encode(),
	}
}

// spec is what is to be divided among whom, in the order of the members' ids.
func (op *consumerOp) spec(inherited assignor.Partitions) assignor.Group {
	known := op.topics()
	spec := assignor.Group{Topics: make(map[ids.UUID]int32, len(known))}
	for _, t := range known {
		spec.Topics[t.id] = t.partitions
	}
	for m := range op.members() {
		a := assignor.Member{ID: m.id, InstanceID: m.instance(), Assigned: op.c.target.members[m.id]}
		if m == op.updated && inherited != nil {
			a.Assigned = inherited
		}
		for _, names := range [][]string{m.Topics, op.regexes[m.regex()].topics} {
			for _, name := range names {
				if t, ok := known[name]; ok {
					a.Topics = append(a.Topics, t.id)
				}
			}
		}
		spec.Members = append(spec.Members, a)
	}
	slices.SortFunc(spec.Members, func(a, b assignor.Member) int { return cmp.Compare(a.ID, b.ID) })
	return spec
}

// preferredAssignor is the one that most members ask for, of several the first by name; if nobody asks, the broker's.
func (op *consumerOp) preferredAssignor() string {
	return mostWanted(op.members(), op.m.cfg.Consumer)
}

func mostWanted(members iter.Seq[*consumerMember], cfg ConsumerConfig) string {
	votes, best := map[string]int{}, ""
	for m := range members {
		if name := deref(m.Assignor); cfg.offers(name) {
			votes[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return cmp.Or(best, cfg.Assignors[0])
}
