package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/wire/batch"
)

// oldVersions are the versions that a client of the time before transaction.version 2 sends.
type oldVersions struct{ produce, add, end int16 }

// rawTransaction sends the requests of a transaction one by one.
type rawTransaction struct {
	t        *testing.T
	cl       *kgo.Client
	topic    string
	id       string
	versions oldVersions
	producer int64
	epoch    int16
	sequence int32
}

func newRawTransaction(t *testing.T, c *harness.Cluster, topic, id string, v oldVersions) *rawTransaction {
	t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), v.produce)
	versions.SetMaxKeyVersion(int16(kmsg.AddPartitionsToTxn), v.add)
	versions.SetMaxKeyVersion(int16(kmsg.EndTxn), v.end)
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.MaxVersions(versions))...)
	must(t, err)
	t.Cleanup(cl.Close)
	x := &rawTransaction{t: t, cl: cl, topic: topic, id: id, versions: v}
	x.init()
	return x
}

// settled asks again while the markers of the transaction before are written.
func settled(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !errors.Is(err, kerr.ConcurrentTransactions) || workload.Pause(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

func (x *rawTransaction) init() {
	x.t.Helper()
	ctx := deadline(x.t, 20*time.Second)
	must(x.t, settled(ctx, func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &x.id, 60000, -1, -1
		resp, err := req.RequestWith(ctx, x.cl)
		if err != nil {
			return err
		}
		x.producer, x.epoch, x.sequence = resp.ProducerID, resp.ProducerEpoch, 0
		return kerr.ErrorForCode(resp.ErrorCode)
	}))
}

// produce sends one record to partition 0.
func (x *rawTransaction) produce(value string) error {
	x.t.Helper()
	cfg := batch.NewBuilderConfig(batch.CodecNone, time.Now().UnixMilli())
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = x.producer, x.epoch, x.sequence, true
	b, err := batch.NewBuilder(cfg)
	must(x.t, err)
	must(x.t, b.AppendKV(cfg.BaseTimestamp, nil, []byte(value)))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 10000, &x.id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records, err = b.Build()
	must(x.t, err)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = x.topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(deadline(x.t, 20*time.Second), x.cl)
	must(x.t, err)
	if req.Version != x.versions.produce {
		x.t.Errorf("Produce went in version %d, not %d", req.Version, x.versions.produce)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
		return err
	}
	x.sequence++
	return nil
}

// add adds partition 0 of the topics, and tells what each was answered.
func (x *rawTransaction) add(topics ...string) (errs []error) {
	x.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, x.producer, x.epoch
	for _, topic := range topics {
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, rt)
	}
	ctx, version := deadline(x.t, 20*time.Second), int16(-1)
	_ = settled(ctx, func() error {
		resp, err := req.RequestWith(ctx, x.cl)
		must(x.t, err)
		errs, version = nil, resp.Version // the client sends a request of its own making
		for _, topic := range topics {
			i := slices.IndexFunc(resp.Topics, func(t kmsg.AddPartitionsToTxnResponseTopic) bool { return t.Topic == topic })
			if i < 0 {
				x.t.Fatalf("AddPartitionsToTxn of %v answers %+v", topics, resp)
			}
			errs = append(errs, kerr.ErrorForCode(resp.Topics[i].Partitions[0].ErrorCode))
		}
		return errs[0]
	})
	if version != x.versions.add {
		x.t.Errorf("AddPartitionsToTxn went in version %d, not %d", version, x.versions.add)
	}
	return errs
}

func (x *rawTransaction) end(commit bool) error {
	x.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.producer, x.epoch, commit
	ctx := deadline(x.t, 20*time.Second)
	err := settled(ctx, func() error {
		resp, err := req.RequestWith(ctx, x.cl)
		must(x.t, err)
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if req.Version != x.versions.end {
		x.t.Errorf("EndTxn went in version %d, not %d", req.Version, x.versions.end)
	}
	return err
}

func (x *rawTransaction) want(what string, got, want error) {
	x.t.Helper()
	if (got == nil) != (want == nil) || !errors.Is(got, want) {
		x.t.Errorf("%+v: %s: %v, want %v", x.versions, what, got, want)
	}
}

// TestTransactionsOfOldClients sends the requests of clients before transaction.version 2, in each of their versions and at each
// level: partitions are added by request, an epoch lasts for many transactions, and errors are those that the versions know.
func TestTransactionsOfOldClients(t *testing.T) {
	t.Parallel()
	c := single(t, map[string]string{"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"})
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "old", 1, 1, nil))
	adm, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	defer adm.Close()
	var want []string
	for _, level := range []int16{2, 1, 0} {
		setTransactionVersion(t, adm, level)
		for i := range int16(9) {
			v := oldVersions{3 + i, min(i, 3), min(i, 4)}
			value := fmt.Sprintf("%d-%d", level, i)
			newRawTransaction(t, c, "old", "old-"+value, v).run(value)
			want = append(want, value+"-1", value+"-3")
		}
	}
	wantCommitted(t, c, "old", want...)
}

func setTransactionVersion(t *testing.T, adm *kgo.Client, level int16) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = "transaction.version", level, 2, true
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := req.RequestWith(deadline(t, 10*time.Second), adm)
	must(t, err)
	must(t, kerr.ErrorForCode(resp.ErrorCode))
}

// run commits a transaction, aborts one and commits one more, with all that is refused on the way.
func (x *rawTransaction) run(value string) {
	x.t.Helper()
	unknown := error(kerr.InvalidTxnState) // up to version 10 in place of TRANSACTION_ABORTABLE
	if x.versions.produce >= 11 {
		unknown = kerr.TransactionAbortable
	}
	fencedBy := func(version int16) error {
		if version < 2 {
			return kerr.InvalidProducerEpoch
		}
		return kerr.ProducerFenced
	}
	x.want("a record before its partition is added", x.produce(value+"-0"), unknown)
	x.want("the end of nothing", x.end(true), kerr.InvalidTxnState)
	errs := x.add("old", "missing")
	x.want("a partition beside one that is missing", errs[0], kerr.OperationNotAttempted)
	x.want("a partition that is missing", errs[1], kerr.UnknownTopicOrPartition)
	x.want("a partition", x.add("old")[0], nil)
	x.want("the partition again", x.add("old")[0], nil)
	x.want("a record", x.produce(value+"-1"), nil)
	x.want("commit", x.end(true), nil)
	x.want("commit again", x.end(true), nil)
	x.want("abort of what was committed", x.end(false), kerr.InvalidTxnState)

	x.want("a partition of the second", x.add("old")[0], nil)
	x.want("a record of the second", x.produce(value+"-2"), nil)
	x.want("abort", x.end(false), nil)
	x.want("abort again", x.end(false), nil)

	stranger, older := *x, *x
	stranger.producer += 500
	x.want("a partition of another producer id", stranger.add("old")[0], kerr.InvalidProducerIDMapping)
	x.want("the end of another producer id", stranger.end(true), kerr.InvalidProducerIDMapping)
	x.init()
	x.want("a partition of an older epoch", older.add("old")[0], fencedBy(x.versions.add))
	x.want("the end of an older epoch", older.end(true), fencedBy(x.versions.end))
	x.want("a record of an older epoch", older.produce(value+"-zombie"), kerr.InvalidProducerEpoch)
	x.want("a partition of the third", x.add("old")[0], nil)
	x.want("a record of the third", x.produce(value+"-3"), nil)
	x.want("commit of the third", x.end(true), nil)
}

// TestListTransactionsFilters: by state, producer id, duration and name, and what DescribeTransactions does not know.
func TestListTransactionsFilters(t *testing.T) {
	t.Parallel()
	c := single(t, nil)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "old", 1, 1, nil))
	v := oldVersions{11, 3, 4}
	newRawTransaction(t, c, "old", "idle", v)
	open := newRawTransaction(t, c, "old", "open", v)
	open.want("a partition", open.add("old")[0], nil)
	list := func(set func(*kmsg.ListTransactionsRequest)) *kmsg.ListTransactionsResponse {
		req := kmsg.NewPtrListTransactionsRequest()
		req.DurationFilterMillis = -1
		set(req)
		resp, err := req.RequestWith(deadline(t, 20*time.Second), open.cl)
		must(t, err)
		return resp
	}
	for _, tt := range []struct {
		name string
		set  func(*kmsg.ListTransactionsRequest)
		want []string
	}{
		{"all", func(*kmsg.ListTransactionsRequest) {}, []string{"idle Empty", "open Ongoing"}},
		{"state", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Dead"} }, []string{"open Ongoing"}},
		{"producer id", func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{open.producer, 77} }, []string{"open Ongoing"}},
		{"an hour", func(r *kmsg.ListTransactionsRequest) {
			r.DurationFilterMillis, r.StateFilters = 3600_000, []string{"Ongoing"}
		}, nil},
		{"name", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kadm.StringPtr("i.*") }, []string{"idle Empty"}},
		{"part of a name", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kadm.StringPtr("dl") }, nil},
	} {
		resp := list(tt.set)
		var got []string
		for _, s := range resp.TransactionStates {
			got = append(got, s.TransactionalID+" "+s.TransactionState)
		}
		if slices.Sort(got); resp.ErrorCode != 0 || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, code %d, want %v", tt.name, got, resp.ErrorCode, tt.want)
		}
	}
	resp := list(func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Sleeping"} })
	if !slices.Equal(resp.UnknownStateFilters, []string{"Sleeping"}) {
		t.Errorf("unknown states: %v", resp.UnknownStateFilters)
	}
	open.want("a broken pattern", kerr.ErrorForCode(list(func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kadm.StringPtr("(") }).ErrorCode),
		kerr.InvalidRegularExpression)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{"never"}
	d, err := req.RequestWith(deadline(t, 20*time.Second), open.cl)
	must(t, err)
	open.want("an id that is not there", kerr.ErrorForCode(d.TransactionStates[0].ErrorCode), kerr.TransactionalIDNotFound)
	open.want("end", open.end(false), nil)
}
