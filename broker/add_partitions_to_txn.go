package broker

import (
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// addPartitionsFenced is the first version whose senders know PRODUCER_FENCED.
	addPartitionsFenced = 2
	// addPartitionsBatched is the first version that brokers send, for several transactions.
	addPartitionsBatched = 4
)

// addition is one transaction of an AddPartitionsToTxn request, with a code for each partition.
type addition struct {
	txn.AddRequest
	verifyOnly bool
	codes      []int16
}

// addOp is an AddPartitionsToTxn request until the coordinator has decided about all its transactions.
type addOp struct {
	b         *Broker
	r         *request
	version   int16
	additions []addition

	mu      sync.Mutex
	pending int // guarded by mu
}

// handleAddPartitionsToTxn answers AddPartitionsToTxn: of clients for one transaction, and of brokers for several, which
// they add partitions to or verify.
func handleAddPartitionsToTxn(b *Broker, r *request) {
	req := r.msg.(*kmsg.AddPartitionsToTxnRequest)
	if refuseTooMany(r, namedInAddition(req)) {
		return
	}
	op := &addOp{b: b, r: r, version: req.Version, additions: additionsOf(req)}
	op.pending = len(op.additions) + 1
	img := b.images.Image()
	for i := range op.additions {
		if a := &op.additions[i]; a.checkPartitions(img) {
			op.submit(a)
		} else {
			op.settle()
		}
	}
	op.settle()
}

// namedInAddition counts what the request names, partitions as well as transactions and topics that may have none: each costs something here.
func namedInAddition(req *kmsg.AddPartitionsToTxnRequest) int {
	n := len(req.Topics) + len(req.Transactions)
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	for i := range req.Transactions {
		n += len(req.Transactions[i].Topics)
		for j := range req.Transactions[i].Topics {
			n += len(req.Transactions[i].Topics[j].Partitions)
		}
	}
	return n
}

// additionsOf takes the request apart.
func additionsOf(req *kmsg.AddPartitionsToTxnRequest) []addition {
	if req.Version < addPartitionsBatched {
		a := addition{AddRequest: txn.AddRequest{ID: req.TransactionalID, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}}}
		for _, t := range req.Topics {
			a.add(t.Topic, t.Partitions)
		}
		return []addition{a}
	}
	list := make([]addition, len(req.Transactions))
	for i, t := range req.Transactions {
		a := &list[i]
		a.ID, a.Producer, a.ClientVersion = t.TransactionalID, txn.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}, txn.Version2
		a.verifyOnly = t.VerifyOnly
		for _, topic := range t.Topics {
			a.add(topic.Topic, topic.Partitions)
		}
	}
	return list
}

func (a *addition) add(topic string, partitions []int32) {
	for _, p := range partitions {
		a.Partitions = append(a.Partitions, txn.Partition{Topic: topic, Index: p})
		a.codes = append(a.codes, 0)
	}
}

// checkPartitions reports whether all partitions exist. If one does not, none is added.
func (a *addition) checkPartitions(img *controller.Image) bool {
	all := true
	for i, p := range a.Partitions {
		if _, ok := img.Partition(p.Topic, p.Index); !ok {
			a.codes[i], all = kerr.UnknownTopicOrPartition.Code, false
		}
	}
	for i := range a.codes {
		if !all && a.codes[i] == 0 {
			a.codes[i] = kerr.OperationNotAttempted.Code
		}
	}
	return all
}

// submit has the coordinator decide.
func (op *addOp) submit(a *addition) {
	done := func(found []error, err error) {
		for i := range a.codes {
			if a.codes[i] = txnErrorCode(err, op.version >= addPartitionsFenced); err == nil && found != nil {
				a.codes[i] = errorCode(found[i])
			}
		}
		op.settle()
	}
	op.b.txns.Do(a.ID, func(m *txn.Machine, now time.Time, fx *coordinator.Effects) {
		if a.verifyOnly {
			m.VerifyPartitions(a.AddRequest, fx, done)
			return
		}
		m.AddPartitions(a.AddRequest, now, fx, func(err error) { done(nil, err) })
	}, func(err error) { done(nil, err) })
}

// settle counts what is decided, and answers in the end.
func (op *addOp) settle() {
	op.mu.Lock()
	op.pending--
	last := op.pending == 0
	op.mu.Unlock()
	if last {
		op.r.reply(op.response())
	}
}

func (op *addOp) response() *kmsg.AddPartitionsToTxnResponse {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	if op.version < addPartitionsBatched {
		a := &op.additions[0]
		for i, p := range a.Partitions {
			if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != p.Topic {
				resp.Topics = append(resp.Topics, kmsg.AddPartitionsToTxnResponseTopic{Topic: p.Topic})
			}
			t := &resp.Topics[len(resp.Topics)-1]
			t.Partitions = append(t.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p.Index, ErrorCode: a.codes[i]})
		}
		return resp
	}
	for i := range op.additions {
		resp.Transactions = append(resp.Transactions, op.additions[i].response())
	}
	return resp
}

func (a *addition) response() kmsg.AddPartitionsToTxnResponseTransaction {
	resp := kmsg.NewAddPartitionsToTxnResponseTransaction()
	resp.TransactionalID = a.ID
	for i, p := range a.Partitions {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != p.Topic {
			resp.Topics = append(resp.Topics, kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: p.Topic})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p.Index, ErrorCode: a.codes[i]})
	}
	return resp
}
