package broker

import (
	"errors"
	"fmt"

	"cairn/broker/txn"
	"cairn/engine/producer"
	"cairn/internal/ids"
)

// A transaction may begin in a partition only when its coordinator knows of the partition: what it does not know of it never ends. So
// the coordinator is asked before the first batch. While it answers, the transaction may end: its marker comes, finds nothing, and a
// batch behind it would be left open for ever. So the sequencer keeps a verification while the question is under way, which a
// marker takes away, and lets the batch in only with the one that is still there (KIP-890).

// verification is a question to a transaction's coordinator that is under way, or answered well. Requests of the same producer share it.
type verification struct {
	epoch  int16
	lowest int32 // of the base sequences of the requests that share it: one of them begins the transaction
	users  int
}

// beginVerification is called for a transactional batch before its transaction's coordinator is asked; endVerification follows. nil: it need
// not be asked, as the transaction is open here already, or as this is not the leader any more.
func (s *sequencer) beginVerification(r *reign, b producer.Batch) *verification {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign != r {
		return nil
	}
	if e, known := s.entryLocked(b.ProducerID); known && isOpen(&e, b.Epoch) {
		return nil
	}
	v := s.verifying[b.ProducerID]
	if v == nil || v.epoch < b.Epoch {
		v = &verification{epoch: b.Epoch, lowest: b.BaseSequence}
		s.verifying[b.ProducerID] = v
	}
	v.lowest = min(v.lowest, b.BaseSequence)
	v.users++
	return v
}

// endVerification gives the verification back: the request's batch has been submitted, or will not be.
func (s *sequencer) endVerification(producerID int64, v *verification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.users--; v.users == 0 && s.verifying[producerID] == v {
		delete(s.verifying, producerID)
	}
}

// verified reports whether a batch of the producer's transaction may be appended in the reign: the transaction is open here, or the
// verification still stands. It counts while nobody else appends, as in a turn of the partition's coordinator.
func (s *sequencer) verified(r *reign, producerID int64, epoch int16, v *verification) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign != r {
		return false
	}
	if e, known := s.entryLocked(producerID); known && isOpen(&e, epoch) {
		return true
	}
	return v != nil && s.verifying[producerID] == v && v.epoch == epoch
}

// entryLocked is a producer's state with its batches in flight.
func (s *sequencer) entryLocked(id int64) (producer.Entry, bool) {
	if spec := s.speculative[id]; spec != nil {
		return spec.entry, true
	}
	return s.saved(id)
}

// isOpen reports whether a transaction of the epoch is open.
func isOpen(e *producer.Entry, epoch int16) bool {
	return e.TxnFirstOffset != ids.NoOffset && e.Epoch == epoch
}

// checkGuardLocked sees that a client's transactional batch goes on with an open transaction, or begins one that its coordinator knows of. err
// is what is wrong with the batch otherwise: a fenced epoch says more.
func (s *sequencer) checkGuardLocked(state *producer.Entry, sub *submission, err error) error {
	b := &sub.batch
	if !b.Transactional || b.Control || sub.own || state != nil && isOpen(state, b.Epoch) || errors.Is(err, producer.ErrInvalidProducerEpoch) {
		return err
	}
	if sub.guard == nil || s.verifying[b.ProducerID] != sub.guard || sub.guard.epoch != b.Epoch {
		return fmt.Errorf("%w: the batch of producer %d epoch %d belongs to no transaction that is open", producer.ErrInvalidTxnState, b.ProducerID, b.Epoch)
	}
	if err == nil && b.BaseSequence > sub.guard.lowest {
		return fmt.Errorf("%w: producer %d epoch %d sent sequence %d, %d is still to come", producer.ErrOutOfOrderSequence, b.ProducerID, b.Epoch, b.BaseSequence, sub.guard.lowest)
	}
	return err
}

// overtakeLocked takes away the verification that a batch in the log has overtaken. A marker that raises the epoch leaves that of
// the producer's next transaction: it goes on with the marker's own epoch, and may have begun before the marker came.
func (s *sequencer) overtakeLocked(b *producer.Batch) {
	v := s.verifying[b.ProducerID]
	if v == nil || b.Control && b.TransactionVersion >= txn.Version2 && v.epoch >= b.Epoch {
		return
	}
	delete(s.verifying, b.ProducerID)
}
