package group

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TxnOffsetCommit adds offsets to a transaction: they count once it is committed. The handler has taken out what it
// refused, and has had the transaction verified.
func (m *Machine) TxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, now time.Time, fx *coordinator.Effects, reply Reply[*kmsg.TxnOffsetCommitResponse]) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	generation, memberID, instance := int32(-1), "", (*string)(nil)
	if req.Version >= 3 {
		generation, memberID, instance = req.Generation, req.MemberID, req.InstanceID
	}
	check, refused := m.checkCommit(committer{req.Group, memberID, instance, generation, req.Version, true}, now)
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		id, _, _ := m.cfg.Topics.Topic(t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			o := records.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata), Committed: now.UnixMilli(), Expires: -1, TopicID: id}
			e := refused
			if e == nil {
				e = m.checkOffset(t.Topic, p.Partition, o, check)
			}
			if e != nil && e.Code == kerr.StaleMemberEpoch.Code {
				e = refusal(kerr.IllegalGeneration) // the only one that transactional clients know
			}
			if e == nil {
				fx.AppendTxn(req.ProducerID, req.ProducerEpoch, offsetRecord(req.Group, t.Topic, p.Partition, o))
			}
			rp.Partition, rp.ErrorCode = p.Partition, e.code()
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	answer(fx, reply, resp)
}
