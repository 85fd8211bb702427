package controller

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"cairn/broker/topicconfig"
	"cairn/internal/ids"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// elections runs a test of elections: topic t has its replicas on brokers 1, 2, 3, is led by 1, and brokers are kept alive
// until they are killed.
type elections struct {
	t    *testing.T
	q    *quorum
	conn *Conn
	// beating has the brokers' own connections.
	beating map[ids.NodeID]*Conn

	mu    sync.Mutex
	alive map[ids.NodeID][]PartitionEnd // guarded by mu; ends to report with the next heartbeat
	fresh map[ids.NodeID]LogEnd         // guarded by mu; what brokers answer when they are asked
	// behind are brokers whose metadata does not get on. Guarded by mu.
	behind map[ids.NodeID]bool
}

func withElections(t *testing.T, f func(t *testing.T, e *elections)) {
	e := &elections{beating: map[ids.NodeID]*Conn{}, alive: map[ids.NodeID][]PartitionEnd{}, fresh: map[ids.NodeID]LogEnd{}, behind: map[ids.NodeID]bool{}}
	inBubbleWith(t, func(c *Config) { c.AskEnds = e.answer }, func(t *testing.T, q *quorum) {
		e.t, e.q, e.conn = t, q, q.nodes[0].ctl.NewConn()
		defer e.conn.Close()
		for n := ids.NodeID(1); n <= 3; n++ { // the controller takes the end of a connection for the broker's
			e.beating[n] = q.nodes[0].ctl.NewConn()
			defer e.beating[n].Close()
			q.brokers(e.beating[n], n)
		}
		create(t, e.conn, createRequest(newTopic("t", -1, -1, assigned([]int32{1, 2, 3}))))
		e.lead(1, 5, 0)
		ctx, stop := context.WithCancel(t.Context())
		var beats sync.WaitGroup
		for n := ids.NodeID(1); n <= 3; n++ {
			e.alive[n] = []PartitionEnd{}
		}
		beats.Go(func() { e.beats(ctx) })
		defer beats.Wait()
		defer stop()
		f(t, e)
	})
}

// beats sends a heartbeat of each live broker every second.
func (e *elections) beats(ctx context.Context) {
	for {
		for n := ids.NodeID(1); n <= 3; n++ {
			e.mu.Lock()
			ends, alive := e.alive[n]
			behind := e.behind[n]
			e.mu.Unlock()
			if alive {
				req := heartbeatRequest(n, e.q.image().Brokers[n].Epoch)
				if behind {
					req.CurrentMetadataOffset = 0
				}
				req.UnknownTags.Set(tagEnds, appendEnds(nil, ends, true))
				e.beating[n].Handle(ctx, req)
			}
		}
		if !pauseFor(ctx, time.Second) {
			return
		}
	}
}

func (e *elections) answer(_ context.Context, b *Broker, list []ids.PartitionID) ([]PartitionEnd, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, ok := e.fresh[b.ID]
	if !ok {
		return nil, context.DeadlineExceeded
	}
	return []PartitionEnd{{list[0], end}}, nil
}

func (e *elections) p() *Partition { return e.q.image().Topics["t"].Partitions[0] }

// report lets the broker tell its log end with each heartbeat from now on.
func (e *elections) report(n ids.NodeID, end ids.Offset) {
	e.mu.Lock()
	e.alive[n] = []PartitionEnd{{e.p().ID, LogEnd{LeaderEpoch: 0, End: end, AppendMs: 77}}}
	e.mu.Unlock()
	sleep(2 * time.Second)
}

// kill stops the broker's heartbeats and has it fenced, long before its lease is over.
func (e *elections) kill(n ids.NodeID) {
	e.mu.Lock()
	delete(e.alive, n)
	e.mu.Unlock()
	img := e.q.image()
	e.q.nodes[0].ctl.saveEnds(e.t.Context(), []BrokerChange{{n, img.Brokers[n].Epoch, Fence}})
	e.q.fence(e.t, n)
}

// lead registers the broker as leader.
func (e *elections) lead(n ids.NodeID, term ids.Term, base ids.Offset) {
	e.t.Helper()
	img, p := e.q.image(), e.p()
	req := &RegisterLeadersRequest{RegisterLeaders: RegisterLeaders{n, img.Brokers[n].Epoch, []LeaderReport{{
		TopicID: img.Topics["t"].ID, Generation: p.Generation, Term: term, Replica: p.ReplicaIDs[p.ReplicaOf(n)], BaseOffset: base,
	}}}}
	if resp := e.conn.Handle(e.t.Context(), req).(*RegisterLeadersResponse); resp.Code != 0 || resp.Items[0].Code != 0 {
		e.t.Fatalf("registration of %d: %+v", n, resp)
	}
}

func (e *elections) isr(nodes ...ids.NodeID) {
	e.t.Helper()
	eventually(e.t, "a leader", func() bool { return e.p().Leader != ids.NoNode })
	img, p := e.q.image(), e.p()
	c := ISRChange{TopicID: img.Topics["t"].ID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, n := range nodes {
		c.ISR = append(c.ISR, ISRMember{n, -1})
	}
	res, err := e.q.nodes[0].ctl.propose(e.t.Context(), AlterPartitions{p.Leader, img.Brokers[p.Leader].Epoch, []ISRChange{c}})
	if err != nil || res.Code != 0 || res.Items[0].Code != 0 {
		e.t.Fatal(res, err)
	}
}

// elect asks for an election and returns the code of partition 0, and how long that took.
func (e *elections) elect(kind int8, timeout time.Duration, topics ...kmsg.ElectLeadersRequestTopic) (*kmsg.ElectLeadersResponse, time.Duration) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.SetVersion(2)
	req.ElectionType, req.TimeoutMillis, req.Topics = kind, int32(timeout.Milliseconds()), topics
	conn := e.q.nodes[0].ctl.NewConn()
	defer conn.Close()
	start := time.Now()
	return conn.Handle(e.t.Context(), req).(*kmsg.ElectLeadersResponse), time.Since(start)
}

func of(topic string, partitions ...int32) kmsg.ElectLeadersRequestTopic {
	return kmsg.ElectLeadersRequestTopic{Topic: topic, Partitions: partitions}
}

func codes(resp *kmsg.ElectLeadersResponse) []int16 {
	list := []int16{resp.ErrorCode}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if (p.ErrorCode == 0) != (p.ErrorMessage == nil) {
				list = append(list, -1)
			}
			list = append(list, p.ErrorCode)
		}
	}
	return list
}

func TestElectLeadersPreferred(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		resp, _ := e.elect(0, time.Second, of("t", 0, 7), of("u", 0), of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, 84, 3, 3}) {
			t.Errorf("codes %v", got)
		}
		resp, _ = e.elect(0, time.Second)
		if got := codes(resp); !slices.Equal(got, []int16{0}) || len(resp.Topics) != 1 || resp.Topics[0].Topic != "t" {
			t.Errorf("all: %+v", resp)
		}
		resp, _ = e.elect(9, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, 42}) {
			t.Errorf("bad type: codes %v", got)
		}
		e.lead(2, 6, 0)
		done := make(chan []int16, 1)
		go func() {
			resp, _ := e.elect(0, 5*time.Second, of("t", 0))
			done <- codes(resp)
		}()
		sleep(time.Second)
		if tr := e.p().Transfer; tr == nil || tr.To != 1 {
			t.Fatalf("transfer %+v, codes %v", tr, <-done)
		}
		e.lead(1, 7, 0)
		if got := <-done; !slices.Equal(got, []int16{0, 0}) {
			t.Errorf("handed over: codes %v", got)
		}
		e.lead(2, 8, 0)
		resp, took := e.elect(0, 5*time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, kerr.RequestTimedOut.Code}) || took > 5*time.Second {
			t.Errorf("not handed over: codes %v after %v", got, took)
		}
	})
}

func TestElectLeadersUnclean(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		resp, _ := e.elect(1, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, 84}) {
			t.Errorf("with a leader: codes %v", got)
		}
		e.report(1, 100)
		e.report(3, 60)
		e.isr(1)
		e.kill(2)
		e.kill(1)
		resp, took := e.elect(1, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, kerr.LeaderNotAvailable.Code}) || took > time.Second {
			t.Errorf("while the lease holds: codes %v after %v", got, took)
		}
		v := e.preview(t)
		want := []private.LostRange{{LeaderEpoch: 0, From: 60, To: 100}}
		if v.Elects != 3 || v.Clean || !slices.Equal(v.Loses, want) || v.Outcome.Code != kerr.LeaderNotAvailable.Code || !slices.Equal(v.ELR, []int32{1}) {
			t.Errorf("preview %+v", v)
		}
		if r := v.Replicas[0]; !r.Known || r.Live || r.Alive || !r.InELR || r.LogEnd != 100 || r.LastAppendMs != 77 || r.AgeMs < 500 || r.AgeMs > 3000 {
			t.Errorf("the dead broker: %+v", r)
		}
		done := make(chan []int16, 1)
		go func() {
			resp, _ := e.elect(1, 20*time.Second, of("t", 0))
			done <- codes(resp)
		}()
		eventually(t, "seed", func() bool { return len(e.p().Founders) == 1 && e.p().Founders[0].Node == 3 })
		e.lead(3, 1, 60)
		if got := <-done; !slices.Equal(got, []int16{0, 0}) {
			t.Errorf("elected: codes %v", got)
		}
		img := e.q.image()
		if img.Leader(e.p()) != 3 || len(img.Losses) != 1 || img.Losses[0].LostRange != (LostRange{0, 60, 100}) || !img.Losses[0].Estimated {
			t.Errorf("leader %d, losses %+v", img.Leader(e.p()), img.Losses)
		}
	})
}

func (e *elections) preview(t *testing.T) private.ElectionPreview {
	t.Helper()
	req := &private.ElectionsRequest{Body: private.ElectionQuery{Type: 1, Topics: []private.TopicPartitions{{Topic: "t", Partitions: []int32{0}}}}}
	resp := e.conn.Handle(t.Context(), req).(*private.ElectionsResponse)
	if resp.Body.Code != 0 || len(resp.Body.Partitions) != 1 || len(resp.Body.Partitions[0].Replicas) != 3 {
		t.Fatalf("preview %+v", resp)
	}
	return resp.Body.Partitions[0]
}

func TestUncleanElectionAsksForFreshEnds(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		e.report(2, 50)
		e.report(3, 60)
		e.isr(1)
		e.kill(1)
		e.mu.Lock()
		e.fresh[2] = LogEnd{LeaderEpoch: 0, End: 80, AppendMs: 78}
		e.mu.Unlock()
		sleep(10 * time.Second)
		v := e.preview(t)
		if v.Elects != 2 || !v.Replicas[1].Live || v.Replicas[1].LogEnd != 80 || v.Replicas[2].Live || v.Replicas[2].LogEnd != 60 {
			t.Errorf("preview %+v", v)
		}
		done := make(chan []int16, 1)
		go func() {
			resp, _ := e.elect(1, 20*time.Second, of("t", 0))
			done <- codes(resp)
		}()
		eventually(t, "seed", func() bool { return len(e.p().Founders) == 1 && e.p().Founders[0].Node == 2 })
		e.lead(2, 1, 80)
		if got := <-done; !slices.Equal(got, []int16{0, 0}) {
			t.Errorf("codes %v", got)
		}
	})
}

// TestFencedBrokerThatBeatsHoldsNoElectionUp: its heartbeats are answered as those of a fenced one, so they prolong no lease.
func TestFencedBrokerThatBeatsHoldsNoElectionUp(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		e.isr(1)
		e.kill(1)
		e.mu.Lock()
		e.alive[1], e.behind[1] = []PartitionEnd{}, true
		e.mu.Unlock()
		done := make(chan []int16, 1)
		go func() {
			resp, _ := e.elect(1, 20*time.Second, of("t", 0))
			done <- codes(resp)
		}()
		eventually(t, "seed", func() bool { return len(e.p().Founders) == 1 && e.p().Founders[0].Node == 2 })
		e.lead(2, 1, 0)
		if got := <-done; !slices.Equal(got, []int16{0, 0}) {
			t.Errorf("codes %v", got)
		}
	})
}

func TestUncleanElectionWithoutALiveReplica(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		for n := ids.NodeID(1); n <= 3; n++ {
			e.kill(n)
		}
		resp, _ := e.elect(1, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, kerr.EligibleLeadersNotAvailable.Code}) {
			t.Errorf("codes %v", got)
		}
		resp, _ = e.elect(0, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{0, kerr.PreferredLeaderNotAvailable.Code}) {
			t.Errorf("preferred: codes %v", got)
		}
	})
}

func TestElectLeadersOfAnotherController(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		e.q.depose()
		resp, _ := e.elect(0, time.Second, of("t", 0))
		if got := codes(resp); !slices.Equal(got, []int16{41, 41}) || !saysNotController(resp) {
			t.Errorf("codes %v", got)
		}
		resp.ErrorCode = 0 // as version 0 has it
		if !saysNotController(resp) {
			t.Error("version 0 is not told")
		}
	})
}

func TestReassignmentRequests(t *testing.T) {
	withElections(t, func(t *testing.T, e *elections) {
		alter := func(free bool, partition int32, replicas []int32) (int16, int16) {
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			req.SetVersion(1)
			req.AllowReplicationFactorChange = free
			req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{
				Partition: partition, Replicas: replicas,
			}}}}
			resp := e.conn.Handle(t.Context(), req).(*kmsg.AlterPartitionAssignmentsResponse)
			return resp.ErrorCode, resp.Topics[0].Partitions[0].ErrorCode
		}
		list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
			req := kmsg.NewPtrListPartitionReassignmentsRequest()
			req.Topics = topics
			return e.conn.Handle(t.Context(), req).(*kmsg.ListPartitionReassignmentsResponse).Topics
		}
		for _, tt := range []struct {
			name     string
			free     bool
			index    int32
			replicas []int32
			want     int16
		}{
			{"unknown partition", true, 5, []int32{1}, kerr.UnknownTopicOrPartition.Code},
			{"no replicas", true, 0, []int32{}, kerr.InvalidReplicaAssignment.Code},
			{"twice", true, 0, []int32{1, 1}, kerr.InvalidReplicaAssignment.Code},
			{"unknown broker", true, 0, []int32{1, 9}, kerr.InvalidReplicaAssignment.Code},
			{"nothing to cancel", true, 0, nil, kerr.NoReassignmentInProgress.Code},
			{"fewer replicas", false, 0, []int32{1, 2}, kerr.InvalidReplicationFactor.Code},
		} {
			if top, got := alter(tt.free, tt.index, tt.replicas); top != 0 || got != tt.want {
				t.Errorf("%s: codes %d and %d, want %d", tt.name, top, got, tt.want)
			}
		}
		if got := list(); len(got) != 0 {
			t.Errorf("listed %+v", got)
		}
		if top, got := alter(true, 0, []int32{2, 3}); top != 0 || got != 0 {
			t.Fatalf("codes %d and %d", top, got)
		}
		for _, got := range [][]kmsg.ListPartitionReassignmentsResponseTopic{
			list(), list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{0, 4}}),
		} {
			if len(got) != 1 || len(got[0].Partitions) != 1 {
				t.Fatalf("listed %+v", got)
			}
			p := got[0].Partitions[0]
			if !slices.Equal(p.Replicas, []int32{2, 3, 1}) || len(p.AddingReplicas) != 0 || !slices.Equal(p.RemovingReplicas, []int32{1}) {
				t.Errorf("listed %+v", p)
			}
		}
		if top, got := alter(true, 0, nil); top != 0 || got != 0 || len(list()) != 0 {
			t.Errorf("cancel: codes %d and %d, then %+v", top, got, list())
		}
	})
}

func TestStaticMinimumBecomesTheClusters(t *testing.T) {
	static := func(c *Config) { c.Static = topicconfig.Layer{minInsyncReplicas: "2"} }
	inBubbleWith(t, static, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 1, 2, 3)
		create(t, conn, createRequest(newTopic("t", -1, -1, assigned([]int32{1, 2, 3}))))
		eventually(t, "minimum of the properties", func() bool {
			p, ok := q.image().Partition("t", 0)
			return ok && q.image().MinISR("t", p) == 2
		})
		change := AlterConfigs{[]ResourceChange{{Type: BrokerResource, Ops: []ConfigOp{{Name: minInsyncReplicas, Value: "3"}}}}}
		if _, err := q.nodes[0].ctl.propose(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble
		if p, _ := q.image().Partition("t", 0); q.image().MinISR("t", p) != 3 {
			t.Errorf("a changed minimum went back to %d", q.image().MinISR("t", p))
		}
	})
}
