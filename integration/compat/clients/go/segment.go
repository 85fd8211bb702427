package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

// segment drives segmentio/kafka-go.
type segment struct {
	brokers []string
	client  *kafka.Client
}

func newSegment(brokers []string) library {
	s := &segment{brokers, &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: timeout}}
	return library{member: s.member, operations: map[string]func(context.Context, order) (reply, error){
		"create": func(ctx context.Context, o order) (reply, error) {
			done, err := s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
				{Topic: o.Topic, NumPartitions: o.Partitions, ReplicationFactor: 3},
			}})
			if err == nil {
				err = done.Errors[o.Topic]
			}
			return reply{}, err
		},
		"produce": s.produce, "fetch": s.fetch, "member": nothing, "at": s.at, "topics": s.topics, "describe": s.describe,
		"transact": func(context.Context, order) (reply, error) {
			return reply{}, absent("it has the requests of transactions, but no producer for them")
		},
		"grow": func(ctx context.Context, o order) (reply, error) {
			done, err := s.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{
				{Name: o.Topic, Count: int32(o.Partitions)},
			}})
			if err == nil {
				err = done.Errors[o.Topic]
			}
			return reply{}, err
		},
		"configure": s.configure, "config": s.config,
		"groups": func(ctx context.Context, _ order) (reply, error) { return s.groups(ctx) },
		"group":  s.group,
		"delete": func(ctx context.Context, o order) (reply, error) {
			done, err := s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{o.Topic}})
			if err == nil {
				err = done.Errors[o.Topic]
			}
			return reply{}, err
		},
	}}
}

// produce sends the records as one batch, those that are too large for that one by one.
func (s *segment) produce(ctx context.Context, o order) (r reply, err error) {
	if o.Idempotent {
		return reply{}, absent("it has no idempotent producer")
	}
	codec := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[o.Codec]
	acks := map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}[o.Acks]
	batches := [][]record{o.Records}
	if slices.ContainsFunc(o.Records, func(r record) bool { return len(r.Value) > 100_000 }) {
		batches = slices.Collect(slices.Chunk(o.Records, 1))
	}
	for _, batch := range batches {
		var records []kafka.Record
		for _, one := range batch {
			k := kafka.Record{Key: kafka.NewBytes(one.Key), Value: kafka.NewBytes(one.Value)}
			for _, h := range one.Headers {
				k.Headers = append(k.Headers, kafka.Header{Key: h.Key, Value: h.Value})
			}
			records = append(records, k)
		}
		done, err := s.send(ctx, func() *kafka.ProduceRequest {
			return &kafka.ProduceRequest{
				Topic: o.Topic, Partition: int(o.Partition), RequiredAcks: acks, Compression: codec, Records: kafka.NewRecordReader(records...),
			}
		})
		if err != nil {
			return reply{}, err
		}
		if acks == kafka.RequireNone {
			continue
		}
		for i := range batch {
			r.Offsets = append(r.Offsets, done.BaseOffset+int64(i))
		}
	}
	return r, nil
}

// send sends a request again while the leader that the client knows is not the leader any more; the client leaves that to who calls it.
func (s *segment) send(ctx context.Context, request func() *kafka.ProduceRequest) (*kafka.ProduceResponse, error) {
	for {
		done, err := s.client.Produce(ctx, request())
		if err == nil && done != nil {
			err = done.Error
		}
		if !errors.Is(err, kafka.NotLeaderForPartition) {
			return done, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *segment) reader(topic string, partition int, level kafka.IsolationLevel) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.brokers, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 4 << 20, MaxWait: 200 * time.Millisecond, IsolationLevel: level,
	})
}

func (s *segment) fetch(ctx context.Context, o order) (r reply, err error) {
	level := kafka.ReadUncommitted
	if o.Committed {
		level = kafka.ReadCommitted
	}
	reader := s.reader(o.Topic, int(o.Partition), level)
	defer func() { err = errors.Join(err, reader.Close()) }()
	if err := reader.SetOffset(o.Offset); err != nil {
		return reply{}, err
	}
	for len(r.Records) < o.Count {
		m, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return r, nil
		}
		if err != nil {
			return reply{}, err
		}
		got := record{Key: m.Key, Value: m.Value, Offset: m.Offset}
		for _, h := range m.Headers {
			got.Headers = append(got.Headers, header{h.Key, h.Value})
		}
		r.Records = append(r.Records, got)
	}
	return r, nil
}

func (s *segment) at(ctx context.Context, o order) (reply, error) {
	found, err := s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		o.Topic: {kafka.TimeOffsetOf(int(o.Partition), time.UnixMilli(o.Time))},
	}})
	if err != nil {
		return reply{}, err
	}
	for _, p := range found.Topics[o.Topic] {
		for offset := range p.Offsets {
			return reply{Offset: offset}, p.Error
		}
		return reply{Offset: -1}, p.Error
	}
	return reply{}, errors.New("no answer for the partition")
}

func (s *segment) topics(ctx context.Context, _ order) (r reply, err error) {
	found, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return reply{}, err
	}
	for _, t := range found.Topics {
		r.Names = append(r.Names, t.Name)
	}
	return r, nil
}

func (s *segment) describe(ctx context.Context, o order) (reply, error) {
	found, err := s.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{o.Topic}})
	if err != nil {
		return reply{}, err
	}
	return reply{Number: len(found.Topics[0].Partitions)}, found.Topics[0].Error
}

func (s *segment) configure(ctx context.Context, o order) (reply, error) {
	done, err := s.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: o.Topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: o.Name, Value: o.Value, ConfigOperation: kafka.ConfigOperationSet}},
	}}})
	if err != nil {
		return reply{}, err
	}
	return reply{}, done.Resources[0].Error
}

func (s *segment) config(ctx context.Context, o order) (reply, error) {
	found, err := s.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: o.Topic, ConfigNames: []string{o.Name}},
	}})
	if err != nil {
		return reply{}, err
	}
	if found.Resources[0].Error != nil {
		return reply{}, found.Resources[0].Error
	}
	return reply{Text: found.Resources[0].ConfigEntries[0].ConfigValue}, nil
}

func (s *segment) groups(ctx context.Context) (r reply, err error) {
	found, err := s.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return reply{}, err
	}
	for _, g := range found.Groups {
		r.Names = append(r.Names, g.GroupID)
	}
	return r, found.Error
}

func (s *segment) group(ctx context.Context, o order) (reply, error) {
	found, err := s.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{o.Group}})
	if err != nil {
		return reply{}, err
	}
	return reply{Text: found.Groups[0].GroupState, Number: len(found.Groups[0].Members)}, found.Groups[0].Error
}

func (s *segment) member(ctx context.Context, group, topic string) (err error) {
	members, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: s.brokers, Topics: []string{topic}, SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
		RebalanceTimeout: 10 * time.Second, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, members.Close()) }()
	p := &printer{topic: topic}
	for {
		generation, err := members.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // of this attempt: the client joins anew when it is asked for the next generation
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		owned := map[int32]int64{}
		for _, a := range generation.Assignments[topic] {
			owned[int32(a.ID)] = a.Offset
		}
		p.has(slices.Collect(maps.Keys(owned)))
		for partition, from := range owned {
			generation.Start(func(ctx context.Context) { s.share(ctx, generation, p, topic, int(partition), from) })
		}
	}
}

// share reads one partition while the generation lasts, and commits after each batch.
func (s *segment) share(ctx context.Context, generation *kafka.Generation, p *printer, topic string, partition int, from int64) {
	reader := s.reader(topic, partition, kafka.ReadUncommitted)
	defer func() { _ = reader.Close() }()
	if err := reader.SetOffset(from); err != nil {
		return
	}
	next := from
	commit := func() error {
		if next == from {
			return nil
		}
		from = next
		return generation.CommitOffsets(map[string]map[int]int64{topic: {partition: next}})
	}
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		m, err := reader.ReadMessage(reading)
		cancel()
		if err == nil {
			p.read(int32(m.Partition), m.Offset)
			next = m.Offset + 1
		}
		if next-from >= 15 || err != nil {
			if commit() != nil {
				return
			}
		}
	}
}
