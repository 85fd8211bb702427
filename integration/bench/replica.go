package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const (
	replicaCase = "replica"
	// replicaBytes is what a partition holds that gets another replica.
	replicaBytes = 1 << 30
	// replicaSlice is the length of the runs of which those before and those meanwhile are compared.
	replicaSlice = 5 * time.Second
	// replicaLimit is when a replica that is not in sync yet is given up.
	replicaLimit = 2 * time.Minute
)

// replicaResult is what a partition's new replica cost the clients.
type replicaResult struct {
	Rate          int // records per second, 0: full load
	Usual, Beside produced
	Took          time.Duration // until the replica was in sync, or was given up
	InSync        bool
}

// replicaRates are the loads beside which a replica is added, records a second; 0: full load.
func replicaRates() []int { return []int{1_000, 5_000, 30_000, 0} }

func replicaName(rate int) string { return fmt.Sprintf("%s beside %d records/s", replicaCase, rate) }

// addReplica measures how long a partition with much data takes to get a third replica, and what that costs clients that produce to it.
func (b *bench) addReplica(ctx context.Context) (err error) {
	c, err := b.started(ctx, 3, "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, rate := range replicaRates() {
		if !b.only.MatchString(replicaName(rate)) {
			continue
		}
		res, err := b.replicaBeside(ctx, c, rate)
		if err != nil {
			return err
		}
		b.report.gotReplica(res)
	}
	return nil
}

// replicaBeside is the case of one load.
func (b *bench) replicaBeside(ctx context.Context, c *harness.Cluster, rate int) (res replicaResult, err error) {
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		return res, err
	}
	defer cl.Close()
	topic := fmt.Sprintf("grows-%d", rate)
	if err := makeAssigned(ctx, cl, topic, []int32{1, 2}); err != nil {
		return res, err
	}
	if err := fillTopic(ctx, cl, topic, replicaBytes); err != nil {
		return res, err
	}
	pc := produceCase{Nodes: 3, Flush: "always", Acks: "all", RecordBytes: 1024, Producers: 1, Rate: rate}
	res.Rate = rate
	if res.Usual, err = pc.slices(ctx, c, topic, func(n int) bool { return n == 3 }); err != nil {
		return res, err
	}
	admin := kadm.NewClient(cl)
	var want kadm.AlterPartitionAssignmentsReq
	want.Assign(topic, 0, []int32{1, 2, 3})
	begun := time.Now()
	if _, err := admin.AlterPartitionAssignments(ctx, want); err != nil {
		return res, err
	}
	inSync := make(chan bool, 1)
	go func() {
		waitCtx, cancel := context.WithTimeout(ctx, replicaLimit)
		defer cancel()
		err := workload.WaitTopic(waitCtx, admin, topic, func(p kadm.PartitionDetail) bool { return slices.Contains(p.ISR, 3) })
		res.Took = time.Since(begun)
		inSync <- err == nil
	}()
	over := false
	if res.Beside, err = pc.slices(ctx, c, topic, func(int) bool {
		select {
		case res.InSync = <-inSync:
			over = true
		default:
		}
		return over
	}); err != nil {
		return res, err
	}
	fmt.Printf("%s: %.1f MB/s; in sync (%t) after %v, meanwhile %.1f MB/s\n", replicaName(rate), res.Usual.mbPerSecond(), res.InSync, res.Took.Round(10*time.Millisecond),
		res.Beside.mbPerSecond())
	return res, workload.DeleteTopic(ctx, c.Bootstrap(), topic)
}

// slices runs the load again and again until done says that it was enough, and adds up what it gave. Latencies are those of the worst slice.
func (c produceCase) slices(ctx context.Context, cluster *harness.Cluster, topic string, done func(n int) bool) (sum produced, err error) {
	for n := 0; n == 0 || !done(n); n++ {
		p, err := c.load(ctx, cluster.Bootstrap(), topic, replicaSlice)
		if err != nil {
			return sum, err
		}
		sum.Records, sum.Bytes, sum.Elapsed = sum.Records+p.Records, sum.Bytes+p.Bytes, sum.Elapsed+p.Elapsed
		sum.P50, sum.P99 = max(sum.P50, p.P50), max(sum.P99, p.P99)
	}
	return sum, nil
}

// makeAssigned creates a topic of one partition on these brokers.
func makeAssigned(ctx context.Context, cl *kgo.Client, topic string, brokers []int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = brokers
	t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if code := resp.Topics[0].ErrorCode; code != 0 {
		return fmt.Errorf("creating %s: error code %d", topic, code)
	}
	return workload.WaitTopic(ctx, kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool { return p.Leader >= 0 && len(p.ISR) == len(brokers) })
}

// fillTopic writes so many bytes to a topic of one partition.
func fillTopic(ctx context.Context, cl *kgo.Client, topic string, bytes int) error {
	value := make([]byte, 64<<10)
	var failed error
	for range bytes / len(value) {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
	}
	return errors.Join(cl.Flush(ctx), failed)
}
