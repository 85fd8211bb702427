package group

import (
	"fmt"
	"strings"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetArg is TOPIC-PARTITION[:OFFSET[:METADATA]].
func offsetArg(s string) (topic string, partition int32, offset int64, metadata string) {
	parts := strings.SplitN(s, ":", 3)
	i := strings.LastIndex(parts[0], "-")
	if _, err := fmt.Sscan(parts[0][i+1:], &partition); err != nil {
		panic(err)
	}
	if len(parts) > 1 {
		if _, err := fmt.Sscan(parts[1], &offset); err != nil {
			panic(err)
		}
	}
	if len(parts) > 2 {
		metadata = parts[2]
	}
	return parts[0][:i], partition, offset, metadata
}

func (w *world) offsetCommand(cmd string, a args) {
	w.do(func(now time.Time, fx *coordinator.Effects) {
		switch cmd {
		case "commit":
			w.commit(a, now, fx)
		case "txn-commit":
			w.txnCommit(a, now, fx)
		case "fetch":
			w.fetch(a, now, fx)
		case "delete-offsets":
			w.deleteOffsets(a, now, fx)
		case "marker":
			w.marker(a.number("producer", 7), a.has("commit"))
		case "remove-topics":
			more := w.m.RemoveTopics(func(topic string, id [16]byte) bool { return topic == a.text("topic", "") }, fx)
			fx.Then(func(error) { w.say("more=%v", more) })
		}
	})
}

func (w *world) commit(a args, now time.Time, fx *coordinator.Effects) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID = int16(a.number("v", 9)), a.text("group", "g"), a.text("member", "")
	req.InstanceID, req.Generation, req.RetentionTimeMillis = a.pointer("instance"), int32(a.number("gen", -1)), a.number("retention", -1)
	for _, o := range a.list("offsets") {
		topic, partition, offset, metadata := offsetArg(o)
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = topic
		rt.TopicID, _, _ = w.cfg.Topics.Topic(topic)
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata, rp.LeaderEpoch = partition, offset, &metadata, int32(a.number("epoch", -1))
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	w.m.OffsetCommit(req, now, fx, func(r *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			w.say("commit: %v", err)
			return
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				w.say("commit %s-%d: %s", t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	})
}

func (w *world) txnCommit(a args, now time.Time, fx *coordinator.Effects) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.MemberID = int16(a.number("v", 3)), a.text("group", "g"), a.text("member", "")
	req.InstanceID, req.Generation, req.ProducerID = a.pointer("instance"), int32(a.number("gen", -1)), a.number("producer", 7)
	for _, o := range a.list("offsets") {
		topic, partition, offset, metadata := offsetArg(o)
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = partition, offset, &metadata
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	w.m.TxnOffsetCommit(req, now, fx, func(r *kmsg.TxnOffsetCommitResponse, err error) {
		if err != nil {
			w.say("txn-commit: %v", err)
			return
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				w.say("txn-commit %s-%d: %s", t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	})
}

func (w *world) fetch(a args, now time.Time, fx *coordinator.Effects) {
	req := kmsg.NewOffsetFetchRequestGroup()
	req.Group, req.MemberID, req.MemberEpoch = a.text("group", "g"), a.pointer("member"), int32(a.number("member-epoch", -1))
	for _, o := range a.list("offsets") {
		topic, partition, _, _ := offsetArg(o)
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.Partitions = topic, []int32{partition}
		if a.has("id") {
			rt.TopicID = [16]byte{byte(a.number("id", 0))}
		}
		req.Topics = append(req.Topics, rt)
	}
	w.m.OffsetFetch(req, a.has("stable"), now, fx, func(r *kmsg.OffsetFetchResponseGroup, err error) {
		if err != nil {
			w.say("fetch: %v", err)
			return
		}
		if r.ErrorCode != 0 || len(r.Topics) == 0 {
			w.say("fetch: %s", codeName(r.ErrorCode))
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				w.say("fetch %s-%d: %s offset=%d epoch=%d metadata=%q", t.Topic, p.Partition, codeName(p.ErrorCode), p.Offset, p.LeaderEpoch, *p.Metadata)
			}
		}
	})
}

func (w *world) deleteOffsets(a args, now time.Time, fx *coordinator.Effects) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = a.text("group", "g")
	for _, o := range a.list("offsets") {
		topic, partition, _, _ := offsetArg(o)
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewOffsetDeleteRequestTopicPartition()
		rp.Partition = partition
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	w.m.OffsetDelete(req, now, fx, func(r *kmsg.OffsetDeleteResponse, err error) {
		if err != nil || r.ErrorCode != 0 {
			w.say("delete-offsets: %v %s", err, codeName(r.ErrorCode))
			return
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				w.say("delete-offsets %s-%d: %s", t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	})
}

func (w *world) adminCommand(cmd string, a args) {
	w.do(func(now time.Time, fx *coordinator.Effects) {
		switch cmd {
		case "describe":
			w.m.DescribeGroup(a.text("group", "g"), int16(a.number("v", 6)), now, fx, func(r *kmsg.DescribeGroupsResponseGroup, err error) {
				w.say("%s: %s state=%s type=%q protocol=%q %s", r.Group, codeName(r.ErrorCode), r.State, r.ProtocolType, r.Protocol, deref(r.ErrorMessage))
				for _, mb := range r.Members {
					w.say("  %s instance=%q client=%s host=%s metadata=%q assignment=%q", mb.MemberID, deref(mb.InstanceID), mb.ClientID, mb.ClientHost, mb.ProtocolMetadata, mb.MemberAssignment)
				}
			})
		case "list":
			w.m.ListGroups(a.list("states"), a.list("types"), now, fx, func(list []kmsg.ListGroupsResponseGroup, err error) {
				for _, g := range list {
					w.say("%s type=%s state=%s protocol=%q", g.Group, g.GroupType, g.GroupState, g.ProtocolType)
				}
			})
		case "delete":
			w.m.DeleteGroup(a.text("group", "g"), now, fx, func(e *Error, more bool, err error) {
				w.say("delete: %s more=%v err=%v", codeName(e.code()), more, err)
			})
		}
	})
}
