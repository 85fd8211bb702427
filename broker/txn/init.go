package txn

import (
	"errors"
	"math"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrNeedProducerID asks to call again with a fresh producer id. Nothing was changed.
var ErrNeedProducerID = errors.New("the operation needs a fresh producer id")

// Fresh is a producer id that nobody has used, for operations that may need one; NoFresh: they ask for it first.
type Fresh int64

// NoFresh stands for no fresh producer id.
const NoFresh Fresh = -1

// Producer is a producer id with its epoch, as a producer knows itself.
type Producer struct {
	ID    int64
	Epoch int16
}

// noProducer stands for none.
var noProducer = Producer{noProducerID, noEpoch}

// InitRequest is InitProducerId for a transactional id.
type InitRequest struct {
	ID        string
	TimeoutMs int32
	// Expected is what the producer believes to be, ID -1 for one that begins.
	Expected Producer
	Fresh    Fresh
}

// InitProducerID gives the owner of a transactional id its producer id and epoch, and thereby fences all former owners. An
// open transaction is aborted first: the request is answered CONCURRENT_TRANSACTIONS then, and to be repeated.
func (m *Machine) InitProducerID(req InitRequest, now time.Time, fx *coordinator.Effects, reply func(Producer, error)) {
	if err := m.initProducerID(req, now, fx, reply); err != nil {
		fx.Then(func(failed error) { reply(noProducer, firstOf(failed, err)) })
	}
}

// initProducerID appends the new state and sees to the answer, or returns why there is none.
func (m *Machine) initProducerID(req InitRequest, now time.Time, fx *coordinator.Effects, reply func(Producer, error)) error {
	switch {
	case req.ID == "":
		return kerr.InvalidRequest
	case req.TimeoutMs <= 0 || req.TimeoutMs > m.timeoutMax():
		return kerr.InvalidTransactionTimeout
	}
	t, known := m.ids[req.ID]
	if !known {
		return m.introduce(req, now, fx, reply)
	}
	if t.State.prepared() {
		return kerr.ConcurrentTransactions
	}
	if req.Expected.ID != noProducerID && !t.recognizes(req.Expected) {
		return kerr.ProducerFenced
	}
	if t.State == Ongoing {
		fenced := t.fenced(m.cfg.Level(), nowMs(now, &t))
		m.end(req.ID, &fenced, fx)
		return kerr.ConcurrentTransactions
	}
	id, epoch, last, err := t.next(req)
	if err != nil {
		return err
	}
	next := t.initialized(id, epoch, last, req.TimeoutMs, nowMs(now, &t))
	if repeated := id == t.ProducerID && epoch == t.Epoch; !repeated || t.State != Empty || t.TimeoutMs != req.TimeoutMs {
		m.append(req.ID, &next, fx)
	} // else nothing is new, and the producer before stays known
	fx.Then(func(err error) { reply(Producer{id, epoch}, err) })
	return nil
}

// introduce begins a transactional id that is not known.
func (m *Machine) introduce(req InitRequest, now time.Time, fx *coordinator.Effects, reply func(Producer, error)) error {
	if req.Fresh == NoFresh {
		return ErrNeedProducerID
	}
	none := Transaction{ProducerID: int64(req.Fresh)}
	next := none.initialized(int64(req.Fresh), 0, noEpoch, req.TimeoutMs, now.UnixMilli())
	m.append(req.ID, &next, fx)
	fx.Then(func(err error) { reply(Producer{int64(req.Fresh), 0}, err) })
	return nil
}

// recognizes reports whether p is the current producer, whatever its epoch, or the one before, whose epochs were used up: a
// request repeated because its answer was lost.
func (t *Transaction) recognizes(p Producer) bool {
	return p.ID == t.ProducerID || p.ID == t.PreviousProducerID && p.Epoch >= epochMax
}

// next is the producer id and epoch that InitProducerId tells, and the epoch before by which a repeated request is
// recognized.
func (t *Transaction) next(req InitRequest) (id int64, epoch, last int16, err error) {
	e := req.Expected
	switch {
	case t.exhausted() && (e.ID == noProducerID || e.Epoch == t.Epoch):
		if req.Fresh == NoFresh {
			return 0, 0, 0, ErrNeedProducerID
		}
		last = noEpoch
		if e.ID != noProducerID {
			last = t.Epoch
		}
		return int64(req.Fresh), 0, last, nil
	case e.ID == noProducerID:
		return t.ProducerID, t.bumped(), noEpoch, nil
	case e.Epoch == t.Epoch:
		return t.ProducerID, t.bumped(), t.Epoch, nil
	case e.Epoch == t.LastEpoch:
		return t.ProducerID, t.Epoch, t.LastEpoch, nil
	}
	return 0, 0, 0, kerr.ProducerFenced
}

// bumped is the next epoch of the current producer id.
func (t *Transaction) bumped() int16 {
	if t.Epoch == math.MaxInt16 {
		panic("BUG: no epoch after 32767")
	}
	return t.Epoch + 1
}
