package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin runs a test of admin requests to an active controller with unfenced brokers 1, 2 and 3.
func admin(t *testing.T, f func(t *testing.T, q *quorum, conn *Conn)) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 1, 2, 3)
		f(t, q, conn)
	})
}

func newTopic(name string, partitions int32, factor int16, edit func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, factor
	if edit != nil {
		edit(&topic)
	}
	return topic
}

func createRequest(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.Topics, req.TimeoutMillis = topics, 5000
	return req
}

func create(t *testing.T, conn *Conn, req *kmsg.CreateTopicsRequest) []kmsg.CreateTopicsResponseTopic {
	t.Helper()
	resp := conn.Handle(t.Context(), req).(*kmsg.CreateTopicsResponse)
	for _, rt := range resp.Topics {
		if (rt.ErrorCode == 0) != (rt.ErrorMessage == nil) {
			t.Errorf("%s: code %d, message %v", rt.Topic, rt.ErrorCode, rt.ErrorMessage)
		}
	}
	return resp.Topics
}

// assigned names replicas of partitions 0, 1, ... by hand.
func assigned(replicas ...[]int32) func(*kmsg.CreateTopicsRequestTopic) {
	return func(topic *kmsg.CreateTopicsRequestTopic) {
		for i, r := range replicas {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: r})
		}
	}
}

func withConfig(name string, value *string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(topic *kmsg.CreateTopicsRequestTopic) {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: value})
	}
}

func TestCreateTopicsCodes(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("a.b", 1, 1, nil)))
		q.fence(t, 3)
		str := kmsg.StringPtr
		for _, tt := range []struct {
			name  string
			topic kmsg.CreateTopicsRequestTopic
			want  *kerr.Error
		}{
			{"empty name", newTopic("", 1, 1, nil), kerr.InvalidTopicException},
			{"dots", newTopic("..", 1, 1, nil), kerr.InvalidTopicException},
			{"character", newTopic("ä", 1, 1, nil), kerr.InvalidTopicException},
			{"slash", newTopic("a/b", 1, 1, nil), kerr.InvalidTopicException},
			{"long", newTopic(strings.Repeat("x", 250), 1, 1, nil), kerr.InvalidTopicException},
			{"metadata topic", newTopic("__cluster_metadata", 1, 1, nil), kerr.InvalidRequest},
			{"existing", newTopic("a.b", 1, 1, nil), kerr.TopicAlreadyExists},
			{"colliding", newTopic("a_b", 1, 1, nil), kerr.InvalidTopicException},
			{"no partitions", newTopic("t", 0, 1, nil), kerr.InvalidPartitions},
			{"negative partitions", newTopic("t", -2, 1, nil), kerr.InvalidPartitions},
			{"too many partitions", newTopic("t", 10_001, 1, nil), kerr.PolicyViolation},
			{"no replicas", newTopic("t", 1, 0, nil), kerr.InvalidReplicationFactor},
			{"negative replicas", newTopic("t", 1, -3, nil), kerr.InvalidReplicationFactor},
			{"more replicas than brokers", newTopic("t", 1, 4, nil), kerr.InvalidReplicationFactor},
			{"assignment and partitions", newTopic("t", 1, -1, assigned([]int32{1})), kerr.InvalidRequest},
			{"assignment and factor", newTopic("t", -1, 1, assigned([]int32{1})), kerr.InvalidRequest},
			{"assignment of a stranger", newTopic("t", -1, -1, assigned([]int32{9})), kerr.InvalidReplicaAssignment},
			{"assignment twice", newTopic("t", -1, -1, assigned([]int32{1, 1})), kerr.InvalidReplicaAssignment},
			{"assignment empty", newTopic("t", -1, -1, assigned([]int32{1}, nil)), kerr.InvalidReplicaAssignment},
			{"assignment to fenced ones", newTopic("t", -1, -1, assigned([]int32{3})), kerr.InvalidReplicaAssignment},
			{"assignment with half of it alive", newTopic("t", -1, -1, assigned([]int32{1, 3})), kerr.InvalidReplicaAssignment},
			{"assignment uneven", newTopic("t", -1, -1, assigned([]int32{1}, []int32{1, 2})), kerr.InvalidReplicaAssignment},
			{"assignment with a gap", newTopic("t", -1, -1, func(topic *kmsg.CreateTopicsRequestTopic) {
				assigned([]int32{1}, []int32{2})(topic)
				topic.ReplicaAssignment[1].Partition = 2
			}), kerr.InvalidReplicaAssignment},
			{"assignment of one partition twice", newTopic("t", -1, -1, func(topic *kmsg.CreateTopicsRequestTopic) {
				assigned([]int32{1}, []int32{2})(topic)
				topic.ReplicaAssignment[1].Partition = 0
			}), kerr.InvalidReplicaAssignment},
			{"unknown config", newTopic("t", 1, 1, withConfig("no.such", str("1"))), kerr.InvalidConfig},
			{"bad value", newTopic("t", 1, 1, withConfig("retention.ms", str("x"))), kerr.InvalidConfig},
			{"null value", newTopic("t", 1, 1, withConfig("retention.ms", nil)), kerr.InvalidConfig},
		} {
			got := create(t, conn, createRequest(tt.topic))
			if len(got) != 1 || got[0].ErrorCode != tt.want.Code || got[0].NumPartitions != -1 || got[0].ReplicationFactor != -1 || got[0].Configs != nil {
				t.Errorf("%s: %+v, want %v", tt.name, got, tt.want)
			}
		}
		if len(q.image().Topics) != 1 {
			t.Errorf("topics %v", q.image().TopicList())
		}
	})
}

// A majority of the named replicas has to be alive; a reassignment waits for who is not.
func TestManualReplicasNeedAMajority(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("one", -1, -1, assigned([]int32{1})), newTopic("all", -1, -1, assigned([]int32{1, 2}))))
		q.fence(t, 3)
		if got := create(t, conn, createRequest(newTopic("t", -1, -1, assigned([]int32{3, 2, 1})))); got[0].ErrorCode != 0 {
			t.Errorf("two of three alive: %+v", got[0])
		}
		got := create(t, conn, createRequest(newTopic("u", -1, -1, assigned([]int32{3, 2}))))[0]
		if got.ErrorCode != kerr.InvalidReplicaAssignment.Code || !strings.Contains(*got.ErrorMessage, "Only 1 of the 2 brokers") {
			t.Errorf("one of two alive: %+v", got)
		}
		more := kmsg.NewPtrCreatePartitionsRequest()
		more.SetVersion(3)
		more.TimeoutMillis = 5000
		more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "all", Count: 2, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{3, 1}}}}}
		if got := conn.Handle(t.Context(), more).(*kmsg.CreatePartitionsResponse).Topics[0]; got.ErrorCode != kerr.InvalidReplicaAssignment.Code {
			t.Errorf("a partition with one of two alive: %+v", got)
		}
		move := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		move.SetVersion(1)
		move.AllowReplicationFactorChange, move.TimeoutMillis = true, 5000
		move.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "one", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{3}}}}}
		if got := conn.Handle(t.Context(), move).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 {
			t.Errorf("a move to a fenced broker: %+v", got)
		}
		p := q.image().Topics["one"].Partitions[0]
		if len(p.Adding) != 1 || len(p.Removing) != 1 || p.Leader != 1 && p.Leader != ids.NoNode {
			t.Errorf("it does not wait: %+v", p)
		}
	})
}

func (q *quorum) fence(t *testing.T, n ids.NodeID) {
	t.Helper()
	c := ChangeBrokers{[]BrokerChange{{n, q.image().Brokers[n].Epoch, Fence}}}
	if res, err := q.nodes[0].ctl.propose(t.Context(), c); err != nil || res.Items[0].Code != 0 {
		t.Fatal(res, err)
	}
}

func TestCreateTopics(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		req := createRequest(
			newTopic("defaults", -1, -1, nil), newTopic("wide", 6, 3, withConfig("retention.ms", kmsg.StringPtr("7"))),
			newTopic("twice", 1, 1, nil), newTopic("hand", -1, -1, assigned([]int32{2, 1}, []int32{3, 2})), newTopic("twice", 1, 1, nil),
		)
		req.ValidateOnly = true
		if got := create(t, conn, req); len(got) != 4 || got[1].NumPartitions != 6 || got[0].ErrorCode != 0 || len(q.image().Topics) != 0 {
			t.Fatalf("validate only: %+v, topics %v", got, q.image().TopicList())
		}
		req.ValidateOnly = false
		got := create(t, conn, req)
		for i, want := range []struct {
			name              string
			partitions        int32
			factor            int16
			code              int16
			retention, source string
		}{
			{"defaults", 1, 1, 0, "604800000", "5"},
			{"wide", 6, 3, 0, "7", "1"},
			{"twice", -1, -1, kerr.InvalidRequest.Code, "", ""},
			{"hand", 2, 2, 0, "604800000", "5"},
		} {
			rt := got[i]
			if rt.Topic != want.name || rt.NumPartitions != want.partitions || rt.ReplicationFactor != want.factor || rt.ErrorCode != want.code {
				t.Errorf("%+v, want %+v", rt, want)
			}
			if want.code != 0 {
				continue
			}
			j := slices.IndexFunc(rt.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "retention.ms" })
			if j < 0 || *rt.Configs[j].Value != want.retention || fmt.Sprint(rt.Configs[j].Source) != want.source {
				t.Errorf("%s: configs %+v", want.name, rt.Configs)
			}
			topic := q.image().Topics[want.name]
			if topic == nil || topic.ID != ids.UUID(rt.TopicID) || topic.ID.IsZero() || len(topic.Partitions) != int(want.partitions) {
				t.Errorf("%s: %+v in the image", want.name, topic)
			}
		}
		hand := q.image().Topics["hand"]
		if !slices.Equal(hand.Partitions[0].Replicas, []ids.NodeID{2, 1}) || !slices.Equal(hand.Partitions[1].Replicas, []ids.NodeID{3, 2}) {
			t.Errorf("hand-made assignment: %+v", hand.Partitions)
		}
		if again := create(t, conn, createRequest(newTopic("hand", 1, 1, nil))); again[0].ErrorCode != kerr.TopicAlreadyExists.Code {
			t.Errorf("again: %+v", again)
		}
	})
}

func TestAdminRequestsWithoutAnActiveController(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		stuck := make(chan struct{})
		q.mu.Lock()
		q.stuck = stuck
		q.mu.Unlock()
		start := time.Now()
		if got := create(t, conn, createRequest(newTopic("t", 1, 1, nil))); got[0].ErrorCode != kerr.RequestTimedOut.Code || got[0].NumPartitions != -1 {
			t.Errorf("outcome unknown: %+v", got)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("answered after %v", d)
		}
		q.mu.Lock()
		q.stuck = nil
		q.mu.Unlock()
		close(stuck)
		q.depose()
		bad := newTopic("..", 1, 1, nil)
		for _, rt := range create(t, conn, createRequest(bad, newTopic("t", 1, 1, nil))) {
			if rt.ErrorCode != kerr.NotController.Code {
				t.Errorf("%+v", rt)
			}
		}
		del := kmsg.NewPtrDeleteTopicsRequest()
		del.SetVersion(6)
		del.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("t")}}
		more := kmsg.NewPtrCreatePartitionsRequest()
		more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 3}}
		incr := kmsg.NewPtrIncrementalAlterConfigsRequest()
		incr.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}}
		alter := kmsg.NewPtrAlterConfigsRequest()
		alter.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t"}}
		ids := kmsg.NewPtrAllocateProducerIDsRequest()
		for _, req := range []kmsg.Request{del, more, incr, alter, ids, &RegisterLeadersRequest{}, registrationRequest(5, 1)} {
			if !Handles(req.Key()) {
				t.Errorf("%T is not handled", req)
			}
			if resp := conn.Handle(t.Context(), req); !saysNotController(resp) {
				t.Errorf("%T: %+v", req, resp)
			}
		}
	})
}

func TestDeleteTopics(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("a", 1, 1, nil), newTopic("b", 1, 1, nil), newTopic("c", 1, 1, nil)))
		b := q.image().Topics["b"]
		str := kmsg.StringPtr
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.SetVersion(6)
		req.TimeoutMillis = 5000
		req.Topics = []kmsg.DeleteTopicsRequestTopic{
			{Topic: str("a")}, {TopicID: b.ID}, {Topic: str("none")}, {TopicID: testID(9)}, {}, {Topic: str("c"), TopicID: testID(9)}, {Topic: str("a")},
		}
		resp := conn.Handle(t.Context(), req).(*kmsg.DeleteTopicsResponse)
		want := []int16{0, 0, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}
		for i, rt := range resp.Topics {
			if rt.ErrorCode != want[i] {
				t.Errorf("topic %d: %+v, want code %d", i, rt, want[i])
			}
		}
		if rt := resp.Topics[1]; *rt.Topic != "b" || rt.TopicID != b.ID {
			t.Errorf("deleted by id: %+v", rt)
		}
		if left := q.image().TopicList(); len(left) != 1 || left[0].Name != "c" {
			t.Errorf("left: %v", left)
		}
		old := kmsg.NewPtrDeleteTopicsRequest()
		old.SetVersion(1)
		old.TopicNames = []string{"c"}
		q.nodes[0].ctl.cfg.DeleteTopicsDisabled = true
		if r := conn.Handle(t.Context(), old).(*kmsg.DeleteTopicsResponse); r.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("disabled, version 1: %+v", r)
		}
		old.SetVersion(5)
		if r := conn.Handle(t.Context(), old).(*kmsg.DeleteTopicsResponse); r.Topics[0].ErrorCode != kerr.TopicDeletionDisabled.Code {
			t.Errorf("disabled, version 5: %+v", r)
		}
		q.nodes[0].ctl.cfg.DeleteTopicsDisabled = false
		if r := conn.Handle(t.Context(), old).(*kmsg.DeleteTopicsResponse); r.Topics[0].ErrorCode != 0 || len(q.image().Topics) != 0 {
			t.Errorf("by name, version 5: %+v", r)
		}
	})
}

func TestCreatePartitions(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("a", 2, 2, nil)))
		ask := func(validate bool, topics ...kmsg.CreatePartitionsRequestTopic) []int16 {
			t.Helper()
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.SetVersion(3)
			req.Topics, req.TimeoutMillis, req.ValidateOnly = topics, 5000, validate
			var codes []int16
			for _, rt := range conn.Handle(t.Context(), req).(*kmsg.CreatePartitionsResponse).Topics {
				codes = append(codes, rt.ErrorCode)
			}
			return codes
		}
		by := func(replicas ...[]int32) (a []kmsg.CreatePartitionsRequestTopicAssignment) {
			for _, r := range replicas {
				a = append(a, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: r})
			}
			return a
		}
		topic := func(count int32, a []kmsg.CreatePartitionsRequestTopicAssignment) kmsg.CreatePartitionsRequestTopic {
			return kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: count, Assignment: a}
		}
		for _, tt := range []struct {
			name  string
			topic kmsg.CreatePartitionsRequestTopic
			want  int16
		}{
			{"unknown topic", kmsg.CreatePartitionsRequestTopic{Topic: "none", Count: 3}, kerr.UnknownTopicOrPartition.Code},
			{"as many as there are", topic(2, nil), kerr.InvalidPartitions.Code},
			{"fewer", topic(1, nil), kerr.InvalidPartitions.Code},
			{"too many", topic(20_000, nil), kerr.PolicyViolation.Code},
			{"too few assignments", topic(4, by([]int32{1, 2})), kerr.InvalidReplicaAssignment.Code},
			{"other factor", topic(3, by([]int32{1})), kerr.InvalidReplicaAssignment.Code},
			{"stranger", topic(3, by([]int32{1, 9})), kerr.InvalidReplicaAssignment.Code},
		} {
			if got := ask(false, tt.topic); len(got) != 1 || got[0] != tt.want {
				t.Errorf("%s: %v, want %d", tt.name, got, tt.want)
			}
		}
		if got := ask(false, topic(3, nil), topic(4, nil)); len(got) != 1 || got[0] != kerr.InvalidRequest.Code {
			t.Errorf("named twice: %v", got)
		}
		if got := ask(true, topic(5, nil)); got[0] != 0 || len(q.image().Topics["a"].Partitions) != 2 {
			t.Errorf("validate only: %v", got)
		}
		if got := ask(false, topic(4, by([]int32{3, 1}, []int32{2, 3}))); got[0] != 0 {
			t.Errorf("by hand: %v", got)
		}
		if got := ask(false, topic(7, nil)); got[0] != 0 {
			t.Errorf("spread: %v", got)
		}
		ps := q.image().Topics["a"].Partitions
		if len(ps) != 7 || !slices.Equal(ps[2].Replicas, []ids.NodeID{3, 1}) || len(ps[6].Replicas) != 2 {
			t.Errorf("partitions %+v", ps)
		}
		q.fence(t, 2)
		q.fence(t, 3)
		if got := ask(false, topic(8, nil)); got[0] != kerr.InvalidReplicationFactor.Code {
			t.Errorf("one live broker for two replicas: %v", got)
		}
	})
}

func TestAlterConfigs(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("a", 1, 1, withConfig("retention.ms", kmsg.StringPtr("7")))))
		str := kmsg.StringPtr
		type op = kmsg.IncrementalAlterConfigsRequestResourceConfig
		ask := func(validate bool, kind ResourceType, name string, ops ...op) int16 {
			t.Helper()
			return alterConfigs(t, conn, validate, kind, name, ops)
		}
		for _, tt := range []struct {
			name     string
			kind     ResourceType
			resource string
			ops      []op
			want     int16
		}{
			{"unknown topic", TopicResource, "none", []op{{Name: "retention.ms", Value: str("1")}}, kerr.UnknownTopicOrPartition.Code},
			{"no topic name", TopicResource, "", []op{{Name: "retention.ms", Value: str("1")}}, kerr.InvalidTopicException.Code},
			{"unknown config", TopicResource, "a", []op{{Name: "no.such", Value: str("1")}}, kerr.InvalidConfig.Code},
			{"bad value", TopicResource, "a", []op{{Name: "retention.ms", Value: str("x")}}, kerr.InvalidConfig.Code},
			{"null value", TopicResource, "a", []op{{Name: "retention.ms"}}, kerr.InvalidRequest.Code},
			{"same config twice", TopicResource, "a", []op{{Name: "retention.ms", Value: str("1")}, {Name: "retention.ms", Op: 1}}, kerr.InvalidRequest.Code},
			{"unknown operation", TopicResource, "a", []op{{Name: "retention.ms", Op: 9, Value: str("1")}}, kerr.InvalidRequest.Code},
			{"append to a number", TopicResource, "a", []op{{Name: "retention.ms", Op: 2, Value: str("1")}}, kerr.InvalidConfig.Code},
			{"append what the list may not have", TopicResource, "a", []op{{Name: "cleanup.policy", Op: 2, Value: str("drop")}}, kerr.InvalidConfig.Code},
			{"one bad of two", TopicResource, "a", []op{{Name: "retention.ms", Value: str("1")}, {Name: "segment.bytes", Value: str("1")}}, kerr.InvalidConfig.Code},
			{"not a broker id", BrokerResource, "x", []op{{Name: "message.max.bytes", Value: str("1")}}, kerr.InvalidRequest.Code},
			{"unknown broker", BrokerResource, "9", []op{{Name: "message.max.bytes", Value: str("1")}}, kerr.BrokerIDNotRegistered.Code},
			{"not a dynamic broker config", BrokerResource, "1", []op{{Name: "listeners", Value: str("1")}}, kerr.InvalidConfig.Code},
			{"minimum of one broker", BrokerResource, "1", []op{{Name: minInsyncReplicas, Value: str("1")}}, kerr.InvalidConfig.Code},
			{"cluster minimum removed", BrokerResource, "", []op{{Name: minInsyncReplicas, Op: 1}}, kerr.InvalidConfig.Code},
			{"loggers", 8, "1", nil, kerr.InvalidRequest.Code},
		} {
			if got := ask(false, tt.kind, tt.resource, tt.ops...); got != tt.want {
				t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
			}
		}
		if got := q.image().TopicConfigs("a"); len(got) != 1 || got["retention.ms"] != "7" {
			t.Errorf("after nothing but refusals: %v", got)
		}
		if code := ask(true, TopicResource, "a", op{Name: "retention.ms", Op: 1}); code != 0 || len(q.image().TopicConfigs("a")) != 1 {
			t.Errorf("validate only: %d, %v", code, q.image().TopicConfigs("a"))
		}
		for _, ops := range [][]op{
			{{Name: "cleanup.policy", Op: 2, Value: str("compact")}, {Name: "retention.ms", Op: 1}},
			{{Name: "cleanup.policy", Op: 3, Value: str("delete")}},
			{{Name: "unknown.anyway", Op: 1}},
		} {
			if code := ask(false, TopicResource, "a", ops...); code != 0 {
				t.Errorf("%+v: %d", ops, code)
			}
		}
		if got := q.image().TopicConfigs("a"); len(got) != 1 || got["cleanup.policy"] != "compact" {
			t.Errorf("append to the default, then subtract: %v", got)
		}
		if ask(false, BrokerResource, "", op{Name: minInsyncReplicas, Value: str("2")}) != 0 || ask(false, BrokerResource, "2", op{Name: "log.retention.hours", Value: str("2")}) != 0 {
			t.Error("broker configs refused")
		}
		if q.image().ClusterConfigs()[minInsyncReplicas] != "2" || q.image().BrokerConfigs(2)["log.retention.hours"] != "2" {
			t.Errorf("configs %v", q.image().Configs)
		}
		testLegacyAlterConfigs(t, q, conn)
	})
}

// alterConfigs alters the configs of one resource and returns the error code.
func alterConfigs(t *testing.T, conn *Conn, validate bool, kind ResourceType, name string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) int16 {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	req.ValidateOnly = validate
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceType(kind), ResourceName: name, Configs: ops}}
	rr := conn.Handle(t.Context(), req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if rr.ResourceName != name || rr.ResourceType != kmsg.ConfigResourceType(kind) || (rr.ErrorCode == 0) != (rr.ErrorMessage == nil) {
		t.Errorf("response %+v", rr)
	}
	return rr.ErrorCode
}

func testLegacyAlterConfigs(t *testing.T, q *quorum, conn *Conn) {
	str := kmsg.StringPtr
	ask := func(rs ...kmsg.AlterConfigsRequestResource) (codes []int16) {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.SetVersion(2)
		req.Resources = rs
		for _, rr := range conn.Handle(t.Context(), req).(*kmsg.AlterConfigsResponse).Resources {
			codes = append(codes, rr.ErrorCode)
		}
		return codes
	}
	resource := func(kind ResourceType, name, config string, value *string) kmsg.AlterConfigsRequestResource {
		return kmsg.AlterConfigsRequestResource{
			ResourceType: kmsg.ConfigResourceType(kind), ResourceName: name,
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: config, Value: value}},
		}
	}
	got := ask(resource(TopicResource, "a", "segment.bytes", str("1048576")), resource(BrokerResource, "", "message.max.bytes", str("5")))
	if !slices.Equal(got, []int16{0, kerr.InvalidConfig.Code}) {
		t.Errorf("codes %v: replacing the cluster's configs would remove its minimum", got)
	}
	if c := q.image().TopicConfigs("a"); len(c) != 1 || c["segment.bytes"] != "1048576" {
		t.Errorf("configs %v, want the new ones only", c)
	}
	twice := resource(TopicResource, "a", "segment.bytes", str("1048577"))
	if got := ask(twice, twice); !slices.Equal(got, []int16{kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}) {
		t.Errorf("a resource twice: %v", got)
	}
	if got := ask(resource(TopicResource, "a", "segment.bytes", nil)); got[0] != kerr.InvalidRequest.Code {
		t.Errorf("null value: %v", got)
	}
}

func TestConfigChangesWaitNoLongerThanTheirTimeout(t *testing.T) {
	admin(t, func(t *testing.T, q *quorum, conn *Conn) {
		create(t, conn, createRequest(newTopic("a", 1, 1, nil)))
		stuck := make(chan struct{})
		q.mu.Lock()
		q.stuck = stuck
		q.mu.Unlock()
		defer close(stuck)
		var running sync.WaitGroup
		start := time.Now()
		for range 3 {
			running.Go(func() {
				req := kmsg.NewPtrAlterConfigsRequest()
				req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "a"}}
				r := conn.Handle(t.Context(), req).(*kmsg.AlterConfigsResponse)
				if r.Resources[0].ErrorCode != kerr.RequestTimedOut.Code {
					t.Errorf("%+v", r)
				}
			})
		}
		running.Wait()
		if d := time.Since(start); d != DefaultProposeTimeout {
			t.Errorf("answered after %v", d)
		}
	})
}
