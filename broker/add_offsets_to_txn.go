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
	topic := b.ensureInternalTopic(r.conn.context, offsetsTopic) // clients ask for the group's coordinator after this
	if topic == nil {
		reply(coordinator.ErrUnavailable)
		return
	}
	add := txn.AddRequest{
		ID: req.TransactionalID, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Partitions: []txn.Partition{{Topic: offsetsTopic, Index: coordinator.PartitionOf(req.Group, int32(len(topic.Partitions)))}},
	}
	b.txns.Do(add.ID,
		func(m *txn.Machine, now time.Time, fx *coordinator.Effects) { m.AddPartitions(add, now, fx, reply) },
		reply)
}
