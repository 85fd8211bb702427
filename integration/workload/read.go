package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CreateTopic creates a topic and waits until each partition has a leader that serves it.
func CreateTopic(ctx context.Context, bootstrap []string, topic string, partitions int32, replicas int16, configs map[string]string) error {
	cl, err := kgo.NewClient(ClientOptions(bootstrap)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = kadm.StringPtr(v)
	}
	if _, err := adm.CreateTopic(ctx, partitions, replicas, values, topic); err != nil {
		return fmt.Errorf("creating topic %s: %w", topic, err)
	}
	if err := WaitLeaders(ctx, adm, topic); err != nil {
		return err
	}
	return waitServed(ctx, adm, topic)
}

// waitServed waits until each leader serves its partitions: it is named as the leader some milliseconds before it has heard that itself.
func waitServed(ctx context.Context, adm *kadm.Client, topic string) error {
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			return nil
		}
		if waitErr := pauseBriefly(ctx); waitErr != nil {
			return fmt.Errorf("waiting for the leaders of %s to serve: %w", topic, errors.Join(waitErr, err))
		}
	}
}

// WaitLeaders waits until each partition of the topic has a leader.
func WaitLeaders(ctx context.Context, adm *kadm.Client, topic string) error {
	return WaitTopic(ctx, adm, topic, func(p kadm.PartitionDetail) bool { return p.Leader >= 0 && p.Err == nil })
}

// WaitTopic waits until the condition holds for each partition of the topic, as any broker sees it.
func WaitTopic(ctx context.Context, adm *kadm.Client, topic string, holds func(kadm.PartitionDetail) bool) error {
	for {
		meta, err := adm.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		var missing []kadm.PartitionDetail
		for _, p := range meta.Topics[topic].Partitions.Sorted() {
			if !holds(p) {
				missing = append(missing, p)
			}
		}
		if len(missing) == 0 && len(meta.Topics[topic].Partitions) > 0 {
			return nil
		}
		if err := pauseBriefly(ctx); err != nil {
			return fmt.Errorf("%d partitions of %s are not as they should be, the first is %+v: %w", len(missing), topic, missing, err)
		}
	}
}

// Leaders tells the leader of each partition.
func Leaders(ctx context.Context, bootstrap []string, topic string) (map[int32]int32, error) {
	cl, err := kgo.NewClient(ClientOptions(bootstrap)...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	meta, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range meta.Topics[topic].Partitions.Sorted() {
		leaders[p.Partition] = p.Leader
	}
	return leaders, nil
}

// Read fetches all that the topic holds below its high watermarks as of now, in the order of offsets of each partition.
func Read(ctx context.Context, bootstrap []string, topic string) ([]Record, error) {
	cl, err := kgo.NewClient(append(ClientOptions(bootstrap), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return readAll(ctx, cl, topic, kadm.NewClient(cl).ListEndOffsets, false)
}

// ReadWithMarkers is Read with the markers of transactions among the records.
func ReadWithMarkers(ctx context.Context, bootstrap []string, topic string) ([]Record, error) {
	cl, err := kgo.NewClient(append(ClientOptions(bootstrap), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return readAll(ctx, cl, topic, kadm.NewClient(cl).ListEndOffsets, true)
}

// ReadCommitted is Read for a consumer that sees committed transactions only, below the last stable offsets. No transaction
// may be open that began before others ended.
func ReadCommitted(ctx context.Context, bootstrap []string, topic string) ([]Record, error) {
	cl, err := kgo.NewClient(append(ClientOptions(bootstrap), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return readAll(ctx, cl, topic, kadm.NewClient(cl).ListCommittedOffsets, false)
}

// readAll reads from the log starts up to the offsets that list tells.
func readAll(ctx context.Context, cl *kgo.Client, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error), markers bool) ([]Record, error) {
	adm := kadm.NewClient(cl)
	starts, err := listOffsets(ctx, topic, adm.ListStartOffsets)
	if err != nil {
		return nil, fmt.Errorf("start offsets of %s: %w", topic, err)
	}
	ends, err := listOffsets(ctx, topic, list)
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", topic, err)
	}
	left := map[int32]int64{} // the end offset of each partition that is not read to its end
	assigned := map[int32]kgo.Offset{}
	ends.Each(func(e kadm.ListedOffset) {
		if s, ok := starts.Lookup(topic, e.Partition); ok && s.Offset < e.Offset {
			left[e.Partition] = e.Offset
			assigned[e.Partition] = kgo.NoResetOffset().At(s.Offset)
		}
	})
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned})
	var records []Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return records, fmt.Errorf("reading %s: partitions not read to their ends: %v: %w", topic, left, ctx.Err())
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("reading %s-%d: %w", topic, errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, ok := left[r.Partition]; ok && r.Offset < end {
				if !r.Attrs.IsControl() || markers {
					records = append(records, Record{r.Partition, r.Offset, r.Value, r.LeaderEpoch, markerOf(r)})
				}
				if r.Offset == end-1 {
					delete(left, r.Partition)
				}
			}
		})
	}
	return records, nil
}

// markerOf reads the key of a control record: version and type, two bytes each.
func markerOf(r *kgo.Record) Marker {
	switch {
	case !r.Attrs.IsControl() || len(r.Key) < 4:
		return NoMarker
	case r.Key[3] == 1:
		return CommitMarker
	default:
		return AbortMarker
	}
}

// listOffsets asks again while the leaders are just changing.
func listOffsets(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	for {
		offsets, err := list(ctx, topic)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil || !kerr.IsRetriable(err) {
			return offsets, err
		}
		if pauseErr := pauseBriefly(ctx); pauseErr != nil {
			return nil, fmt.Errorf("%w: %w", err, pauseErr)
		}
	}
}

// pauseBriefly is the time between two looks at something that only looking can tell.
func pauseBriefly(ctx context.Context) error { return Pause(ctx, 20*time.Millisecond) }

// Pause lets time pass; the error is that of ctx, which ended first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// DeleteTopic deletes a topic.
func DeleteTopic(ctx context.Context, bootstrap []string, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(ClientOptions(bootstrap)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := kadm.NewClient(cl).DeleteTopics(ctx, topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("deleting topic %s: %w", topic, err)
	}
	return nil
}
