package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/network"
	"cairn/integration/workload"
)

// fastTimes have the controller fence a silent broker after 2 s.
func fastTimes() map[string]string {
	return map[string]string{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300", "replica.lag.time.max.ms": "2000"}
}

// networked starts brokers and controllers whose network can be cut.
func networked(t *testing.T, brokers, controllers int, props map[string]string) (*harness.Cluster, *network.Network) {
	t.Helper()
	c, net, err := harness.Networked(cairnBinary(t), harness.Shape{Brokers: brokers, Controllers: controllers, Props: props, ControllerProps: props})
	must(t, err)
	t.Cleanup(func() { must(t, net.Close()) }) // after the cluster, which manage closes
	manage(t, c, nil)
	must(t, c.Start(deadline(t, 60*time.Second)))
	return c, net
}

// TestCutOffLeaderCompletesNoAcksAll: the leader, alone or with a follower that gives it a majority of its generation, is cut off from the
// controller and the other brokers while clients still reach it. Once another leads, no acks=all succeeds at the old one, and what it
// acknowledged before is in the log of the new one.
func TestCutOffLeaderCompletesNoAcksAll(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]int{"leader alone": 1, "leader and follower": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, net := networked(t, 3, 1, fastTimes())
			const topic = "cut"
			cairn(t, "", "topics", "create", "--bootstrap-server", c.Bootstrap()[0], "--topic", topic, "--replica-assignment", "1:2:3")
			waitInSync(t, c, topic)
			leader := waitLeaderIn(t, c, topic, 1, 2, 3)
			brokers := []int{leader, leader%3 + 1, (leader+1)%3 + 1}
			away, rest := brokers[:members], brokers[members:]
			old, err := workload.NewDirect(c.Node(leader).Addr)
			must(t, err)
			defer old.Close()
			ledger := workload.NewLedger()
			next := uint64(1)
			try := func(limit time.Duration) error {
				base, err := old.Produce(deadline(t, 20*time.Second), topic, 0, workload.AcksAll, limit, workload.EncodeRecord(next, 100))
				if err == nil {
					ledger.Acked(0, next, base)
				}
				next++
				return err
			}
			for begun := time.Now(); ledger.Len() < 50; {
				if err := try(10 * time.Second); err != nil && (!retriable(err) || time.Since(begun) > time.Minute) {
					t.Fatal(err)
				}
			}
			waiting := waitingProduces(t, old, topic)
			must(t, waiting.waitAcked(deadline(t, 10*time.Second), 20))
			net.Split(away...)
			moved := waitLeaderIn(t, c, topic, rest...)
			t.Logf("brokers %v are cut off, broker %d leads", away, moved)
			for i := range 20 {
				if err := try(250 * time.Millisecond); err == nil {
					t.Fatalf("acks=all number %d succeeded at the old leader after the controller had moved on", i)
				} else if !retriable(err) {
					t.Errorf("the old leader answers %v", err)
				}
			}
			waiting.end(t, ledger)
			net.Heal(false)
			waitInSync(t, c, topic)
			records, err := workload.Read(deadline(t, time.Minute), c.Bootstrap(), topic)
			must(t, err)
			rep := ledger.Check(records) // what clients send at the same time has no order
			t.Log(rep)
			if rep.Lost+rep.Moved+rep.Duplicated+rep.Damaged > 0 {
				t.Error(rep.Err())
			}
			t.Log(cairn(t, "", "losses", "--bootstrap-server", c.Bootstrap()[0]))
		})
	}
}

// waitingRequests are acks=all requests that come in while the leader is being cut off.
type waitingRequests struct {
	wg   sync.WaitGroup
	stop context.CancelFunc

	mu    sync.Mutex
	acked map[uint64]int64 // guarded by mu
	sent  int              // guarded by mu
}

// waitingProduces sends acks=all records, one after the other has been answered, from four clients at a time; each may wait for long.
func waitingProduces(t *testing.T, d *workload.Direct, topic string) *waitingRequests {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &waitingRequests{stop: stop, acked: map[uint64]int64{}}
	for client := range uint64(4) {
		w.wg.Go(func() {
			for number := client<<32 + 1<<40; ctx.Err() == nil; number++ {
				base, err := d.Produce(ctx, topic, 0, workload.AcksAll, 5*time.Second, workload.EncodeRecord(number, 100))
				w.mu.Lock()
				w.sent++
				if err == nil {
					w.acked[number] = base
				}
				w.mu.Unlock()
				if err != nil && workload.Pause(ctx, 20*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	return w
}

// waitAcked waits until n requests have been acknowledged.
func (w *waitingRequests) waitAcked(ctx context.Context, n int) error {
	for {
		w.mu.Lock()
		enough := len(w.acked) >= n
		w.mu.Unlock()
		if enough {
			return nil
		}
		if err := workload.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// end notes in the ledger what was acknowledged.
func (w *waitingRequests) end(t *testing.T, ledger *workload.Ledger) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	for number, offset := range w.acked {
		ledger.Acked(0, number, offset)
	}
	t.Logf("%d of %d requests that were under way were acknowledged", len(w.acked), w.sent)
}

// waitLeaderIn waits until one of the brokers leads the first partition, as the last of them sees it.
func waitLeaderIn(t *testing.T, c *harness.Cluster, topic string, brokers ...int) int {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions([]string{c.Node(brokers[len(brokers)-1]).Addr})...)
	must(t, err)
	defer cl.Close()
	leader := 0
	must(t, workload.WaitTopic(deadline(t, 30*time.Second), kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
		for _, id := range brokers {
			if int(p.Leader) == id && p.Err == nil {
				leader = id
			}
		}
		return leader != 0
	}))
	return leader
}

// retriable reports whether a client would try again: one of Kafka's retriable errors, or no answer at all.
func retriable(err error) bool {
	var k *kerr.Error
	return !errors.As(err, &k) || k.Retriable
}

// waitTopicAt waits until the condition holds for the leader and the ISR of each partition, as this broker sees them.
func waitTopicAt(t *testing.T, n *harness.Node, topic string, holds func(leader int32, isr []int32) bool) {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions([]string{n.Addr})...)
	must(t, err)
	defer cl.Close()
	must(t, workload.WaitTopic(deadline(t, time.Minute), kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
		return holds(p.Leader, p.ISR)
	}))
}

// waitMembers waits until each partition has so many in-sync replicas, as this broker sees it.
func waitMembers(t *testing.T, n *harness.Node, topic string, count int) {
	t.Helper()
	waitTopicAt(t, n, topic, func(_ int32, isr []int32) bool { return len(isr) == count })
}
