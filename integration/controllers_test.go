package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// TestControllersDieUnderLoad: of three controllers the active one is killed every 20 seconds, and started again ten seconds later, while topics
// are created, elections are held and records produced. No two brokers ever tell different leaders of one epoch, epochs only grow, each topic
// whose creation was answered is there on all brokers, and clients see errors that they may try again after.
func TestControllersDieUnderLoad(t *testing.T) {
	t.Parallel()
	every, kills := 8*time.Second, rounds(t, 2, 15)
	if long() {
		every = 20 * time.Second
	}
	c, err := harness.New(cairnBinary(t), harness.Shape{Brokers: 3, Controllers: 3})
	manage(t, c, err)
	must(t, c.Start(deadline(t, 60*time.Second)))
	const topic, partitions = "steady", 6
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, partitions, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: partitions, RecordBytes: 200, Every: 5 * time.Millisecond})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 500))
	w := watchMetadata(t, c, topic)
	for range kills {
		before := w.createdTopics()
		active := activeController(t, c)
		must(t, active.Kill())
		must(t, workload.Pause(t.Context(), every/2))
		must(t, active.Start())
		_, err := active.WaitReady(deadline(t, 60*time.Second))
		must(t, err)
		must(t, workload.Pause(t.Context(), every/2))
		if w.createdTopics() == before {
			t.Errorf("no topic could be created while controller %d was away and %v after", active.ID, every/2)
		}
	}
	w.end(t)
	must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
	must(t, load.Stop(deadline(t, time.Minute)))
	if failed, err := load.Failed(); failed > 0 {
		t.Errorf("%d records were given up: %v", failed, err)
	}
	verify(t, c, topic, load.Ledger)
	w.compare(t, c)
}

// activeController waits until one controller says that it is the active one.
func activeController(t *testing.T, c *harness.Cluster) *harness.Node {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	for {
		for _, n := range c.Nodes {
			if n.Addr != "" || !n.Running() {
				continue
			}
			if _, page, err := n.Get("/metrics"); err == nil && strings.Contains(page, "\ncairn_active_controller 1\n") {
				return n
			}
		}
		must(t, workload.Pause(ctx, 50*time.Millisecond))
	}
}

// metadataWatch creates topics and holds elections, and compares what the brokers tell.
type metadataWatch struct {
	topic string
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu      sync.Mutex
	created map[string]bool            // whose creation was answered; guarded by mu
	leaders map[string]int32           // by topic, partition and leader epoch; guarded by mu
	epochs  map[string]map[int32]int32 // the newest of each partition, as each broker tells; guarded by mu
	wrong   []string                   // guarded by mu
}

func watchMetadata(t *testing.T, c *harness.Cluster, topic string) *metadataWatch {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &metadataWatch{topic: topic, stop: stop, created: map[string]bool{}, leaders: map[string]int32{}, epochs: map[string]map[int32]int32{}}
	run := func(seeds []string, every time.Duration, do func(context.Context, *kadm.Client)) {
		cl, err := kgo.NewClient(append(workload.ClientOptions(seeds), kgo.RetryTimeout(5*time.Second))...)
		must(t, err)
		w.wg.Go(func() {
			defer cl.Close()
			for workload.Pause(ctx, every) == nil {
				callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
				do(callCtx, kadm.NewClient(cl))
				cancel()
			}
		})
	}
	for _, n := range c.Brokers() {
		run([]string{n.Addr}, 50*time.Millisecond, func(ctx context.Context, adm *kadm.Client) { w.look(ctx, n.Addr, adm) })
	}
	number := 0
	run(c.Bootstrap(), 500*time.Millisecond, func(ctx context.Context, adm *kadm.Client) {
		number++
		w.create(ctx, adm, fmt.Sprintf("more-%d", number))
	})
	how := kadm.ElectPreferredReplica
	run(c.Bootstrap(), 700*time.Millisecond, func(ctx context.Context, adm *kadm.Client) {
		res, err := adm.ElectLeaders(ctx, how, nil)
		w.judge(ctx, "elections", err, kerr.ElectionNotNeeded, kerr.PreferredLeaderNotAvailable)
		for _, p := range res[topic] {
			w.judge(ctx, "election", p.Err, kerr.ElectionNotNeeded, kerr.PreferredLeaderNotAvailable)
		}
	})
	return w
}

func (w *metadataWatch) createdTopics() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.created)
}

// judge notes an error after which a client would give up.
func (w *metadataWatch) judge(ctx context.Context, what string, err error, fine ...error) {
	if err == nil || ctx.Err() != nil || retriable(err) {
		return
	}
	for _, f := range fine {
		if errors.Is(err, f) {
			return
		}
	}
	w.complain("%s: %v", what, err)
}

func (w *metadataWatch) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// create creates a topic. That it exists already is the answer when an earlier attempt of the client was carried out and not answered.
func (w *metadataWatch) create(ctx context.Context, adm *kadm.Client, name string) {
	_, err := adm.CreateTopic(ctx, 2, 3, nil, name)
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		w.mu.Lock()
		w.created[name] = true
		w.mu.Unlock()
		return
	}
	w.judge(ctx, "creation of "+name, err)
}

// look compares what a broker tells with what it told before, and with what all others did.
func (w *metadataWatch) look(ctx context.Context, broker string, adm *kadm.Client) {
	meta, err := adm.Metadata(ctx, w.topic)
	if err != nil {
		w.judge(ctx, "metadata", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epochs[broker] == nil {
		w.epochs[broker] = map[int32]int32{}
	}
	for _, p := range meta.Topics[w.topic].Partitions {
		if newest := w.epochs[broker][p.Partition]; p.LeaderEpoch < newest {
			w.wrong = append(w.wrong, fmt.Sprintf("broker %s told epoch %d of partition %d after %d", broker, p.LeaderEpoch, p.Partition, newest))
		}
		w.epochs[broker][p.Partition] = p.LeaderEpoch
		if p.Leader < 0 {
			continue
		}
		key := fmt.Sprintf("%s-%d epoch %d", w.topic, p.Partition, p.LeaderEpoch)
		if leader, ok := w.leaders[key]; ok && leader != p.Leader {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is led by broker %d and by broker %d", key, leader, p.Leader))
		}
		w.leaders[key] = p.Leader
	}
}

func (w *metadataWatch) end(t *testing.T) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	for i, text := range w.wrong {
		if i < 20 {
			t.Error(text)
		}
	}
	t.Logf("%d topics created, %d leader epochs seen", len(w.created), len(w.leaders))
}

// compare waits until all brokers tell the same of all topics, and each that was created is there.
func (w *metadataWatch) compare(t *testing.T, c *harness.Cluster) {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	for {
		problem := w.differences(ctx, t, c)
		if problem == "" {
			return
		}
		if err := workload.Pause(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("the metadata differ: %s", problem)
		}
	}
}

func (w *metadataWatch) differences(ctx context.Context, t *testing.T, c *harness.Cluster) string {
	t.Helper()
	first := ""
	for _, n := range c.Brokers() {
		cl, err := kgo.NewClient(workload.ClientOptions([]string{n.Addr})...)
		must(t, err)
		req := kadm.NewClient(cl)
		meta, err := req.Metadata(ctx)
		cl.Close()
		if err != nil {
			return err.Error()
		}
		for name := range w.created {
			if !meta.Topics.Has(name) || meta.Topics[name].Err != nil {
				return fmt.Sprintf("broker %d does not have %s, whose creation was answered", n.ID, name)
			}
		}
		var b strings.Builder
		for _, topic := range meta.Topics.Sorted() {
			fmt.Fprintln(&b, topic.Topic, topic.ID)
			for _, p := range topic.Partitions.Sorted() {
				fmt.Fprintln(&b, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR)
			}
		}
		if first == "" {
			first = b.String()
		} else if first != b.String() {
			return fmt.Sprintf("broker %d tells something else than the first one", n.ID)
		}
	}
	return ""
}
