package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const txnPartitions = 3

// transactional makes a producer of a transactional id.
func transactional(t *testing.T, c *harness.Cluster, id string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	// As many retries as a coordinator that loads may need: those of the client are used up in less than a second.
	all := append(workload.ClientOptions(c.Bootstrap()), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequestRetries(1000),
		kgo.Dialer(dialPatiently))
	cl, err := kgo.NewClient(append(all, opts...)...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// dialPatiently says of a refused connection that it took too long. A question that any broker may answer is given up when a random choice meets
// the same dead broker twice in a row and that one refused, but asked again when it was late.
func dialPatiently(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, network, address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: late{err}}
	}
	return c, err
}

// late is an error that counts as a timeout.
type late struct{ error }

func (late) Timeout() bool   { return true }
func (l late) Unwrap() error { return l.error }

// sendAll sends values within the open transaction, to the partitions in turn.
func sendAll(ctx context.Context, cl *kgo.Client, topic string, values ...string) error {
	var records []*kgo.Record
	for i, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % txnPartitions), Value: []byte(v)})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// transact produces values in a transaction of its own.
func transact(t *testing.T, cl *kgo.Client, end kgo.TransactionEndTry, topic string, values ...string) {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	must(t, cl.BeginTransaction())
	if err := sendAll(ctx, cl, topic, values...); err != nil {
		t.Fatalf("producing %v: %v", values, err)
	}
	if err := cl.EndTransaction(ctx, end); err != nil {
		t.Fatalf("ending the transaction of %v: %v", values, err)
	}
}

// wantCommitted reads a topic as a read-committed consumer does, until it holds what is wanted: a transaction is answered
// before its markers are written.
func wantCommitted(t *testing.T, c *harness.Cluster, topic string, want ...string) {
	t.Helper()
	slices.Sort(want)
	ctx := deadline(t, time.Minute)
	for {
		records, err := workload.ReadCommitted(ctx, c.Bootstrap(), topic)
		must(t, err)
		var got []string
		for _, r := range records {
			got = append(got, string(r.Value))
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		if len(got) >= len(want) || workload.Pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s holds %v, want %v", topic, got, want)
		}
	}
}

// waitState waits until a transactional id is in a state.
func waitState(t *testing.T, c *harness.Cluster, id, state string) {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	for {
		d, err := describeTxn(ctx, c, id)
		if err == nil && d.State == state {
			return
		}
		if pauseErr := workload.Pause(ctx, 20*time.Millisecond); pauseErr != nil {
			t.Fatalf("%s is not %s: %+v, %v", id, state, d, err)
		}
	}
}

// describeTxn asks with a client of its own, which remembers no coordinator that has died, and does not wait for that one.
func describeTxn(ctx context.Context, c *harness.Cluster, id string) (kadm.DescribedTransaction, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return kadm.DescribedTransaction{}, err
	}
	defer cl.Close()
	described, err := kadm.NewClient(cl).DescribeTransactions(ctx, id)
	if err != nil {
		return kadm.DescribedTransaction{}, err
	}
	return described[id], described[id].Err
}

func createTxnTopic(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, txnPartitions, 3, nil))
}

// TestTransactions: commit, abort, fencing, timeout, a coordinator that dies while it ends a transaction, and a restart of all.
func TestTransactions(t *testing.T) {
	c := three(t, map[string]string{
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500", "transaction.state.log.num.partitions": "4",
	})
	t.Run("commit and abort", func(t *testing.T) { commitAndAbort(t, c) })
	t.Run("fencing", func(t *testing.T) { fencing(t, c) })
	t.Run("timeout", func(t *testing.T) { timeouts(t, c) })
	t.Run("coordinator dies", func(t *testing.T) { coordinatorDies(t, c) })
	t.Run("restart of all", func(t *testing.T) { restartOfAll(t, c) })
}

func commitAndAbort(t *testing.T, c *harness.Cluster) {
	createTxnTopic(t, c, "plain")
	cl := transactional(t, c, "plain-id")
	var want []string
	for i := range 10 {
		kept, lost := fmt.Sprintf("kept-%d", i), fmt.Sprintf("lost-%d", i)
		transact(t, cl, kgo.TryAbort, "plain", lost, lost+"b")
		transact(t, cl, kgo.TryCommit, "plain", kept, kept+"b", kept+"c", kept+"d")
		want = append(want, kept, kept+"b", kept+"c", kept+"d")
	}
	must(t, cl.BeginTransaction())
	must(t, sendAll(deadline(t, 10*time.Second), cl, "plain", "open"))
	waitState(t, c, "plain-id", "Ongoing")
	must(t, cl.EndTransaction(deadline(t, 10*time.Second), kgo.TryAbort))
	waitState(t, c, "plain-id", "CompleteAbort")
	wantCommitted(t, c, "plain", want...)
}

// fencing: of two producers of a transactional id the older one is refused, and nothing of its transaction is seen.
func fencing(t *testing.T, c *harness.Cluster) {
	createTxnTopic(t, c, "fenced")
	zombie, owner := transactional(t, c, "fenced-id"), transactional(t, c, "fenced-id")
	ctx := deadline(t, 30*time.Second)
	must(t, zombie.BeginTransaction())
	must(t, sendAll(ctx, zombie, "fenced", "zombie-1", "zombie-2"))
	transact(t, owner, kgo.TryCommit, "fenced", "owner-1", "owner-2")
	err := sendAll(ctx, zombie, "fenced", "zombie-3", "zombie-4")
	if !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
		t.Errorf("the fenced producer's record: %v", err)
	}
	if err := zombie.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the fenced producer commits")
	}
	transact(t, owner, kgo.TryCommit, "fenced", "owner-3")
	wantCommitted(t, c, "fenced", "owner-1", "owner-2", "owner-3")
}

// timeouts: the coordinator aborts a transaction that is open for too long, and fences its producer.
func timeouts(t *testing.T, c *harness.Cluster) {
	createTxnTopic(t, c, "timed")
	slow := transactional(t, c, "timed-id", kgo.TransactionTimeout(time.Second))
	ctx := deadline(t, 30*time.Second)
	must(t, slow.BeginTransaction())
	must(t, sendAll(ctx, slow, "timed", "late-1", "late-2"))
	waitState(t, c, "timed-id", "CompleteAbort")
	if err := slow.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a transaction commits after its timeout")
	}
	next := transactional(t, c, "timed-id")
	transact(t, next, kgo.TryCommit, "timed", "in time")
	wantCommitted(t, c, "timed", "in time")
}

// coordinatorOf is the node that coordinates a transactional id.
func coordinatorOf(t *testing.T, c *harness.Cluster, id string) *harness.Node {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	defer cl.Close()
	found := kadm.NewClient(cl).FindTxnCoordinators(deadline(t, 10*time.Second), id)
	must(t, found[id].Err)
	return c.Node(int(found[id].NodeID))
}

// coordinatorDies: it is killed right after it was asked to commit. Whoever takes over ends the transaction, for all
// partitions alike, and as the producer was told if it was.
func coordinatorDies(t *testing.T, c *harness.Cluster) {
	createTxnTopic(t, c, "dying")
	for round := range rounds(t, 2, 20) {
		id := fmt.Sprintf("dying-id-%d", round)
		cl := transactional(t, c, id)
		ctx := deadline(t, 60*time.Second)
		must(t, cl.BeginTransaction())
		must(t, sendAll(ctx, cl, "dying", id, id, id))
		n := coordinatorOf(t, c, id)
		ended := make(chan error, 1)
		go func() { ended <- cl.EndTransaction(ctx, kgo.TryCommit) }()
		must(t, workload.Pause(ctx, time.Duration(round%5)*3*time.Millisecond))
		must(t, n.Kill())
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", id, err)
		}
		waitState(t, c, id, "CompleteCommit")
		must(t, n.Start())
		_, err := n.WaitReady(ctx)
		must(t, err)
		waitInSync(t, c, "dying")
		waitInSync(t, c, "__transaction_state")
	}
	records, err := workload.ReadCommitted(deadline(t, time.Minute), c.Bootstrap(), "dying")
	must(t, err)
	if len(records) != 3*rounds(t, 2, 20) {
		t.Errorf("%d records, want %d", len(records), 3*rounds(t, 2, 20))
	}
}

// restartOfAll: what is open when all brokers are killed goes on afterwards.
func restartOfAll(t *testing.T, c *harness.Cluster) {
	createTxnTopic(t, c, "restarted")
	cl := transactional(t, c, "restarted-id")
	transact(t, cl, kgo.TryCommit, "restarted", "before")
	ctx := deadline(t, 90*time.Second)
	must(t, cl.BeginTransaction())
	must(t, sendAll(ctx, cl, "restarted", "half", "half"))
	for _, n := range c.Brokers() {
		must(t, n.Kill())
	}
	for _, n := range c.Brokers() {
		must(t, n.Start())
	}
	for _, n := range c.Brokers() {
		_, err := n.WaitReady(ctx)
		must(t, err)
	}
	must(t, sendAll(ctx, cl, "restarted", "other half"))
	must(t, cl.EndTransaction(ctx, kgo.TryCommit))
	wantCommitted(t, c, "restarted", "before", "half", "half", "other half")
}

// TestTransactionVersions lowers transaction.version to 0 and 1 and raises it again: clients of the older protocol and of the
// newer one see their transactions through.
func TestTransactionVersions(t *testing.T) {
	c := single(t, map[string]string{"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"})
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "levels", txnPartitions, 1, nil))
	adm, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	defer adm.Close()
	var want []string
	for _, level := range []int16{2, 1, 0, 2} {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = "transaction.version", level, 2, true
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, err := req.RequestWith(deadline(t, 10*time.Second), adm)
		must(t, err)
		must(t, kerr.ErrorForCode(resp.ErrorCode))
		cl := transactional(t, c, "levels-id")
		for i := range 3 {
			v := fmt.Sprintf("%d-%d", level, i)
			transact(t, cl, kgo.TryAbort, "levels", "lost "+v)
			transact(t, cl, kgo.TryCommit, "levels", v, v, v)
			want = append(want, v, v, v)
		}
	}
	wantCommitted(t, c, "levels", want...)
}
