package integration

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// keyedLog writes to partition 0 of a topic, and knows what is to be left of it.
type keyedLog struct {
	t      *testing.T
	c      *harness.Cluster
	topic  string
	client *kgo.Client
	admin  *kadm.Client
	want   map[string]string // values by key
}

func openKeyedLog(t *testing.T, c *harness.Cluster, topic string, configs map[string]string) *keyedLog {
	t.Helper()
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, 1, int16(len(c.Brokers())), configs))
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic(topic))...)
	must(t, err)
	t.Cleanup(cl.Close)
	return &keyedLog{t: t, c: c, topic: topic, client: cl, admin: kadm.NewClient(cl), want: map[string]string{}}
}

// write writes the keys [from, to) once, ten in a batch, with records of a time. Without value they are deleted.
func (k *keyedLog) write(from, to int, value string, at time.Time) {
	k.t.Helper()
	var records []*kgo.Record
	for i := from; i < to; i++ {
		r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i), Timestamp: at}
		if delete(k.want, string(r.Key)); value != "" {
			r.Value = fmt.Appendf(nil, "%s-%d", value, i)
			k.want[string(r.Key)] = string(r.Value)
		}
		if records = append(records, r); len(records) == 10 || i == to-1 {
			must(k.t, k.client.ProduceSync(deadline(k.t, 30*time.Second), records...).FirstErr())
			records = nil
		}
	}
}

// await waits until a consumer gets each key once, with the value that is wanted, and nothing else. What is written last is never compacted, so
// that is a key of its own.
func (k *keyedLog) await(what string) {
	k.t.Helper()
	until(k.t, what, func() bool {
		k.write(1_000_000, 1_000_001, "end", time.Now())
		got, records := map[string]string{}, 0
		readToEnd(k.t, k.c, k.topic, func(r *kgo.Record) {
			records++
			if delete(got, string(r.Key)); r.Value != nil {
				got[string(r.Key)] = string(r.Value)
			}
		})
		return maps.Equal(got, k.want) && records <= len(k.want)+1 // the end before this one may still be there
	})
}

// forget has the keys go that are not written since.
func (k *keyedLog) forget(from, to int) {
	for i := from; i < to; i++ {
		delete(k.want, fmt.Sprintf("key-%d", i))
	}
}

func (k *keyedLog) start() int64 {
	k.t.Helper()
	starts, err := k.admin.ListStartOffsets(deadline(k.t, 30*time.Second), k.topic)
	must(k.t, err)
	o, _ := starts.Lookup(k.topic, 0)
	must(k.t, o.Err)
	return o.Offset
}

// lead has the partition led by a broker.
func (k *keyedLog) lead(ctx context.Context, broker int32) {
	k.t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	order := []int32{broker}
	for _, n := range k.c.Brokers() {
		if int32(n.ID) != broker {
			order = append(order, int32(n.ID))
		}
	}
	req.Assign(k.topic, 0, order)
	res, err := k.admin.AlterPartitionAssignments(ctx, req)
	must(k.t, err)
	must(k.t, res.Error())
	until(k.t, fmt.Sprintf("broker %d leads", broker), func() bool {
		set := kadm.TopicsSet{}
		set.Add(k.topic, 0)
		_, err := k.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		must(k.t, err)
		leaders, err := workload.Leaders(ctx, k.c.Bootstrap(), k.topic)
		must(k.t, err)
		return leaders[0] == broker
	})
}

// TestCompactedAndDeletedReplicasAgree: with cleanup.policy=compact,delete keys are compacted, and what is older than retention.ms goes whether or not it
// is the last of its key, while one of three replicas is away. Each of them then gives a client the same, from the same log start, also after all were killed.
func TestCompactedAndDeletedReplicasAgree(t *testing.T) {
	t.Parallel()
	c := three(t, map[string]string{"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "300"})
	k := openKeyedLog(t, c, "both", map[string]string{
		"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0", "retention.ms": "-1",
	})
	old := time.Now().Add(-2 * time.Hour)
	for round := range 3 {
		k.write(0, 200, fmt.Sprint("old", round), old)
	}
	k.await("each old key is there once")
	if start := k.start(); start != 0 {
		t.Errorf("the log starts at %d without retention", start)
	}
	away := c.Node(3)
	must(t, away.Kill())
	for round := range 2 {
		k.write(100, 300, fmt.Sprint("new", round), time.Now())
	}
	k.write(250, 300, "", time.Now())
	hour := "3600000"
	_, err := k.admin.AlterTopicConfigs(deadline(t, 30*time.Second), []kadm.AlterConfig{{Name: "retention.ms", Value: &hour}}, k.topic)
	must(t, err)
	k.forget(0, 100)
	until(t, "the log start has moved", func() bool { return k.start() > 0 })
	must(t, away.Start())
	_, err = away.WaitReady(deadline(t, 60*time.Second))
	must(t, err)
	waitInSync(t, c, k.topic)
	k.await("each key is there once, the old ones have gone")
	start := k.start()
	for _, n := range c.Brokers() {
		k.lead(deadline(t, 60*time.Second), int32(n.ID))
		k.await(fmt.Sprintf("broker %d has each key once", n.ID))
		if got := k.start(); got != start {
			t.Errorf("at broker %d the log starts at %d, want %d", n.ID, got, start)
		}
	}
	for _, n := range c.Nodes {
		must(t, n.Kill())
	}
	must(t, c.Start(deadline(t, 60*time.Second)))
	waitInSync(t, c, k.topic)
	k.await("each key is there once after all were killed")
	if got := k.start(); got != start {
		t.Errorf("the log starts at %d after all were killed, want %d", got, start)
	}
}
