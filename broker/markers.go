package broker

import (
	"sync"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// markerQueue bounds the markers that wait for a worker, markerWorkers how many are proposed at a time: that may wait for room in
	// the queue of a partition's group.
	markerQueue   = 8192
	markerWorkers = 8
)

// markerJob is one marker for one partition.
type markerJob struct {
	topic     string
	partition int32
	marker    marker
	done      func(error)
}

// markerWriter appends the markers of transaction coordinators, this broker's own and others', to partitions led here.
type markerWriter struct {
	find    func(topic string, partition int32) (*partition, error)
	timeout time.Duration
	jobs    chan markerJob
	running sync.WaitGroup

	mu     sync.RWMutex
	closed bool // guarded by mu; nothing is put into jobs any more
}

func newMarkerWriter(find func(string, int32) (*partition, error), timeout time.Duration) *markerWriter {
	w := &markerWriter{find: find, timeout: timeout, jobs: make(chan markerJob, markerQueue)}
	for range markerWorkers {
		w.running.Go(func() {
			for j := range w.jobs {
				w.append(j)
			}
		})
	}
	return w
}

// close appends what is queued and ends the workers.
func (w *markerWriter) close() {
	w.mu.Lock()
	w.closed = true
	close(w.jobs)
	w.mu.Unlock()
	w.running.Wait()
}

// write queues a marker; done hears once what became of it. It does not block: when the queue is full that is errRequestTimedOut, upon which a
// coordinator tries again.
func (w *markerWriter) write(j markerJob) {
	w.mu.RLock()
	queued := false
	if !w.closed {
		select {
		case w.jobs <- j:
			queued = true
		default:
		}
	}
	w.mu.RUnlock()
	if !queued {
		j.done(errRequestTimedOut)
	}
}

func (w *markerWriter) append(j markerJob) {
	if plantedMarker(j) {
		return
	}
	p, err := w.find(j.topic, j.partition)
	if err == nil {
		r := p.serving()
		if r == nil {
			err = errNotLeader
		} else {
			err = p.appendMarker(r, j.marker, w.timeout, j.done)
		}
	}
	if err != nil {
		j.done(err)
	}
}

// writeMarker appends a marker to a partition led here, with acks=all. It does not block; done hears once what became of it. Markers for the
// offsets of groups go through the group coordinator, which keeps what they end.
func (b *Broker) writeMarker(topic string, partition int32, m marker, done func(error)) {
	if topic != offsetsTopic {
		b.markers.write(markerJob{topic, partition, m, done})
		return
	}
	b.groups.WriteMarker(partition, coordinator.Marker{
		ProducerID: m.producerID, ProducerEpoch: m.producerEpoch, Commit: m.commit,
		CoordinatorEpoch: m.coordinatorEpoch, TransactionVersion: m.version,
	}, done)
}

// markersOp is one WriteTxnMarkers request until all its markers are settled.
type markersOp struct {
	r    *request
	resp *kmsg.WriteTxnMarkersResponse

	mu      sync.Mutex
	pending int // guarded by mu, as the error codes in resp; one more while the handler is at work
}

// handleWriteTxnMarkers answers WriteTxnMarkers, versions 1 and 2: each marker goes to each of its partitions, and the request is
// answered when all are in the log with acks=all, or refused.
func handleWriteTxnMarkers(b *Broker, r *request) {
	req := r.msg.(*kmsg.WriteTxnMarkersRequest)
	n := 0
	for i := range req.Markers {
		for j := range req.Markers[i].Topics {
			n += len(req.Markers[i].Topics[j].Partitions)
		}
	}
	if refuseTooMany(r, n) {
		return
	}
	op := &markersOp{r: r, resp: kmsg.NewPtrWriteTxnMarkersResponse(), pending: n + 1}
	op.resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		op.submit(b, &req.Markers[i], &op.resp.Markers[i])
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
			p.Partition = partition
			b.writeMarker(t.Topic, partition, m, func(err error) { op.settle(p, err) })
		}
	}
}

// settle notes one partition's outcome, and answers after the last one.
func (op *markersOp) settle(p *kmsg.WriteTxnMarkersResponseMarkerTopicPartition, err error) {
	op.mu.Lock()
	if p != nil {
		p.ErrorCode = errorCode(err)
	}
	op.pending--
	last := op.pending == 0
	op.mu.Unlock()
	if last {
		op.r.reply(op.resp)
	}
}

// topicPartition names a partition as clients do.
type topicPartition struct {
	topic     string
	partition int32
}
