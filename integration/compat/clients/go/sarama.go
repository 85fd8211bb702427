package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// saramaDriver drives sarama.
type saramaDriver struct{ brokers []string }

func newSarama(brokers []string) library {
	sarama.Logger = log.New(io.Discard, "", 0)
	s := &saramaDriver{brokers}
	return library{member: s.member, operations: map[string]func(context.Context, order) (reply, error){
		"create": s.ask(func(a sarama.ClusterAdmin, o order) (reply, error) {
			return reply{}, a.CreateTopic(o.Topic, &sarama.TopicDetail{NumPartitions: int32(o.Partitions), ReplicationFactor: 3}, false)
		}),
		"produce": s.produce, "transact": s.transact, "fetch": s.fetch, "member": nothing, "at": s.at,
		"topics": s.ask(func(a sarama.ClusterAdmin, _ order) (reply, error) {
			all, err := a.ListTopics()
			return reply{Names: slices.Collect(maps.Keys(all))}, err
		}),
		"describe": s.ask(func(a sarama.ClusterAdmin, o order) (reply, error) {
			found, err := a.DescribeTopics([]string{o.Topic})
			if err != nil {
				return reply{}, err
			}
			return reply{Number: len(found[0].Partitions)}, nil
		}),
		"grow": s.ask(func(a sarama.ClusterAdmin, o order) (reply, error) {
			return reply{}, a.CreatePartitions(o.Topic, int32(o.Partitions), nil, false)
		}),
		"configure": s.ask(func(a sarama.ClusterAdmin, o order) (reply, error) {
			return reply{}, a.IncrementalAlterConfig(sarama.TopicResource, o.Topic, map[string]sarama.IncrementalAlterConfigsEntry{
				o.Name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &o.Value},
			}, false)
		}),
		"config": s.ask(saramaConfig), "group": s.ask(saramaGroup),
		"groups": s.ask(func(a sarama.ClusterAdmin, _ order) (reply, error) {
			all, err := a.ListConsumerGroups()
			return reply{Names: slices.Collect(maps.Keys(all))}, err
		}),
		"delete": s.ask(func(a sarama.ClusterAdmin, o order) (reply, error) { return reply{}, a.DeleteTopic(o.Topic) }),
	}}
}

func saramaConfig(a sarama.ClusterAdmin, o order) (reply, error) {
	found, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: o.Topic, ConfigNames: []string{o.Name}})
	if err != nil {
		return reply{}, err
	}
	return reply{Text: found[0].Value}, nil
}

func saramaGroup(a sarama.ClusterAdmin, o order) (reply, error) {
	found, err := a.DescribeConsumerGroups([]string{o.Group})
	if err != nil {
		return reply{}, err
	}
	return reply{Text: found[0].State, Number: len(found[0].Members)}, nil
}

func (s *saramaDriver) config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	return c
}

// ask makes an operation of a call of the admin client.
func (s *saramaDriver) ask(do func(sarama.ClusterAdmin, order) (reply, error)) func(context.Context, order) (reply, error) {
	return func(_ context.Context, o order) (r reply, err error) {
		admin, err := sarama.NewClusterAdmin(s.brokers, s.config())
		if err != nil {
			return reply{}, err
		}
		defer func() { err = errors.Join(err, admin.Close()) }()
		return do(admin, o)
	}
}

func saramaMessages(o order) []*sarama.ProducerMessage {
	var all []*sarama.ProducerMessage
	for _, r := range o.Records {
		m := &sarama.ProducerMessage{Topic: o.Topic, Partition: o.Partition}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		all = append(all, m)
	}
	return all
}

func (s *saramaDriver) produce(_ context.Context, o order) (r reply, err error) {
	c := s.config()
	c.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}[o.Acks]
	if o.Codec != "" {
		if err := c.Producer.Compression.UnmarshalText([]byte(o.Codec)); err != nil {
			return reply{}, err
		}
	}
	if o.Idempotent {
		c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	}
	producer, err := sarama.NewSyncProducer(s.brokers, c)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	messages := saramaMessages(o)
	if err := producer.SendMessages(messages); err != nil {
		return reply{}, err
	}
	for _, m := range messages {
		r.Offsets = append(r.Offsets, m.Offset)
	}
	return r, nil
}

func (s *saramaDriver) transact(_ context.Context, o order) (r reply, err error) {
	c := s.config()
	c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.RequiredAcks = true, 1, sarama.WaitForAll
	c.Producer.Transaction.ID = o.ID
	producer, err := sarama.NewSyncProducer(s.brokers, c)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	if err := errors.Join(producer.BeginTxn(), producer.SendMessages(saramaMessages(o))); err != nil {
		return reply{}, err
	}
	if o.Group != "" {
		offsets := map[string][]*sarama.PartitionOffsetMetadata{o.Topic: {{Partition: o.Partition, Offset: o.Offset}}}
		if err := producer.AddOffsetsToTxn(offsets, o.Group); err != nil {
			return reply{}, err
		}
	}
	if o.Abort {
		return reply{}, producer.AbortTxn()
	}
	return reply{}, producer.CommitTxn()
}

func (s *saramaDriver) fetch(ctx context.Context, o order) (r reply, err error) {
	c := s.config()
	if o.Committed {
		c.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(s.brokers, c)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	partition, err := consumer.ConsumePartition(o.Topic, o.Partition, o.Offset)
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, partition.Close()) }()
	for len(r.Records) < o.Count {
		select {
		case <-ctx.Done():
			return r, nil
		case m := <-partition.Messages():
			got := record{Key: m.Key, Value: m.Value, Offset: m.Offset}
			for _, h := range m.Headers {
				got.Headers = append(got.Headers, header{string(h.Key), h.Value})
			}
			r.Records = append(r.Records, got)
		}
	}
	return r, nil
}

func (s *saramaDriver) at(_ context.Context, o order) (r reply, err error) {
	cl, err := sarama.NewClient(s.brokers, s.config())
	if err != nil {
		return reply{}, err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	offset, err := cl.GetOffset(o.Topic, o.Partition, o.Time)
	return reply{Offset: offset}, err
}

func (s *saramaDriver) member(ctx context.Context, group, topic string) error {
	c := s.config()
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 6*time.Second, 500*time.Millisecond
	c.Consumer.Offsets.AutoCommit.Interval, c.Consumer.Offsets.Initial = 300*time.Millisecond, sarama.OffsetOldest
	consumers, err := sarama.NewConsumerGroup(s.brokers, group, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := consumers.Consume(ctx, []string{topic}, saramaSession{&printer{topic: topic}, topic}); err != nil {
			return fmt.Errorf("in the group: %w", err)
		}
	}
	return consumers.Close()
}

// saramaSession is told of one generation of a group.
type saramaSession struct {
	*printer

	of string
}

// Setup is called when partitions are assigned.
func (s saramaSession) Setup(session sarama.ConsumerGroupSession) error {
	s.has(session.Claims()[s.of])
	return nil
}

// Cleanup is called when they are given back.
func (s saramaSession) Cleanup(sarama.ConsumerGroupSession) error {
	s.has(nil)
	return nil
}

// ConsumeClaim reads one partition.
func (s saramaSession) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		s.read(m.Partition, m.Offset)
		session.MarkMessage(m, "")
	}
	return nil
}
