package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// quickGroups has members of consumer groups be heard, and missed, soon.
func quickGroups() map[string]string {
	return map[string]string{
		"group.consumer.min.heartbeat.interval.ms": "300", "group.consumer.heartbeat.interval.ms": "500",
		"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000",
	}
}

// line is a client's network, which can be frozen and cut.
type line struct {
	mu     sync.Mutex
	frozen chan struct{} // guarded by mu; not nil: nothing passes until it is closed
	dead   bool          // guarded by mu
	conns  []net.Conn    // guarded by mu
}

var errCut = errors.New("the line is cut")

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return &lineConn{c, l}, nil
}

// pass waits while the line is frozen.
func (l *line) pass() error {
	l.mu.Lock()
	frozen, dead := l.frozen, l.dead
	l.mu.Unlock()
	if dead {
		return errCut
	}
	if frozen != nil {
		<-frozen
	}
	return nil
}

func (l *line) freeze() { l.set(make(chan struct{}), false) }
func (l *line) thaw()   { l.set(nil, false) }

// cut ends all connections and lets none come: to the brokers the client is dead.
func (l *line) cut() { l.set(nil, true) }

func (l *line) set(frozen chan struct{}, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
	}
	if l.frozen, l.dead = frozen, dead; dead {
		for _, c := range l.conns {
			_ = c.Close() // the client sees it
		}
	}
}

type lineConn struct {
	net.Conn
	l *line
}

func (c *lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, errors.Join(err, c.l.pass())
}

func (c *lineConn) Write(b []byte) (int, error) {
	if err := c.l.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// groupMember is a franz-go client in a consumer group that commits what it has read.
type groupMember struct {
	*line
	cl   *kgo.Client
	done chan struct{}

	mu  sync.Mutex
	has map[int32]bool // guarded by mu
}

// groupTest is a group over one topic, and what its members have read.
type groupTest struct {
	t     *testing.T
	c     *harness.Cluster
	topic string

	mu   sync.Mutex
	seen map[int32]map[int64]bool // guarded by mu; partition, offset
}

func (g *groupTest) join(opts ...kgo.Opt) *groupMember {
	g.t.Helper()
	m := &groupMember{line: &line{}, done: make(chan struct{}), has: map[int32]bool{}}
	note := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range topics[g.topic] {
				if m.has[p] = has; !has {
					delete(m.has, p)
				}
			}
		}
	}
	cl, err := kgo.NewClient(append(append(workload.ClientOptions(g.c.Bootstrap()),
		kgo.Dialer(m.dial), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics(g.topic), kgo.ServerSideBalancer(),
		kgo.Balancers(kgo.StickyBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	), opts...)...)
	must(g.t, err)
	m.cl = cl
	g.t.Cleanup(cl.CloseAllowingRebalance)
	go func() {
		defer close(m.done)
		for {
			fetches := cl.PollFetches(g.t.Context())
			if fetches.IsClientClosed() || g.t.Context().Err() != nil {
				return
			}
			g.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) {
				if g.seen[r.Partition] == nil {
					g.seen[r.Partition] = map[int64]bool{}
				}
				g.seen[r.Partition][r.Offset] = true
			})
			g.mu.Unlock()
		}
	}()
	return m
}

func (m *groupMember) owned() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []int32
	for p := range m.has {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// settle waits until the members have all partitions, each one as many as its share.
func (g *groupTest) settle(what string, limit time.Duration, members ...*groupMember) {
	g.t.Helper()
	began := time.Now()
	const partitions = 12
	for {
		owned := map[int32]int{}
		even := true
		for _, m := range members {
			list := m.owned()
			even = even && len(list) == partitions/len(members)
			for _, p := range list {
				owned[p]++
			}
		}
		if even && len(owned) == partitions {
			g.t.Logf("%s: divided after %v", what, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > limit {
			var text strings.Builder
			for i, m := range members {
				fmt.Fprintf(&text, " %d: %v", i, m.owned())
			}
			g.t.Fatalf("%s: after %v the members have%s", what, limit, text.String())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestConsumerGroupGoesOnThroughIt: three members of the consumer protocol over 12 partitions under load; a member joins, is frozen, is dead,
// leaves; all brokers are restarted one after the other. Every acknowledged record is read, and committed offsets never go back.
func TestConsumerGroupGoesOnThroughIt(t *testing.T) {
	c := three(t, quickGroups())
	g := &groupTest{t: t, c: c, topic: "grouped", seen: map[int32]map[int64]bool{}}
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), g.topic, 12, 3, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: g.topic, Partitions: 12, RecordBytes: 100, Every: 2 * time.Millisecond})
	must(t, err)
	stop := g.watchCommits()

	a, b := g.join(), g.join()
	g.settle("two join", 30*time.Second, a, b)
	d := g.join()
	g.settle("a third joins", 20*time.Second, a, b, d)
	d.freeze()
	g.settle("one is frozen", 20*time.Second, a, b)
	d.thaw()
	g.settle("it comes back", 20*time.Second, a, b, d)
	b.cut()
	g.settle("one is dead", 20*time.Second, a, d)
	for _, n := range c.Brokers() {
		must(t, n.Stop(30*time.Second))
		must(t, n.Start())
		_, err = n.WaitReady(deadline(t, 60*time.Second))
		must(t, err)
		waitInSync(t, c, g.topic)
	}
	g.settle("all brokers were restarted", 30*time.Second, a, d)
	e := g.join(kgo.InstanceID("static"))
	g.settle("a static one joins", 20*time.Second, a, d, e)
	d.cl.LeaveGroup()
	g.settle("one leaves", 20*time.Second, a, e)

	must(t, load.Stop(deadline(t, time.Minute)))
	stop()
	g.requireAllRead()
}

// watchCommits looks at the committed offsets again and again, until it is stopped: they never go back.
func (g *groupTest) watchCommits() (stop func()) {
	cl, err := kgo.NewClient(workload.ClientOptions(g.c.Bootstrap())...)
	must(g.t, err)
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		adm, before := kadm.NewClient(cl), map[int32]int64{}
		for ctx.Err() == nil {
			at, err := adm.FetchOffsets(ctx, "readers")
			if err == nil {
				at.Each(func(o kadm.OffsetResponse) {
					if o.At < before[o.Partition] {
						g.t.Errorf("partition %d: the committed offset went from %d back to %d", o.Partition, before[o.Partition], o.At)
					}
					before[o.Partition] = o.At
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// requireAllRead waits until the members have read all that the topic has.
func (g *groupTest) requireAllRead() {
	g.t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions(g.c.Bootstrap())...)
	must(g.t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(deadline(g.t, 20*time.Second), g.topic)
	must(g.t, err)
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		missing := 0
		g.mu.Lock()
		ends.Each(func(o kadm.ListedOffset) {
			for at := range o.Offset {
				if !g.seen[o.Partition][at] {
					missing++
				}
			}
		})
		g.mu.Unlock()
		if missing == 0 {
			return
		}
		if time.Now().After(limit) {
			g.t.Fatalf("%d records were read by nobody", missing)
		}
	}
}
