package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionCluster has a topic t of two partitions. Of its transactions "bill" is open in t-0, "idle" is not, and t-1 has one of
// producer id 9, of which no coordinator knows. What it is asked to do is in the returned list.
func transactionCluster(t *testing.T) (conn Connection, asked func() []kmsg.Request) {
	t.Helper()
	c, conn := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	requests := make(chan kmsg.Request, 100)
	answer := func(key kmsg.Key, with func(kmsg.Request) kmsg.Response) {
		c.ControlKey(key.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			requests <- req
			resp := with(req)
			resp.SetVersion(req.GetVersion())
			return resp, nil, true
		})
	}
	answer(kmsg.ListTransactions, listOfTwo)
	answer(kmsg.DescribeTransactions, describeBill)
	answer(kmsg.DescribeProducers, describeThree)
	answer(kmsg.WriteTxnMarkers, func(req kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		for _, m := range req.(*kmsg.WriteTxnMarkersRequest).Markers {
			resp.Markers = append(resp.Markers, kmsg.WriteTxnMarkersResponseMarker{
				ProducerID: m.ProducerID,
				Topics:     []kmsg.WriteTxnMarkersResponseMarkerTopic{{Topic: "t", Partitions: []kmsg.WriteTxnMarkersResponseMarkerTopicPartition{{Partition: 1}}}},
			})
		}
		return resp
	})
	tries := 0
	answer(kmsg.InitProducerID, func(kmsg.Request) kmsg.Response {
		resp := kmsg.NewPtrInitProducerIDResponse()
		if tries++; tries == 1 {
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
		}
		return resp
	})
	return conn, func() (all []kmsg.Request) {
		for len(requests) > 0 {
			all = append(all, <-requests)
		}
		return all
	}
}

func listOfTwo(req kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrListTransactionsResponse()
	for _, t := range []kmsg.ListTransactionsResponseTransactionState{
		{TransactionalID: "idle", ProducerID: 8, TransactionState: "Empty"}, {TransactionalID: "bill", ProducerID: 7, TransactionState: "Ongoing"},
	} {
		if ids := req.(*kmsg.ListTransactionsRequest).ProducerIDFilters; len(ids) == 0 || slices.Contains(ids, t.ProducerID) {
			resp.TransactionStates = append(resp.TransactionStates, t)
		}
	}
	return resp
}

func describeBill(req kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	for _, id := range req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
		s := kmsg.DescribeTransactionsResponseTransactionState{TransactionalID: id, ErrorCode: kerr.TransactionalIDNotFound.Code}
		switch id {
		case "bill":
			s = kmsg.DescribeTransactionsResponseTransactionState{
				TransactionalID: id, State: "Ongoing", TimeoutMillis: 60000, StartTimestamp: 1000, ProducerID: 7, ProducerEpoch: 3,
				Topics: []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{0}}},
			}
		case "idle":
			s = kmsg.DescribeTransactionsResponseTransactionState{
				TransactionalID: id, State: "Empty", TimeoutMillis: 60000, StartTimestamp: -1, ProducerID: 8,
			}
		}
		resp.TransactionStates = append(resp.TransactionStates, s)
	}
	return resp
}

func describeThree(req kmsg.Request) kmsg.Response {
	type producer = kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	known := map[int32][]producer{
		0: {{ProducerID: 7, ProducerEpoch: 3, LastSequence: 11, LastTimestamp: 1700000000000, CoordinatorEpoch: -1, CurrentTxnStartOffset: 5}},
		1: {
			{ProducerID: 9, ProducerEpoch: 1, LastSequence: 4, LastTimestamp: 1700000000500, CoordinatorEpoch: 2, CurrentTxnStartOffset: 17},
			{ProducerID: 8, LastSequence: 0, LastTimestamp: 1700000000100, CoordinatorEpoch: 6, CurrentTxnStartOffset: -1},
		},
	}
	resp := kmsg.NewPtrDescribeProducersResponse()
	for _, t := range req.(*kmsg.DescribeProducersRequest).Topics {
		rt := kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.DescribeProducersResponseTopicPartition{Partition: p, ActiveProducers: known[p]})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func ptr[T any](v T) *T { return &v }

func TestTransactionsAreShownAsKafkasToolShowsThem(t *testing.T) {
	conn, _ := transactionCluster(t)
	find := FindHangingOptions{Topic: "t", MaxTimeout: 15 * time.Minute}
	commands := []struct {
		name string
		run  func(context.Context, Output) error
	}{
		{"list", func(ctx context.Context, out Output) error {
			return ListTransactions(ctx, conn, ListTransactionsOptions{LongerThan: -1}, out)
		}},
		{"describe idle", func(ctx context.Context, out Output) error { return DescribeTransaction(ctx, conn, "idle", out) }},
		{"describe-producers", func(ctx context.Context, out Output) error {
			return DescribeProducers(ctx, conn, DescribeProducersOptions{Topic: "t", Partition: 1, Broker: anyBroker}, out)
		}},
		{"find-hanging", func(ctx context.Context, out Output) error {
			cl, err := conn.openAdmin(ctx, out)
			if err != nil {
				return err
			}
			defer cl.Close()
			hanging, err := find.find(ctx, cl, time.UnixMilli(1700000000500).Add(90*time.Minute))
			if err != nil {
				return err
			}
			return printHanging(out, hanging)
		}},
	}
	var b strings.Builder
	for _, asJSON := range []bool{false, true} {
		for _, cmd := range commands {
			c := &capture{}
			if err := cmd.run(testContext(t), c.output(asJSON)); err != nil {
				t.Fatalf("%s: %v", cmd.name, err)
			}
			fmt.Fprintf(&b, "%s\n%s", cmd.name, c.out.String())
		}
	}
	golden(t, "transactions.golden", b.String())
}

func TestAnOpenTransactionHasADuration(t *testing.T) {
	conn, _ := transactionCluster(t)
	c := &capture{}
	cl, err := conn.openAdmin(testContext(t), c.output(false))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	d, err := describeTransactions(testContext(t), cl, time.UnixMilli(5500), "bill")
	if err != nil || len(d) != 1 || *d[0].Duration != 4500 || joinPartitions(d[0].Partitions, ",") != "t-0" {
		t.Errorf("%+v, %v", d, err)
	}
	err = DescribeTransaction(testContext(t), conn, "none", c.output(false))
	if !errors.Is(err, kerr.TransactionalIDNotFound) || !strings.Contains(err.Error(), "cairn transactions list") {
		t.Error(err)
	}
}

func TestListTransactionsAsksWithItsFilters(t *testing.T) {
	conn, asked := transactionCluster(t)
	c := &capture{}
	if err := ListTransactions(testContext(t), conn, ListTransactionsOptions{LongerThan: 500, Pattern: "b.*"}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	req := asked()[0].(*kmsg.ListTransactionsRequest)
	if req.DurationFilterMillis != 500 || req.TransactionalIDPattern == nil || *req.TransactionalIDPattern != "b.*" {
		t.Errorf("%+v", req)
	}
	var usage UsageError
	if err := ListTransactions(testContext(t), conn, ListTransactionsOptions{Pattern: "("}, c.output(false)); !errors.As(err, &usage) {
		t.Errorf("a broken pattern: %v", err)
	}
}

func TestAbortTransaction(t *testing.T) {
	conn, asked := transactionCluster(t)
	at := AbortTransactionOptions{Topic: "t", Partition: 1}
	byOffset, elsewhere, byProducer := at, at, at
	byOffset.StartOffset, elsewhere.StartOffset = ptr[int64](17), ptr[int64](16)
	byProducer.ProducerID, byProducer.ProducerEpoch, byProducer.CoordinatorEpoch = ptr[int64](9), ptr[int64](1), ptr[int64](2)
	for _, o := range []AbortTransactionOptions{byOffset, byProducer} {
		c := &capture{}
		if err := AbortTransaction(testContext(t), conn, o, c.output(false)); err != nil {
			t.Fatal(err)
		}
		requests := asked()
		m := requests[len(requests)-1].(*kmsg.WriteTxnMarkersRequest).Markers[0]
		if m.Committed || m.ProducerID != 9 || m.ProducerEpoch != 1 || m.CoordinatorEpoch != 2 || m.Topics[0].Topic != "t" || m.Topics[0].Partitions[0] != 1 {
			t.Errorf("marker %+v", m)
		}
	}
	c := &capture{}
	if err := AbortTransaction(testContext(t), conn, elsewhere, c.output(false)); err == nil || !strings.Contains(err.Error(), "describe-producers --topic t --partition 1") {
		t.Error(err)
	}
	var usage UsageError
	if err := AbortTransaction(testContext(t), conn, at, c.output(false)); !errors.As(err, &usage) {
		t.Errorf("no transaction is named: %v", err)
	}
	tooHigh := byProducer
	tooHigh.ProducerEpoch = ptr[int64](1<<16 + 1) // would be 1 in the request
	if err := AbortTransaction(testContext(t), conn, tooHigh, c.output(false)); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--producer-epoch 65537") {
		t.Errorf("an epoch beyond all: %v", err)
	}
}

func TestForceTerminateWaitsForTheAbort(t *testing.T) {
	conn, asked := transactionCluster(t)
	c := &capture{}
	if err := ForceTerminateTransaction(testContext(t), conn, "bill", c.output(true)); err != nil {
		t.Fatal(err)
	}
	if n := len(asked()); n != 3 || c.out.String() != `{"transactionalId":"bill"}`+"\n" {
		t.Errorf("%d requests, output %q", n, c.out.String())
	}
}

// TestForceTerminateOfAnIDThatIsNotThere: it is made, as by Kafka's tool, and with a warning, as its name may be a typing error.
func TestForceTerminateOfAnIDThatIsNotThere(t *testing.T) {
	conn, asked := transactionCluster(t)
	c := &capture{}
	if err := ForceTerminateTransaction(testContext(t), conn, "nobody", c.output(false)); err != nil || c.out.Len() != 0 ||
		!strings.HasPrefix(c.err.String(), "WARNING: Transactional id 'nobody' did not exist; it is created") {
		t.Errorf("%v, %q, %q", err, c.out.String(), c.err.String())
	}
	if !slices.ContainsFunc(asked(), func(req kmsg.Request) bool { return req.Key() == kmsg.InitProducerID.Int16() }) {
		t.Error("no producer id was asked for")
	}
}

func TestFindHangingWantsALimit(t *testing.T) {
	conn, _ := transactionCluster(t)
	for _, o := range []FindHangingOptions{{}, {Broker: ptr[int32](0), Partition: ptr[int32](1)}} {
		var usage UsageError
		if err := FindHangingTransactions(testContext(t), conn, o, (&capture{}).output(false)); !errors.As(err, &usage) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestHangingTransactionsOfABrokerThatIsNotThere(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "t"))
	id := int32(99)
	err := FindHangingTransactions(testContext(t), conn, FindHangingOptions{Broker: &id}, new(capture).output(false))
	if err == nil || !strings.Contains(err.Error(), "broker 99 is not live") {
		t.Errorf("got %v", err)
	}
}
