package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeCoordinator answers the verification of transactions as told, and remembers the questions.
type fakeCoordinator struct {
	mu      sync.Mutex
	answers []error // for the next questions, one for all partitions of each; then nil
	asked   []txnVerification
}

func (f *fakeCoordinator) verify(_ context.Context, v txnVerification) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, v)
	if len(f.answers) == 0 {
		return make([]error, len(v.partitions))
	}
	err := f.answers[0]
	f.answers = f.answers[1:]
	return repeatError(err, len(v.partitions))
}

// txnTest is a node with a topic t of two partitions, and a client with a transactional id.
type txnTest struct {
	*rawClient
	n  *Node
	id kadm.TopicID
	f  *fakeCoordinator
}

func startTxnTest(t *testing.T, overrides ...string) *txnTest {
	t.Helper()
	n := startNode(t, t.TempDir(), overrides...)
	t.Cleanup(func() { stopNode(t, n) })
	x := &txnTest{n: n, f: &fakeCoordinator{}}
	n.broker.verifyTxn = x.f.verify
	x.id = mustTopic(t, n, "t", 2, nil)
	x.rawClient = dialNode(t, n)
	return x
}

func inTransaction(c *batch.BuilderConfig) { c.Transactional = true }

// txnReq asks to append a batch of two records of a transaction to partition 0.
func (x *txnTest) txnReq(version int16, producerID int64, epoch int16, sequence int32) *kmsg.ProduceRequest {
	req := produceReq(version, -1, "t", x.id, 0, testBatch(x.t, 2, fromProducer(producerID, epoch, sequence), inTransaction))
	req.TransactionID = kmsg.StringPtr("tx")
	return req
}

func (x *txnTest) mustAppend(req *kmsg.ProduceRequest) int64 {
	x.t.Helper()
	p := x.produce(req)
	wantCode(x.t, "produce", p.ErrorCode, nil)
	return p.BaseOffset
}

func markersReq(version int16, producerID int64, epoch int16, commit bool, coordinatorEpoch int32, transactionVersion int8, partitions ...int32) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = version
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.TransactionVersion = producerID, epoch, commit, coordinatorEpoch, transactionVersion
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = "t", partitions
	m.Topics = append(m.Topics, rt)
	req.Markers = append(req.Markers, m)
	return req
}

func (x *txnTest) mark(req *kmsg.WriteTxnMarkersRequest, want *kerr.Error) {
	x.t.Helper()
	resp := x.do(req).(*kmsg.WriteTxnMarkersResponse)
	for _, p := range resp.Markers[0].Topics[0].Partitions {
		wantCode(x.t, fmt.Sprintf("marker of partition %d", p.Partition), p.ErrorCode, want)
	}
}

// committed is a read-committed fetch of partition 0.
func (x *txnTest) committed(from int64, wait time.Duration) *kmsg.FetchRequest {
	req := fetchTopic(12, "t", x.id, from)
	req.IsolationLevel, req.MaxWaitMillis = isolationReadCommitted, int32(wait.Milliseconds())
	return req
}

func (x *txnTest) wantCommitted(from int64, stable int64, batches int, aborted ...kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	x.t.Helper()
	p := x.fetch(x.committed(from, 0)).Topics[0].Partitions[0]
	if n := len(baseOffsets(x.t, p.RecordBatches)); n != batches || p.LastStableOffset != stable {
		x.t.Errorf("read from %d: %d batches, last stable offset %d; want %d and %d", from, n, p.LastStableOffset, batches, stable)
	}
	if fmt.Sprint(p.AbortedTransactions) != fmt.Sprint(aborted) || p.AbortedTransactions == nil {
		x.t.Errorf("read from %d: aborted %+v, want %+v", from, p.AbortedTransactions, aborted)
	}
}

func abortedAt(producerID, first int64) kmsg.FetchResponseTopicPartitionAbortedTransaction {
	a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
	a.ProducerID, a.FirstOffset = producerID, first
	return a
}

func TestReadCommittedStopsAtOpenTransactions(t *testing.T) {
	x := startTxnTest(t)
	x.fill("t", x.id, 0, 1)                         // [0, 2)
	first := x.mustAppend(x.txnReq(9, 500, 0, 0))   // [2, 4)
	x.fill("t", x.id, 0, 1)                         // [4, 6)
	second := x.mustAppend(x.txnReq(12, 600, 3, 0)) // [6, 8)
	x.wantCommitted(0, first, 1)
	x.wantCommitted(first, first, 0)
	list := listReq(7, "t", 0, timestampLatest)
	list.IsolationLevel = isolationReadCommitted
	if p := x.list(list); p.Offset != first {
		t.Errorf("the latest committed offset is %d, want %d", p.Offset, first)
	}
	x.mark(markersReq(1, 500, 0, true, 7, 0, 0), nil) // 8
	x.wantCommitted(0, second, 3)
	x.mark(markersReq(2, 600, 4, false, 7, 2, 0), nil) // 9
	x.wantCommitted(0, 10, 6, abortedAt(600, second))
	x.wantCommitted(second+1, 10, 3, abortedAt(600, second))
	x.wantCommitted(10, 10, 0)
	plain := x.fetch(fetchTopic(12, "t", x.id, 0)).Topics[0].Partitions[0]
	if plain.AbortedTransactions != nil || plain.LastStableOffset != 10 || len(baseOffsets(t, plain.RecordBatches)) != 6 {
		t.Errorf("read uncommitted: aborted %v, last stable offset %d", plain.AbortedTransactions, plain.LastStableOffset)
	}
}

func TestReadCommittedFetchWakesWhenTheTransactionEnds(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 0, 0))
	reader := dialNode(t, x.n)
	req := x.committed(0, testTimeout)
	reader.send(req)
	p := awaitLeader(t, x.n, "t", 0)
	eventually(t, func() *struct{} {
		if p.stable.len() == 0 {
			return nil
		}
		return &struct{}{}
	})
	x.fill("t", x.id, 0, 1) // the high watermark rises, and nobody is woken
	if p.stable.len() != 1 {
		t.Error("the fetch does not wait for the last stable offset")
	}
	x.mark(markersReq(1, 500, 0, false, 7, 0, 0), nil)
	got := reader.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if len(baseOffsets(t, got.RecordBatches)) == 0 || len(got.AbortedTransactions) != 1 || got.LastStableOffset != 5 {
		t.Errorf("woken with last stable offset %d, aborted %v", got.LastStableOffset, got.AbortedTransactions)
	}
}

func TestProduceAsksTheCoordinatorOnce(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 0, 0))
	x.mustAppend(x.txnReq(9, 500, 0, 2)) // goes on
	x.mark(markersReq(1, 500, 0, true, 7, 0, 0), nil)
	x.mustAppend(x.txnReq(12, 500, 0, 4))
	want := []txnVerification{
		{transactionalID: "tx", producerID: 500, partitions: []topicPartition{{"t", 0}}},
		{transactionalID: "tx", producerID: 500, add: true, partitions: []topicPartition{{"t", 0}}},
	}
	if fmt.Sprint(x.f.asked) != fmt.Sprint(want) {
		t.Errorf("asked %+v, want %+v", x.f.asked, want)
	}
}

func TestProduceTellsWhatTheCoordinatorSays(t *testing.T) {
	x := startTxnTest(t)
	concurrent := repeatError(kerr.ConcurrentTransactions, 20)
	for _, tt := range []struct {
		version int16
		answers []error
		want    *kerr.Error
	}{
		{9, []error{kerr.NetworkException}, kerr.NotEnoughReplicas},
		{12, []error{kerr.CoordinatorLoadInProgress}, kerr.NotEnoughReplicas},
		{12, []error{kerr.CoordinatorNotAvailable}, kerr.NotEnoughReplicas},
		{9, []error{kerr.NotCoordinator}, kerr.NotEnoughReplicas},
		{11, []error{kerr.ConcurrentTransactions}, kerr.NotEnoughReplicas},
		{12, concurrent, kerr.ConcurrentTransactions},
		{9, []error{kerr.ProducerFenced}, kerr.InvalidProducerEpoch},
		{10, []error{kerr.TransactionAbortable}, kerr.InvalidTxnState},
		{11, []error{kerr.TransactionAbortable}, kerr.TransactionAbortable},
		{9, []error{kerr.InvalidProducerIDMapping}, kerr.InvalidProducerIDMapping},
		{9, []error{kerr.InvalidTxnState}, kerr.InvalidTxnState},
	} {
		x.f.answers = tt.answers
		p := x.produce(x.txnReq(tt.version, 500, 0, 0))
		wantCode(t, fmt.Sprintf("version %d, %v", tt.version, tt.answers[0]), p.ErrorCode, tt.want)
	}
	x.f.answers = concurrent[:2]
	x.mustAppend(x.txnReq(12, 500, 0, 0)) // the third question is answered
}

func TestProduceWithoutACoordinatorIsToBeRepeated(t *testing.T) {
	x := startTxnTest(t)
	x.n.broker.verifyTxn = nil
	wantCode(t, "produce", x.produce(x.txnReq(9, 500, 0, 0)).ErrorCode, kerr.NotEnoughReplicas)
}

func TestProduceOfTwoTransactionalProducersIsRefused(t *testing.T) {
	x := startTxnTest(t)
	req := x.txnReq(9, 500, 0, 0)
	addBatch(req, "t", x.id, 1, testBatch(t, 1, fromProducer(501, 0, 0), inTransaction))
	resp := x.do(req).(*kmsg.ProduceResponse)
	for _, topic := range resp.Topics {
		wantCode(t, "produce", topic.Partitions[0].ErrorCode, kerr.InvalidProducerIDMapping)
	}
}

func TestProduceWithoutVerification(t *testing.T) {
	x := startTxnTest(t, "transaction.partition.verification.enable=false")
	x.mustAppend(x.txnReq(9, 500, 0, 0))
	if len(x.f.asked) != 0 {
		t.Errorf("asked %+v", x.f.asked)
	}
	x.mustAppend(x.txnReq(12, 501, 0, 0)) // a client that relies on the broker to add the partition
	if len(x.f.asked) != 1 {
		t.Errorf("asked %+v", x.f.asked)
	}
}

func TestMarkersAreCheckedAgainstTheProducer(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 5, 0))
	x.mark(markersReq(1, 500, 4, true, 7, 0, 0), kerr.InvalidProducerEpoch)
	x.mark(markersReq(2, 500, 5, true, 7, 2, 0), kerr.InvalidProducerEpoch)
	x.mark(markersReq(1, 500, 5, true, 7, 0, 0), nil)
	x.mark(markersReq(1, 500, 5, true, 6, 0, 0), kerr.TransactionCoordinatorFenced)
	x.mark(markersReq(1, 500, 5, true, 7, 0, 9), kerr.UnknownTopicOrPartition)
	wantCode(t, "a plain batch", x.produce(produceReq(9, -1, "t", x.id, 0, testBatch(t, 1, fromProducer(500, 5, 2)))).ErrorCode, nil)
}

// A marker that waited here while another broker led is late: its transaction may have ended there, and the next one begun.
func TestAMarkerOfAnotherReignIsNotAppended(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 5, 0))
	r := awaitLeader(t, x.n, "t", 0).reign.Load()
	write := func(reign ids.LeaderEpoch) error {
		done := make(chan error, 1)
		to := markerTarget{topicPartition{"t", 0}, reign, marker{producerID: 500, producerEpoch: 5, commit: true}}
		if err := x.n.broker.appendMarkerHere(to, time.Second, 10*time.Second, func(err error) { done <- err }); err != nil {
			return err
		}
		return <-done
	}
	if err := write(r.epoch - 1); !errors.Is(err, errNotLeader) {
		t.Errorf("queued in another reign: %v", err)
	}
	x.wantCommitted(0, 0, 0)
	if err := write(r.epoch); err != nil {
		t.Errorf("queued in this one: %v", err)
	}
	x.wantCommitted(0, 3, 2)
}

func TestDescribeProducers(t *testing.T) {
	x := startTxnTest(t)
	x.mustAppend(x.txnReq(9, 500, 5, 0))
	x.mark(markersReq(1, 500, 5, true, 7, 0, 0), nil)
	open := x.mustAppend(x.txnReq(9, 500, 5, 2))
	x.mustAppend(produceReq(9, -1, "t", x.id, 0, batchAt(t, 3, 12345, fromProducer(400, 1, 10))))
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 1, 7}
	req.Topics = append(req.Topics, rt)
	got := x.do(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions
	wantCode(t, "partition 7", got[2].ErrorCode, kerr.UnknownTopicOrPartition)
	if len(got[1].ActiveProducers) != 0 || len(got[0].ActiveProducers) != 2 {
		t.Fatalf("%+v", got)
	}
	a, b := got[0].ActiveProducers[0], got[0].ActiveProducers[1]
	if a.ProducerID != 400 || a.ProducerEpoch != 1 || a.LastSequence != 12 || a.LastTimestamp != 12345 || a.CoordinatorEpoch != -1 || a.CurrentTxnStartOffset != -1 {
		t.Errorf("%+v", a)
	}
	if b.ProducerID != 500 || b.ProducerEpoch != 5 || b.LastSequence != 3 || b.CoordinatorEpoch != 7 || b.CurrentTxnStartOffset != open {
		t.Errorf("%+v", b)
	}
}

func TestTransactionsOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	x := &txnTest{n: n, f: &fakeCoordinator{}}
	n.broker.verifyTxn = x.f.verify
	x.id = mustTopic(t, n, "t", 2, nil)
	x.rawClient = dialNode(t, n)
	aborted := x.mustAppend(x.txnReq(9, 500, 0, 0))
	x.mark(markersReq(1, 500, 0, false, 7, 0, 0), nil)
	open := x.mustAppend(x.txnReq(9, 500, 0, 2))
	stopNode(t, n)
	x.n = startNode(t, dir)
	defer func() { stopNode(t, x.n) }()
	awaitLeader(t, x.n, "t", 0)
	x.rawClient = dialNode(t, x.n)
	x.wantCommitted(0, open, 2, abortedAt(500, aborted))
	x.mustAppend(x.txnReq(9, 500, 0, 4)) // it is still open, so nobody is asked
	x.mark(markersReq(1, 500, 0, true, 6, 0, 0), kerr.TransactionCoordinatorFenced)
	x.mark(markersReq(1, 500, 0, true, 7, 0, 0), nil)
	x.wantCommitted(open, 8, 3)
}

func TestOwnAppendsWaitForTheHighWatermark(t *testing.T) {
	x := startTxnTest(t)
	p := awaitLeader(t, x.n, "t", 0)
	type outcome struct {
		base, next ids.Offset
		err        error
	}
	heard := make(chan outcome, 2)
	done := func(base, next ids.Offset, err error) { heard <- outcome{base, next, err} }
	own := func(epoch int16) error {
		raw := testBatch(t, 3, fromProducer(700, epoch, -1), inTransaction)
		h := batch.DecodeHeader(raw)
		return p.appendOwn(p.serving(), submission{data: raw, kind: engine.KindData, batch: producerBatch(&h)}, testTimeout, testTimeout, done)
	}
	if err := own(2); err != nil {
		t.Fatal(err)
	}
	if o := <-heard; o != (outcome{0, 3, nil}) || p.highWatermark() < 3 || p.lastStableOffset() != 0 {
		t.Errorf("%+v, high watermark %d, last stable offset %d", o, p.highWatermark(), p.lastStableOffset())
	}
	if err := own(1); errorCode(err) != kerr.InvalidProducerEpoch.Code {
		t.Errorf("a batch of an old epoch: %v", err)
	}
	r := p.serving()
	p.stop()
	if err := p.appendMarker(r, marker{producerID: 700, producerEpoch: 2}, testTimeout, testTimeout, func(err error) { heard <- outcome{err: err} }); errorCode(err) != kerr.NotLeaderForPartition.Code {
		t.Errorf("after the reign: %v", err)
	}
	if len(heard) != 0 {
		t.Errorf("an append that was refused is reported: %+v", <-heard)
	}
}

// A partition whose leader is not open yet when the coordinator is asked, and is when the batch would be appended, as after a change of leader: the batch
// was not verified, and what is told must make the client send it again.
func TestProduceVerifiesAgainWhatAnotherReignMeets(t *testing.T) {
	x := startTxnTest(t)
	p := awaitLeader(t, x.n, "t", 1)
	r := p.reign.Swap(nil)
	x.n.broker.verifyTxn = func(ctx context.Context, v txnVerification) []error {
		p.reign.CompareAndSwap(nil, r)
		return x.f.verify(ctx, v)
	}
	req := x.txnReq(12, 500, 0, 0)
	addBatch(req, "t", x.id, 1, testBatch(t, 1, fromProducer(500, 0, 0), inTransaction))
	resp := x.do(req).(*kmsg.ProduceResponse)
	got := map[int32]int16{}
	for _, topic := range resp.Topics {
		for _, part := range topic.Partitions {
			got[part.Partition] = part.ErrorCode
		}
	}
	wantCode(t, "verified", got[0], nil)
	wantCode(t, "not verified", got[1], kerr.NotLeaderForPartition)
	again := produceReq(12, -1, "t", x.id, 1, testBatch(t, 1, fromProducer(500, 0, 0), inTransaction))
	again.TransactionID = kmsg.StringPtr("tx")
	x.mustAppend(again)
}
