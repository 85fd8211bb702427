package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestClientRegistersAndIsUnfenced(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, q *quorum) {
		q.elect(2) // the client starts at voter 1 and has to find it
		c := q.client(10, nil)
		defer c.Close()
		reg, err := c.Register(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := q.image().Brokers[10]
		if reg.ClusterID != q.image().ClusterID || reg.BrokerEpoch != b.Epoch || reg.MetadataReplica != firstReplica || reg.MetadataEnd != q.image().Index {
			t.Errorf("registration %+v of %+v", reg, b)
		}
		if q.members[firstReplica] != 10 {
			t.Errorf("members %v", q.members)
		}
		c.Start()
		synctest.Wait()
		if !q.image().Brokers[10].Fenced || c.Lease() {
			t.Error("unfenced before it asked")
		}
		if err := c.Unfence(t.Context()); err != nil || !c.Lease() {
			t.Errorf("unfence: %v, lease %v", err, c.Lease())
		}
		q.wantFenced(10, false, "after Unfence")
		sleep(time.Minute)
		q.wantFenced(10, false, "after a minute of heartbeats")
		if !c.Lease() {
			t.Error("no lease after a minute of heartbeats")
		}
	})
}

func TestClientOfTheControllersOwnNodeNeedsNoConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.client(1, func(cfg *ClientConfig) { cfg.Local, cfg.Dial, cfg.Voters = q.nodes[0].ctl, nil, nil })
		reg, err := c.Register(t.Context())
		if err != nil || reg.MetadataReplica != VoterReplica(1) || len(q.members) != 0 {
			t.Fatalf("%+v, %v, members %v", reg, err, q.members)
		}
		c.Start()
		if err := c.Unfence(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(30 * time.Second)
		q.wantFenced(1, false, "after heartbeats")
		c.Close()
		sleep(DefaultConnectionGrace)
		q.wantFenced(1, true, "after Close and the grace")
		if c.Lease() {
			t.Error("a closed client has a lease")
		}
	})
}

// TestLeaseEndsBeforeTheFence: with the controller gone, the lease lasts for the session timeout from the sending of the
// last answered heartbeat, and has ended when a new controller fences.
func TestLeaseEndsBeforeTheFence(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		sleep(10 * time.Second)
		q.depose()
		sleep(DefaultSessionTimeout - DefaultHeartbeatInterval)
		if !c.Lease() {
			t.Error("lease lost within the session timeout of the last answer")
		}
		sleep(DefaultHeartbeatInterval)
		if c.Lease() {
			t.Error("lease without an answer for the session timeout")
		}
		q.elect(0)
		sleep(time.Second)
		if !c.Lease() {
			t.Error("no lease once the controller answers again")
		}
		q.wantFenced(10, false, "back in time for the new controller's session")
	})
}

func TestClientReconnectsWithinTheGrace(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		fenced := false
		changes, stop := q.nodes[0].store.Watch()
		defer stop()
		for range 5 {
			sleep(700 * time.Millisecond)
			q.cut(q.nodes[0])
			sleep(DefaultConnectionGrace)
			select {
			case <-changes:
				fenced = fenced || q.image().Brokers[10].Fenced
			default:
			}
		}
		if fenced || !c.Lease() {
			t.Errorf("fenced %v, lease %v though the connection came back at once", fenced, c.Lease())
		}
	})
}

func TestClientFollowsTheActiveController(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		epoch := q.image().Brokers[10].Epoch
		for i := range 6 {
			q.cut(q.nodes[i%3])
			q.depose()
			sleep(2 * time.Second)
			q.elect((i + 1) % 3)
			sleep(3 * time.Second)
			if b := q.image().Brokers[10]; b.Fenced || b.Epoch != epoch || !c.Lease() {
				t.Fatalf("failover %d: %+v, lease %v", i, b, c.Lease())
			}
		}
	})
}

func TestSecondProcessIsRefusedAndTheFirstOneReplacedLater(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		first := q.startClient(10)
		second := q.client(10, func(cfg *ClientConfig) { cfg.Directory = testID(98) })
		defer second.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := second.Register(ctx); !errors.Is(err, kerr.DuplicateBrokerRegistration) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second process beside the first: %v", err)
		}
		other := q.client(11, func(cfg *ClientConfig) { cfg.ClusterID = "another" })
		defer other.Close()
		if _, err := other.Register(t.Context()); !errors.Is(err, ErrRejected) {
			t.Errorf("another cluster's broker: %v", err)
		}

		q.depose() // the first process misses its session while nobody watches; the second comes first
		sleep(time.Second)
		first.control.close()
		q.elect(0)
		sleep(DefaultSessionTimeout)
		if _, err := second.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		second.Start()
		if err := second.Unfence(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.Close()
	})
}

func TestReplacedProcessLearnsOfIt(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		first := q.startClient(10)
		defer first.Close()
		req := registrationRequest(10, 77)
		if res, err := q.nodes[0].ctl.propose(t.Context(), registration(req)); err != nil || res.Code != 0 {
			t.Fatal(res, err)
		}
		select {
		case <-first.Failed():
		case <-time.After(time.Minute):
			t.Fatal("the replaced process was not told")
		}
		if !errors.Is(first.Err(), ErrRejected) || first.Lease() {
			t.Errorf("err %v, lease %v", first.Err(), first.Lease())
		}
		if err := first.Unfence(t.Context()); !errors.Is(err, ErrRejected) {
			t.Errorf("unfence: %v", err)
		}
	})
}

// grants collects the answers to leader registrations.
type grants struct {
	mu  sync.Mutex
	got map[LeaderReport][]error
	ok  map[LeaderReport]LeaderGrant
}

func (g *grants) done(r LeaderReport, grant LeaderGrant, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.got == nil {
		g.got, g.ok = map[LeaderReport][]error{}, map[LeaderReport]LeaderGrant{}
	}
	g.got[r] = append(g.got[r], err)
	g.ok[r] = grant
}

// one returns the only answer to the report.
func (g *grants) one(t *testing.T, r LeaderReport) (LeaderGrant, error) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.got[r]) != 1 {
		t.Fatalf("report %+v was answered %d times: %v", r, len(g.got[r]), g.got[r])
	}
	return g.ok[r], g.got[r][0]
}

func (q *quorum) createTopic(c *Client, name string, partitions int32, factor int16) *Topic {
	q.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = 30000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, factor
	req.Topics = append(req.Topics, topic)
	resp, err := c.Forward(q.t.Context(), req)
	if err != nil {
		q.t.Fatal(err)
	}
	if rt := resp.(*kmsg.CreateTopicsResponse).Topics[0]; rt.ErrorCode != 0 {
		q.t.Fatalf("create %s: %d %v", name, rt.ErrorCode, rt.ErrorMessage)
	}
	return q.image().Topics[name]
}

func reports(topic *Topic, n ids.NodeID, term ids.Term) []LeaderReport {
	var rs []LeaderReport
	for i, p := range topic.Partitions {
		rs = append(rs, LeaderReport{topic.ID, int32(i), p.Generation, term, p.ReplicaIDs[p.ReplicaOf(n)], 0})
	}
	return rs
}

func TestLeadersAreRegisteredInBulkAndInTheEnd(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		topic := q.createTopic(c, "t", 2500, 1)
		rs := reports(topic, 10, 5)
		before := q.image().Index
		var g grants
		c.RegisterLeaders(rs, g.done)
		synctest.Wait()
		for _, r := range rs {
			if grant, err := g.one(t, r); err != nil || grant != (LeaderGrant{0, 1}) {
				t.Fatalf("%+v: %+v, %v", r, grant, err)
			}
		}
		if n := (q.image().Index - before) / 2; n > 4 {
			t.Errorf("%d commands for 2500 leaders", n)
		}

		// Without a controller they wait, newer reports of a partition take the place of older ones.
		q.depose()
		sleep(3 * time.Second)
		old := rs[0]
		old.Term = 6
		c.RegisterLeaders([]LeaderReport{old}, g.done)
		sleep(time.Second)
		newer := old
		newer.Term = 7
		stale := rs[1]
		stale.Term = 4
		gone := LeaderReport{TopicID: testID(99), Term: 9}
		c.RegisterLeaders([]LeaderReport{newer, stale, gone}, g.done)
		sleep(time.Second)
		q.elect(1)
		sleep(time.Second)
		if _, err := g.one(t, old); !errors.Is(err, ErrSuperseded) {
			t.Errorf("replaced report: %v", err)
		}
		if grant, err := g.one(t, newer); err != nil || grant.LeaderEpoch != 1 {
			t.Errorf("newer report: %+v, %v", grant, err)
		}
		if _, err := g.one(t, stale); !errors.Is(err, ErrSuperseded) || !errors.Is(err, kerr.FencedLeaderEpoch) {
			t.Errorf("older term: %v", err)
		}
		if _, err := g.one(t, gone); !errors.Is(err, ErrSuperseded) {
			t.Errorf("deleted topic: %v", err)
		}
	})
}

func TestLeadersOfAFencedBrokerWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		rs := reports(q.createTopic(c, "t", 1, 1), 10, 5)
		c.mu.Lock()
		c.wantFence = true
		c.mu.Unlock()
		put(c.beat)
		sleep(time.Second)
		if c.Lease() {
			t.Error("lease of a fenced broker")
		}
		var g grants
		c.RegisterLeaders(rs, g.done)
		sleep(5 * time.Second)
		if len(g.got) != 0 {
			t.Fatalf("answered while fenced: %v", g.got)
		}
		if err := c.Unfence(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if _, err := g.one(t, rs[0]); err != nil {
			t.Error(err)
		}
		if p := q.image().Topics["t"].Partitions[0]; q.image().Leader(p) != 10 {
			t.Errorf("leader %+v", p)
		}
	})
}

func TestPendingLeadersEndWithTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		rs := reports(q.createTopic(c, "t", 2, 1), 10, 5)
		q.depose()
		var g grants
		c.RegisterLeaders(rs[:1], g.done)
		sleep(time.Second)
		c.Close()
		c.RegisterLeaders(rs[1:], g.done)
		for _, r := range rs {
			if _, err := g.one(t, r); !errors.Is(err, ErrClosed) {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

func TestProducerIDsAreUniqueAcrossFailovers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, q *quorum) {
		var mu sync.Mutex
		var all []int64
		var running sync.WaitGroup
		for n := range 3 {
			c := q.startClient(ids.NodeID(10 + n))
			defer c.Close()
			for range 4 {
				running.Go(func() {
					for i := range 1500 {
						id, err := c.AllocateProducerID(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						all = append(all, id)
						mu.Unlock()
						if i%10 == 0 {
							time.Sleep(50 * time.Millisecond)
						}
					}
				})
			}
		}
		for i := range 5 {
			time.Sleep(time.Second)
			q.cut(nil)
			q.depose()
			time.Sleep(500 * time.Millisecond)
			q.elect((i + 1) % 3)
		}
		running.Wait()
		slices.Sort(all)
		if n := len(slices.Compact(slices.Clone(all))); n != 3*4*1500 {
			t.Errorf("%d different ids of %d", n, len(all))
		}
		if max := q.image().NextProducer; all[len(all)-1] >= max || max > 30*producerIDBlock {
			t.Errorf("largest id %d, counter %d", all[len(all)-1], max)
		}
	})
}

func TestAllocateProducerIDWithoutControllerEndsWithItsContext(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		q.depose()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if id, err := c.AllocateProducerID(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %d, %v", id, err)
		}
		q.elect(0)
		if id, err := c.AllocateProducerID(t.Context()); err != nil || id != 0 {
			t.Errorf("got %d, %v", id, err)
		}
	})
}

func TestForwardRetriesUntilTheRequestsTimeout(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		c := q.startClient(10)
		defer c.Close()
		q.depose()
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.SetVersion(5)
		req.TopicNames, req.TimeoutMillis = []string{"none"}, 3000
		start := time.Now()
		if resp, err := c.Forward(t.Context(), req); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.NotController) {
			t.Errorf("without a controller: %v, %v", resp, err)
		}
		if d := time.Since(start); d < 3*time.Second || d > 3100*time.Millisecond {
			t.Errorf("gave up after %v", d)
		}
		req.TimeoutMillis = 30000
		time.AfterFunc(4*time.Second, func() { go q.elect(1) })
		resp, err := c.Forward(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if code := resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("code %d", code)
		}
	})
}

func TestControlledShutdownWaitsForTheLeadersToMove(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		a, b := q.startClient(10), q.startClient(11)
		defer b.Close()
		topic := q.createTopic(a, "t", 1, 2)
		alone := q.createTopic(a, "alone", 2, 1)
		var g grants
		a.RegisterLeaders(reports(topic, 10, 5), g.done)
		for i, p := range alone.Partitions {
			if p.Replicas[0] == 10 {
				a.RegisterLeaders([]LeaderReport{{alone.ID, int32(i), 0, 5, p.ReplicaIDs[0], 0}}, g.done)
			}
		}
		sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.ControlledShutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it leads what 11 could lead: %v", err)
		}
		b.RegisterLeaders(reports(topic, 11, 6), g.done)
		if err := a.ControlledShutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if !a.Lease() || q.image().Brokers[10].Fenced {
			t.Error("fenced before it left")
		}
		a.Close()
		synctest.Wait()
		q.wantFenced(10, true, "at once when it left")
	})
}

func TestClientConfigValidate(t *testing.T) {
	ctl, err := New(Config{Node: 1}, NewStore())
	if err != nil {
		t.Fatal(err)
	}
	good := ClientConfig{NodeID: 1, Incarnation: testID(1), Store: NewStore(), Local: ctl}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(*ClientConfig){
		"negative node":       func(c *ClientConfig) { c.NodeID = -1 },
		"no incarnation":      func(c *ClientConfig) { c.Incarnation = ids.UUID{} },
		"no store":            func(c *ClientConfig) { c.Store = nil },
		"no controller":       func(c *ClientConfig) { c.Local = nil },
		"voter without role":  func(c *ClientConfig) { c.Local, c.Voters = nil, map[ids.NodeID]string{1: "a:1"} },
		"no dial":             func(c *ClientConfig) { c.Voters = map[ids.NodeID]string{1: "a:1", 2: "b:1"} },
		"heartbeats too rare": func(c *ClientConfig) { c.HeartbeatInterval = time.Minute },
		"negative":            func(c *ClientConfig) { c.SessionTimeout = -1 },
	} {
		bad := good
		edit(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s passes", name)
		}
	}
}
