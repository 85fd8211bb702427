package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// metadataMinAge is how soon clients ask again where leaders are; the default would have them wait seconds for a topic that has just been made.
const metadataMinAge = 20 * time.Millisecond

// wireClient is franz-go, for cairn and Kafka alike.
type wireClient struct {
	at      []string
	configs map[string]*string // of topics
	nodes   int
	cl      *kgo.Client // for administration and probes
	admin   *kadm.Client
}

func dialWire(at []string, s system) (client, error) {
	c := &wireClient{at: at, nodes: s.nodes}
	if s.name == "Kafka" && s.safe {
		one := "1"
		c.configs = map[string]*string{"flush.messages": &one}
	}
	var err error
	// An unanswered request is given up soon, and leaders are looked for all the time: what is measured is the cluster, not the client's patience.
	c.cl, err = kgo.NewClient(kgo.SeedBrokers(at...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DisableIdempotentWrite(),
		kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.MaxProduceRequestsInflightPerBroker(5),
		kgo.MetadataMinAge(metadataMinAge), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.DialTimeout(time.Second))
	if err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(c.cl)
	return c, nil
}

func (c *wireClient) close() { c.cl.Close() }

func (c *wireClient) create(ctx context.Context, topic string) error {
	if _, err := c.admin.CreateTopic(ctx, partitions, int16(c.nodes), c.configs, topic); err != nil {
		return err
	}
	for p := range partitions { // led, and in sync on all nodes
		if err := until(ctx, func() error { return c.whole(ctx, topic, p) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *wireClient) drop(ctx context.Context, topic string) error {
	_, err := c.admin.DeleteTopic(ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) { // an earlier try has done it
		return nil
	}
	return err
}

func (c *wireClient) whole(ctx context.Context, topic string, partition int) error {
	m, err := c.admin.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	if p, ok := m.Topics[topic].Partitions[int32(partition)]; !ok || p.Leader < 0 || len(p.ISR) != c.nodes {
		return fmt.Errorf("partition %d of %s is not whole: %v", partition, topic, p)
	}
	return nil
}

func (c *wireClient) leader(ctx context.Context, topic string, partition int) (int, error) {
	m, err := c.admin.Metadata(ctx, topic)
	if err != nil {
		return 0, err
	}
	for _, b := range m.Brokers {
		if b.NodeID == m.Topics[topic].Partitions[int32(partition)].Leader {
			if i := slices.Index(c.at, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))); i >= 0 {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("partition %d of %s has no leader", partition, topic)
}

func (c *wireClient) probe(ctx context.Context, topic string, partition int) error {
	return c.cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte("probe")}).FirstErr()
}

// bufferBytes is what the producers of a load buffer together, at most: as much as a Java client does.
const bufferBytes = 32 << 20

// recordLimit is when a record has failed. A load that the servers do not take in that time is no load for them.
const recordLimit = time.Minute

// producers makes the clients of a cell, with a buffer of at least 100 records each. That a broker does not know the topic yet is no failure: brokers hear of
// one at their own time.
func (c *wireClient) producers(topic string, p produceCell) ([]*kgo.Client, error) {
	var list []*kgo.Client
	for range p.producers {
		opts := []kgo.Opt{
			kgo.SeedBrokers(c.at...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(1 << 20), kgo.ProducerLinger(p.linger),
			kgo.MetadataMinAge(metadataMinAge), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(min(50_000, max(100, bufferBytes/p.bytes/p.producers))),
			kgo.UnknownTopicRetries(-1), kgo.RecordDeliveryTimeout(recordLimit),
		}
		if p.acks == "1" {
			opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			for _, open := range list {
				open.Close()
			}
			return nil, err
		}
		list = append(list, cl)
	}
	return list, nil
}

func (c *wireClient) consume(ctx context.Context, topic string, stop func() bool, got func([]byte)) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.at...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(50<<20),
		kgo.MetadataMinAge(metadataMinAge))
	if err != nil {
		return err
	}
	defer cl.Close()
	for !stop() {
		polling, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		fetches := cl.PollFetches(polling)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return e.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { got(r.Value) })
	}
	return nil
}
