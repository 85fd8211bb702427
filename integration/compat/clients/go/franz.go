package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franz drives franz-go.
type franz struct {
	brokers []string
	admin   *kadm.Client
	err     error // why there is no admin
}

func newFranz(brokers []string) library {
	f := &franz{brokers: brokers}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		f.err = err
	} else {
		f.admin = kadm.NewClient(cl)
	}
	ask := func(do func(context.Context, order) (reply, error)) func(context.Context, order) (reply, error) {
		return func(ctx context.Context, o order) (reply, error) {
			if f.err != nil {
				return reply{}, f.err
			}
			return do(ctx, o)
		}
	}
	return library{member: f.member, unhurried: f.unhurried, operations: map[string]func(context.Context, order) (reply, error){
		"create": ask(func(ctx context.Context, o order) (reply, error) {
			_, err := f.admin.CreateTopic(ctx, int32(o.Partitions), 3, nil, o.Topic)
			return reply{}, err
		}),
		"produce": f.produce, "transact": f.transact, "fetch": f.fetch, "member": nothing,
		"at": ask(f.at), "topics": ask(f.topics), "describe": ask(f.describe), "grow": ask(f.grow), "configure": ask(f.configure), "config": ask(f.config),
		"groups": ask(f.groups), "group": ask(f.group),
		"delete": ask(func(ctx context.Context, o order) (reply, error) {
			_, err := f.admin.DeleteTopic(ctx, o.Topic)
			return reply{}, err
		}),
	}}
}

func (f *franz) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(f.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

func franzRecords(o order) []*kgo.Record {
	var all []*kgo.Record
	for _, r := range o.Records {
		one := &kgo.Record{Topic: o.Topic, Partition: o.Partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		all = append(all, one)
	}
	return all
}

func (f *franz) produce(ctx context.Context, o order) (reply, error) {
	codec := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[o.Codec]
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[o.Acks]
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks)}
	if !o.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := f.client(opts...)
	if err != nil {
		return reply{}, err
	}
	defer cl.Close()
	results := cl.ProduceSync(ctx, franzRecords(o)...)
	var r reply
	for _, one := range results {
		r.Offsets = append(r.Offsets, one.Record.Offset)
	}
	return r, results.FirstErr()
}

func (f *franz) transact(ctx context.Context, o order) (reply, error) {
	cl, err := f.client(kgo.TransactionalID(o.ID))
	if err != nil {
		return reply{}, err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return reply{}, err
	}
	if err := cl.ProduceSync(ctx, franzRecords(o)...).FirstErr(); err != nil {
		return reply{}, err
	}
	if o.Group != "" {
		if err := addOffset(ctx, cl, o); err != nil {
			return reply{}, err
		}
	}
	return reply{}, cl.EndTransaction(ctx, kgo.TransactionEndTry(!o.Abort))
}

// addOffset adds an offset of a group without a member to the transaction, with the requests as they are: the client itself does so only as a
// member (GroupTransactSession).
func addOffset(ctx context.Context, cl *kgo.Client, o order) error {
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = o.ID, id, epoch, o.Group
	added, err := add.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return fmt.Errorf("AddOffsetsToTxn: %w", err)
	}
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = o.Partition, o.Offset
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.Partitions = o.Topic, []kmsg.TxnOffsetCommitRequestTopicPartition{p}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = o.ID, id, epoch, o.Group
	commit.Generation, commit.Topics = -1, []kmsg.TxnOffsetCommitRequestTopic{t}
	done, err := commit.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(done.Topics[0].Partitions[0].ErrorCode); err != nil {
		return fmt.Errorf("TxnOffsetCommit: %w", err)
	}
	return nil
}

func (f *franz) fetch(ctx context.Context, o order) (reply, error) {
	level := kgo.ReadUncommitted()
	if o.Committed {
		level = kgo.ReadCommitted()
	}
	cl, err := f.client(kgo.FetchIsolationLevel(level), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		o.Topic: {o.Partition: kgo.NewOffset().At(o.Offset)},
	}))
	if err != nil {
		return reply{}, err
	}
	defer cl.Close()
	var r reply
	for len(r.Records) < o.Count && ctx.Err() == nil {
		fetches := cl.PollRecords(ctx, o.Count-len(r.Records))
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return r, e.Err
			}
		}
		fetches.EachRecord(func(one *kgo.Record) {
			got := record{Key: one.Key, Value: one.Value, Offset: one.Offset}
			for _, h := range one.Headers {
				got.Headers = append(got.Headers, header{h.Key, h.Value})
			}
			r.Records = append(r.Records, got)
		})
	}
	return r, nil
}

func (f *franz) at(ctx context.Context, o order) (reply, error) {
	found, err := f.admin.ListOffsetsAfterMilli(ctx, o.Time, o.Topic)
	if err != nil {
		return reply{}, err
	}
	at, _ := found.Lookup(o.Topic, o.Partition)
	return reply{Offset: at.Offset}, at.Err
}

func (f *franz) topics(ctx context.Context, _ order) (reply, error) {
	all, err := f.admin.ListTopics(ctx)
	return reply{Names: all.Names()}, err
}

func (f *franz) describe(ctx context.Context, o order) (reply, error) {
	all, err := f.admin.ListTopics(ctx, o.Topic)
	return reply{Number: len(all[o.Topic].Partitions)}, err
}

func (f *franz) grow(ctx context.Context, o order) (reply, error) {
	done, err := f.admin.UpdatePartitions(ctx, o.Partitions, o.Topic)
	return reply{}, errors.Join(err, done.Error())
}

func (f *franz) configure(ctx context.Context, o order) (reply, error) {
	done, err := f.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: o.Name, Value: &o.Value}}, o.Topic)
	for _, d := range done {
		err = errors.Join(err, d.Err)
	}
	return reply{}, err
}

func (f *franz) config(ctx context.Context, o order) (reply, error) {
	found, err := f.admin.DescribeTopicConfigs(ctx, o.Topic)
	if err != nil {
		return reply{}, err
	}
	for _, c := range found[0].Configs {
		if c.Key == o.Name {
			return reply{Text: c.MaybeValue()}, nil
		}
	}
	return reply{}, found[0].Err
}

func (f *franz) groups(ctx context.Context, _ order) (reply, error) {
	all, err := f.admin.ListGroups(ctx)
	return reply{Names: all.Groups()}, err
}

func (f *franz) group(ctx context.Context, o order) (reply, error) {
	found, err := f.admin.DescribeGroups(ctx, o.Group)
	return reply{Text: found[o.Group].State, Number: len(found[o.Group].Members)}, err
}

func (f *franz) member(ctx context.Context, group, topic string) error {
	return f.memberWith(ctx, group, topic, kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.AutoCommitInterval(300*time.Millisecond))
}

func (f *franz) unhurried(ctx context.Context, group, topic string) error {
	return f.memberWith(ctx, group, topic)
}

func (f *franz) memberWith(ctx context.Context, group, topic string, opts ...kgo.Opt) error {
	p, owned := &printer{topic: topic}, map[int32]bool{}
	changed := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) { // one at a time, says the client
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			for _, n := range topics[topic] {
				if has {
					owned[n] = true
				} else {
					delete(owned, n)
				}
			}
			p.has(slices.Collect(maps.Keys(owned)))
		}
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(f.brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(changed(true)), kgo.OnPartitionsRevoked(changed(false)), kgo.OnPartitionsLost(changed(false)))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { p.read(r.Partition, r.Offset) })
	}
	return nil
}
