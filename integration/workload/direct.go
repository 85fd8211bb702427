package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"cairn/wire/batch"
)

// Acks of a produce request.
const (
	AcksNone   int16 = 0
	AcksLeader int16 = 1
	AcksAll    int16 = -1
)

// Direct sends single produce requests to one broker: each is sent once, whatever comes of it. It is safe for concurrent use.
type Direct struct {
	client *kgo.Client
	broker *kgo.Broker
}

// NewDirect returns a producer to the broker at the address; it connects when it is used.
func NewDirect(address string) (*Direct, error) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 9) // the last one that names topics, which knows no topic ids
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.MaxVersions(versions), kgo.DialTimeout(2*time.Second), kgo.RetryTimeout(2*time.Second), kgo.RequestTimeoutOverhead(time.Second))
	if err != nil {
		return nil, err
	}
	return &Direct{cl, cl.SeedBrokers()[0]}, nil
}

// Close ends the connections.
func (d *Direct) Close() { d.client.Close() }

// Produce sends one batch without producer id and returns the offset of its first record; -1 with acks=0. An error that is none of
// Kafka's means that nobody knows what became of it. timeout is what the broker may take.
func (d *Direct) Produce(ctx context.Context, topic string, partition int32, acks int16, timeout time.Duration, values ...[]byte) (int64, error) {
	req, err := produceRequest(topic, partition, acks, timeout, values)
	if err != nil {
		return -1, err
	}
	resp, err := d.broker.Request(ctx, req)
	if err != nil || acks == AcksNone {
		return -1, err
	}
	topics := resp.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return -1, fmt.Errorf("an answer about %d topics, where one partition was asked for", len(topics))
	}
	p := topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

func produceRequest(topic string, partition int32, acks int16, timeout time.Duration, values [][]byte) (*kmsg.ProduceRequest, error) {
	now := time.Now().UnixMilli()
	b, err := batch.NewBuilder(batch.NewBuilderConfig(batch.CodecNone, now))
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		if err := b.AppendKV(now, nil, v); err != nil {
			return nil, err
		}
	}
	raw, err := b.Build()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, int32(timeout.Milliseconds())
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req, nil
}
