package lab

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire/batch"
)

// place is a partition that a produce request writes to, with the value of the one record.
type place struct {
	topic     string
	partition int32
	value     string
}

// acksAllCode is acks=all in a request.
const acksAllCode = -1

// produceRequest has one batch of one record for each place. timeout is how long the broker may take.
func produceRequest(acks int16, timeout time.Duration, places ...place) (*kmsg.ProduceRequest, error) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = acks, int32(timeout.Milliseconds())
	for _, p := range places {
		now := time.Now().UnixMilli()
		b, err := batch.NewBuilder(batch.NewBuilderConfig(batch.CodecNone, now))
		if err != nil {
			return nil, err
		}
		if err := b.AppendKV(now, nil, []byte(p.value)); err != nil {
			return nil, err
		}
		raw, err := b.Build()
		if err != nil {
			return nil, err
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.partition, raw
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic = p.topic
			req.Topics = append(req.Topics, rt)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	return req, nil
}

// produceAnswers writes the answer for each partition as "topic-0: offset 5" or "topic-0: ERROR_NAME".
func produceAnswers(resp kmsg.Response) []string {
	var list []string
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			what := fmt.Sprintf("offset %d", p.BaseOffset)
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				what = errorName(err)
			}
			list = append(list, fmt.Sprintf("%s-%d: %s", t.Topic, p.Partition, what))
		}
	}
	return list
}

// sentRequest is a produce request on a connection that is not answered yet.
type sentRequest struct {
	req *kmsg.ProduceRequest
	id  int32
	at  time.Time
}

// sendProduce sends a produce request and leaves the answer for later.
func (c *conn) sendProduce(acks int16, timeout time.Duration, places ...place) (sentRequest, error) {
	req, err := produceRequest(acks, timeout, places...)
	if err != nil {
		return sentRequest{}, err
	}
	at := time.Now()
	id, err := c.send(req)
	return sentRequest{req, id, at}, err
}

// answers reads the answer to a request that must be the next.
func (c *conn) answers(s sentRequest, limit time.Duration) ([]string, error) {
	resp, err := c.receive(s.req, s.id, limit)
	if err != nil {
		return nil, err
	}
	return produceAnswers(resp), nil
}
