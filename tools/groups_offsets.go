package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DeleteOffsetsOptions picks committed offsets of one group.
type DeleteOffsetsOptions struct {
	Group  string
	Topics []string // t, or t:0,1 for some partitions
}

// deletedOffset is the JSON form of one deleted offset, or of a topic (partition -1) that there is none of.
type deletedOffset struct {
	topicPartition
	Error string `json:"error,omitempty"`
}

// DeleteOffsets deletes committed offsets of topics that the group is not subscribed to.
func DeleteOffsets(ctx context.Context, conn Connection, o DeleteOffsetsOptions, out Output) error {
	switch {
	case o.Group == "":
		return UsageError{errors.New("--group is missing")}
	case len(o.Topics) == 0:
		return UsageError{errors.New("say which offsets: --topic NAME[:PARTITION,...], which may be repeated")}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		var results []deletedOffset
		set := kadm.TopicsSet{}
		for _, text := range o.Topics {
			topic, partitions, err := parseTopicPartitions(text)
			if err != nil {
				return UsageError{err}
			}
			if len(partitions) == 0 {
				if partitions, err = partitionsOf(ctx, cl, topic, -1); err != nil {
					results = append(results, deletedOffset{topicPartition{topic, -1}, err.Error()})
					continue
				}
			}
			set.Add(topic, partitions...)
		}
		top, err := deleteOffsets(ctx, cl, o.Group, set, &results)
		if err != nil {
			return err
		}
		slices.SortFunc(results, func(a, b deletedOffset) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
		return printDeleted(o.Group, top, results, out)
	})
}

// deleteOffsets asks the coordinator. top is an error of the group as a whole.
func deleteOffsets(ctx context.Context, cl *kgo.Client, group string, set kadm.TopicsSet, results *[]deletedOffset) (top, err error) {
	if len(set) == 0 {
		return nil, nil
	}
	resp, top := kadm.NewClient(cl).DeleteOffsets(ctx, group, set)
	var shards *kadm.ShardErrors
	if errors.As(top, &shards) || errors.Is(top, context.DeadlineExceeded) || errors.Is(top, context.Canceled) {
		return nil, top
	}
	for topic, partitions := range set {
		for p := range partitions {
			d := deletedOffset{topicPartition: topicPartition{topic, p}}
			switch e := resp[topic][p]; {
			case top != nil:
				d.Error = groupException(top)
			case e != nil:
				d.Error = groupException(e)
			}
			*results = append(*results, d)
		}
	}
	return top, nil
}

func printDeleted(group string, top error, results []deletedOffset, out Output) error {
	bad := 0
	for _, r := range results {
		if r.Error != "" {
			bad++
		}
	}
	var failed error
	if bad > 0 {
		failed = fmt.Errorf("%d offset(s) of group '%s' could not be deleted", bad, group)
	}
	if out.JSON {
		return errors.Join(out.writeJSON(results), failed)
	}
	var b strings.Builder
	switch {
	case top != nil:
		fmt.Fprintf(&b, "\nError: %s\n", groupException(top))
	case bad > 0:
		b.WriteString("\nError: Encountered some partition-level error, see the follow-up details.\n")
	default:
		fmt.Fprintf(&b, "Request succeeded for deleting offsets from group %s.\n", group)
	}
	var t table
	t.column("TOPIC", columnWidth)
	t.column("PARTITION", 10)
	t.column("STATUS", columnWidth)
	for _, r := range results {
		partition, status := fmt.Sprint(r.Partition), "Successful"
		if r.Partition < 0 {
			partition = missing
		}
		if r.Error != "" {
			status = "Error: " + r.Error
		}
		t.row(r.Topic, partition, status)
	}
	t.write(&b)
	_, err := out.Out.Write([]byte(b.String()))
	return errors.Join(err, failed)
}
