package broker

import (
	"sync"
	"time"

	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchLeaderHints is the first fetch version that tells who leads instead (KIP-951).
	fetchLeaderHints = 16
	// fetchStorageErrors is the first fetch version whose clients know KAFKA_STORAGE_ERROR.
	fetchStorageErrors = 6

	isolationReadCommitted = 1
)

// fetchPart is one partition of a fetch: what is wanted and what the last look at it gave.
type fetchPart struct {
	fetchWant
	watch
	partition *partition // nil: not served here
	reign     *reign
	awaits    *watchList // of the partition: for the high watermark or the last stable offset
	answer    wire.FetchPartition
	bytes     int
}

// fetchOp is one fetch request until it is answered. One goroutine at a time works on it: the connection's reader
// first, and after each wake-up a worker of the purgatory. parts belong to that goroutine.
type fetchOp struct {
	b        *Broker
	r        *request
	req      *kmsg.FetchRequest
	plan     fetchPlan
	deadline time.Time
	alarm
	entered bool // the alarm is set; belongs to the working goroutine

	parts []fetchPart

	mu     sync.Mutex
	parked bool // guarded by mu; nobody works on it, the next event starts a worker
	again  bool // guarded by mu; something happened since the last look
	final  bool // guarded by mu; the deadline has passed: answer with what there is
}

// handleFetch answers Fetch from the partitions' logs, at once when there is enough or something to tell, else when
// enough has come or max wait has passed.
func handleFetch(b *Broker, r *request) {
	req := r.msg.(*kmsg.FetchRequest)
	if refuseTooMany(r, fetchedPartitions(req)) {
		return
	}
	plan, err := b.fetchSessions.plan(req, r.arrived)
	if err != nil {
		r.replyBuffers(wire.EncodeFetchResponse(r.hdr, &wire.FetchResponse{ErrorCode: errorCode(err)}))
		return
	}
	op := &fetchOp{b: b, r: r, req: req, plan: plan, parts: make([]fetchPart, len(plan.wants))}
	op.deadline = r.arrived.Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond)
	for i := range op.parts {
		part := &op.parts[i]
		part.fetchWant = plan.wants[i]
		part.watch.op, part.watch.slot = op, i
	}
	op.plan.wants = nil
	r.releaseFrame()
	op.run()
}

// run looks at the logs until the fetch is answered or parked.
func (op *fetchOp) run() {
	for {
		op.mu.Lock()
		op.again = false
		final := op.final
		op.mu.Unlock()
		if op.read() || final || op.r.conn.closed.Load() || !op.park() {
			op.answer()
			return
		}
		op.mu.Lock()
		if !op.again && !op.final {
			op.parked = true
			op.mu.Unlock()
			return
		}
		op.mu.Unlock()
		op.unwatch()
	}
}

// read looks at every partition and reports whether that is to be answered at once.
func (op *fetchOp) read() (complete bool) {
	reader := fetchReader{op: op, img: op.b.images.Image(), left: int(min(op.req.MaxBytes, op.b.fetchMaxBytes))}
	reader.readAll(op.parts)
	return reader.urgent || len(op.parts) == 0 || reader.total >= int(op.req.MinBytes) || op.req.MaxWaitMillis <= 0
}

// park sets the alarm and watches every partition. False: the fetch cannot wait and is answered as it is.
func (op *fetchOp) park() bool {
	if !op.entered {
		if op.entered = op.b.purgatory.enter(&op.alarm, op, op.deadline); !op.entered {
			return false
		}
	}
	for i := range op.parts {
		part := &op.parts[i]
		if part.partition == nil {
			continue
		}
		if part.awaits.add(&part.watch, part.reign) != watchParked {
			op.mu.Lock()
			op.again = true
			op.mu.Unlock()
			return true
		}
	}
	return true
}

func (op *fetchOp) unwatch() {
	for i := range op.parts {
		if part := &op.parts[i]; part.partition != nil {
			part.awaits.remove(&part.watch)
		}
	}
}

// outlivesReign implements parked: a consumer asks again.
func (op *fetchOp) outlivesReign() bool { return false }

// woken implements parked.
func (op *fetchOp) woken(*watch, wakeCause) { op.trigger(false) }

// expired implements parked.
func (op *fetchOp) expired() { op.trigger(true) }

// trigger has somebody look again: a worker, or whoever is at work already.
func (op *fetchOp) trigger(final bool) {
	op.mu.Lock()
	op.again = true
	op.final = op.final || final
	start := op.parked
	op.parked = false
	op.mu.Unlock()
	if start {
		op.b.purgatory.submit(op.resume)
	}
}

func (op *fetchOp) resume() {
	op.unwatch()
	op.run()
}

// answer sends the response. Events that still come find the operation not parked and change nothing.
func (op *fetchOp) answer() {
	op.b.purgatory.leave(&op.alarm)
	op.unwatch()
	resp := wire.FetchResponse{SessionID: op.plan.sessionID(), Topics: make([]wire.FetchTopic, 0, 1)}
	hints := leaderHints{b: op.b, listener: op.r.listenerName()}
	for i := range op.parts {
		part := &op.parts[i]
		if !op.plan.answers(part.fetchKey, &part.answer) {
			continue
		}
		op.adapt(&part.answer, part.fetchKey, &hints)
		t := lastTopic(&resp, part)
		t.Partitions = append(t.Partitions, part.answer)
	}
	resp.NodeEndpoints = hints.endpoints
	op.r.replyBuffers(wire.EncodeFetchResponse(op.r.hdr, &resp))
}

// adapt brings an answer into the form that the request's version knows.
func (op *fetchOp) adapt(a *wire.FetchPartition, k fetchKey, hints *leaderHints) {
	switch a.ErrorCode {
	case kerr.KafkaStorageError.Code:
		if op.req.Version < fetchStorageErrors {
			a.ErrorCode = kerr.NotLeaderForPartition.Code
		}
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code:
		if op.req.Version >= fetchLeaderHints {
			a.CurrentLeaderID, a.CurrentLeaderEpoch = hints.leaderOf(hints.partition(k.topic, k.id, k.index))
		}
	}
}

// lastTopic is the response's topic that the part belongs to: the last one, or a new one behind it.
func lastTopic(resp *wire.FetchResponse, part *fetchPart) *wire.FetchTopic {
	if n := len(resp.Topics); n > 0 && resp.Topics[n-1].Topic == part.topic && resp.Topics[n-1].TopicID == part.id {
		return &resp.Topics[n-1]
	}
	resp.Topics = append(resp.Topics, wire.FetchTopic{Topic: part.topic, TopicID: part.id})
	return &resp.Topics[len(resp.Topics)-1]
}
