package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// markerTasksMax bounds the transactions whose markers are being written. Their machine sends what found no room again.
	markerTasksMax = 1 << 16
	// markersPerRequest bounds one WriteTxnMarkers request.
	markersPerRequest = 1000
	// markerBackoff is the wait before a marker is tried again that had no leader to go to, or was refused for now.
	markerBackoff = 50 * time.Millisecond
	// markersWithin is how long a broker may take for markers until it is to say which are still under way, markersPatience how long for
	// those of partitions that took too long before.
	markersWithin   = 500 * time.Millisecond
	markersPatience = 2 * time.Second
	// markerTopicGone: a topic that the metadata here does not have for so long is gone. For less it may be new: the metadata of
	// a broker that is not fenced is not much older than its session.
	markerTopicGone = 10 * time.Second
)

// markerSenderConfig is what a markerSender needs of its broker.
type markerSenderConfig struct {
	// Leader returns who leads a partition, NoNode for now nobody; exists is false when there is none of that name.
	Leader func(p txn.Partition) (node ids.NodeID, exists bool)
	Self   ids.NodeID
	// Write appends a marker to a partition led here; done hears once what became of it. It does not block.
	Write func(p txn.Partition, ms *txn.Markers, done func(error))
	// Request has another broker write markers. Those of slow lanes must not hold up the others' answers.
	Request func(ctx context.Context, lane markerLaneKey, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error)
	// Report tells the machine of a partition of __transaction_state what is written; see txn.Machine.MarkersWritten.
	Report func(partition int32, ms txn.Markers, written []txn.Partition, reply func(error))
	Log    *zap.Logger
}

// markerSender writes the markers of transactions that are prepared to their partitions, wherever these are led, until all
// have them or another coordinator has taken over.
//
// Each broker with partitions to write to has a lane: one goroutine while there is something to do, one request at a time
// with all that has come together meanwhile. So a slow broker holds up its own partitions alone. Partitions whose markers took
// longer than markersWithin have a lane for themselves until they are written: they hold up the others once at most.
type markerSender struct {
	cfg     markerSenderConfig
	log     *zap.Logger
	noise   *logLimiter
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // capacity 1: something is in waiting or reports

	mu      sync.Mutex
	closed  bool                          // guarded by mu
	tasks   map[markerKey]*markerTask     // guarded by mu
	lanes   map[markerLaneKey]*markerLane // guarded by mu
	slow    map[txn.Partition]struct{}    // guarded by mu; their last marker took too long
	waiting []markerItem                  // guarded by mu; to be tried again
	reports map[*markerTask][]markerItem  // guarded by mu; written, and the machine could not take it
}

// markerKey names a transaction: the coordinator's partition and the transactional id.
type markerKey struct {
	partition int32
	id        string
}

// markerTask is one transaction until all its partitions have the marker.
type markerTask struct {
	key  markerKey
	ms   txn.Markers
	left int  // guarded by the sender's mu; partitions that the machine has not heard of yet
	over bool // guarded by the sender's mu; not wanted any more
}

// markerItem is one marker for one partition.
type markerItem struct {
	task      *markerTask
	partition txn.Partition
	missing   time.Time // since when the metadata does not have the topic; zero: it does
}

// markerLaneKey names a lane.
type markerLaneKey struct {
	node ids.NodeID
	slow bool // of the partitions that took too long
}

// within is how long the broker may take for a request of the lane.
func (k markerLaneKey) within() time.Duration {
	if k.slow {
		return markersPatience
	}
	return markersWithin
}

// markerLane has what waits for one broker.
type markerLane struct {
	items   []markerItem
	running bool
}

func newMarkerSender(cfg markerSenderConfig) *markerSender {
	s := &markerSender{
		cfg: cfg, log: cfg.Log, noise: newLogLimiter(time.Second), wake: make(chan struct{}, 1), tasks: map[markerKey]*markerTask{},
		lanes: map[markerLaneKey]*markerLane{}, slow: map[txn.Partition]struct{}{}, reports: map[*markerTask][]markerItem{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.retryLoop)
	return s
}

// close ends what is under way. What is not written, the next coordinator writes.
func (s *markerSender) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// send begins to write the markers of a transaction coordinated in that partition, unless it is at it. It does not block.
func (s *markerSender) send(partition int32, ms txn.Markers) {
	key := markerKey{partition, ms.ID}
	s.mu.Lock()
	old := s.tasks[key]
	switch {
	case s.closed, old != nil && old.ms.Producer == ms.Producer && old.ms.CoordinatorEpoch == ms.CoordinatorEpoch:
		s.mu.Unlock()
		return
	case old != nil:
		s.forgetLocked(old)
	case len(s.tasks) >= markerTasksMax:
		s.mu.Unlock()
		s.noise.warn(s.log, "too many transactions are being ended; the rest waits", zap.Int("transactions", markerTasksMax))
		return
	}
	task := &markerTask{key: key, ms: ms, left: len(ms.Partitions)}
	s.tasks[key] = task
	var gone []markerItem
	for _, p := range ms.Partitions {
		gone = s.routeLocked(markerItem{task: task, partition: p}, gone)
	}
	s.mu.Unlock()
	s.report(gone)
}

// drop forgets the transactions of a partition that is not coordinated here any more.
func (s *markerSender) drop(partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, task := range s.tasks {
		if key.partition == partition {
			s.forgetLocked(task)
		}
	}
}

func (s *markerSender) forgetLocked(task *markerTask) {
	task.over = true
	delete(s.reports, task)
	if s.tasks[task.key] == task {
		delete(s.tasks, task.key)
	}
}

// routeLocked puts an item where it is to go next. One whose topic is gone needs no marker, and is added to gone.
func (s *markerSender) routeLocked(it markerItem, gone []markerItem) []markerItem {
	node, exists := s.cfg.Leader(it.partition)
	switch {
	case exists:
		it.missing = time.Time{}
	case it.missing.IsZero():
		it.missing = clock.Now()
	case time.Since(it.missing) >= markerTopicGone:
		delete(s.slow, it.partition)
		return append(gone, it)
	}
	if !exists || node == ids.NoNode {
		s.waitLocked(it)
		return gone
	}
	_, slow := s.slow[it.partition]
	key := markerLaneKey{node, slow}
	lane := s.lanes[key]
	if lane == nil {
		lane = &markerLane{}
		s.lanes[key] = lane
	}
	lane.items = append(lane.items, it)
	if !lane.running && !s.closed {
		lane.running = true
		s.running.Go(func() { s.runLane(key, lane) })
	}
	return gone
}

func (s *markerSender) waitLocked(it markerItem) {
	s.waiting = append(s.waiting, it)
	signal(s.wake)
}

// runLane works until nothing waits for the broker.
func (s *markerSender) runLane(key markerLaneKey, lane *markerLane) {
	for {
		items := s.take(key, lane)
		if len(items) == 0 {
			return
		}
		var codes []int16
		if key.node == s.cfg.Self {
			codes = s.writeHere(key, items)
		} else {
			codes = s.writeThere(key, items)
		}
		if s.ctx.Err() == nil {
			s.settle(items, codes)
		}
	}
}

// take takes what is next in the lane, without what is not wanted any more; nothing ends the lane.
func (s *markerSender) take(key markerLaneKey, lane *markerLane) []markerItem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []markerItem
	for len(lane.items) > 0 && len(items) < markersPerRequest && !s.closed {
		if it := lane.items[0]; !it.task.over {
			items = append(items, it)
		}
		lane.items = lane.items[1:]
	}
	if len(items) == 0 {
		lane.running = false
		delete(s.lanes, key)
	}
	return items
}

// writeHere writes markers to partitions led here, and returns a code for each: REQUEST_TIMED_OUT for what takes too long.
func (s *markerSender) writeHere(key markerLaneKey, items []markerItem) []int16 {
	type outcome struct {
		item int
		code int16
	}
	outcomes := make(chan outcome, len(items)) // room for all, so that those who come too late do not wait
	for i, it := range items {
		s.cfg.Write(it.partition, &it.task.ms, func(err error) { outcomes <- outcome{i, errorCode(err)} })
	}
	codes := slices.Repeat([]int16{kerr.RequestTimedOut.Code}, len(items))
	late := time.NewTimer(key.within())
	defer late.Stop()
	for range items {
		select {
		case o := <-outcomes:
			codes[o.item] = o.code
		case <-late.C:
			return codes
		case <-s.ctx.Done():
			return codes
		}
	}
	return codes
}

// writeThere has another broker write markers, and returns a code for each, or none without an answer.
func (s *markerSender) writeThere(key markerLaneKey, items []markerItem) []int16 {
	type where struct {
		producer  int64
		topic     string
		partition int32
	}
	answered := map[where]int16{}
	req := markersRequest(items)
	setMarkersWait(req, key.within())
	resp, err := s.cfg.Request(s.ctx, key, req)
	if err != nil {
		s.noise.warn(s.log, "broker does not write markers", zap.Int32("broker", int32(key.node)), zap.Error(err))
		return nil
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				answered[where{m.ProducerID, t.Topic, p.Partition}] = p.ErrorCode
			}
		}
	}
	codes := make([]int16, len(items))
	for i, it := range items {
		code, ok := answered[where{it.task.ms.Producer.ID, it.partition.Topic, it.partition.Index}]
		if !ok {
			code = kerr.RequestTimedOut.Code
		}
		codes[i] = code
	}
	return codes
}

// markersRequest makes one request of the items, with those of one transaction together if they follow each other.
func markersRequest(items []markerItem) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.SetVersion(2)
	var last *markerTask
	for _, it := range items {
		if ms := &it.task.ms; last != it.task {
			last = it.task
			req.Markers = append(req.Markers, kmsg.WriteTxnMarkersRequestMarker{
				ProducerID: ms.Producer.ID, ProducerEpoch: ms.Producer.Epoch, Committed: ms.Commit,
				CoordinatorEpoch: ms.CoordinatorEpoch, TransactionVersion: int8(ms.Version),
			})
		}
		m := &req.Markers[len(req.Markers)-1]
		if n := len(m.Topics); n == 0 || m.Topics[n-1].Topic != it.partition.Topic {
			m.Topics = append(m.Topics, kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: it.partition.Topic})
		}
		t := &m.Topics[len(m.Topics)-1]
		t.Partitions = append(t.Partitions, it.partition.Index)
	}
	return req
}

// settle does what Kafka's coordinator does upon each code: the marker is written or not needed, or somebody newer has the
// transaction, or it is tried again. No codes: nothing is known of any.
func (s *markerSender) settle(items []markerItem, codes []int16) {
	var written []markerItem
	var refusals []func() // to be logged without the lock
	s.mu.Lock()
	for i, it := range items {
		if codes == nil {
			s.waitLocked(it)
			continue
		}
		code := codes[i]
		if code == kerr.RequestTimedOut.Code {
			s.slow[it.partition] = struct{}{}
		} else {
			delete(s.slow, it.partition)
		}
		switch code {
		case 0, kerr.UnsupportedVersion.Code, kerr.UnsupportedForMessageFormat.Code:
			written = append(written, it)
		case kerr.InvalidProducerEpoch.Code, kerr.TransactionCoordinatorFenced.Code:
			s.forgetLocked(it.task)
			refusals = append(refusals, func() { s.logRefusal("a marker is refused: there is a newer producer or coordinator", it, code) })
		default:
			s.waitLocked(it)
			if !retriedQuietly(code) {
				refusals = append(refusals, func() { s.logRefusal("a marker is refused, and tried again", it, code) })
			}
		}
	}
	s.mu.Unlock()
	for _, log := range refusals {
		log()
	}
	s.report(written)
}

// retriedQuietly: the code tells of something that passes by itself.
func retriedQuietly(code int16) bool {
	switch code {
	case kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code, kerr.RequestTimedOut.Code, kerr.NotEnoughReplicas.Code,
		kerr.NotEnoughReplicasAfterAppend.Code, kerr.KafkaStorageError.Code, kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code,
		kerr.CoordinatorLoadInProgress.Code:
		return true
	}
	return false
}

func (s *markerSender) logRefusal(what string, it markerItem, code int16) {
	ms := &it.task.ms
	s.noise.warn(s.log, what, zap.String("transactionalId", ms.ID), zap.Int64("producerId", ms.Producer.ID), zap.Int16("producerEpoch", ms.Producer.Epoch),
		zap.String("topic", it.partition.Topic), zap.Int32("partition", it.partition.Index), zap.Error(kerr.ErrorForCode(code)))
}

// report tells the machines what is written.
func (s *markerSender) report(written []markerItem) {
	byTask := map[*markerTask][]markerItem{}
	for _, it := range written {
		byTask[it.task] = append(byTask[it.task], it)
	}
	for task, items := range byTask {
		parts := make([]txn.Partition, len(items))
		for i, it := range items {
			parts[i] = it.partition
		}
		s.cfg.Report(task.key.partition, task.ms, parts, func(err error) { s.reported(task, items, err) })
	}
}

// reported hears what the machine says to what is written.
func (s *markerSender) reported(task *markerTask, items []markerItem, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case task.over:
	case err == nil:
		if task.left -= len(items); task.left <= 0 {
			s.forgetLocked(task)
		}
	case errors.Is(err, kerr.InvalidTxnState), errors.Is(err, coordinator.ErrNotCoordinator):
		s.forgetLocked(task)
	default: // not committed for now
		s.reports[task] = append(s.reports[task], items...)
		signal(s.wake)
	}
}

// retryLoop tries again what waits, some time after it came.
func (s *markerSender) retryLoop() {
	timer := time.NewTimer(markerBackoff)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		timer.Reset(markerBackoff)
		select {
		case <-timer.C:
			s.retry()
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *markerSender) retry() {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	var again []markerItem
	for _, it := range waiting {
		if !it.task.over {
			again = s.routeLocked(it, again)
		}
	}
	for _, items := range s.reports {
		again = append(again, items...)
	}
	clear(s.reports)
	s.mu.Unlock()
	s.report(again)
}

// unwritten is the number of transactions whose markers are being written.
func (s *markerSender) unwritten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks)
}
