package broker

import (
	"errors"
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// listTransactionsDuration and listTransactionsPattern are the first versions with these filters.
	listTransactionsDuration = 1
	listTransactionsPattern  = 2
	// transactionPatternMax bounds a pattern, which is as long as it needs to be to name one.
	transactionPatternMax = 1 << 15
)

// listTransactionsOp is a ListTransactions request until all partitions have been asked.
type listTransactionsOp struct {
	r    *request
	resp *kmsg.ListTransactionsResponse

	mu      sync.Mutex
	pending int // guarded by mu, as resp
}

// handleListTransactions answers ListTransactions: what is coordinated here and passes the filters.
func handleListTransactions(b *Broker, r *request) {
	req := r.msg.(*kmsg.ListTransactionsRequest)
	n := int(b.txns.Partitions())
	op := &listTransactionsOp{r: r, resp: kmsg.NewPtrListTransactionsResponse(), pending: n + 1}
	filter, err := op.filter(req)
	if err != nil {
		op.resp.ErrorCode = errorCode(err)
		r.reply(op.resp)
		return
	}
	for p := range int32(n) {
		b.txns.DoPartition(p,
			func(m *txn.Machine, now time.Time, fx *coordinator.Effects) { m.List(filter, now, fx, op.add) },
			func(err error) { op.add(nil, err) })
	}
	op.add(nil, nil)
}

// filter makes the machine's filter of the request's. States that are none are told, and leave others to filter by.
func (op *listTransactionsOp) filter(req *kmsg.ListTransactionsRequest) (txn.Filter, error) {
	f := txn.Filter{OpenMs: -1}
	if len(req.ProducerIDFilters) > 0 {
		f.ProducerIDs = map[int64]struct{}{}
		for _, id := range req.ProducerIDFilters {
			f.ProducerIDs[id] = struct{}{}
		}
	}
	if len(req.StateFilters) > 0 {
		f.States = map[txn.State]struct{}{}
		for _, name := range req.StateFilters {
			if s, ok := txn.ParseState(name); ok {
				f.States[s] = struct{}{}
			} else {
				op.resp.UnknownStateFilters = append(op.resp.UnknownStateFilters, name)
			}
		}
	}
	if req.Version >= listTransactionsDuration {
		f.OpenMs = req.DurationFilterMillis
	}
	if req.Version >= listTransactionsPattern && req.TransactionalIDPattern != nil {
		if len(*req.TransactionalIDPattern) > transactionPatternMax {
			return f, kerr.InvalidRegularExpression
		}
		var err error
		if f.Pattern, err = txn.CompilePattern(*req.TransactionalIDPattern); err != nil {
			return f, kerr.InvalidRegularExpression
		}
	}
	return f, nil
}

// add takes what one partition has, and answers after the last one. Partitions that others coordinate have nothing; one that
// is loading makes the list wrong, and is told.
func (op *listTransactionsOp) add(list []txn.Listing, err error) {
	op.mu.Lock()
	if err != nil && !errors.Is(err, coordinator.ErrNotCoordinator) {
		op.resp.ErrorCode = txnErrorCode(err, true)
	}
	for _, l := range list {
		s := kmsg.NewListTransactionsResponseTransactionState()
		s.TransactionalID, s.ProducerID, s.TransactionState = l.ID, l.ProducerID, l.State.String()
		op.resp.TransactionStates = append(op.resp.TransactionStates, s)
	}
	op.pending--
	last := op.pending == 0
	if last && op.resp.ErrorCode != 0 {
		op.resp.TransactionStates = nil
	}
	op.mu.Unlock()
	if last {
		op.r.reply(op.resp)
	}
}
