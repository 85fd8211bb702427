package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GetOffsetsOptions says of which partitions to tell an offset, and which.
type GetOffsetsOptions struct {
	Topic           string // a regular expression that matches whole names; empty: all
	Partitions      []int32
	TopicPartitions string // Kafka's PATTERN[:PARTITION|:FROM-TO],..., instead of both
	Time            string // latest, earliest, max-timestamp, earliest-local, latest-tiered, earliest-pending-upload, or a number
	ExcludeInternal bool
}

// offsetAt is the JSON form of one partition's offset.
type offsetAt struct {
	topicPartition
	Offset int64 `json:"offset"`
}

// offsetTime reads Kafka's --time.
func offsetTime(text string) (int64, error) {
	names := []string{"latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered", "earliest-pending-upload"}
	if i := slices.Index(names, text); i >= 0 {
		return int64(-1 - i), nil
	}
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(-len(names)) {
		return 0, fmt.Errorf("--time %q: want %s, or a timestamp in ms", text, strings.Join(names, ", "))
	}
	return n, nil
}

// GetOffsets prints TOPIC:PARTITION:OFFSET; partitions without such an offset are left out, as in Kafka.
func GetOffsets(ctx context.Context, conn Connection, o GetOffsetsOptions, out Output) error {
	at, err := offsetTime(o.Time)
	if err != nil {
		return UsageError{err}
	}
	wanted, err := o.wanted()
	if err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		topics, _, err := TopicSelection{ExcludeInternal: o.ExcludeInternal}.find(ctx, cl)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrListOffsetsRequest()
		for _, m := range topics {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = deref(m.Topic)
			for _, mp := range m.Partitions {
				if wanted.has(t.Topic, mp.Partition) {
					p := kmsg.NewListOffsetsRequestTopicPartition()
					p.Partition, p.Timestamp = mp.Partition, at
					t.Partitions = append(t.Partitions, p)
				}
			}
			if len(t.Partitions) > 0 {
				req.Topics = append(req.Topics, t)
			}
		}
		if len(req.Topics) == 0 {
			return errors.New("could not match any topic-partitions with the specified filters; `cairn topics list` shows what there is")
		}
		offsets, failed := listOffsets(ctx, cl, req)
		if out.JSON {
			err = out.writeJSON(offsets)
		}
		for _, f := range offsets {
			if !out.JSON && err == nil {
				_, err = fmt.Fprintf(out.Out, "%s:%d:%d\n", f.Topic, f.Partition, f.Offset)
			}
		}
		return errors.Join(err, failedReassignments("Skip getting offsets for:", failed), ctx.Err())
	})
}

// listOffsets asks each leader. Partitions that have none, or one that does not answer, are among the failed ones.
func listOffsets(ctx context.Context, cl *kgo.Client, req *kmsg.ListOffsetsRequest) ([]offsetAt, []failure) {
	offsets := []offsetAt{}
	var failed []failure
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
				for _, p := range t.Partitions {
					failed = append(failed, failure{topicPartition: topicPartition{t.Topic, p.Partition}, message: shard.Err.Error()})
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := topicPartition{t.Topic, p.Partition}
				switch {
				case p.ErrorCode != 0:
					failed = append(failed, failure{topicPartition: tp, code: p.ErrorCode})
				case p.Offset >= 0:
					offsets = append(offsets, offsetAt{tp, p.Offset})
				}
			}
		}
	}
	slices.SortFunc(offsets, func(a, b offsetAt) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	slices.SortFunc(failed, func(a, b failure) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return offsets, failed
}
