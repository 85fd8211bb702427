package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// produceAddsPartitions is the first produce version whose transactional clients rely on the broker to add the partition to the
	// transaction (KIP-890): transaction.version 2.
	produceAddsPartitions = 12
	// produceAbortable is the first produce version whose clients know TRANSACTION_ABORTABLE.
	produceAbortable = 11

	// A transaction whose predecessor is still being ended is asked about again, every so often and for so long, as in Kafka.
	concurrentTxnBackoff = 20 * time.Millisecond
	concurrentTxnMax     = 100 * time.Millisecond
)

var (
	errProducerIDMapping = errors.New("transactional batches of more than one producer id")
	errNoTxnCoordinator  = errors.New("the transaction coordinator does not run here yet")
)

// txnVerification asks the coordinator of a transaction about partitions in which it is about to begin.
type txnVerification struct {
	transactionalID string
	producerID      int64
	producerEpoch   int16
	add             bool // add the partitions to the transaction; else only see that they are in it
	partitions      []topicPartition
}

// verdict is what a produce request knows of one of its partitions when it comes to append.
type verdict struct {
	guard *verification // nil: the transaction is open there, or need not be verified
	err   error
	// reign is the one that the verification was begun in, for a transactional batch: it counts in no other. nil: nobody led here then.
	transactional bool
	reign         *reign
}

// countsIn reports whether the verdict holds in the reign r. A batch that came while nobody led here was not asked about: by the time it would be
// appended another reign may be open, in which it would be refused for good although a repetition of it is welcome.
func (v *verdict) countsIn(r *reign) bool { return !v.transactional || v.reign == r }

// transactional are the slots that have transactional batches. errProducerIDMapping when these are of more than one producer.
func (op *produceOp) transactional() (slots []int, err error) {
	var b producer.Batch
	slot := -1
	for i := range op.req.Topics {
		for j := range op.req.Topics[i].Partitions {
			slot++
			raw := op.req.Topics[i].Partitions[j].Records
			if len(raw) < batch.HeaderLen {
				continue
			}
			h := batch.DecodeHeader(raw)
			if !h.IsTransactional() {
				continue
			}
			if len(slots) > 0 && (h.ProducerID != b.ProducerID || h.ProducerEpoch != b.Epoch) {
				return nil, errProducerIDMapping
			}
			b = producerBatch(&h)
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// verify asks the transaction's coordinator about the partitions in which the request would begin it. It waits for the answer, and
// with it the connection: what follows on it may go on with the same transaction.
func (op *produceOp) verify(deadline time.Time) error {
	if op.req.TransactionID == nil {
		return nil
	}
	slots, err := op.transactional()
	if err != nil || len(slots) == 0 {
		return err
	}
	add := op.req.Version >= produceAddsPartitions
	if !add && op.b.dynamicValue("transaction.partition.verification.enable") != "true" {
		op.unverified = true
		return nil
	}
	op.verdicts = make([]verdict, len(op.slots))
	v := txnVerification{transactionalID: *op.req.TransactionID, add: add}
	var asked []int
	slot := -1
	for i := range op.req.Topics {
		t := &op.req.Topics[i]
		topic, err := produceTopic(op.b.images.Image(), op.req.Version, t)
		for j := range t.Partitions {
			if slot++; len(slots) == 0 || slots[0] != slot {
				continue
			}
			slots = slots[1:]
			op.verdicts[slot].transactional = true
			if err == nil && op.beginVerification(topic.Name, slot, t.Partitions[j].Records, &v) {
				asked = append(asked, slot)
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(op.r.conn.context, deadline)
	defer cancel()
	for i, err := range op.b.askCoordinator(ctx, v) {
		op.verdicts[asked[i]].err = produceVerdict(err, op.req.Version)
	}
	return nil
}

// beginVerification reports whether the coordinator is to be asked about a slot, which is then added to v. What is wrong with the
// partition itself is found later, in its turn.
func (op *produceOp) beginVerification(topic string, slot int, raw []byte, v *txnVerification) bool {
	index := op.slots[slot].index
	p, err := op.b.replicas.lookup(topic, index)
	if err != nil {
		return false
	}
	r := p.serving()
	if r == nil {
		return false
	}
	op.verdicts[slot].reign = r
	h := batch.DecodeHeader(raw)
	b := producerBatch(&h)
	guard := p.seq.beginVerification(r, b)
	if guard == nil {
		return false
	}
	op.verdicts[slot].guard = guard
	op.guarded = append(op.guarded, guardedProducer{p.seq, b.ProducerID, guard})
	v.producerID, v.producerEpoch = b.ProducerID, b.Epoch
	v.partitions = append(v.partitions, topicPartition{topic, index})
	return true
}

// guardedProducer is a verification that a request has begun and has to end.
type guardedProducer struct {
	seq        *sequencer
	producerID int64
	guard      *verification
}

func (op *produceOp) endVerifications() {
	for _, g := range op.guarded {
		g.seq.endVerification(g.producerID, g.guard)
	}
	op.guarded = nil
}

// askCoordinator has one error per partition of v. While the coordinator still ends the producer's transaction before, it is asked
// again for a moment.
func (b *Broker) askCoordinator(ctx context.Context, v txnVerification) []error {
	if b.verifyTxn == nil {
		return repeatError(errNoTxnCoordinator, len(v.partitions))
	}
	errs := b.verifyTxn(ctx, v)
	if !v.add {
		return errs
	}
	for end := clock.Now().Add(concurrentTxnMax); anyConcurrent(errs) && clock.Now().Before(end); {
		timer := time.NewTimer(concurrentTxnBackoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errs
		}
		errs = b.verifyTxn(ctx, v)
	}
	return errs
}

func repeatError(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func anyConcurrent(errs []error) bool {
	for _, err := range errs {
		if errorCode(err) == kerr.ConcurrentTransactions.Code {
			return true
		}
	}
	return false
}

// produceVerdict is what a produce request of the version is told when the coordinator answers with err: only what its clients know, and what
// they try again on when the coordinator is on its way.
func produceVerdict(err error, version int16) error {
	told := func(as *kerr.Error) error { return &verdictError{as, err} }
	switch errorCode(err) {
	case 0:
		return nil
	case kerr.NetworkException.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code,
		kerr.RequestTimedOut.Code:
		return told(kerr.NotEnoughReplicas)
	case kerr.ConcurrentTransactions.Code:
		if version < produceAddsPartitions {
			return told(kerr.NotEnoughReplicas)
		}
	case kerr.ProducerFenced.Code:
		return told(kerr.InvalidProducerEpoch)
	case kerr.TransactionAbortable.Code:
		if version < produceAbortable {
			return told(kerr.InvalidTxnState)
		}
	}
	return err
}

// verdictError has the code that a client is told, and the text of why.
type verdictError struct {
	told *kerr.Error
	why  error
}

func (e *verdictError) Error() string {
	return fmt.Sprintf("the transaction cannot be verified: %v", e.why)
}

// Unwrap is the code.
func (e *verdictError) Unwrap() error { return e.told }
