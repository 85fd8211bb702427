package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const (
	loopInput, loopOutput, loopGroup = "loop-in", "loop-out", "loop"
	loopPartitions                   = 6
	loopWorkers                      = 3

	// loopClock is how the test and its processes write times, as the brokers' logs do.
	loopClock = "15:04:05.000"
)

// TestTransformLoop: three processes read a topic as a group, write one record for each they read, and commit both in one
// transaction; some transactions they abort on purpose. Brokers are killed, and processes are killed, replaced and frozen until
// their transactions have timed out. In the end every input has exactly one output, no record of an aborted transaction is
// seen, and no transaction is there by half. The short form is three minutes of that in two clusters, the long one half an hour.
func TestTransformLoop(t *testing.T) {
	t.Parallel()
	runs, length := 2, 90*time.Second
	if long() {
		runs, length = 1, 30*time.Minute
	}
	for i := range runs {
		t.Run(fmt.Sprint("run", i+1), func(t *testing.T) {
			t.Parallel()
			runTransformLoop(t, length)
		})
	}
}

func runTransformLoop(t *testing.T, length time.Duration) {
	c := three(t, map[string]string{
		"group.initial.rebalance.delay.ms": "200", "transaction.state.log.num.partitions": "4",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
	})
	l := &transformLoop{t: t, c: c, rand: seeded(t), harms: map[string]int{}}
	t.Cleanup(l.explain)
	for _, topic := range []string{loopInput, loopOutput} {
		must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, loopPartitions, 3, nil))
	}
	l.feed = newPacer(t, c, loopInput)
	for range loopWorkers {
		l.slots = append(l.slots, "")
		l.start(len(l.slots) - 1)
	}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		l.step()
	}
	l.finish()
}

// transformLoop is the state of one run of TestTransformLoop.
type transformLoop struct {
	t       *testing.T
	c       *harness.Cluster
	rand    *rand.Rand
	feed    *pacer
	slots   []string // the transactional id that works in each slot
	workers []*transformWorker
	ids     int
	harms   map[string]int // how often each kind of harm was done

	suspects suspects // what the judge did not like
}

// transformWorker is a process that transforms.
type transformWorker struct {
	cmd  *exec.Cmd
	slot int
	done chan struct{} // closed when the process is gone
}

// start starts a process for a slot, with the slot's transactional id or a new one if it has none.
func (l *transformLoop) start(slot int) {
	l.t.Helper()
	if l.slots[slot] == "" {
		l.ids++
		l.slots[slot] = fmt.Sprintf("loop-%d", l.ids)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTransformWorker$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "CAIRN_TRANSFORM="+strings.Join(l.c.Bootstrap(), ","), "CAIRN_TRANSFORM_ID="+l.slots[slot],
		"CAIRN_SEED="+strconv.FormatUint(l.rand.Uint64(), 10))
	log, err := os.OpenFile(fmt.Sprintf("%s/%s.log", l.c.Dir, l.slots[slot]), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(l.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(l.t, cmd.Start())
	w := &transformWorker{cmd: cmd, slot: slot, done: make(chan struct{})}
	l.workers = append(l.workers, w)
	go func() {
		defer close(w.done)
		_ = cmd.Wait() // how it ends is seen in what it has written
		_ = log.Close()
	}()
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); <-w.done })
}

// kill ends the process, if it has not given up by itself, as one does that was fenced.
func (w *transformWorker) kill() {
	_ = w.cmd.Process.Kill() // fails when the process has ended
	<-w.done
}

func (w *transformWorker) gone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// worker is the newest process of a slot.
func (l *transformLoop) worker(slot int) *transformWorker {
	var newest *transformWorker
	for _, w := range l.workers {
		if w.slot == slot {
			newest = w
		}
	}
	return newest
}

// step does one harm, mends it, and lets some time pass.
func (l *transformLoop) step() {
	slot := l.rand.IntN(loopWorkers)
	w := l.worker(slot)
	switch l.rand.IntN(5) {
	case 0, 1:
		l.killBroker()
	case 2: // whoever comes after it with its id ends its transaction
		w.kill()
		l.harm("process killed", "%s", l.slots[slot])
	case 3: // its transaction hangs until it times out
		w.kill()
		l.harm("process killed for good", "%s", l.slots[slot])
		l.slots[slot] = ""
	case 4:
		l.freeze(slot, w)
	}
	l.replaceGone()
	l.pause(time.Duration(500+l.rand.IntN(3000)) * time.Millisecond)
}

// harm notes what was done, with the time, since that is what the logs of processes and brokers are ordered by.
func (l *transformLoop) harm(kind, format string, args ...any) {
	l.harms[kind]++
	l.t.Logf("%s %s: %s", time.Now().Format(loopClock), kind, fmt.Sprintf(format, args...))
}

// replaceGone starts a process for each slot whose process has given up or was killed.
func (l *transformLoop) replaceGone() {
	for slot := range l.slots {
		if l.worker(slot).gone() {
			l.start(slot)
		}
	}
}

func (l *transformLoop) pause(d time.Duration) {
	l.t.Helper()
	must(l.t, workload.Pause(l.t.Context(), d))
}

func (l *transformLoop) killBroker() {
	n := l.c.Brokers()[l.rand.IntN(len(l.c.Brokers()))]
	must(l.t, n.Kill())
	l.harm("broker killed", "%d", n.ID)
	l.pause(time.Duration(l.rand.IntN(3000)) * time.Millisecond)
	must(l.t, n.Start())
	_, err := n.WaitReady(deadline(l.t, time.Minute))
	must(l.t, err)
	for _, topic := range []string{loopInput, loopOutput, "__transaction_state", "__consumer_offsets"} {
		waitInSync(l.t, l.c, topic)
	}
}

// freeze stops a process while another takes its place, with its transactional id or with one of its own.
func (l *transformLoop) freeze(slot int, w *transformWorker) {
	if w.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return // it has just given up
	}
	id := l.slots[slot]
	if l.rand.IntN(2) == 0 {
		l.slots[slot] = ""
	}
	l.start(slot)
	l.harm("process frozen", "%s, its place has %s", id, l.slots[slot])
	l.pause(time.Duration(l.rand.IntN(8000)) * time.Millisecond)
	_ = w.cmd.Process.Signal(syscall.SIGCONT)
	l.pause(time.Duration(l.rand.IntN(1000)) * time.Millisecond)
	_ = w.cmd.Process.Kill() // a zombie that was not fenced has had its chance to do harm
}

// finish lets the processes come to the end of the input, ends them, and judges the output.
func (l *transformLoop) finish() {
	inputs := l.feed.stop()
	cl, err := kgo.NewClient(workload.ClientOptions(l.c.Bootstrap())...)
	must(l.t, err)
	defer cl.Close()
	adm, ctx := kadm.NewClient(cl), deadline(l.t, 2*time.Minute)
	for {
		left, err := loopLag(ctx, adm)
		if err == nil && left == 0 {
			break
		}
		if workload.Pause(ctx, 100*time.Millisecond) != nil {
			l.t.Fatalf("the processes are %d records behind at the end: %v", left, err)
		}
		l.replaceGone()
	}
	for slot := range l.slots {
		w := l.worker(slot)
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		<-w.done
	}
	l.awaitEnded(adm)
	records, err := workload.ReadCommitted(deadline(l.t, 2*time.Minute), l.c.Bootstrap(), loopOutput)
	must(l.t, err)
	l.judge(inputs, records)
}

// loopLag is how many records of the input are not committed by the group.
func loopLag(ctx context.Context, adm *kadm.Client) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, loopInput)
	if err != nil {
		return -1, err
	}
	committed, err := adm.FetchOffsets(ctx, loopGroup)
	if err != nil {
		return -1, err
	}
	if err := ends.Error(); err != nil {
		return -1, err
	}
	left := int64(0)
	ends.Each(func(e kadm.ListedOffset) {
		o, _ := committed.Lookup(loopInput, e.Partition)
		left += e.Offset - max(o.At, 0)
	})
	return left, committed.Error()
}

// awaitEnded waits until no transaction is open in the output.
func (l *transformLoop) awaitEnded(adm *kadm.Client) {
	l.t.Helper()
	ctx := deadline(l.t, time.Minute)
	for {
		stable, err := adm.ListCommittedOffsets(ctx, loopOutput)
		ends, endErr := adm.ListEndOffsets(ctx, loopOutput)
		open := errors.Join(err, endErr, stable.Error(), ends.Error()) != nil
		ends.Each(func(e kadm.ListedOffset) {
			s, _ := stable.Lookup(loopOutput, e.Partition)
			open = open || s.Offset != e.Offset
		})
		if !open {
			return
		}
		if workload.Pause(ctx, 100*time.Millisecond) != nil {
			l.t.Fatalf("transactions are open for good: stable %v, end %v: %v", stable, ends, errors.Join(err, endErr))
		}
	}
}

// TestTransformWorker is no test: it is what a process of TestTransformLoop does until SIGTERM comes or it is fenced.
func TestTransformWorker(t *testing.T) {
	bootstrap := os.Getenv("CAIRN_TRANSFORM")
	if bootstrap == "" {
		t.Skip("a process of TestTransformLoop")
	}
	id, rng := os.Getenv("CAIRN_TRANSFORM_ID"), seeded(t)
	s, err := kgo.NewGroupTransactSession(append(workload.ClientOptions(strings.Split(bootstrap, ",")),
		kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(loopGroup), kgo.ConsumeTopics(loopInput), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stdout, kgo.LogLevelInfo, func() string { return time.Now().Format(loopClock) + " " })))...)
	must(t, err)
	defer s.Close()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-term; cancel() }()
	for n := 0; ctx.Err() == nil; n++ {
		fetches := s.PollRecords(ctx, 1+rng.IntN(100))
		if fetches.Empty() {
			continue
		}
		must(t, transform(s, fetches.Records(), fmt.Sprintf("%s-%d-%d", id, os.Getpid(), n), rng))
	}
}

// transform writes an output for each input in a transaction, which it commits or, of ten, aborts one.
func transform(s *kgo.GroupTransactSession, inputs []*kgo.Record, txn string, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	fate, end := "commit", kgo.TryCommit
	if rng.IntN(10) == 0 {
		fate, end = "abort", kgo.TryAbort
	}
	if err := s.Begin(); err != nil {
		return fmt.Errorf("beginning %s: %w", txn, err)
	}
	var lost error
	var outs []*kgo.Record
	for i, in := range inputs {
		out := &kgo.Record{
			Topic: loopOutput, Partition: int32((int(in.Offset) + i) % loopPartitions),
			Value: fmt.Appendf(nil, "%s %s %d %s", in.Value, txn, len(inputs), fate),
		}
		s.Produce(ctx, out, func(r *kgo.Record, err error) { // the client calls one promise at a time, and all before Flush returns
			if err != nil {
				lost = err
				return
			}
			outs = append(outs, r)
		})
	}
	if err := s.Client().Flush(ctx); err != nil {
		return fmt.Errorf("flushing %s: %w", txn, err)
	}
	if lost != nil { // a transaction that lacks a record must not be committed: the client leaves that to its user
		end = kgo.TryAbort
	}
	committed, err := s.End(ctx, end)
	fmt.Println(time.Now().Format(loopClock), txn, fate, len(inputs), "committed:", committed, err, lost, "in:", positions(inputs), "out:", positions(outs))
	if err != nil {
		return fmt.Errorf("ending %s: %w", txn, err)
	}
	return nil
}
