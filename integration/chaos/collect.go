package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/engine"
	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/internal/ids"
	"cairn/tools"
	"cairn/wire"
	"cairn/wire/batch"
	"cairn/wire/private"
)

// committedWithin is for the reading of all committed transactions.
const committedWithin = 8 * time.Second

// readLog reads the whole topic, once as a consumer of all records and once as one of committed transactions.
func readLog(ctx context.Context, addrs []string) (f checker.Final, err error) {
	f.Log, f.Markers, f.Committed = map[int32][]checker.Entry{}, map[int32][]checker.Entry{}, map[int32][]checker.Entry{}
	records, err := workload.ReadWithMarkers(ctx, addrs, topic)
	if err != nil {
		return f, err
	}
	for _, r := range records {
		if r.Marker == workload.NoMarker {
			f.Log[r.Partition] = append(f.Log[r.Partition], entryOf(r))
		} else {
			f.Markers[r.Partition] = append(f.Markers[r.Partition], entryOf(r))
		}
	}
	// Below an open transaction the last record may be one that such a reader does not get: what it has got by then counts.
	committedCtx, cancel := context.WithTimeout(ctx, committedWithin)
	defer cancel()
	records, err = workload.ReadCommitted(committedCtx, addrs, topic)
	if err != nil && (committedCtx.Err() == nil || ctx.Err() != nil) {
		return f, err
	}
	for _, r := range records {
		f.Committed[r.Partition] = append(f.Committed[r.Partition], entryOf(r))
	}
	return f, nil
}

func entryOf(r workload.Record) checker.Entry {
	e := checker.Entry{Offset: r.Offset, Epoch: r.LeaderEpoch}
	switch r.Marker {
	case workload.CommitMarker:
		e.Value = checker.CommitMarker
	case workload.AbortMarker:
		e.Value = checker.AbortMarker
	default:
		e.Value = valueOf(r.Value)
	}
	return e
}

// valueOf is what a record carries; 0, which nobody sends, if it is not one of the load.
func valueOf(b []byte) uint64 {
	v, ok := workload.DecodeRecord(b)
	if !ok {
		return 0
	}
	return v
}

// endsOf are the offsets behind the last records.
func endsOf(log map[int32][]checker.Entry) map[int32]int64 {
	ends := map[int32]int64{}
	for p, entries := range log {
		ends[p] = entries[len(entries)-1].Offset + 1
	}
	return ends
}

// waitStable waits until no transaction is open, and returns the partitions where one is when the time is over.
func waitStable(ctx context.Context, adm *kadm.Client) (open map[int32]string) {
	for {
		stable, err := adm.ListCommittedOffsets(ctx, topic)
		ends, endsErr := adm.ListEndOffsets(ctx, topic)
		if err = errors.Join(err, endsErr); err == nil {
			open = map[int32]string{}
			ends.Each(func(e kadm.ListedOffset) {
				if s, ok := stable.Lookup(topic, e.Partition); !ok || s.Err != nil || e.Err != nil || s.Offset < e.Offset {
					open[e.Partition] = fmt.Sprintf("the last stable offset is %d of %d", s.Offset, e.Offset)
				}
			})
		}
		if err == nil && len(open) == 0 || pause(ctx, 50*time.Millisecond) != nil {
			return open
		}
	}
}

// waitInSync waits until each partition has a leader and all replicas in sync.
func waitInSync(ctx context.Context, addrs []string) error {
	cl, err := kgo.NewClient(workload.ClientOptions(addrs)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return workload.WaitTopic(ctx, kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// losses asks what is reported lost.
func losses(ctx context.Context, addrs []string) ([]checker.Lost, error) {
	reported, err := tools.ListLosses(ctx, tools.Connection{Bootstrap: addrs[0]}, tools.LossesOptions{Topic: topic, Partition: -1})
	if err != nil {
		return nil, err
	}
	var list []checker.Lost
	for _, l := range reported {
		if l.Merged > 0 {
			return nil, fmt.Errorf("too many losses to judge each: %+v", l)
		}
		list = append(list, checker.Lost{
			Partition: l.Partition, Epoch: l.LeaderEpoch, From: l.From, To: l.To, Holder: l.Broker, Estimated: l.Estimated, Dropped: l.DroppedMs > 0,
		})
	}
	return list, nil
}

// quarantine asks a broker for what it keeps of a partition.
func quarantine(ctx context.Context, n *harness.Node, partition int32) (list []checker.Kept, err error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", n.Addr)
	if err != nil {
		return nil, err
	}
	conn := wire.NewConn(nc, wire.ConnConfig{ClientID: "chaos"})
	defer func() { err = errors.Join(err, conn.Close()) }()
	for from := (private.Quarantine{LeaderEpoch: ids.NoEpoch}); ; {
		answer, err := conn.RoundTrip(ctx, &private.QuarantineRequest{Body: private.QuarantineQuery{Topic: topic, Partition: partition, From: from, MaxBytes: 4 << 20}})
		if err != nil {
			return nil, err
		}
		body := answer.(*private.QuarantineResponse).Body
		if body.Code != 0 {
			return nil, fmt.Errorf("quarantine of partition %d on broker %d: %d %s", partition, n.ID, body.Code, body.Message)
		}
		for _, q := range body.Batches {
			entries, err := entriesOf(q.Batch, int32(q.LeaderEpoch))
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				list = append(list, checker.Kept{Partition: partition, Holder: int32(n.ID), Entry: e})
			}
			from = private.Quarantine{LeaderEpoch: q.LeaderEpoch, Offset: q.Offset + 1}
		}
		if !body.More {
			return list, nil
		}
	}
}

// entriesOf are the records of a stored batch.
func entriesOf(raw []byte, epoch int32) ([]checker.Entry, error) {
	h, err := batch.ParseHeader(raw)
	if err == nil {
		err = batch.VerifyCRC(raw)
	}
	if err != nil {
		return nil, err
	}
	if h.IsControl() {
		e := checker.Entry{Offset: h.BaseOffset, Epoch: epoch, Value: checker.AbortMarker}
		m, err := batch.ParseMarker(raw)
		if m.Commit {
			e.Value = checker.CommitMarker
		}
		return []checker.Entry{e}, err
	}
	var list []checker.Entry
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return nil, err
		}
		list = append(list, checker.Entry{Offset: h.BaseOffset + int64(rec.OffsetDelta), Epoch: epoch, Value: valueOf(rec.Value)})
	}
	return list, nil
}

// collect asks the running cluster for all that a Final has but the replicas.
func collect(ctx context.Context, c *harness.Cluster, p Plan) (f checker.Final, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if f, err = readLog(ctx, c.Bootstrap()); err != nil {
		return f, err
	}
	if f.Lost, err = losses(ctx, c.Bootstrap()); err != nil {
		return f, err
	}
	for _, n := range c.Brokers() {
		for partition := range p.Partitions {
			kept, err := quarantine(ctx, n, partition)
			if err != nil {
				return f, err
			}
			f.Kept = append(f.Kept, kept...)
		}
	}
	return f, nil
}

// stored reads what each stopped broker has.
func stored(c *harness.Cluster) (map[int32]map[int32][]checker.Entry, error) {
	replicas := map[int32]map[int32][]checker.Entry{}
	for _, n := range c.Brokers() {
		logs, err := storedIn(n.DataDir())
		if err != nil {
			return nil, fmt.Errorf("data of broker %d: %w", n.ID, err)
		}
		replicas[int32(n.ID)] = logs
	}
	return replicas, nil
}

func storedIn(dir string) (logs map[int32][]checker.Entry, err error) {
	e, err := engine.OpenReadOnly(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := e.Partitions()
	if err != nil {
		return nil, err
	}
	logs = map[int32][]checker.Entry{}
	for _, i := range infos {
		if i.Topic != topic {
			continue
		}
		l, err := e.OpenLog(i.ID)
		if err != nil {
			return nil, err
		}
		var bad error
		if l.Start() < l.End() {
			err = l.ScanBatches(l.Start(), func(_ ids.Offset, raw []byte) bool {
				var list []checker.Entry
				list, bad = entriesOf(raw, batch.DecodeHeader(raw).LeaderEpoch)
				logs[i.Partition] = append(logs[i.Partition], list...)
				return bad == nil
			})
		}
		if err := errors.Join(err, bad); err != nil {
			return nil, fmt.Errorf("%s-%s: %w", topic, strconv.Itoa(int(i.Partition)), err)
		}
	}
	return logs, nil
}
