package txn

import (
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// EndRequest is EndTxn.
type EndRequest struct {
	ID       string
	Producer Producer
	Commit   bool
	// ClientVersion is Version2 for requests whose answer tells the next epoch, else Version0.
	ClientVersion int16
	Fresh         Fresh
}

// EndTxn commits or aborts the open transaction. It is answered as soon as the outcome is committed, before the partitions
// have their markers, with the producer id and epoch to go on with.
func (m *Machine) EndTxn(req EndRequest, now time.Time, fx *coordinator.Effects, reply func(Producer, error)) {
	t, known := m.ids[req.ID]
	next, err := endState(&t, known, req, now)
	goesOn := Producer{t.ProducerID, t.Epoch}
	if err == nil && next != nil {
		m.end(req.ID, next, fx)
		done := next.completed(next.UpdateMs)
		goesOn = Producer{done.ProducerID, done.Epoch}
	}
	fx.Then(func(failed error) {
		if err := firstOf(failed, err); err != nil {
			reply(noProducer, err)
			return
		}
		reply(goesOn, nil)
	})
}

// endState is the prepared state that the request leads to; nil without an error: it did already.
func endState(t *Transaction, known bool, req EndRequest, now time.Time) (*Transaction, error) {
	switch {
	case req.ID == "":
		return nil, kerr.InvalidRequest
	case !known:
		return nil, kerr.InvalidProducerIDMapping
	case t.State.prepared():
		return nil, kerr.ConcurrentTransactions
	case req.ClientVersion >= Version2:
		return endState2(t, req, now)
	}
	return endState0(t, req, now)
}

// endState0 is endState for producers whose epoch stays.
func endState0(t *Transaction, req EndRequest, now time.Time) (*Transaction, error) {
	switch {
	case t.ProducerID != req.Producer.ID:
		return nil, kerr.InvalidProducerIDMapping
	case t.Epoch != req.Producer.Epoch:
		return nil, kerr.ProducerFenced
	case t.State == Ongoing:
		next := t.prepared(req.outcome(), Version0, noProducerID, nowMs(now, t))
		return &next, nil
	case t.State == req.completion():
		return nil, nil
	}
	return nil, kerr.InvalidTxnState
}

// endState2 is endState for producers whose epoch grows with each end (KIP-890). A request is a repeated one when it has
// the epoch, or the used-up producer id, before the present.
func endState2(t *Transaction, req EndRequest, now time.Time) (*Transaction, error) {
	p := req.Producer
	rotated := p.ID == t.PreviousProducerID && p.Epoch == epochMax && t.Epoch == 0
	raised := t.Epoch == p.Epoch+1
	repeated := t.State.complete() && (raised || rotated)
	switch {
	case t.ProducerID != p.ID && !rotated:
		return nil, kerr.InvalidProducerIDMapping
	case t.Epoch != p.Epoch && !repeated:
		return nil, kerr.ProducerFenced
	case repeated && t.State == req.completion():
		return nil, nil
	case repeated, t.State != Ongoing && req.Commit:
		return nil, kerr.InvalidTxnState
	}
	nextID := noProducerID
	if t.exhausted() {
		if req.Fresh == NoFresh {
			return nil, ErrNeedProducerID
		}
		nextID = int64(req.Fresh)
	}
	next := t.prepared(req.outcome(), Version2, nextID, nowMs(now, t))
	return &next, nil
}

func (r *EndRequest) outcome() State {
	if r.Commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func (r *EndRequest) completion() State {
	if r.Commit {
		return CompleteCommit
	}
	return CompleteAbort
}
