package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// groupPartitions is how many partitions the members share.
const groupPartitions = 12

// TestGroupsLoseNothing: groups of three processes, of kcat and of franz-go (cairn consume --group), go through kill, freeze, a new member, a
// rolling restart of all brokers and a member that leaves, while records come. Every record is read at least once, committed offsets never go
// back, and each group is whole again after each step within its timeouts.
func TestGroupsLoseNothing(t *testing.T) {
	c := three(t, map[string]string{"group.initial.rebalance.delay.ms": "500"})
	const topic = "shared"
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, groupPartitions, 3, nil))
	p := newPacer(t, c, topic)
	groups := []*processGroup{newProcessGroup(t, c, "kcat", topic), newProcessGroup(t, c, "franz", topic)}
	watchCommitted(t, c, groups)
	each := func(step string, members int, do func(g *processGroup)) {
		began := time.Now()
		for _, g := range groups {
			do(g)
		}
		for _, g := range groups {
			g.await(members)
		}
		t.Logf("%s: whole again after %v", step, time.Since(began).Round(100*time.Millisecond))
	}
	each("join", 3, func(g *processGroup) { g.start(); g.start(); g.start() })
	each("kill", 2, func(g *processGroup) { g.signal(0, syscall.SIGKILL) })
	each("freeze", 1, func(g *processGroup) { g.signal(1, syscall.SIGSTOP) })
	each("thaw", 2, func(g *processGroup) { g.signal(1, syscall.SIGCONT) })
	each("new member", 3, func(g *processGroup) { g.start() })
	for _, n := range c.Brokers() {
		must(t, n.Stop(30*time.Second))
		must(t, n.Start())
		_, err := n.WaitReady(deadline(t, 30*time.Second))
		must(t, err)
	}
	each("rolling restart", 3, func(*processGroup) {})
	// kcat that is told to end commits what it was handed and prints it no more, so it leaves when all is read; cairn leaves while records come.
	leave := func(g *processGroup) { g.signal(2, syscall.SIGTERM) }
	leave(groups[1])
	groups[1].await(2)
	acked := p.stop()
	for _, g := range groups {
		g.awaitRecords(acked)
	}
	leave(groups[0])
	groups[0].await(2)
}

// pacer writes records of increasing numbers until it is stopped.
type pacer struct {
	cancel context.CancelFunc
	done   chan int // how many were acknowledged: all up to there
}

func newPacer(t *testing.T, c *harness.Cluster, topic string) *pacer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p := &pacer{cancel: cancel, done: make(chan int, 1)}
	go func() {
		defer cl.Close()
		n := 0
		for ctx.Err() == nil {
			var batch []*kgo.Record
			for range 20 {
				batch = append(batch, &kgo.Record{Value: fmt.Append(nil, n+len(batch))})
			}
			wait, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			err := cl.ProduceSync(wait, batch...).FirstErr()
			stop()
			if err != nil {
				t.Errorf("producing: %v", err)
				break
			}
			n += len(batch)
			time.Sleep(50 * time.Millisecond)
		}
		p.done <- n
	}()
	t.Cleanup(cancel)
	return p
}

func (p *pacer) stop() int {
	p.cancel()
	return <-p.done
}

// processGroup is a consumer group whose members are processes of one client.
type processGroup struct {
	t       *testing.T
	c       *harness.Cluster
	client  string
	topic   string
	members []*exec.Cmd
	admin   *kadm.Client

	mu   sync.Mutex
	seen map[string]int // how often each value was read; guarded by mu
}

func newProcessGroup(t *testing.T, c *harness.Cluster, client, topic string) *processGroup {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RequestTimeoutOverhead(3*time.Second))
	must(t, err)
	t.Cleanup(cl.Close)
	return &processGroup{t: t, c: c, client: client, topic: topic, admin: kadm.NewClient(cl), seen: map[string]int{}}
}

// start starts one more member.
func (g *processGroup) start() {
	g.t.Helper()
	bootstrap := g.c.Bootstrap()[len(g.members)%len(g.c.Bootstrap())]
	var cmd *exec.Cmd
	switch g.client {
	case "kcat":
		cmd = exec.Command("kcat", "-b", bootstrap, "-G", g.client, "-u", "-q", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=1000",
			"-X", "auto.commit.interval.ms=500", "-X", "auto.offset.reset=earliest", "-X", "topic.metadata.refresh.interval.ms=5000", g.topic)
	default:
		cmd = exec.Command(cairnBinary(g.t), "consume", "--bootstrap-server", bootstrap, "--topic", g.topic, "--group", g.client, "--from-beginning",
			"--consumer-property", "session.timeout.ms=6000", "--consumer-property", "heartbeat.interval.ms=1000",
			"--consumer-property", "auto.commit.interval.ms=500")
	}
	out, err := cmd.StdoutPipe()
	must(g.t, err)
	errs, err := os.Create(fmt.Sprintf("%s/%s-%d.log", g.c.Dir, g.client, len(g.members)))
	must(g.t, err)
	cmd.Stderr = errs
	must(g.t, cmd.Start())
	g.members = append(g.members, cmd)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			g.mu.Lock()
			g.seen[s.Text()]++
			g.mu.Unlock()
		}
	}()
	g.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		_ = errs.Close()
	})
}

func (g *processGroup) signal(member int, s syscall.Signal) {
	g.t.Helper()
	must(g.t, g.members[member].Process.Signal(s))
}

// await waits until the group is stable with so many members that share all partitions.
func (g *processGroup) await(members int) {
	g.t.Helper()
	ctx, last := deadline(g.t, 40*time.Second), "nothing was heard"
	for ctx.Err() == nil {
		d, err := g.admin.DescribeGroups(ctx, g.client)
		switch group := d[g.client]; {
		case err != nil || group.Err != nil:
			last = fmt.Sprint(err, group.Err)
		case group.State == "Stable" && len(group.Members) == members && assigned(group) == groupPartitions:
			return
		default:
			last = fmt.Sprintf("%s, %d members with %d partitions", group.State, len(group.Members), assigned(group))
		}
		time.Sleep(200 * time.Millisecond)
	}
	g.t.Fatalf("group %s is not stable with %d members: %s", g.client, members, last)
}

func assigned(d kadm.DescribedGroup) int {
	n := 0
	for _, parts := range d.AssignedPartitions() {
		n += len(parts)
	}
	return n
}

// awaitRecords waits until each record was read.
func (g *processGroup) awaitRecords(n int) {
	g.t.Helper()
	ctx := deadline(g.t, 30*time.Second)
	lost := 0
	for ctx.Err() == nil {
		lost = 0
		twice := 0
		g.mu.Lock()
		for i := range n {
			switch g.seen[fmt.Sprint(i)] {
			case 0:
				lost++
			case 1:
			default:
				twice++
			}
		}
		g.mu.Unlock()
		if lost == 0 {
			g.t.Logf("group %s read all of %d records, %d of them more than once", g.client, n, twice)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	g.t.Errorf("group %s did not read %d of %d records", g.client, lost, n)
}

// watchCommitted sees, until the test ends, that committed offsets only grow.
func watchCommitted(t *testing.T, c *harness.Cluster, groups []*processGroup) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, g := range groups {
		running.Go(func() {
			before := map[int32]int64{}
			for ctx.Err() == nil {
				got, err := g.admin.FetchOffsets(ctx, g.client)
				for partition, o := range got[g.topic] {
					if err == nil && o.Err == nil && o.At < before[partition] {
						t.Errorf("group %s, partition %d: committed %d after %d", g.client, partition, o.At, before[partition])
					}
					before[partition] = max(before[partition], o.At)
				}
				select {
				case <-ctx.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
