package broker

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/broker/coordinator"
)

// startOffsetsTest is a txnTest whose group g is coordinated.
func startOffsetsTest(t *testing.T, overrides ...string) *txnTest {
	t.Helper()
	x := startTxnTest(t, overrides...)
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(x.n)))
	offsets := kadm.Offsets{}
	offsets.AddOffset("t", 0, 0, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(testContext(t), "g", offsets); err != nil {
		t.Fatal(err)
	}
	return x
}

// offsetsReq adds an offset of partition 0 to the transaction.
func offsetsReq(version int16, producerID int64, epoch int16, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := withVersion(kmsg.NewPtrTxnOffsetCommitRequest(), version)
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = "tx", "g", producerID, epoch
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (x *txnTest) commitOffsets(req *kmsg.TxnOffsetCommitRequest, want *kerr.Error) {
	x.t.Helper()
	resp := x.do(req).(*kmsg.TxnOffsetCommitResponse)
	wantCode(x.t, fmt.Sprintf("commit in version %d", req.Version), resp.Topics[0].Partitions[0].ErrorCode, want)
}

// offsetsMarker ends a transaction in the partition of group g.
func (x *txnTest) offsetsMarker(producerID int64, epoch int16, version int8) {
	x.t.Helper()
	req := markersReq(2, producerID, epoch, true, 7, version, x.offsetsPartition())
	req.Markers[0].Topics[0].Topic = offsetsTopic
	x.mark(req, nil)
}

func (x *txnTest) offsetsPartition() int32 {
	return coordinator.PartitionOf("g", x.n.broker.groups.Partitions())
}

func (x *txnTest) wantOffset(want int64) {
	x.t.Helper()
	req := withVersion(kmsg.NewPtrOffsetFetchRequest(), 7)
	req.Group, req.RequireStable = "g", true
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	if got := x.do(req).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != want {
		x.t.Errorf("the group's offset is %d (error %d), want %d", got.Offset, got.ErrorCode, want)
	}
}

// TestOffsetsOfTransactionsAreVerifiedOnce: the transaction's coordinator is asked before the first offsets of each transaction, to add
// the group's partition for clients that leave that to the broker.
func TestOffsetsOfTransactionsAreVerifiedOnce(t *testing.T) {
	x := startOffsetsTest(t)
	x.commitOffsets(offsetsReq(3, 500, 0, 5), nil)
	x.commitOffsets(offsetsReq(3, 500, 0, 6), nil) // goes on
	x.offsetsMarker(500, 0, 0)
	x.wantOffset(6)
	x.commitOffsets(offsetsReq(5, 500, 0, 7), nil)
	x.offsetsMarker(500, 1, 2)
	x.wantOffset(7)
	at := topicPartition{offsetsTopic, x.offsetsPartition()}
	want := []txnVerification{
		{transactionalID: "tx", producerID: 500, partitions: []topicPartition{at}},
		{transactionalID: "tx", producerID: 500, add: true, partitions: []topicPartition{at}},
	}
	if fmt.Sprint(x.f.asked) != fmt.Sprint(want) {
		t.Errorf("asked %+v, want %+v", x.f.asked, want)
	}
}

func TestOffsetsOfTransactionsTellWhatTheCoordinatorSays(t *testing.T) {
	x := startOffsetsTest(t)
	for _, tt := range []struct {
		version int16
		answers []error
		want    *kerr.Error
	}{
		{3, []error{kerr.NetworkException}, kerr.CoordinatorLoadInProgress},
		{3, []error{coordinator.ErrNotCoordinator}, kerr.CoordinatorLoadInProgress},
		{5, []error{coordinator.ErrUnavailable}, kerr.CoordinatorLoadInProgress},
		{5, []error{coordinator.ErrTimeout}, kerr.CoordinatorLoadInProgress},
		{5, []error{coordinator.ErrLoading}, kerr.CoordinatorLoadInProgress},
		{5, repeatError(kerr.ConcurrentTransactions, 20), kerr.ConcurrentTransactions},
		{3, []error{kerr.ProducerFenced}, kerr.InvalidProducerEpoch},
		{3, []error{kerr.TransactionAbortable}, kerr.InvalidTxnState},
		{4, []error{kerr.TransactionAbortable}, kerr.TransactionAbortable},
		{3, []error{kerr.InvalidProducerIDMapping}, kerr.InvalidProducerIDMapping},
		{5, []error{kerr.InvalidTxnState}, kerr.InvalidTxnState},
	} {
		x.f.answers = tt.answers
		x.commitOffsets(offsetsReq(tt.version, 500, 0, 5), tt.want)
	}
	x.wantOffset(0) // nothing is pending
}

// TestOffsetsBehindTheEndOfTheirTransactionAreRefused: a marker that comes while the coordinator is asked ends the transaction; what
// came behind it would never end.
func TestOffsetsBehindTheEndOfTheirTransactionAreRefused(t *testing.T) {
	x := startOffsetsTest(t)
	other := &txnTest{rawClient: dialNode(t, x.n), n: x.n, f: x.f}
	x.n.broker.verifyTxn = func(ctx context.Context, v txnVerification) []error {
		other.offsetsMarker(v.producerID, v.producerEpoch, 0)
		return x.f.verify(ctx, v)
	}
	x.commitOffsets(offsetsReq(3, 500, 0, 5), kerr.InvalidTxnState)
	x.n.broker.verifyTxn = x.f.verify
	x.wantOffset(0)
	x.commitOffsets(offsetsReq(3, 500, 0, 5), nil)
}

func TestOffsetsOfTransactionsWithoutVerification(t *testing.T) {
	x := startOffsetsTest(t, "transaction.partition.verification.enable=false")
	x.commitOffsets(offsetsReq(3, 500, 0, 5), nil)
	if len(x.f.asked) != 0 {
		t.Errorf("asked %+v", x.f.asked)
	}
	x.commitOffsets(offsetsReq(5, 501, 0, 6), nil) // a client that relies on the broker to add the partition
	if len(x.f.asked) != 1 {
		t.Errorf("asked %+v", x.f.asked)
	}
}

// TestOffsetsTakePartInATransaction: with the coordinator itself. Older clients have to add the group first, newer ones leave
// that to the broker.
func TestOffsetsTakePartInATransaction(t *testing.T) {
	x := startOffsetsTest(t)
	x.n.broker.verifyTxn = x.n.broker.verifyTransaction
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("tx"), 60_000
	p, err := init.RequestWith(testContext(t), newTestClient(t, kgo.SeedBrokers(clientAddress(x.n))))
	if err != nil || p.ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(p.ErrorCode))
	}
	id, epoch := p.ProducerID, p.ProducerEpoch
	end := func(version int16) {
		t.Helper()
		req := withVersion(kmsg.NewPtrEndTxnRequest(), version)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "tx", id, epoch, true
		resp := x.do(req).(*kmsg.EndTxnResponse)
		wantCode(t, "the end", resp.ErrorCode, nil)
		if version >= 5 {
			id, epoch = resp.ProducerID, resp.ProducerEpoch
		}
	}
	add := withVersion(kmsg.NewPtrAddOffsetsToTxnRequest(), 3)
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "tx", id, epoch, "g"

	x.commitOffsets(offsetsReq(3, id, epoch, 5), kerr.InvalidTxnState)
	x.commitOffsets(offsetsReq(4, id, epoch, 5), kerr.TransactionAbortable)
	wantCode(t, "adding the group", x.do(add).(*kmsg.AddOffsetsToTxnResponse).ErrorCode, nil)
	x.commitOffsets(offsetsReq(3, id, epoch, 6), nil)
	end(4)
	eventually(t, func() *struct{} {
		req := offsetsReq(5, id, epoch, 7)
		if x.do(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode != 0 {
			return nil // the transaction before is still being ended
		}
		return &struct{}{}
	})
	end(5)
	fetch := withVersion(kmsg.NewPtrOffsetFetchRequest(), 7)
	fetch.Group, fetch.RequireStable = "g", true
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	eventually(t, func() *struct{} {
		if x.do(fetch).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset != 7 {
			return nil
		}
		return &struct{}{}
	})
}
