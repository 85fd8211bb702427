package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recordsUpTo is one entry of Kafka's file: the records of a partition below an offset, or all of them for -1.
type recordsUpTo struct {
	topicPartition
	Offset int64 `json:"offset"`
}

// deletedRecords is the JSON form of what became of one partition.
type deletedRecords struct {
	topicPartition
	LowWatermark int64  `json:"lowWatermark"` // the first offset that is left; -1 after an error
	Error        string `json:"error,omitempty"`
}

func readDeletions(path string) ([]recordsUpTo, error) {
	const want = `want {"version":1,"partitions":[{"topic":"t","partition":0,"offset":100}]}, -1 for all records`
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Version    *int
		Partitions []struct {
			Topic     string
			Partition *int32
			Offset    *int64
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w; %s", path, err, want)
	}
	if file.Version != nil && *file.Version != 1 || len(file.Partitions) == 0 {
		return nil, fmt.Errorf("%s: no version 1 with partitions; %s", path, want)
	}
	var list []recordsUpTo
	for i, p := range file.Partitions {
		if p.Topic == "" || p.Partition == nil || p.Offset == nil {
			return nil, fmt.Errorf("%s: entry %d needs a topic, a partition and an offset; %s", path, i, want)
		}
		up := recordsUpTo{topicPartition{p.Topic, *p.Partition}, *p.Offset}
		if slices.ContainsFunc(list, func(u recordsUpTo) bool { return u.topicPartition == up.topicPartition }) {
			return nil, fmt.Errorf("%s: offset json file contains duplicate topic partitions: %s", path, up.topicPartition)
		}
		list = append(list, up)
	}
	return list, nil
}

// DeleteRecords deletes the records below the offsets of a file.
func DeleteRecords(ctx context.Context, conn Connection, file string, out Output) error {
	list, err := readDeletions(file)
	if err != nil {
		return err
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		results := deleteRecords(ctx, cl, list)
		failed := ctx.Err()
		var b strings.Builder
		b.WriteString("Executing records delete operation\nRecords delete operation completed:\n")
		for _, r := range results {
			if r.Error == "" {
				fmt.Fprintf(&b, "partition: %s\tlow_watermark: %d\n", r.topicPartition, r.LowWatermark)
				continue
			}
			fmt.Fprintf(&b, "partition: %s\terror: %s\n", r.topicPartition, r.Error)
			failed = errors.Join(errors.New("not all records could be deleted"), ctx.Err())
		}
		if out.JSON {
			return errors.Join(out.writeJSON(results), failed)
		}
		_, err := out.Out.Write([]byte(b.String()))
		return errors.Join(err, failed)
	})
}

func deleteRecords(ctx context.Context, cl *kgo.Client, list []recordsUpTo) []deletedRecords {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(adminTimeout.Milliseconds() / 2)
	slices.SortFunc(list, func(a, b recordsUpTo) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	for _, u := range list {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != u.Topic {
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = u.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = u.Partition, u.Offset
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	var results []deletedRecords
	for _, shard := range cl.RequestSharded(ctx, req) { // to each leader; that one of them fails does not undo what the others have done
		results = append(results, deletedBy(shard)...)
	}
	slices.SortFunc(results, func(a, b deletedRecords) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return results
}

// deletedBy is what one leader answered, or why it did not.
func deletedBy(shard kgo.ResponseShard) (results []deletedRecords) {
	if shard.Err != nil {
		for _, t := range shard.Req.(*kmsg.DeleteRecordsRequest).Topics {
			for _, p := range t.Partitions {
				results = append(results, deletedRecords{topicPartition{t.Topic, p.Partition}, -1, shard.Err.Error()})
			}
		}
		return results
	}
	for _, t := range shard.Resp.(*kmsg.DeleteRecordsResponse).Topics {
		for _, p := range t.Partitions {
			r := deletedRecords{topicPartition: topicPartition{t.Topic, p.Partition}, LowWatermark: p.LowWatermark}
			if err := brokerError(p.ErrorCode, nil); err != nil {
				r.LowWatermark, r.Error = -1, cmp.Or(err.Error(), "unknown error")
			}
			results = append(results, r)
		}
	}
	return results
}
