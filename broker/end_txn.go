package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// endTxnFenced is the first version whose clients know PRODUCER_FENCED.
	endTxnFenced = 2
	// endTxnNextEpoch is the first version whose answer tells the epoch to go on with: transaction.version 2.
	endTxnNextEpoch = 5
)

// handleEndTxn answers EndTxn as soon as the outcome is committed; the markers follow.
func handleEndTxn(b *Broker, r *request) {
	req := r.msg.(*kmsg.EndTxnRequest)
	end := txn.EndRequest{ID: req.TransactionalID, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, Commit: req.Commit}
	if req.Version >= endTxnNextEpoch {
		end.ClientVersion = txn.Version2
	}
	b.withProducerID(func(fresh txn.Fresh, reply func(txn.Producer, error)) {
		end := end
		end.Fresh = fresh
		b.txns.Do(end.ID,
			func(m *txn.Machine, now time.Time, fx *coordinator.Effects) { m.EndTxn(end, now, fx, reply) },
			func(err error) { reply(txn.Producer{}, err) })
	}, func(p txn.Producer, err error) {
		resp := kmsg.NewPtrEndTxnResponse()
		resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
		if err != nil {
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = txnErrorCode(err, req.Version >= endTxnFenced), -1, -1
		}
		r.reply(resp)
	})
}
