package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/batch"
	"cairn/wire/private"
)

const (
	dumpFetchBytes  = 8 << 20                // one answer
	dumpRetries     = 20                     // while a partition has no leader
	dumpRetryPause  = 250 * time.Millisecond // between them
	raftEntriesPage = 1000
	// inspectionTimeout bounds how long a broker may read a partition to verify it.
	inspectionTimeout = time.Hour
)

// dumpLive asks running brokers: for batches the leader, with Fetch, so up to the high watermark.
func dumpLive(ctx context.Context, conn Connection, o DumpOptions, out Output) error {
	p, err := openLive(ctx, conn, o.Topic, o.Partition, out)
	if err != nil {
		return err
	}
	defer p.cl.Close()
	if !o.Raft && !o.Quarantine {
		s, err := p.source(ctx)
		if err != nil {
			return err
		}
		return dumpBatches(ctx, s, o, out)
	}
	if o.Quarantine && o.Broker < 0 {
		return UsageError{errors.New("--quarantine needs --broker, for each broker has a quarantine of its own; `cairn losses` lists who has what")}
	}
	address, err := p.address(ctx, o.Broker)
	if err != nil {
		return err
	}
	if o.Raft {
		return p.dumpRaft(ctx, conn, address, o.Filter, out)
	}
	return dumpQuarantine(ctx, fmt.Sprintf("%s at broker %d", p.tp, o.Broker), p.quarantine(conn, address), o, out)
}

// livePartition is a partition of a running cluster.
type livePartition struct {
	cl     *kgo.Client
	tp     topicPartition
	id     ids.UUID
	leader int32
}

// openLive finds the partition; the caller closes its client.
func openLive(ctx context.Context, conn Connection, topic string, partition int32, out Output) (*livePartition, error) {
	cl, err := conn.openAdmin(ctx, out)
	if err != nil {
		return nil, err
	}
	p := &livePartition{cl: cl, tp: topicPartition{topic, partition}}
	if err := p.findLeader(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return p, nil
}

// findLeader asks until there is a leader, within a bound.
func (p *livePartition) findLeader(ctx context.Context) error {
	for try := 0; ; try++ {
		err := p.askLeader(ctx)
		if err == nil || !kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition) || try == dumpRetries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(dumpRetryPause):
		}
	}
}

func (p *livePartition) askLeader(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &p.tp.Topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := brokerError(t.ErrorCode, nil); err != nil {
			return fmt.Errorf("topic '%s': %w; `cairn topics list` shows what there is", p.tp.Topic, err)
		}
		for _, mp := range t.Partitions {
			if mp.Partition != p.tp.Partition {
				continue
			}
			if err := brokerError(mp.ErrorCode, nil); err != nil {
				return fmt.Errorf("%s: %w; the data directory of a stopped broker can be read with --data-dir", p.tp, err)
			}
			p.id, p.leader = t.TopicID, mp.Leader
			return nil
		}
		return fmt.Errorf("there is no partition %s; the topic has %d", p.tp, len(t.Partitions))
	}
	return fmt.Errorf("topic '%s' does not exist; `cairn topics list` shows what does", p.tp.Topic)
}

// address is where a broker is reached; -1 stands for the leader.
func (p *livePartition) address(ctx context.Context, broker int32) (string, error) {
	addresses, err := brokerAddresses(ctx, p.cl)
	if err != nil {
		return "", err
	}
	if broker < 0 {
		broker = p.leader
	}
	if addresses[broker] == "" {
		return "", fmt.Errorf("broker %d is not alive, those that are: %s; read its data directory with --data-dir", broker, joinIDs(slices.Sorted(maps.Keys(addresses)), ""))
	}
	return addresses[broker], nil
}

// source reads from the log start to where the high watermark is now.
func (p *livePartition) source(ctx context.Context) (batchSource, error) {
	s := batchSource{name: fmt.Sprintf("%s at broker %d", p.tp, p.leader)}
	var err error
	if s.start, err = p.offset(ctx, -2); err != nil {
		return s, err
	}
	if s.end, err = p.offset(ctx, -1); err != nil {
		return s, err
	}
	s.scan = func(ctx context.Context, from int64, fn func(int64, []byte) error) error {
		return p.scan(ctx, max(from, s.start), s.end, fn)
	}
	return s, nil
}

// offset is that of the log start (-2) or the high watermark (-1).
func (p *livePartition) offset(ctx context.Context, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = p.tp.Topic
	tp := kmsg.NewListOffsetsRequestTopicPartition()
	tp.Partition, tp.Timestamp = p.tp.Partition, at
	t.Partitions = append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%s: no answer about its offsets", p.tp)
	}
	rp := resp.Topics[0].Partitions[0]
	if err := brokerError(rp.ErrorCode, nil); err != nil {
		return 0, fmt.Errorf("%s: %w", p.tp, err)
	}
	return rp.Offset, nil
}

func (p *livePartition) scan(ctx context.Context, from, end int64, fn func(int64, []byte) error) error {
	for at := from; at < end; {
		records, err := p.fetch(ctx, at)
		if err != nil {
			return err
		}
		next := at
		for len(records) > 0 {
			h, raw, rest, err := batch.Split(records)
			if err != nil {
				break // the last one may be cut
			}
			if h.BaseOffset >= end {
				return nil
			}
			if err := fn(h.BaseOffset, raw); err != nil {
				return err
			}
			next, records = h.NextOffset(), rest
		}
		if next <= at {
			return nil // what is behind was taken away by compaction
		}
		at = next
	}
	return nil
}

// fetch reads batches from the leader, and looks for another one when that has changed.
func (p *livePartition) fetch(ctx context.Context, at int64) ([]byte, error) {
	for try := 0; ; try++ {
		records, err := p.fetchOnce(ctx, at)
		if err == nil || !kerr.IsRetriable(err) || try == dumpRetries {
			return records, err
		}
		if err := p.findLeader(ctx); err != nil {
			return nil, err
		}
	}
}

func (p *livePartition) fetchOnce(ctx context.Context, at int64) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, dumpFetchBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = p.tp.Topic, p.id
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.tp.Partition, at, dumpFetchBytes
	t.Partitions = append(t.Partitions, fp)
	req.Topics = append(req.Topics, t)
	got, err := p.cl.Broker(int(p.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.FetchResponse)
	if err := brokerError(resp.ErrorCode, nil); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("%s: no answer about its records", p.tp)
	}
	rp := resp.Topics[0].Partitions[0]
	if err := brokerError(rp.ErrorCode, nil); err != nil {
		return nil, fmt.Errorf("%s at offset %d: %w", p.tp, at, err)
	}
	return rp.RecordBatches, nil
}

// dumpRaft asks one broker for its Raft log, page after page. What comes meanwhile is dumped, too, up to where the log ended at first.
func (p *livePartition) dumpRaft(ctx context.Context, conn Connection, address string, f DumpFilter, out Output) error {
	var first engine.RaftView
	for from := ids.RaftIndex(0); ; {
		answer, err := conn.ask(ctx, address, &private.RaftLogRequest{Body: private.RaftLogQuery{
			Topic: p.tp.Topic, Partition: p.tp.Partition, From: from, MaxEntries: raftEntriesPage,
		}})
		if err != nil {
			return err
		}
		body := answer.(*private.RaftLogResponse).Body
		if err := brokerError(body.Code, &body.Message); err != nil {
			return err
		}
		if from == 0 {
			if err := json.Unmarshal(body.State, &first); err != nil {
				return fmt.Errorf("broker at %s: %w", address, err)
			}
			if err := printRaftState(&first, out); err != nil {
				return err
			}
		}
		for _, text := range body.Entries {
			var e engine.EntryView
			if err := json.Unmarshal(text, &e); err != nil {
				return fmt.Errorf("broker at %s: %w", address, err)
			}
			if e.Index > first.LastIndex {
				return nil
			}
			if from = e.Index + 1; !f.takesEntry(&e) {
				continue
			}
			if err := printEntry(&e, out); err != nil {
				return err
			}
		}
		if !body.More || len(body.Entries) == 0 {
			return nil
		}
	}
}

// quarantine asks one broker for what it has in quarantine.
func (p *livePartition) quarantine(conn Connection, address string) quarantineScan {
	return func(ctx context.Context, fn func(int64, int64, []byte) error) error {
		return scanQuarantine(ctx, conn, address, p.tp, func(q private.QuarantinedBatch) error {
			return fn(q.AtMs, int64(q.Offset), q.Batch)
		})
	}
}

// scanQuarantine calls fn with what a broker has in quarantine of a partition, until it fails. The batches are fn's.
func scanQuarantine(ctx context.Context, conn Connection, address string, tp topicPartition, fn func(private.QuarantinedBatch) error) error {
	from := private.Quarantine{LeaderEpoch: ids.NoEpoch}
	for {
		answer, err := conn.ask(ctx, address, &private.QuarantineRequest{Body: private.QuarantineQuery{
			Topic: tp.Topic, Partition: tp.Partition, From: from, MaxBytes: quarantineAsk,
		}})
		if err != nil {
			return err
		}
		body := answer.(*private.QuarantineResponse).Body
		if err := brokerError(body.Code, &body.Message); err != nil {
			return err
		}
		for _, q := range body.Batches {
			if err := fn(q); err != nil {
				return err
			}
			from = private.Quarantine{LeaderEpoch: q.LeaderEpoch, Offset: q.Offset + 1}
		}
		if !body.More {
			return nil
		}
	}
}

// inspectAt has a broker verify what it has stored of a partition.
func inspectAt(ctx context.Context, conn Connection, address string, tp topicPartition) (v engine.Verification, err error) {
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	answer, err := conn.ask(ctx, address, &private.InspectionRequest{Body: private.InspectionQuery{Topic: tp.Topic, Partition: tp.Partition}})
	if err != nil {
		return v, err
	}
	body := answer.(*private.InspectionResponse).Body
	if err := brokerError(body.Code, &body.Message); err != nil {
		return v, err
	}
	return v, json.Unmarshal(body.Found, &v)
}
