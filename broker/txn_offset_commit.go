package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleTxnOffsetCommit adds offsets of partitions that exist to a transaction.
func handleTxnOffsetCommit(b *Broker, r *request) {
	req := r.msg.(*kmsg.TxnOffsetCommitRequest)
	img := b.images.Image()
	var unknown, taken []kmsg.TxnOffsetCommitRequestTopic
	for _, t := range req.Topics {
		known, missing := t, t
		known.Partitions, missing.Partitions = nil, nil
		for _, p := range t.Partitions {
			if hasPartition(img.Topics[t.Topic], p.Partition) {
				known.Partitions = append(known.Partitions, p)
			} else {
				missing.Partitions = append(missing.Partitions, p)
			}
		}
		if len(known.Partitions) > 0 {
			taken = append(taken, known)
		}
		if len(missing.Partitions) > 0 {
			unknown = append(unknown, missing)
		}
	}
	req.Topics = taken
	finish := func(resp *kmsg.TxnOffsetCommitResponse) {
		addTxnCommitted(resp, unknown, kerr.UnknownTopicOrPartition.Code)
		r.reply(resp)
	}
	if len(taken) == 0 {
		finish(kmsg.NewPtrTxnOffsetCommitResponse())
		return
	}
	fail := func(err error) {
		resp := kmsg.NewPtrTxnOffsetCommitResponse()
		addTxnCommitted(resp, taken, commitErrorCode(err))
		finish(resp)
	}
	b.groups.Do(req.Group, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		m.TxnOffsetCommit(req, now, fx, func(resp *kmsg.TxnOffsetCommitResponse, err error) {
			if err != nil {
				fail(err)
				return
			}
			finish(resp)
		})
	}, fail)
}

// addTxnCommitted adds the answer to all partitions of the topics.
func addTxnCommitted(resp *kmsg.TxnOffsetCommitResponse, topics []kmsg.TxnOffsetCommitRequestTopic, code int16) {
	for _, t := range topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}
