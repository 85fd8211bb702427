package group

import (
	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// downgradesWithout says whether the group becomes a classic one when these members leave and as many of the classic
// protocol come.
func (op *consumerOp) downgradesWithout(leaving map[string]bool, coming int) bool {
	left, consumers := coming, 0
	for _, m := range op.c.members {
		switch {
		case !leaving[m.id] && !m.usesClassic():
			return false
		case !leaving[m.id]:
			left++
		case !m.usesClassic():
			consumers++
		}
	}
	return left > 0 && consumers > 0 && op.m.cfg.Consumer.Migration.down() && left <= op.m.cfg.GroupMaxSize
}

// downgrade makes the group a classic one without those who leave. joined, unless nil, is a member that has taken the
// place of one of them. The members divide the partitions by themselves then.
func (op *consumerOp) downgrade(leaving map[string]bool, joined *consumerMember) {
	staying := make([]*consumerMember, 0, len(op.c.members)+1)
	for m := range op.c.sorted() {
		if !leaving[m.id] && (joined == nil || m.id != joined.id) {
			staying = append(staying, m)
		}
	}
	if joined != nil {
		staying = append(staying, joined)
	}
	op.recs = append(op.c.deletion(op.id), records.Encode(records.GroupKey(op.id), records.EncodeGroup(op.classicRecord(staying, joined))))
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) { g.live = consumerLive{} })
}

// classicRecord is the members as a stable classic group.
func (op *consumerOp) classicRecord(members []*consumerMember, joined *consumerMember) records.Group {
	selected := commonProtocol(members)
	out := kmsg.NewGroupMetadataValue()
	out.ProtocolType, out.Generation, out.Protocol = consumerProtocol, op.epoch, ptr(selected)
	out.CurrentStateTimestamp = op.now.UnixMilli()
	for _, m := range members {
		r := kmsg.NewGroupMetadataValueMember()
		r.MemberID, r.InstanceID, r.ClientID, r.ClientHost = m.id, m.InstanceID, m.ClientID, m.ClientHost
		r.RebalanceTimeoutMillis, r.SessionTimeoutMillis = m.RebalanceTimeoutMillis, m.Classic.SessionTimeoutMillis
		r.Subscription = m.protocolMetadata(selected)
		part := op.c.target.members[m.id]
		if m == joined {
			part = op.target
		}
		r.Assignment = op.m.classicAssignment(part, r.Subscription)
		out.Members = append(out.Members, r)
	}
	return out
}

// protocolMetadata is what the member said of a protocol.
func (c *consumerMember) protocolMetadata(name string) []byte {
	for _, p := range c.Classic.Protocols {
		if p.Name == name {
			return p.Metadata
		}
	}
	return nil
}

// commonProtocol is the protocol that all members have and most prefer. There is one, since a member without it does not
// get in (supportsClassic).
func commonProtocol(members []*consumerMember) string {
	var all classicGroup
	for _, m := range members {
		all.members.add(&member{id: m.id, protocols: protocolsOf(m.Classic)})
	}
	return all.selectProtocol()
}

func protocolsOf(c *records.ClassicMember) (out []protocol) {
	for _, p := range c.Protocols {
		out = append(out, protocol{p.Name, p.Metadata})
	}
	return out
}

// dropConsumer turns an empty consumer group into nothing, so that a classic one can take its place.
func (m *Machine) dropConsumer(g *group, fx *coordinator.Effects) {
	c := g.consumer
	g.consumer, g.live = nil, consumerLive{}
	fx.Refused(func(error, *coordinator.Effects) {
		if back := m.addGroup(g.id); back.classic == nil && back.consumer == nil {
			back.consumer = c
		}
	})
	c.tombstones(g.id, fx)
}

// rebalanceLater begins a rebalance of the classic group that the operation makes, once that is there.
func (op *consumerOp) rebalanceLater() {
	op.later = append(op.later, func(g *group, fx *coordinator.Effects) {
		if g.classic != nil && g.classic.live {
			op.m.prepareRebalance(g, op.now, fx)
		}
	})
}
