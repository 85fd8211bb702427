package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// storedValues is what a consumer that reads a replica of partition 0 from its start to its end knows then, and how many records it got.
func storedValues(t *testing.T, log *engine.Log) (map[string]string, int) {
	t.Helper()
	values, records := map[string]string{}, 0
	for at := log.Start(); at < log.End(); {
		r, err := log.Read(engine.ReadOptions{From: at, Limit: log.End(), MaxBytes: 1 << 20, MinOneBatch: true})
		if err != nil {
			t.Fatal(err)
		}
		for b := slices.Concat(r.Parts...); len(b) > 0; {
			_, raw, rest, err := batch.Split(b)
			if err != nil {
				t.Fatal(err)
			}
			for rec, err := range batch.Records(raw, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if records++; rec.Value == nil {
					delete(values, string(rec.Key))
				} else {
					values[string(rec.Key)] = string(rec.Value)
				}
			}
			b = rest
		}
		at = r.Next
	}
	return values, records
}

// replicaLogs are the logs of partition 0 on the brokers that run; nil until all have one.
func (c *testCluster) replicaLogs(topic string) []*engine.Log {
	var logs []*engine.Log
	for _, n := range c.brokers {
		if n == nil {
			continue
		}
		p, err := n.broker.replicas.lookup(topic, 0)
		if err != nil {
			return nil
		}
		logs = append(logs, p.log())
	}
	return logs
}

// replicasEndIn is whether each of so many replicas holds what the model knows, and is as it should be besides; records are those it stores.
func (c *testCluster) replicasEndIn(t *testing.T, topic string, replicas int, model map[string]string, is func(l *engine.Log, records int) bool) bool {
	t.Helper()
	logs := c.replicaLogs(topic)
	return len(logs) == replicas && !slices.ContainsFunc(logs, func(l *engine.Log) bool {
		got, n := storedValues(t, l)
		return !maps.Equal(got, model) || !is(l, n)
	})
}

// mustVerify checks what each broker has stored of partition 0.
func (c *testCluster) mustVerify(t *testing.T, topic string) {
	t.Helper()
	for i, n := range c.brokers {
		p, err := n.broker.replicas.lookup(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if problems, err := n.engine.Verify(p.id); err != nil || len(problems) > 0 {
			t.Errorf("broker %d: %v, %v", i+1, problems, err)
		}
	}
}

// awaitCompacted waits until each replica is compacted up to an offset.
func (c *testCluster) awaitCompacted(t *testing.T, topic string, to ids.Offset) {
	t.Helper()
	awaitTrue(t, func() bool {
		logs := c.replicaLogs(topic)
		return logs != nil && !slices.ContainsFunc(logs, func(l *engine.Log) bool { return l.Compacted() < to })
	})
}

func createCompacted(t *testing.T, cl *kgo.Client, topic string, replicas int16, configs ...string) {
	t.Helper()
	all := map[string]*string{}
	for _, kv := range append([]string{"cleanup.policy=compact", "min.cleanable.dirty.ratio=0", "delete.retention.ms=0"}, configs...) {
		k, v, _ := strings.Cut(kv, "=")
		all[k] = &v
	}
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, replicas, all, topic); err != nil {
		t.Fatal(err)
	}
}

// produceKeys produces one round of values for the keys [from, to), in several batches, and takes the model along. "" stands for a tombstone.
func produceKeys(t *testing.T, cl *kgo.Client, topic string, from, to int, value string, model map[string]string) {
	t.Helper()
	var records []*kgo.Record
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i)}
		if value != "" {
			r.Value = fmt.Appendf(nil, "%s-%d-%s", value, i, strings.Repeat("x", 50))
			model[string(r.Key)] = string(r.Value)
		} else {
			delete(model, string(r.Key))
		}
		records = append(records, r)
		if len(records) == 25 || i == to-1 {
			if err := cl.ProduceSync(testContext(t), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			records = records[:0]
		}
	}
}

// A replica that was away while the others compacted gets what is left of the entries, and a tombstone that it needs does not go before it has it.
func TestReplicasAgreeThoughOneWasAwayDuringCompaction(t *testing.T) {
	c := (&testCluster{props: []string{"log.cleaner.backoff.ms=50"}}).run(t, 3)
	defer c.close(t)
	cl := c.client(t)
	createCompacted(t, cl, "t", 3)
	model := map[string]string{}
	produceKeys(t, cl, "t", 0, 200, "a", model)
	c.awaitCompacted(t, "t", 100)
	c.stop(t, 3)
	produceKeys(t, cl, "t", 100, 300, "b", model)
	produceKeys(t, cl, "t", 0, 50, "", model)
	for round := range 4 {
		produceKeys(t, cl, "t", 200, 300, fmt.Sprint("c", round), model)
	}
	c.awaitCompacted(t, "t", 700)
	for _, l := range c.replicaLogs("t") {
		if got, n := storedValues(t, l); !maps.Equal(got, model) || n > 500 {
			t.Errorf("%d records that end in %d values, want at most 500 and %d", n, len(got), len(model))
		}
	}
	c.start(t, 3)
	produceKeys(t, cl, "t", 290, 300, "d", model)
	awaitTrue(t, func() bool {
		ends := map[ids.Offset]bool{}
		return c.replicasEndIn(t, "t", 3, model, func(l *engine.Log, _ int) bool {
			ends[l.End()] = true
			return len(ends) == 1
		})
	})
	awaitTrue(t, func() bool { // once all have them the tombstones go, though nothing but a record is written
		produceKeys(t, cl, "t", 299, 300, "e", model)
		return c.replicasEndIn(t, "t", 3, model, func(_ *engine.Log, records int) bool { return records <= len(model)+20 })
	})
	c.mustVerify(t, "t")
	mustConsumeValues(t, c, "t", model)
}

// mustConsumeValues has a client read the topic up to its end, and compares the last values.
func mustConsumeValues(t *testing.T, c *testCluster, topic string, want map[string]string) {
	t.Helper()
	cl := c.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ends, err := kadm.NewClient(cl).ListEndOffsets(testContext(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	got := map[string]string{}
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(testContext(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; r.Value == nil {
				delete(got, string(r.Key))
			} else {
				got[string(r.Key)] = string(r.Value)
			}
		})
	}
	if !maps.Equal(got, want) {
		t.Errorf("a consumer ends with %d values, want %d", len(got), len(want))
	}
}

func TestCompactedTopicsWantKeys(t *testing.T) {
	c := startCluster(t, 1)
	defer c.close(t)
	cl := c.client(t)
	createCompacted(t, cl, "t", 1)
	err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
	if !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("a record without a key: %v", err)
	}
}

// Settings that keep the cleaner away, and the one that calls it all the same.
func TestCleanerWaitsAsTheTopicSays(t *testing.T) {
	c := (&testCluster{props: []string{"log.cleaner.backoff.ms=20"}}).run(t, 1)
	defer c.close(t)
	cl := c.client(t)
	createCompacted(t, cl, "young", 1, "min.compaction.lag.ms=3600000")
	createCompacted(t, cl, "clean", 1, "min.cleanable.dirty.ratio=1")
	createCompacted(t, cl, "late", 1, "min.cleanable.dirty.ratio=1", "max.compaction.lag.ms=1")
	createCompacted(t, cl, "ready", 1)
	for _, topic := range []string{"young", "clean", "late", "ready"} {
		for range 3 {
			produceKeys(t, cl, topic, 0, 50, "v", map[string]string{})
		}
	}
	c.awaitCompacted(t, "late", 100)
	c.awaitCompacted(t, "ready", 100)
	for _, topic := range []string{"young", "clean"} {
		if l := c.replicaLogs(topic)[0]; l.Compacted() != 0 {
			t.Errorf("%s is compacted to %d", topic, l.Compacted())
		}
	}
	mustAlter(t, kadm.NewClient(cl), "young", "min.compaction.lag.ms", "0")
	c.awaitCompacted(t, "young", 100)
	mustConsumeValues(t, c, "young", func() map[string]string {
		model := map[string]string{}
		for i := range 50 {
			model[fmt.Sprintf("key-%d", i)] = fmt.Sprintf("v-%d-%s", i, strings.Repeat("x", 50))
		}
		return model
	}())
}

// A tombstone stays for delete.retention.ms behind the pass that found it, whatever is compacted meanwhile.
func TestTombstonesStayAsTheTopicSays(t *testing.T) {
	c := (&testCluster{props: []string{"log.cleaner.backoff.ms=20"}}).run(t, 1)
	defer c.close(t)
	cl := c.client(t)
	createCompacted(t, cl, "kept", 1, "delete.retention.ms=3600000")
	createCompacted(t, cl, "gone", 1)
	records := func(topic string) int {
		_, n := storedValues(t, c.replicaLogs(topic)[0])
		return n
	}
	written := map[string]int{}
	write := func(topic string, from, to int, value string) {
		produceKeys(t, cl, topic, from, to, value, map[string]string{})
		written[topic] += to - from
	}
	for _, topic := range []string{"kept", "gone"} {
		write(topic, 0, 50, "v")
		write(topic, 0, 50, "")
	}
	for range 5 { // passes, each of which finds the tombstones
		for _, topic := range []string{"kept", "gone"} {
			write(topic, 100, 101, "end")
			c.awaitCompacted(t, topic, ids.Offset(written[topic]-1))
		}
	}
	awaitTrue(t, func() bool {
		write("gone", 100, 101, "end")
		return records("gone") <= 2
	})
	if n := records("kept"); n < 50 || n > 52 {
		t.Errorf("%d records are left, want 50 tombstones and the end", n)
	}
}
