package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// classicMember is a franz-go client in a classic group. It reads nothing.
type classicMember struct {
	t     *testing.T
	group string
	topic string
	cl    *kgo.Client
	beats atomic.Int64 // heartbeats that were answered

	mu    sync.Mutex
	has   map[int32]bool // guarded by mu
	given map[int32]bool // guarded by mu; given up since forget
	got   map[int32]bool // guarded by mu; got since forget
}

// OnBrokerE2E counts heartbeats.
func (m *classicMember) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key == kmsg.NewPtrHeartbeatRequest().Key() && e.Err() == nil {
		m.beats.Add(1)
	}
}

func newClassicMember(t *testing.T, c *harness.Cluster, group, topic string, opts ...kgo.Opt) *classicMember {
	t.Helper()
	m := &classicMember{t: t, group: group, topic: topic, has: map[int32]bool{}}
	m.forget()
	lose := func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range topics[topic] {
			delete(m.has, p)
			m.given[p] = true
		}
	}
	cl, err := kgo.NewClient(append(append(workload.ClientOptions(c.Bootstrap()), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(8*time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.DisableAutoCommit(), kgo.WithHooks(m), kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, topics map[string][]int32) {
			cl.PauseFetchTopics(topic)
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range topics[topic] {
				m.has[p], m.got[p] = true, true
			}
		})), opts...)...)
	must(t, err)
	m.cl = cl
	t.Cleanup(cl.CloseAllowingRebalance)
	return m
}

// forget starts the account of what the member gives up and gets anew.
func (m *classicMember) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.given, m.got = map[int32]bool{}, map[int32]bool{}
}

func (m *classicMember) list(which *map[int32]bool) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(*which))
}

// settleClassic waits until the members share 12 partitions evenly.
func settleClassic(t *testing.T, what string, members ...*classicMember) {
	t.Helper()
	ctx := deadline(t, 30*time.Second)
	for {
		owned, even := map[int32]bool{}, true
		var text strings.Builder
		for _, m := range members {
			list := m.list(&m.has)
			even = even && len(list) == groupPartitions/len(members)
			for _, p := range list {
				owned[p] = true
			}
			fmt.Fprintf(&text, " %v", list)
		}
		if even && len(owned) == groupPartitions {
			return
		}
		if workload.Pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: the members have%s", what, text.String())
		}
	}
}

// beat waits until the member has been told in some more heartbeats that nothing is to be done.
func (m *classicMember) beat() {
	m.t.Helper()
	ctx := deadline(m.t, 20*time.Second)
	for from := m.beats.Load(); m.beats.Load() < from+3; {
		if workload.Pause(ctx, 20*time.Millisecond) != nil {
			m.t.Fatalf("no heartbeats: %d since %d", m.beats.Load(), from)
		}
	}
}

func (m *classicMember) generation() int32 {
	_, generation := m.cl.GroupMetadata()
	return generation
}

// TestClassicGroupsMoveNoMoreThanTheyMust: on one cluster, what a rebalance moves, what it does not, and what it is not needed for.
func TestClassicGroupsMoveNoMoreThanTheyMust(t *testing.T) {
	c := three(t, map[string]string{"group.initial.rebalance.delay.ms": "1000"})
	for _, topic := range []string{"cooperative", "static", "dying"} {
		must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, groupPartitions, 3, nil))
	}
	t.Run("moves", func(t *testing.T) {
		t.Run("cooperative", func(t *testing.T) {
			t.Parallel()
			cooperativeMoves(t, c)
		})
		t.Run("static", func(t *testing.T) {
			t.Parallel()
			staticReturns(t, c)
		})
	})
	t.Run("coordinator dies", func(t *testing.T) { groupCoordinatorDies(t, c) })
}

// cooperativeMoves: a member joins and gets its share, no partition moves twice, and what stays is not given up for a moment;
// it leaves, and the others get its partitions without giving up any.
func cooperativeMoves(t *testing.T, c *harness.Cluster) {
	join := func() *classicMember { return newClassicMember(t, c, "cooperative", "cooperative") }
	a, b := join(), join()
	settleClassic(t, "two join", a, b)
	stayers := []*classicMember{a, b}
	for _, m := range stayers {
		m.forget()
	}
	d := join()
	settleClassic(t, "a third joins", a, b, d)
	for i, m := range stayers {
		given, has, got := m.list(&m.given), m.list(&m.has), m.list(&m.got)
		if len(given) != 2 || len(got) != 0 {
			t.Errorf("a third joins: member %d gave up %v and got %v, it has %v now; it had 6 and needs to give up 2", i, given, got, has)
		}
		m.forget()
	}
	if given := d.list(&d.given); len(given) != 0 {
		t.Errorf("the third member was given %v and had to give them up again", given)
	}
	d.cl.LeaveGroup()
	settleClassic(t, "the third leaves", a, b)
	for i, m := range stayers {
		if given, got := m.list(&m.given), m.list(&m.got); len(given) != 0 || len(got) != 2 {
			t.Errorf("the third leaves: member %d gave up %v and got %v; it is to get 2", i, given, got)
		}
	}
}

// staticReturns: a static member goes and comes back within its session timeout, once the leader of the group and once another one: the
// generation stays, and so does what everybody has.
func staticReturns(t *testing.T, c *harness.Cluster) {
	join := func(instance string) *classicMember {
		return newClassicMember(t, c, "static", "static", kgo.InstanceID(instance))
	}
	names := []string{"one", "two"}
	members := []*classicMember{join(names[0]), join(names[1])}
	settleClassic(t, "two join", members...)
	for i, name := range names {
		gone, other := members[i], members[1-i]
		other.beat() // the rebalance before is over for it, too
		generation, had := gone.generation(), gone.list(&gone.has)
		if g := other.generation(); g != generation {
			t.Fatalf("the members are in the generations %d and %d", generation, g)
		}
		other.forget()
		gone.cl.Close() // says nothing to the coordinator
		back := join(name)
		members[i] = back
		settleClassic(t, name+" comes back", members...)
		back.beat()
		other.beat()
		if g, o := back.generation(), other.generation(); g != generation || o != generation {
			t.Errorf("%s comes back: generation %d became %d, that of the other member %d", name, generation, g, o)
		}
		if has := back.list(&back.has); !slices.Equal(has, had) {
			t.Errorf("%s had %v and has %v", name, had, has)
		}
		if given, got := other.list(&other.given), other.list(&other.got); len(given)+len(got) > 0 {
			t.Errorf("%s comes back: the other member gave up %v and got %v", name, given, got)
		}
	}
}

// gate is a balancer that the leader of a group waits for.
type gate struct {
	kgo.GroupBalancer
	mu sync.Mutex // held: closed
}

func (g *gate) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.GroupBalancer.MemberBalancer(members)
}

// committing is a group whose members commit all the time, each time a greater offset.
type committing struct {
	t     *testing.T
	c     *harness.Cluster
	name  string
	topic kadm.TopicID
	admin *kadm.Client
	gate  gate
	last  atomic.Int64
	quiet atomic.Bool // nothing more is committed for now

	mu    sync.Mutex
	acked map[int32]int64     // guarded by mu; the last offset whose commit was acknowledged
	begun map[int32]time.Time // guarded by mu; when that commit began
}

// start adds a member.
func (g *committing) start() *classicMember {
	m := newClassicMember(g.t, g.c, g.name, g.name, kgo.Balancers(&g.gate))
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for workload.Pause(ctx, 5*time.Millisecond) == nil {
			g.commit(ctx, m)
		}
	}()
	g.t.Cleanup(func() { cancel(); <-done })
	return m
}

// commit commits the next offset for all partitions that the member has. A generation that is over by then is refused.
func (g *committing) commit(ctx context.Context, m *classicMember) {
	member, generation := m.cl.GroupMetadata()
	owned := m.list(&m.has)
	if generation < 0 || len(owned) == 0 || g.quiet.Load() {
		return
	}
	n, began := g.last.Add(1), time.Now()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = g.name, member, generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = g.name, g.topic
	for _, p := range owned {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, n
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, m.cl)
	if err != nil {
		return // its outcome is unknown
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				g.acked[p.Partition], g.begun[p.Partition] = n, began
			}
		}
	}
}

// await waits until a commit for each partition is acknowledged that began after a moment.
func (g *committing) await(what string, since time.Time, limit time.Duration) {
	g.t.Helper()
	ctx := deadline(g.t, limit)
	for {
		n := 0
		g.mu.Lock()
		for _, at := range g.begun {
			if at.After(since) {
				n++
			}
		}
		g.mu.Unlock()
		if n == groupPartitions {
			g.t.Logf("%s: works again after %v", what, time.Since(since).Round(10*time.Millisecond))
			return
		}
		if workload.Pause(ctx, 10*time.Millisecond) != nil {
			g.t.Fatalf("%s: after %v commits are acknowledged for %d of %d partitions", what, limit, n, groupPartitions)
		}
	}
}

// inState waits until the group is in a state, with so many members.
func (g *committing) inState(state string, members int) {
	g.t.Helper()
	ctx := deadline(g.t, 20*time.Second)
	for {
		d, err := g.admin.DescribeGroups(ctx, g.name)
		group := d[g.name]
		if err == nil && group.Err == nil && group.State == state && len(group.Members) == members {
			return
		}
		if workload.Pause(ctx, 10*time.Millisecond) != nil {
			g.t.Fatalf("the group is not %s with %d members but %s with %d (%v, %v)", state, members, group.State, len(group.Members), err, group.Err)
		}
	}
}

// renew has the test ask with a client that knows no dead coordinator.
func (g *committing) renew() {
	cl, err := kgo.NewClient(workload.ClientOptions(g.c.Bootstrap())...)
	must(g.t, err)
	g.t.Cleanup(cl.Close)
	g.admin = kadm.NewClient(cl)
}

// kill ends the coordinator's broker.
func (g *committing) kill() *harness.Node {
	g.t.Helper()
	found := g.admin.FindGroupCoordinators(deadline(g.t, 20*time.Second), g.name)[g.name]
	must(g.t, found.Err)
	n := g.c.Node(int(found.NodeID))
	must(g.t, n.Kill())
	g.renew()
	return n
}

// requireCommitted fails where less is committed than was acknowledged before.
func (g *committing) requireCommitted(what string) {
	g.t.Helper()
	g.mu.Lock()
	acked := maps.Clone(g.acked)
	g.mu.Unlock()
	ctx := deadline(g.t, 20*time.Second)
	at, err := g.admin.FetchOffsets(ctx, g.name)
	for err != nil && workload.Pause(ctx, 20*time.Millisecond) == nil { // until the coordinator is another one
		g.renew()
		at, err = g.admin.FetchOffsets(ctx, g.name)
	}
	must(g.t, err)
	for p, n := range acked {
		if got := at[g.name][p]; got.Err != nil || got.At < n || got.At == 0 {
			g.t.Errorf("%s: partition %d: offset %d was acknowledged, %d is there (%v)", what, p, n, got.At, got.Err)
		}
	}
}

// coordinatorBack is how long a group may be out of work when its coordinator dies: a failover takes one to two seconds, then
// clients ask again, join, and wait for each other. This is generous for a machine that does other things, too.
const coordinatorBack = 15 * time.Second

// groupCoordinatorDies: the coordinator's broker is killed while members wait for the end of the join phase, while they wait for the leader's
// assignment, and while they commit.
func groupCoordinatorDies(t *testing.T, c *harness.Cluster) {
	g := &committing{
		t: t, c: c, name: "dying", gate: gate{GroupBalancer: kgo.CooperativeStickyBalancer()},
		acked: map[int32]int64{}, begun: map[int32]time.Time{},
	}
	g.renew()
	topics, err := g.admin.ListTopics(deadline(t, 20*time.Second), g.name)
	must(t, err)
	g.topic = topics[g.name].ID
	revive := func(n *harness.Node) {
		must(t, n.Start())
		_, err := n.WaitReady(deadline(t, 30*time.Second))
		must(t, err)
		waitInSync(t, c, "__consumer_offsets")
	}
	g.start()
	g.start()
	g.inState("PreparingRebalance", 2)
	at := time.Now()
	n := g.kill()
	g.await("killed during join", at, coordinatorBack)
	revive(n)

	g.gate.mu.Lock()
	g.start()
	g.inState("CompletingRebalance", 3)
	at = time.Now()
	n = g.kill()
	g.gate.mu.Unlock()
	g.await("killed during sync", at, coordinatorBack)
	g.requireCommitted("killed during sync")
	revive(n)

	g.inState("Stable", 3)
	g.await("before the last kill", time.Now(), coordinatorBack)
	at = time.Now()
	n = g.kill()
	g.quiet.Store(true) // no later commit hides what is lost
	g.requireCommitted("killed during commit")
	g.quiet.Store(false)
	g.await("killed during commit", at, coordinatorBack)
	revive(n)
	g.requireCommitted("in the end")
}
