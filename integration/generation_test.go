package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"cairn/integration/harness"
	"cairn/integration/network"
	"cairn/integration/workload"
)

// TestTwoMembersOfAnOldGenerationReturnAtOnce: two of three members are away, by death or by a cut that leaves them a majority of their
// generation, until the third goes on alone in the next one; then both return at once, and settle into it.
func TestTwoMembersOfAnOldGenerationReturnAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"killed", "cut off"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c, net := networked(t, 3, 1, fastTimes())
			const topic, partitions = "return", 4
			must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, partitions, 3, nil))
			waitInSync(t, c, topic)
			load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: partitions, RecordBytes: 100, Every: 5 * time.Millisecond})
			must(t, err)
			for range rounds(t, 2, 10) {
				must(t, load.WaitAcked(deadline(t, 30*time.Second), 500))
				if way == "killed" {
					must(t, c.Node(2).Kill())
					must(t, c.Node(3).Kill())
				} else {
					net.Split(2, 3)
				}
				waitAloneInSync(t, c, topic, 1)
				must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
				must(t, load.WaitAcked(deadline(t, 30*time.Second), 500))
				if way == "killed" {
					must(t, c.Node(2).Start())
					must(t, c.Node(3).Start())
				} else {
					net.Heal(false)
				}
				waitInSync(t, c, topic)
				must(t, load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
			}
			must(t, load.Stop(deadline(t, time.Minute)))
			verify(t, c, topic, load.Ledger)
		})
	}
}

// waitAloneInSync waits until the broker leads all partitions and is their only in-sync replica, as it sees it.
func waitAloneInSync(t *testing.T, c *harness.Cluster, topic string, broker int) {
	t.Helper()
	waitTopicAt(t, c.Node(broker), topic, func(leader int32, isr []int32) bool {
		return leader == int32(broker) && len(isr) == 1 && isr[0] == leader
	})
}

// bigData is how much a partition holds whose generation changes.
func bigData() int {
	if long() {
		return 1 << 30
	}
	return 96 << 20
}

const (
	maxMove   = 2 * time.Second // from the controller's decision to the next acknowledged record
	awayBytes = 8 << 20         // produced in each stage while members are away
	bigRecord = 64 << 10
)

// TestGenerationOfMuchDataMovesWithoutCopying: the survivor of a partition with much data leads the next generation within two seconds of the
// controller's decision, and gets and sends no data for it. One member went early and one late: returning, each is sent what it lacks.
func TestGenerationOfMuchDataMovesWithoutCopying(t *testing.T) {
	c, net := networked(t, 3, 1, fastTimes())
	const topic = "big"
	cairn(t, "", "topics", "create", "--bootstrap-server", c.Bootstrap()[0], "--topic", topic, "--replica-assignment", "1:2:3")
	waitInSync(t, c, topic)
	ledger := workload.NewLedger()
	leader := waitLeaderIn(t, c, topic, 1, 2, 3)
	survivor, early, late := c.Node(leader), c.Node(leader%3+1), c.Node((leader+1)%3+1)
	numbers := fill(t, survivor, topic, ledger, 0, bigData())
	waitInSync(t, c, topic)
	must(t, early.Kill())
	waitMembers(t, survivor, topic, 2)
	numbers = fill(t, survivor, topic, ledger, numbers, awayBytes)

	before := net.Sent(network.All, leader)
	probe := startProbe(t, survivor, topic, ledger, numbers)
	must(t, probe.wait(deadline(t, 30*time.Second), time.Now()))
	must(t, late.Kill())
	waitAloneInSync(t, c, topic, leader)
	decided := decisionTime(t, c.Node(harness.ControllerID))
	must(t, probe.wait(deadline(t, 30*time.Second), decided))
	numbers = probe.end()
	first := probe.firstAfter(decided)
	t.Logf("%d MB: %v from the controller's decision to the next acknowledged record", bigData()>>20, first.Sub(decided).Round(time.Millisecond))
	if first.Sub(decided) > maxMove {
		t.Errorf("the move took %v, more than %v", first.Sub(decided), maxMove)
	}
	if got := net.Sent(network.All, leader) - before; got > 4<<20 {
		t.Errorf("the survivor was sent %d bytes", got)
	}
	fill(t, survivor, topic, ledger, numbers, awayBytes)
	fromLeader := func(n *harness.Node) int64 { return net.Sent(leader, n.ID) }
	sentEarly, sentLate := fromLeader(early), fromLeader(late)
	must(t, early.Start())
	must(t, late.Start())
	waitInSync(t, c, topic)
	sentEarly, sentLate = fromLeader(early)-sentEarly, fromLeader(late)-sentLate
	t.Logf("returning, the members were sent %.1f and %.1f MB; they lacked about %d and %d MB", float64(sentEarly)/1e6, float64(sentLate)/1e6, 2*awayBytes/1_000_000, awayBytes/1_000_000)
	const slack = 12 << 20 // what the probe wrote, heartbeats, and what was sent twice at the seams
	if sentEarly > 2*awayBytes+slack || sentLate > awayBytes+slack {
		t.Errorf("that is more than they lacked")
	}
	if sentEarly < 2*awayBytes || sentLate < awayBytes {
		t.Errorf("that is less than they lacked: the measurement is wrong")
	}
	verify(t, c, topic, ledger)
}

// fill produces so many bytes to the first partition and returns the number of the last record.
func fill(t *testing.T, leader *harness.Node, topic string, ledger *workload.Ledger, last uint64, bytes int) uint64 {
	t.Helper()
	d, err := workload.NewDirect(leader.Addr)
	must(t, err)
	defer d.Close()
	const perBatch = 12
	ctx := deadline(t, 5*time.Minute)
	for left := bytes; left > 0; {
		var values [][]byte
		for i := range uint64(perBatch) {
			values = append(values, workload.EncodeRecord(last+1+i, bigRecord))
		}
		base, err := d.Produce(ctx, topic, 0, workload.AcksAll, 30*time.Second, values...)
		for i := range uint64(perBatch) {
			if last++; err == nil {
				ledger.Acked(0, last, base+int64(i))
			}
		}
		switch {
		case err == nil:
			left -= perBatch * bigRecord
		case !retriable(err):
			t.Fatal(err)
		default: // what became of these numbers nobody knows; the next ones are others
			must(t, workload.Pause(ctx, 50*time.Millisecond))
		}
	}
	return last
}

// probe produces one small acks=all record after the other and notes when each was acknowledged.
type probe struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	times []time.Time // guarded by mu
	last  uint64      // guarded by mu
}

func startProbe(t *testing.T, n *harness.Node, topic string, ledger *workload.Ledger, last uint64) *probe {
	t.Helper()
	d, err := workload.NewDirect(n.Addr)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	p := &probe{stop: stop, last: last}
	p.wg.Go(func() {
		defer d.Close()
		for number := last + 1; ctx.Err() == nil; number++ {
			base, err := d.Produce(context.WithoutCancel(ctx), topic, 0, workload.AcksAll, 10*time.Second, workload.EncodeRecord(number, 100))
			p.mu.Lock()
			p.last = number
			if err == nil {
				ledger.Acked(0, number, base)
				p.times = append(p.times, time.Now())
			}
			p.mu.Unlock()
			if workload.Pause(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	})
	return p
}

// end stops the probe and returns the number of its last record.
func (p *probe) end() uint64 {
	p.stop()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// firstAfter is when the first record behind that time was acknowledged; zero: none was yet.
func (p *probe) firstAfter(then time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.times {
		if at.After(then) {
			return at
		}
	}
	return time.Time{}
}

func (p *probe) wait(ctx context.Context, then time.Time) error {
	for p.firstAfter(then).IsZero() {
		if err := workload.Pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("no record was acknowledged after %v: %w", then, err)
		}
	}
	return nil
}

// decisionTime is when the controller last began a generation, from its log.
func decisionTime(t *testing.T, controller *harness.Node) time.Time {
	t.Helper()
	var lines [][]string
	until(t, "a generation that the controller has begun", func() bool { // it may fence the last follower a moment before
		text, err := os.ReadFile(controller.LogFile())
		must(t, err)
		lines = regexp.MustCompile(`(?m)^(\S+Z)\s.*next generation\s`).FindAllStringSubmatch(string(text), -1)
		return len(lines) > 0
	})
	at, err := time.Parse(time.RFC3339Nano, lines[len(lines)-1][1])
	must(t, err)
	return at
}
