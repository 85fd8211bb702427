package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// addOffsetsFenced is the first version whose clients know PRODUCER_FENCED.
const addOffsetsFenced = 2

// handleAddOffsetsToTxn answers AddOffsetsToTxn: the partition that holds the offsets of a group takes part in the
// transaction.
func handleAddOffsetsToTxn(b *Broker, r *request) {
	req := r.msg.(*kmsg.AddOffsetsToTxnRequest)
	reply := func(err error) {
		resp := kmsg.NewPtrAddOffsetsToTxnResponse()
		resp.ErrorCode = txnErrorCode(err, req.Version >= addOffsetsFenced)
		r.reply(resp)
	}
	n := b.partitionsOf(offsetsTopic)
	if n == 0 { // who asks where the group's coordinator is has it made
		reply(coordinator.ErrUnavailable)
		return
	}
	add := txn.AddRequest{
		ID: req.TransactionalID, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Partitions: []txn.Partition{{Topic: offsetsTopic, Index: coordinator.PartitionOf(req.Group, n)}},
	}
	b.txns.Do(add.ID,
		func(m *txn.Machine, now time.Time, fx *coordinator.Effects) { m.AddPartitions(add, now, fx, reply) },
		reply)
}
