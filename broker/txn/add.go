package txn

import (
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// AddRequest adds partitions to a transaction, or asks whether they are part of it.
type AddRequest struct {
	ID         string
	Producer   Producer
	Partitions []Partition
	// ClientVersion is Version2 for what brokers add while they append, Version0 for what clients add themselves.
	ClientVersion int16
}

// AddPartitions adds partitions to the transaction, which begins with the first of them.
func (m *Machine) AddPartitions(req AddRequest, now time.Time, fx *coordinator.Effects, reply func(error)) {
	t, err := m.owned(req.ID, req.Producer, true)
	if err == nil && !(t.State == Ongoing && t.contains(req.Partitions)) {
		next := t.withPartitions(req.Partitions, req.ClientVersion, nowMs(now, &t))
		m.append(req.ID, &next, fx)
	}
	fx.Then(func(failed error) { reply(firstOf(failed, err)) })
}

// VerifyPartitions tells which partitions take part in the producer's open transaction: nil each, or TRANSACTION_ABORTABLE.
// err is set instead when the producer has none.
func (m *Machine) VerifyPartitions(req AddRequest, fx *coordinator.Effects, reply func(found []error, err error)) {
	t, err := m.owned(req.ID, req.Producer, false)
	found := make([]error, len(req.Partitions))
	for i, p := range req.Partitions {
		if !t.has(p) {
			found[i] = kerr.TransactionAbortable
		}
	}
	fx.Then(func(failed error) {
		if err := firstOf(failed, err); err != nil {
			reply(nil, err)
			return
		}
		reply(found, nil)
	})
}

// owned returns the transaction of a producer that owns its transactional id and may add to it. waitFirst: a prepared
// transaction is CONCURRENT_TRANSACTIONS whoever asks, since its producer may know already what comes after it.
func (m *Machine) owned(id string, p Producer, waitFirst bool) (Transaction, error) {
	if id == "" {
		return Transaction{}, kerr.InvalidRequest
	}
	t, known := m.ids[id]
	switch {
	case !known:
		return t, kerr.InvalidProducerIDMapping
	case waitFirst && t.State.prepared():
		return t, kerr.ConcurrentTransactions
	case t.ProducerID != p.ID:
		return t, kerr.InvalidProducerIDMapping
	case t.Epoch != p.Epoch:
		return t, kerr.ProducerFenced
	case t.State.prepared():
		return t, kerr.ConcurrentTransactions
	}
	return t, nil
}

// firstOf is the first error that is not nil.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
