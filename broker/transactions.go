package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/txn"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionVersion is the cluster's level of transaction.version.
func (b *Broker) transactionVersion() int16 {
	return b.images.Image().Feature(controller.TransactionVersion)
}

// newTxnMachine makes the machine of a partition of __transaction_state. What it decides about the end of transactions goes to
// the markers' sender.
func (b *Broker) newTxnMachine(partition int32) *txn.Machine {
	return txn.New(txn.Config{
		Level:      b.transactionVersion,
		MaxTimeout: b.cfg.TxnMaxTimeout, Expiration: b.cfg.TxnExpiration, AbortInterval: b.cfg.TxnAbortInterval, ExpireInterval: b.cfg.TxnExpireInterval,
		Send:     func(ms txn.Markers) { b.markerSender.send(partition, ms) },
		Resigned: func() { b.markerSender.drop(partition) },
	})
}

const (
	// markersAnswerWithin is how long another broker has for a WriteTxnMarkers request, which asks for an answer sooner than that;
	// txnQuestionWithin is for AddPartitionsToTxn.
	markersAnswerWithin = 10 * time.Second
	txnQuestionWithin   = 5 * time.Second
)

// startTransactions starts what writes markers and asks coordinators.
func (b *Broker) startTransactions(dial func(ctx context.Context, node ids.NodeID) (net.Conn, error)) {
	name := fmt.Sprintf("broker-%d-", b.nodeID)
	b.markerConns = &brokerConns{dial: dial, clientID: name + "markers", within: markersAnswerWithin}
	b.slowMarkerConns = &brokerConns{dial: dial, clientID: name + "slow-markers", within: markersAnswerWithin}
	b.coordinatorConns = &brokerConns{dial: dial, clientID: name + "transactions", within: txnQuestionWithin}
	b.verifyTxn = b.verifyTransaction
	b.markerSender = newMarkerSender(markerSenderConfig{
		Leader: b.leaderOf, Self: b.nodeID, Report: b.reportMarkers, Log: b.log.Named("markers"),
		Write: func(p txn.Partition, ms *txn.Markers, done func(error)) {
			b.writeMarker(p.Topic, p.Index, marker{
				producerID: ms.Producer.ID, producerEpoch: ms.Producer.Epoch, commit: ms.Commit,
				coordinatorEpoch: ms.CoordinatorEpoch, version: ms.Version,
			}, done)
		},
		Request: func(ctx context.Context, lane markerLaneKey, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
			conns := b.markerConns
			if lane.slow {
				conns = b.slowMarkerConns
			}
			resp, err := conns.request(ctx, lane.node, req)
			if err != nil {
				return nil, err
			}
			return resp.(*kmsg.WriteTxnMarkersResponse), nil
		},
	})
}

// verifyTransaction asks the coordinator about partitions in which a transaction is about to begin; see Broker.verifyTxn.
func (b *Broker) verifyTransaction(ctx context.Context, v txnVerification) []error {
	q := txnQuestion{id: v.transactionalID, producer: txn.Producer{ID: v.producerID, Epoch: v.producerEpoch}, add: v.add}
	for _, p := range v.partitions {
		q.partitions = append(q.partitions, txn.Partition{Topic: p.topic, Index: p.partition})
	}
	return b.askTxnCoordinator(ctx, q)
}

// stopTransactions ends what startTransactions started. Partitions and coordinators are stopped before.
func (b *Broker) stopTransactions() {
	if b.markerSender == nil {
		return
	}
	b.markerSender.close()
	b.markerConns.close()
	b.slowMarkerConns.close()
	b.coordinatorConns.close()
}

// leaderOf returns who leads a partition, NoNode for now nobody.
func (b *Broker) leaderOf(p txn.Partition) (node ids.NodeID, exists bool) {
	img := b.images.Image()
	state, ok := img.Partition(p.Topic, p.Index)
	if !ok {
		return ids.NoNode, false
	}
	return img.Leader(state), true
}

// withProducerID runs try without a fresh producer id, and if that needs one, once more with it.
func (b *Broker) withProducerID(try func(fresh txn.Fresh, reply func(txn.Producer, error)), reply func(txn.Producer, error)) {
	try(txn.NoFresh, func(p txn.Producer, err error) {
		if !errors.Is(err, txn.ErrNeedProducerID) {
			reply(p, err)
			return
		}
		b.producerIDs.next(func(id int64, err error) {
			if err != nil {
				reply(txn.Producer{}, err)
				return
			}
			try(txn.Fresh(id), reply)
		})
	})
}

// reportMarkers tells the coordinator of a transaction which partitions have the marker; see txn.Machine.MarkersWritten.
func (b *Broker) reportMarkers(partition int32, ms txn.Markers, written []txn.Partition, reply func(error)) {
	b.txns.DoPartition(partition,
		func(m *txn.Machine, now time.Time, fx *coordinator.Effects) {
			m.MarkersWritten(ms, written, now, fx, reply)
		},
		reply)
}

// txnErrorCode is errorCode for answers of the transaction coordinator. Its clients ask the coordinator again when it is not
// available, and give up on most else; of a fenced producer older ones know INVALID_PRODUCER_EPOCH only.
func txnErrorCode(err error, knowsFenced bool) int16 {
	switch {
	case errors.Is(err, coordinator.ErrTimeout):
		return kerr.CoordinatorNotAvailable.Code
	case errors.Is(err, coordinator.ErrTooLarge):
		return kerr.UnknownServerError.Code
	case !knowsFenced && errors.Is(err, kerr.ProducerFenced):
		return kerr.InvalidProducerEpoch.Code
	}
	return errorCode(err)
}
