package broker

import (
	"encoding/binary"
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/clock"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// markersWaitTag is a tagged field of WriteTxnMarkers requests that brokers of cairn set: an int32, big-endian, of milliseconds after which the
// answer is wanted, with REQUEST_TIMED_OUT for markers that are still under way. Without it they are waited for.
const markersWaitTag = 10_000

// setMarkersWait puts the tagged field into a request.
func setMarkersWait(req *kmsg.WriteTxnMarkersRequest, wait time.Duration) {
	req.UnknownTags.Set(markersWaitTag, binary.BigEndian.AppendUint32(nil, uint32(wait.Milliseconds())))
}

// markersWait reads the tagged field; 0: there is none.
func markersWait(req *kmsg.WriteTxnMarkersRequest) (wait time.Duration) {
	req.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == markersWaitTag && len(value) == 4 {
			wait = time.Duration(int32(binary.BigEndian.Uint32(value))) * time.Millisecond
		}
	})
	return max(wait, 0)
}

// appendMarkerHere is an appendMarkerFunc for the partitions that are led here.
func (b *Broker) appendMarkerHere(to markerTarget, room, timeout time.Duration, done func(error)) error {
	p, err := b.replicas.lookup(to.topic, to.partition)
	if err != nil {
		return err
	}
	r := p.serving()
	if r == nil || r.epoch != to.reign {
		return errNotLeader
	}
	return p.appendMarker(r, to.marker, room, timeout, done)
}

// writeMarker appends a marker to a partition led here, with acks=all. It does not block; done hears once what became of it. Markers for the
// offsets of groups go through the group coordinator, which keeps what they end.
func (b *Broker) writeMarker(topic string, partition int32, m marker, done func(error)) {
	if topic != offsetsTopic {
		p, err := b.replicas.lookup(topic, partition)
		if err != nil {
			done(err)
			return
		}
		r := p.serving()
		if r == nil {
			done(errNotLeader)
			return
		}
		b.markers.write(markerTarget{topicPartition{topic, partition}, r.epoch, m}, done)
		return
	}
	b.groups.WriteMarker(partition, coordinator.Marker{
		ProducerID: m.producerID, ProducerEpoch: m.producerEpoch, Commit: m.commit,
		CoordinatorEpoch: m.coordinatorEpoch, TransactionVersion: m.version,
	}, done)
}

// markersOp is one WriteTxnMarkers request until all its markers are settled, or its sender will not wait any longer.
type markersOp struct {
	alarm
	r       *request
	resp    *kmsg.WriteTxnMarkersResponse
	waiting *purgatory

	mu      sync.Mutex
	pending int  // guarded by mu, as the error codes in resp; one more while the handler is at work
	replied bool // guarded by mu
}

// handleWriteTxnMarkers answers WriteTxnMarkers, versions 1 and 2: each marker goes to each of its partitions, and the request is
// answered when all are in the log with acks=all, or refused, or after as long as its tagged field says.
func handleWriteTxnMarkers(b *Broker, r *request) {
	req := r.msg.(*kmsg.WriteTxnMarkersRequest)
	n, named := 0, len(req.Markers)
	for i := range req.Markers {
		named += len(req.Markers[i].Topics)
		for j := range req.Markers[i].Topics {
			n += len(req.Markers[i].Topics[j].Partitions)
		}
	}
	if refuseTooMany(r, n+named) {
		return
	}
	op := &markersOp{r: r, resp: kmsg.NewPtrWriteTxnMarkersResponse(), waiting: b.purgatory, pending: n + 1}
	op.resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		op.submit(b, &req.Markers[i], &op.resp.Markers[i])
	}
	if wait := markersWait(req); wait > 0 {
		// Without a place for the alarm the answer waits as it does for others.
		b.purgatory.enter(&op.alarm, op, clock.Now().Add(wait))
	}
	op.settle(nil, nil)
}

// submit queues one marker for all its partitions.
func (op *markersOp) submit(b *Broker, asked *kmsg.WriteTxnMarkersRequestMarker, answer *kmsg.WriteTxnMarkersResponseMarker) {
	m := marker{
		producerID: asked.ProducerID, producerEpoch: asked.ProducerEpoch, commit: asked.Committed,
		coordinatorEpoch: asked.CoordinatorEpoch, version: int16(asked.TransactionVersion),
	}
	answer.ProducerID = asked.ProducerID
	answer.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(asked.Topics))
	for i := range asked.Topics {
		t := &answer.Topics[i]
		t.Topic = asked.Topics[i].Topic
		t.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(asked.Topics[i].Partitions))
		for j, partition := range asked.Topics[i].Partitions {
			p := &t.Partitions[j]
			p.Partition, p.ErrorCode = partition, kerr.RequestTimedOut.Code // until it is settled
			b.writeMarker(t.Topic, partition, m, func(err error) { op.settle(p, err) })
		}
	}
}

// settle notes one partition's outcome, and answers after the last one.
func (op *markersOp) settle(p *kmsg.WriteTxnMarkersResponseMarkerTopicPartition, err error) {
	op.mu.Lock()
	if p != nil && !op.replied {
		p.ErrorCode = errorCode(err)
	}
	op.pending--
	last := op.pending == 0
	op.mu.Unlock()
	if last {
		op.answer()
	}
}

func (op *markersOp) answer() {
	op.mu.Lock()
	first := !op.replied
	op.replied = true
	op.mu.Unlock()
	if first {
		op.waiting.leave(&op.alarm)
		op.r.reply(op.resp)
	}
}

// expired implements parked: what is not settled stays REQUEST_TIMED_OUT.
func (op *markersOp) expired() { op.answer() }

// woken implements parked; it watches no offset.
func (op *markersOp) woken(*watch, wakeCause) {}

// outlivesReign implements parked.
func (op *markersOp) outlivesReign() bool { return false }

// topicPartition names a partition as clients do.
type topicPartition struct {
	topic     string
	partition int32
}
