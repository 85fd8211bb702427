package broker

import (
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeOp is a DescribeTransactions request until all its transactional ids are answered.
type describeOp struct {
	r    *request
	resp *kmsg.DescribeTransactionsResponse

	mu      sync.Mutex
	pending int // guarded by mu
}

// handleDescribeTransactions answers DescribeTransactions for the transactional ids coordinated here.
func handleDescribeTransactions(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeTransactionsRequest)
	if refuseTooMany(r, len(req.TransactionalIDs)) {
		return
	}
	op := &describeOp{r: r, resp: kmsg.NewPtrDescribeTransactionsResponse(), pending: len(req.TransactionalIDs) + 1}
	op.resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, len(req.TransactionalIDs))
	for i, id := range req.TransactionalIDs {
		s := &op.resp.TransactionStates[i]
		*s = kmsg.NewDescribeTransactionsResponseTransactionState()
		s.TransactionalID = id
		done := func(d txn.Description, err error) {
			if s.ErrorCode = txnErrorCode(err, true); err == nil {
				describeTransaction(s, d)
			}
			op.settle()
		}
		b.txns.Do(id,
			func(m *txn.Machine, _ time.Time, fx *coordinator.Effects) { m.Describe(id, fx, done) },
			func(err error) { done(txn.Description{}, err) })
	}
	op.settle()
}

func (op *describeOp) settle() {
	op.mu.Lock()
	op.pending--
	last := op.pending == 0
	op.mu.Unlock()
	if last {
		op.r.reply(op.resp)
	}
}

func describeTransaction(s *kmsg.DescribeTransactionsResponseTransactionState, d txn.Description) {
	s.State, s.TimeoutMillis, s.StartTimestamp = d.State.String(), d.TimeoutMs, d.StartMs
	s.ProducerID, s.ProducerEpoch = d.ProducerID, d.Epoch
	for _, p := range d.Partitions {
		if n := len(s.Topics); n == 0 || s.Topics[n-1].Topic != p.Topic {
			s.Topics = append(s.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: p.Topic})
		}
		t := &s.Topics[len(s.Topics)-1]
		t.Partitions = append(t.Partitions, p.Index)
	}
}
