package broker

import (
	"fmt"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/txn"
	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	acksNone   = 0
	acksLeader = 1
	acksAll    = -1

	// produceTopicIDs is the first produce version that names topics by id alone.
	produceTopicIDs = 13

	// minReplicationWait and minLocalWait are the least time a request gets for acks=all, and for acks 0 and 1.
	minReplicationWait = 50 * time.Millisecond
	minLocalWait       = time.Second
)

// produceSlot is one partition of a produce request. index, partition and reign do not change once the slot is
// submitted; the rest is guarded by produceOp.mu.
type produceSlot struct {
	watch
	partition *partition
	reign     *reign
	index     int32 // partition number, as asked
	settled   bool

	code         int16
	message      string
	recordErrors []batch.RecordError
	base         ids.Offset
	appendTime   int64
	logStart     ids.Offset
}

// produceOp is one produce request until it is answered. It is answered once: when all its partitions are settled, or
// at its deadline, whichever comes first.
type produceOp struct {
	b    *Broker
	r    *request
	req  *kmsg.ProduceRequest
	acks int16
	alarm

	// Of a transactional request, and the handler's alone: what its coordinator says of each slot, nil where nothing was asked; what to give
	// back; and whether verification is switched off.
	verdicts   []verdict
	guarded    []guardedProducer
	unverified bool

	mu      sync.Mutex
	slots   []produceSlot // guarded by mu, see produceSlot
	pending int           // guarded by mu; unsettled slots, plus one while the handler is still submitting
	done    bool          // guarded by mu
}

// handleProduce answers Produce: every partition is checked, sequenced and proposed in the order of the request, and
// the request then waits, as an object, for the saves (acks=1) or the high watermark (acks=all).
func handleProduce(b *Broker, r *request) {
	req := r.msg.(*kmsg.ProduceRequest)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if refuseTooMany(r, n) {
		return
	}
	op := newProduceOp(b, r, req, n)
	deadline := produceDeadline(r.arrived, req)
	switch {
	case req.TransactionID == nil && hasTransactional(req):
		op.refuse(errTransactionalID)
	case !b.purgatory.enter(&op.alarm, op, deadline):
		op.refuse(fmt.Errorf("%w: too many requests wait", errProposeTimeout))
	default:
		if err := op.verify(deadline); err != nil {
			op.refuse(err)
			return
		}
		op.submitAll(deadline)
		op.endVerifications()
	}
}

// produceDeadline is when a request is answered at the latest. Kafka appends before it looks at the time, so even a
// timeout of 0 leaves time for that; and it does not let local appends (acks 0 and 1) time out.
func produceDeadline(arrived time.Time, req *kmsg.ProduceRequest) time.Time {
	floor := minReplicationWait
	if req.Acks != acksAll {
		floor = minLocalWait
	}
	return arrived.Add(max(floor, time.Duration(req.TimeoutMillis)*time.Millisecond))
}

func newProduceOp(b *Broker, r *request, req *kmsg.ProduceRequest, n int) *produceOp {
	op := &produceOp{b: b, r: r, req: req, acks: req.Acks, slots: make([]produceSlot, n), pending: n + 1}
	slot := 0
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			s := &op.slots[slot]
			s.index, s.base, s.appendTime, s.logStart = req.Topics[i].Partitions[j].Partition, ids.NoOffset, -1, ids.NoOffset
			s.watch.op, s.watch.slot = op, slot
			slot++
		}
	}
	return op
}

// submitAll appends the batches one after another, and completes the request as far as that is up to the handler.
func (op *produceOp) submitAll(deadline time.Time) {
	img := op.b.images.Image()
	slot := 0
	for i := range op.req.Topics {
		t := &op.req.Topics[i]
		topic, topicErr := produceTopic(img, op.req.Version, t)
		for j := range t.Partitions {
			err := topicErr
			if err == nil {
				err = op.submit(topic, slot, t.Partitions[j].Records, deadline)
			}
			if err != nil {
				op.fail(slot, err)
			}
			t.Partitions[j].Records = nil
			slot++
		}
	}
	op.r.releaseFrame()
	op.release()
}

// produceTopic finds the topic of a request, by id from version 13 on.
func produceTopic(img *controller.Image, version int16, t *kmsg.ProduceRequestTopic) (*controller.Topic, error) {
	if version >= produceTopicIDs {
		if topic := img.TopicsByID[ids.UUID(t.TopicID)]; topic != nil {
			return topic, nil
		}
		return nil, errUnknownTopicID
	}
	if topic := img.Topics[t.Topic]; topic != nil {
		return topic, nil
	}
	return nil, errUnknownPartition
}

// submit checks one partition's batch in Kafka's order and proposes it. A nil error means that the slot is settled or
// will be by the sequencer.
func (op *produceOp) submit(topic *controller.Topic, slot int, raw []byte, deadline time.Time) error {
	s := &op.slots[slot]
	if s.index < 0 || int(s.index) >= len(topic.Partitions) {
		return errUnknownPartition
	}
	if err := op.precheck(topic, raw); err != nil {
		return err
	}
	if op.verdicts != nil && op.verdicts[slot].err != nil {
		return op.verdicts[slot].err
	}
	p, err := op.b.replicas.lookupID(topic.ID, s.index)
	if err != nil {
		return err
	}
	r := p.serving()
	if r == nil || op.verdicts != nil && !op.verdicts[slot].countsIn(r) {
		return errNotLeader
	}
	if !op.admit(s, p, r) {
		return nil
	}
	if err := p.checkAppend(r, op.acks == acksAll); err != nil {
		return err
	}
	if err := p.owner.checkRoom(topic.Internal); err != nil {
		return err
	}
	return op.append(slot, raw, deadline)
}

// admit notes where a slot's batch goes. False: its time is over, and nothing may be appended any more.
func (op *produceOp) admit(s *produceSlot, p *partition, r *reign) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	s.partition, s.reign = p, r
	return !s.settled
}

// append validates the batch, gives it its place and hands it to Raft, which copies it.
func (op *produceOp) append(slot int, raw []byte, deadline time.Time) error {
	s := &op.slots[slot]
	rules := s.partition.settings.Load().rules
	rules.NowMs = clock.Now().UnixMilli()
	res, err := batch.Validate(raw, rules)
	op.mu.Lock()
	s.recordErrors, s.appendTime = res.RecordErrors, res.LogAppendTime
	op.mu.Unlock()
	if err != nil {
		return err
	}
	ctx := &deadlineContext{Context: s.reign.ctx, deadline: deadline}
	defer ctx.stop()
	sub := submission{data: res.Batch, kind: engine.KindData, waiter: op, slot: slot, batch: producerBatch(&res.Header), own: op.unverified}
	if sub.batch.Transactional && op.req.Version >= produceAddsPartitions {
		sub.batch.TransactionVersion = txn.Version2
	}
	if op.verdicts != nil {
		sub.guard = op.verdicts[slot].guard
	}
	dup, isDup, err := plantedSubmit(ctx, s.partition.seq, s.reign, sub)
	if isDup {
		op.appended(slot, dup.BaseOffset, dup.LastOffset+1, dup.Timestamp)
	}
	return err
}

// producerBatch is what the producer check needs of a batch; its offsets are not known yet.
func producerBatch(h *batch.Header) producer.Batch {
	return producer.Batch{
		ProducerID: h.ProducerID, Epoch: h.ProducerEpoch, BaseSequence: h.BaseSequence, Count: h.RecordCount,
		BaseOffset: ids.NoOffset, LastOffset: ids.NoOffset, Timestamp: h.MaxTimestamp,
		Transactional: h.IsTransactional(), Control: h.IsControl(),
	}
}

// appended implements appendWaiter: acks=1 is settled, acks=all goes on to wait for the high watermark.
func (op *produceOp) appended(slot int, base, next ids.Offset, duplicateOf int64) {
	op.mu.Lock()
	s := &op.slots[slot]
	if op.done || s.settled {
		op.mu.Unlock()
		return
	}
	s.base = base
	if duplicateOf != noDuplicate {
		s.appendTime = duplicateOf
	}
	s.threshold = next
	if op.acks != acksAll {
		op.settleAppendedLocked(s, true)
		op.finish()
		return
	}
	added := s.partition.watches.add(&s.watch, s.reign)
	if added != watchParked {
		op.settleAppendedLocked(s, added == watchReached)
	}
	op.finish()
}

// dropped implements appendWaiter.
func (op *produceOp) dropped(slot int) { op.fail(slot, op.lost(slot)) }

// outlivesReign implements parked: the batch is in the log with which the next generation begins.
func (op *produceOp) outlivesReign() bool { return true }

// woken implements parked: the high watermark has passed the batch, or leadership is lost.
func (op *produceOp) woken(w *watch, cause wakeCause) {
	op.mu.Lock()
	if s := &op.slots[w.slot]; !op.done && !s.settled {
		if w.heir != nil {
			s.partition, s.reign = w.heir, w.heirReign
		}
		op.settleAppendedLocked(s, cause == wakeReached)
	}
	op.finish()
}

// settleAppendedLocked decides once the wait is over: reached says that the batch is saved, and for acks=all that the high
// watermark has passed it. The lease, and for acks=all the ISR, are looked at again: only an answer that would hold after
// any failover is a success.
func (op *produceOp) settleAppendedLocked(s *produceSlot, reached bool) {
	if !reached {
		op.settleLocked(s, op.lost(s.slot))
		return
	}
	done, err := s.partition.settle(s.reign, s.threshold, op.acks == acksAll)
	if !done {
		err = fmt.Errorf("%w: offset %d is not there yet", errNotLeader, s.threshold)
	}
	op.settleLocked(s, err)
}

// lost says why a slot's batch has no leader here any more: another replica leads, or there is no such topic.
func (op *produceOp) lost(slot int) error {
	if op.b.images.Image().TopicsByID[op.slots[slot].partition.topicID] == nil {
		return errUnknownPartition
	}
	return errNotLeader
}

// fail settles a slot with an error.
func (op *produceOp) fail(slot int, err error) {
	op.mu.Lock()
	if s := &op.slots[slot]; !op.done && !s.settled {
		op.settleLocked(s, err)
	}
	op.finish()
}

// refuse answers the whole request with one error.
func (op *produceOp) refuse(err error) {
	for slot := range op.slots {
		op.fail(slot, err)
	}
	op.r.releaseFrame()
	op.release()
}

// expired implements parked: what is not settled by the deadline is answered as timed out.
func (op *produceOp) expired() {
	op.mu.Lock()
	var parked []*produceSlot
	for i := range op.slots {
		if s := &op.slots[i]; !op.done && !s.settled {
			op.settleLocked(s, errRequestTimedOut)
			if s.partition != nil {
				parked = append(parked, s)
			}
		}
	}
	op.finish()
	for _, s := range parked {
		s.partition.watches.remove(&s.watch)
	}
}

// release ends the handler's part: from here on the request may complete.
func (op *produceOp) release() {
	op.mu.Lock()
	op.pending--
	op.finish()
}

// settleLocked gives a slot its result. The log start goes with success and with errors of the append itself.
func (op *produceOp) settleLocked(s *produceSlot, err error) {
	s.settled = true
	op.pending--
	s.code = errorCode(err)
	if err != nil {
		s.base, s.appendTime = ids.NoOffset, -1
		s.message = err.Error()
	}
	if s.partition != nil && tellsLogStart(s.code) {
		s.logStart = s.partition.log().Start()
	}
}

// tellsLogStart reports whether an answer with this code carries the log start offset.
func tellsLogStart(code int16) bool {
	switch code {
	case kerr.CorruptMessage.Code, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code,
		kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code, kerr.KafkaStorageError.Code, kerr.UnknownTopicID.Code:
		return false
	}
	return true
}

// finish unlocks op.mu and answers the request when everything is settled. With acks=0 too that is after the save, so
// that an error can still close the connection in time.
func (op *produceOp) finish() {
	complete := !op.done && op.pending == 0
	if complete {
		op.done = true
	}
	op.mu.Unlock()
	if !complete {
		return
	}
	op.b.purgatory.leave(&op.alarm)
	op.b.replicas.throttle.spare.answered(time.Since(op.r.arrived))
	if op.acks == acksNone {
		op.endSilently()
		return
	}
	op.r.reply(op.response())
}
