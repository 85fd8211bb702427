package broker

import (
	"context"
	"fmt"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"
	"cairn/engine/producer"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleTxnOffsetCommit adds offsets of partitions that exist to a transaction, once its coordinator knows of it.
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
	v, err := b.verifyOffsets(r, req)
	if err != nil {
		fail(err)
		return
	}
	gone := func(err error) { v.end(); fail(err) }
	b.groups.Do(req.Group, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		err := v.check()
		if v.end(); err != nil {
			fx.Then(func(error) { fail(err) })
			return
		}
		m.TxnOffsetCommit(req, now, fx, func(resp *kmsg.TxnOffsetCommitResponse, err error) {
			if err != nil {
				fail(err)
				return
			}
			finish(resp)
		})
	}, gone)
}

const (
	// offsetsAddPartition is the first version of TxnOffsetCommit whose clients rely on the group's coordinator to add the partition of
	// __consumer_offsets to the transaction (KIP-890): transaction.version 2.
	offsetsAddPartition = 5
	// offsetsAbortable is the first version whose clients know TRANSACTION_ABORTABLE.
	offsetsAbortable = 4
)

// offsetsVerification is a verification of the transaction of a TxnOffsetCommit. nil: it is not to be verified.
type offsetsVerification struct {
	p          *partition
	reign      *reign
	producerID int64
	epoch      int16
	guard      *verification // nil: the transaction was open there
}

// verifyOffsets asks the transaction's coordinator about the group's partition of __consumer_offsets, unless the transaction is open there. It
// waits for the answer, and with it the connection, as Produce does. What is wrong with the partition is found by who appends.
func (b *Broker) verifyOffsets(r *request, req *kmsg.TxnOffsetCommitRequest) (*offsetsVerification, error) {
	add := req.Version >= offsetsAddPartition
	if !add && b.dynamicValue("transaction.partition.verification.enable") != "true" {
		return nil, nil
	}
	index := coordinator.PartitionOf(req.Group, b.groups.Partitions())
	p, err := b.replicas.lookup(offsetsTopic, index)
	if err != nil {
		return nil, nil
	}
	reign := p.serving()
	if reign == nil {
		return nil, nil
	}
	v := &offsetsVerification{p: p, reign: reign, producerID: req.ProducerID, epoch: req.ProducerEpoch}
	v.guard = p.seq.beginVerification(reign, producer.Batch{ProducerID: v.producerID, Epoch: v.epoch, BaseSequence: -1})
	if v.guard == nil {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(r.conn.context, txnQuestionWithin)
	defer cancel()
	errs := b.askCoordinator(ctx, txnVerification{
		transactionalID: req.TransactionalID, producerID: v.producerID, producerEpoch: v.epoch, add: add,
		partitions: []topicPartition{{offsetsTopic, index}},
	})
	if err := offsetsVerdict(errs[0], req.Version); err != nil {
		v.end()
		return nil, err
	}
	return v, nil
}

// check is called in the group's turn, where no marker can come between it and the append. An error: the transaction has ended
// since its coordinator was asked.
func (v *offsetsVerification) check() error {
	if v == nil || v.p.seq.verified(v.reign, v.producerID, v.epoch, v.guard) {
		return nil
	}
	if v.p.serving() != v.reign {
		return coordinator.ErrNotCoordinator
	}
	return fmt.Errorf("%w: the offsets of producer %d epoch %d belong to no transaction that is open", producer.ErrInvalidTxnState, v.producerID, v.epoch)
}

func (v *offsetsVerification) end() {
	if v != nil && v.guard != nil {
		v.p.seq.endVerification(v.producerID, v.guard)
	}
}

// offsetsVerdict is what clients of the version are told when the transaction's coordinator answers with err. Where that is on its way they
// ask again, here: the coordinator of their group is the right one.
func offsetsVerdict(err error, version int16) error {
	switch errorCode(err) {
	case kerr.NetworkException.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.RequestTimedOut.Code:
		return &verdictError{kerr.CoordinatorLoadInProgress, err}
	case kerr.ProducerFenced.Code:
		return &verdictError{kerr.InvalidProducerEpoch, err}
	case kerr.TransactionAbortable.Code:
		if version < offsetsAbortable {
			return &verdictError{kerr.InvalidTxnState, err}
		}
	}
	return err
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
