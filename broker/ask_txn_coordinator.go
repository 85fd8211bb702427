package broker

import (
	"context"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// txnQuestion asks the coordinator of a transaction to add partitions to it, or whether they are part of it.
type txnQuestion struct {
	id         string
	producer   txn.Producer
	partitions []txn.Partition
	add        bool
}

// askTxnCoordinator asks, wherever the coordinator is, and waits for the answer no longer than ctx: one error for each
// partition, as the coordinator says it; nil: it takes part in the transaction.
func (b *Broker) askTxnCoordinator(ctx context.Context, q txnQuestion) []error {
	img := b.images.Image()
	p, ok := img.Partition(transactionsTopic, coordinator.PartitionOf(q.id, b.txns.Partitions()))
	switch {
	case !ok:
		return q.all(coordinator.ErrUnavailable)
	case img.Leader(p) == ids.NoNode:
		return q.all(coordinator.ErrUnavailable)
	case img.Leader(p) == b.nodeID:
		return b.askTxnMachine(ctx, q)
	}
	resp, err := b.coordinatorConns.request(ctx, img.Leader(p), q.request())
	if err != nil {
		b.noise.warn(b.log, "no answer from the coordinator of a transaction", zap.Int32("broker", int32(img.Leader(p))), zap.Error(err))
		return q.all(coordinator.ErrUnavailable)
	}
	return q.answer(resp.(*kmsg.AddPartitionsToTxnResponse))
}

// all is the same error for all partitions.
func (q *txnQuestion) all(err error) []error {
	errs := make([]error, len(q.partitions))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// askTxnMachine asks the coordinator here.
func (b *Broker) askTxnMachine(ctx context.Context, q txnQuestion) []error {
	answer := make(chan []error, 1)
	done := func(found []error, err error) {
		if err != nil || found == nil {
			found = q.all(err)
		}
		answer <- found
	}
	req := txn.AddRequest{ID: q.id, Producer: q.producer, Partitions: q.partitions, ClientVersion: txn.Version2}
	b.txns.Do(q.id, func(m *txn.Machine, now time.Time, fx *coordinator.Effects) {
		if q.add {
			m.AddPartitions(req, now, fx, func(err error) { done(nil, err) })
			return
		}
		m.VerifyPartitions(req, fx, done)
	}, func(err error) { done(nil, err) })
	select {
	case errs := <-answer:
		return errs
	case <-ctx.Done():
		return q.all(coordinator.ErrTimeout)
	}
}

// request is the question as brokers send it.
func (q *txnQuestion) request() *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.SetVersion(5)
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = q.id, q.producer.ID, q.producer.Epoch, !q.add
	for _, p := range q.partitions {
		if n := len(t.Topics); n == 0 || t.Topics[n-1].Topic != p.Topic {
			t.Topics = append(t.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: p.Topic})
		}
		topic := &t.Topics[len(t.Topics)-1]
		topic.Partitions = append(topic.Partitions, p.Index)
	}
	req.Transactions = append(req.Transactions, t)
	return req
}

// answer takes an answer apart. What is not answered is an error.
func (q *txnQuestion) answer(resp *kmsg.AddPartitionsToTxnResponse) []error {
	codes := map[txn.Partition]int16{}
	for _, t := range resp.Transactions {
		for _, topic := range t.Topics {
			for _, p := range topic.Partitions {
				codes[txn.Partition{Topic: topic.Topic, Index: p.Partition}] = p.ErrorCode
			}
		}
	}
	errs := make([]error, len(q.partitions))
	for i, p := range q.partitions {
		code, ok := codes[p]
		switch {
		case resp.ErrorCode != 0:
			errs[i] = kerr.ErrorForCode(resp.ErrorCode)
		case !ok:
			errs[i] = coordinator.ErrUnavailable
		default:
			errs[i] = kerr.ErrorForCode(code)
		}
	}
	return errs
}
