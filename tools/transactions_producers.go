package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// anyBroker stands for the leader of a partition, where a broker can be named.
const anyBroker int32 = -1

// DescribeProducersOptions name a partition, and a replica of it.
type DescribeProducersOptions struct {
	Topic     string
	Partition int32
	Broker    int32 // whose view is wanted; negative: the leader's
}

// producerState is the JSON form of what a partition knows of a producer; StartOffset is nil when it has no transaction open.
type producerState struct {
	ProducerID       int64  `json:"producerId"`
	ProducerEpoch    int32  `json:"producerEpoch"`
	CoordinatorEpoch int32  `json:"coordinatorEpoch"`
	LastSequence     int32  `json:"lastSequence"`
	LastTimestamp    int64  `json:"lastTimestampMs"`
	StartOffset      *int64 `json:"currentTransactionStartOffset"`
}

// DescribeProducers prints the producers that a partition knows.
func DescribeProducers(ctx context.Context, conn Connection, o DescribeProducersOptions, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		at := topicPartition{o.Topic, o.Partition}
		found, err := describeProducers(ctx, cl, o.Broker, at)
		if errors.Is(err, kerr.UnknownTopicOrPartition) && o.Broker < 0 {
			return fmt.Errorf("partition %s does not exist; `cairn topics describe` shows those that do", at)
		}
		if err != nil {
			return err
		}
		heads := []string{"ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset"}
		return printRows(out, found[at], heads, func(p producerState) []string {
			return []string{
				fmt.Sprint(p.ProducerID), fmt.Sprint(p.ProducerEpoch), fmt.Sprint(p.CoordinatorEpoch), fmt.Sprint(p.LastSequence),
				fmt.Sprint(p.LastTimestamp), orNone(p.StartOffset),
			}
		})
	})
}

// describeProducers asks the leaders of partitions, or one broker about its replicas, for their producers, in the order of their ids.
func describeProducers(ctx context.Context, cl *kgo.Client, broker int32, parts ...topicPartition) (map[topicPartition][]producerState, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = p.Topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
	var shards []kgo.ResponseShard
	if broker >= 0 {
		resp, err := cl.Broker(int(broker)).RetriableRequest(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("broker %d: %w; `cairn status` lists the brokers", broker, err)
		}
		shards = []kgo.ResponseShard{{Resp: resp}}
	} else {
		shards = cl.RequestSharded(ctx, req)
	}
	found := map[topicPartition][]producerState{}
	for _, shard := range shards {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, p := range t.Partitions {
				at := topicPartition{t.Topic, p.Partition}
				if err := brokerError(p.ErrorCode, p.ErrorMessage); err != nil {
					return nil, fmt.Errorf("%s: %w", at, err)
				}
				found[at] = producerStates(p.ActiveProducers)
			}
		}
	}
	return found, nil
}

func producerStates(list []kmsg.DescribeProducersResponseTopicPartitionActiveProducer) []producerState {
	states := []producerState{}
	for _, p := range list {
		s := producerState{p.ProducerID, p.ProducerEpoch, p.CoordinatorEpoch, p.LastSequence, p.LastTimestamp, nil}
		if p.CurrentTxnStartOffset >= 0 {
			s.StartOffset = &p.CurrentTxnStartOffset
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b producerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return states
}

// AbortTransactionOptions name a transaction of a partition: by its first offset, or by all of the producer.
type AbortTransactionOptions struct {
	Topic            string
	Partition        int32
	StartOffset      *int64
	ProducerID       *int64
	ProducerEpoch    *int64
	CoordinatorEpoch *int64
}

func (o AbortTransactionOptions) check() error {
	named := o.ProducerID != nil && o.ProducerEpoch != nil && o.CoordinatorEpoch != nil
	if o.StartOffset == nil && !named {
		return errors.New("the transaction to abort must be identified by --start-offset, or by --producer-id, --producer-epoch and --coordinator-epoch")
	}
	for _, epoch := range []struct {
		flag  string
		value *int64
		most  int64
	}{{"--producer-epoch", o.ProducerEpoch, math.MaxInt16}, {"--coordinator-epoch", o.CoordinatorEpoch, math.MaxInt32}} {
		if v := epoch.value; v != nil && (*v < 0 || *v > epoch.most) {
			return fmt.Errorf("%s %d is no epoch: give one from 0 to %d", epoch.flag, *v, epoch.most)
		}
	}
	return nil
}

// AbortTransaction ends a transaction that hangs in a partition, which its coordinator knows nothing of, by an abort marker.
func AbortTransaction(ctx context.Context, conn Connection, o AbortTransactionOptions, out Output) error {
	if err := o.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		at := topicPartition{o.Topic, o.Partition}
		p, err := o.find(ctx, cl, at)
		if err != nil {
			return err
		}
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = p.ProducerID, int16(p.ProducerEpoch), max(p.CoordinatorEpoch, 0)
		t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		t.Topic, t.Partitions = at.Topic, []int32{at.Partition}
		m.Topics = append(m.Topics, t)
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Markers = append(req.Markers, m)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if len(resp.Markers) != 1 || len(resp.Markers[0].Topics) != 1 || len(resp.Markers[0].Topics[0].Partitions) != 1 {
			return fmt.Errorf("the answer is about %d producers, not about the one of %s", len(resp.Markers), at)
		}
		if err := brokerError(resp.Markers[0].Topics[0].Partitions[0].ErrorCode, nil); err != nil {
			return fmt.Errorf("aborting the transaction of producer id %d in %s: %w", p.ProducerID, at, err)
		}
		out.note("The transaction of producer id %d in %s is aborted.", p.ProducerID, at)
		if out.JSON {
			return out.writeJSON(p)
		}
		return nil
	})
}

// find tells the producer of the transaction.
func (o AbortTransactionOptions) find(ctx context.Context, cl *kgo.Client, at topicPartition) (producerState, error) {
	if o.StartOffset == nil {
		return producerState{ProducerID: *o.ProducerID, ProducerEpoch: int32(*o.ProducerEpoch), CoordinatorEpoch: int32(*o.CoordinatorEpoch)}, nil
	}
	found, err := describeProducers(ctx, cl, anyBroker, at)
	if err != nil {
		return producerState{}, err
	}
	for _, p := range found[at] {
		if p.StartOffset != nil && *p.StartOffset == *o.StartOffset {
			return p, nil
		}
	}
	return producerState{}, fmt.Errorf("could not find any open transactions starting at offset %d on partition %s; "+
		"`cairn transactions describe-producers --topic %s --partition %d` shows those that are open", *o.StartOffset, at, at.Topic, at.Partition)
}

// FindHangingOptions limit the search for transactions that hang.
type FindHangingOptions struct {
	Broker    *int32 // only partitions with a replica there
	Topic     string // only its partitions; empty: all
	Partition *int32 // only this one of the topic
	// MaxTimeout is how long transactions may be open: younger ones do not hang.
	MaxTimeout time.Duration
}

func (o FindHangingOptions) check() error {
	switch {
	case o.Partition != nil && o.Topic == "":
		return errors.New("--partition needs --topic")
	case o.Broker == nil && o.Topic == "":
		return errors.New("the search must be limited by --topic or --broker-id")
	}
	return nil
}

// hangingTransaction is the JSON form of a transaction that hangs.
type hangingTransaction struct {
	topicPartition
	ProducerID       int64 `json:"producerId"`
	ProducerEpoch    int32 `json:"producerEpoch"`
	CoordinatorEpoch int32 `json:"coordinatorEpoch"`
	StartOffset      int64 `json:"startOffset"`
	LastTimestamp    int64 `json:"lastTimestampMs"`
	Minutes          int64 `json:"durationMinutes"`
}

// FindHangingTransactions prints the transactions that are open in a partition for longer than any may be, and of which no
// coordinator knows: nothing but AbortTransaction is going to end them.
func FindHangingTransactions(ctx context.Context, conn Connection, o FindHangingOptions, out Output) error {
	if err := o.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		hanging, err := o.find(ctx, cl, time.Now())
		if err != nil {
			return err
		}
		return printHanging(out, hanging)
	})
}

func printHanging(out Output, list []hangingTransaction) error {
	heads := []string{"Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp", "Duration(min)"}
	return printRows(out, list, heads, func(h hangingTransaction) []string {
		return []string{
			h.Topic, fmt.Sprint(h.Partition), fmt.Sprint(h.ProducerID), fmt.Sprint(h.ProducerEpoch), fmt.Sprint(h.CoordinatorEpoch),
			fmt.Sprint(h.StartOffset), fmt.Sprint(h.LastTimestamp), fmt.Sprint(h.Minutes),
		}
	})
}

func (o FindHangingOptions) find(ctx context.Context, cl *kgo.Client, now time.Time) ([]hangingTransaction, error) {
	parts, err := o.partitions(ctx, cl)
	if err != nil || len(parts) == 0 {
		return []hangingTransaction{}, err
	}
	broker := anyBroker
	if o.Broker != nil {
		broker = *o.Broker
	}
	producers, err := describeProducers(ctx, cl, broker, parts...)
	if err != nil {
		return nil, err
	}
	old := []hangingTransaction{}
	var ids []int64
	for _, at := range parts {
		for _, p := range producers[at] {
			lasts := now.Sub(time.UnixMilli(p.LastTimestamp))
			if p.StartOffset != nil && lasts > o.MaxTimeout {
				old = append(old, hangingTransaction{
					at, p.ProducerID, p.ProducerEpoch, p.CoordinatorEpoch, *p.StartOffset, p.LastTimestamp, int64(lasts / time.Minute),
				})
				ids = append(ids, p.ProducerID)
			}
		}
	}
	if len(old) == 0 {
		return old, nil
	}
	known, err := knownTransactions(ctx, cl, now, ids)
	return slices.DeleteFunc(old, func(h hangingTransaction) bool { return known[h.ProducerID][h.topicPartition] }), err
}

// partitions are those that are searched.
func (o FindHangingOptions) partitions(ctx context.Context, cl *kgo.Client) ([]topicPartition, error) {
	topics, live, err := TopicSelection{}.find(ctx, cl)
	if err != nil {
		return nil, err
	}
	if o.Broker != nil && !slices.Contains(live, *o.Broker) {
		return nil, fmt.Errorf("broker %d is not live; `cairn status` lists those that are", *o.Broker)
	}
	var parts []topicPartition
	for _, t := range topics {
		for _, p := range t.Partitions {
			if (o.Topic == "" || deref(t.Topic) == o.Topic) && (o.Partition == nil || p.Partition == *o.Partition) &&
				(o.Broker == nil || slices.Contains(p.Replicas, *o.Broker)) {
				parts = append(parts, topicPartition{deref(t.Topic), p.Partition})
			}
		}
	}
	if len(parts) == 0 && o.Topic != "" {
		return nil, fmt.Errorf("topic %q has no such partition; `cairn topics describe` shows those that there are", o.Topic)
	}
	slices.SortFunc(parts, comparePartitions)
	return parts, nil
}

// knownTransactions are the partitions that coordinators know of the open transactions of producers.
func knownTransactions(ctx context.Context, cl *kgo.Client, now time.Time, ids []int64) (map[int64]map[topicPartition]bool, error) {
	list, err := listTransactions(ctx, cl, ListTransactionsOptions{LongerThan: -1, producerIDs: ids})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	known := map[int64]map[topicPartition]bool{}
	for _, t := range list {
		described, err := describeTransactions(ctx, cl, now, t.TransactionalID)
		if errors.Is(err, kerr.TransactionalIDNotFound) {
			continue // it is gone since, and its transactions with it
		}
		if err != nil {
			return nil, err
		}
		for _, d := range described {
			known[d.ProducerID] = map[topicPartition]bool{}
			for _, p := range d.Partitions {
				known[d.ProducerID][p] = true
			}
		}
	}
	return known, nil
}
