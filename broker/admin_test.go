package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminTest is one running node with clients.
type adminTest struct {
	node   *Node
	client *kgo.Client
	admin  *kadm.Client
}

func startAdmin(t *testing.T, overrides ...string) *adminTest {
	t.Helper()
	n := startNode(t, t.TempDir(), overrides...)
	t.Cleanup(func() { stopNode(t, n) })
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(n)))
	return &adminTest{n, cl, kadm.NewClient(cl)}
}

// topics asks the node for all topics, past the caches of clients.
func (a *adminTest) topics(t *testing.T) map[string][]kmsg.MetadataResponseTopicPartition {
	t.Helper()
	req := withVersion(kmsg.NewPtrMetadataRequest(), 12)
	req.Topics = nil
	nc, err := net.Dial("tcp", clientAddress(a.node))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	topics := map[string][]kmsg.MetadataResponseTopicPartition{}
	for _, topic := range roundTrip(t, nc, req).(*kmsg.MetadataResponse).Topics {
		topics[*topic.Topic] = topic.Partitions
	}
	return topics
}

func TestTopicsAreCreatedGrownAndDeleted(t *testing.T) {
	a := startAdmin(t)
	ctx := testContext(t)
	if _, err := a.admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": kmsg.StringPtr("1000")}, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.admin.CreateTopic(ctx, 3, 1, nil, "t"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("second creation: %v", err)
	}
	if _, err := a.admin.CreateTopic(ctx, 1, 2, nil, "wide"); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("two replicas on one broker: %v", err)
	}
	if _, err := a.admin.CreateTopic(ctx, 1, 1, nil, "no/name"); !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("bad name: %v", err)
	}
	parts := a.topics(t)["t"]
	if len(parts) != 3 {
		t.Fatalf("%d partitions", len(parts))
	}
	for i, p := range parts { // the answer came when they had leaders
		if p.Leader != 1 || p.ErrorCode != 0 {
			t.Errorf("partition %d: leader %d, error %d", i, p.Leader, p.ErrorCode)
		}
	}
	if r, err := a.admin.UpdatePartitions(ctx, 5, "t"); err != nil || r["t"].Err != nil {
		t.Fatalf("grow: %v, %v", r, err)
	}
	if n := len(a.topics(t)["t"]); n != 5 {
		t.Errorf("%d partitions after growing", n)
	}
	if r, err := a.admin.DeleteTopics(ctx, "t", "none"); err != nil || r["t"].Err != nil || !errors.Is(r["none"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete: %v, %v", r, err)
	}
	if topics := a.topics(t); len(topics) != 0 {
		t.Errorf("after deletion: %v", topics)
	}
}

func TestDeletionCanBeForbidden(t *testing.T) {
	a := startAdmin(t, "delete.topic.enable=false")
	if _, err := a.admin.CreateTopic(testContext(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.admin.DeleteTopic(testContext(t), "t"); !errors.Is(err, kerr.TopicDeletionDisabled) {
		t.Errorf("got %v", err)
	}
}

func TestTopicsAreCreatedByMetadataRequests(t *testing.T) {
	a := startAdmin(t, "num.partitions=4")
	ask := func(version int16, allow bool, name string) kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = allow
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		nc, err := net.Dial("tcp", clientAddress(a.node))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return roundTrip(t, nc, withVersion(req, version)).(*kmsg.MetadataResponse).Topics[0]
	}
	if topic := ask(12, false, "a"); topic.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("created although the request forbids it: %+v", topic)
	}
	if topic := ask(12, true, "a"); topic.ErrorCode != 0 || len(topic.Partitions) != 4 || topic.Partitions[3].Leader != 1 {
		t.Errorf("got %+v", topic)
	}
	if topic := ask(0, false, "old"); topic.ErrorCode != 0 || len(topic.Partitions) != 4 { // version 0 always allows it
		t.Errorf("got %+v", topic)
	}
	if topic := ask(12, true, "no/name"); topic.ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("got %+v", topic)
	}
	// An internal topic gets as many replicas as there are brokers, not three.
	internal := ask(12, true, "__consumer_offsets")
	if internal.ErrorCode != 0 || !internal.IsInternal || len(internal.Partitions) != 16 || len(internal.Partitions[0].Replicas) != 1 {
		t.Errorf("got error %d, internal %v, %d partitions", internal.ErrorCode, internal.IsInternal, len(internal.Partitions))
	}
}

func TestConfigsAreAlteredAndTakeEffect(t *testing.T) {
	a := startAdmin(t)
	ctx := testContext(t)
	if _, err := a.admin.CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) []kadm.AlterConfig {
		return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
	}
	if r, err := a.admin.AlterTopicConfigs(ctx, set("max.message.bytes", "1000"), "t"); err != nil || r[0].Err != nil {
		t.Fatalf("topic: %v, %v", r, err)
	}
	if r, err := a.admin.AlterTopicConfigs(ctx, set("max.message.bytes", "x"), "t"); err != nil || r[0].Err == nil {
		t.Errorf("bad value: %v, %v", r, err)
	}
	if r, err := a.admin.AlterBrokerConfigs(ctx, set("node.id", "9"), 1); err != nil || r[0].Err == nil {
		t.Errorf("a static property: %v, %v", r, err)
	}
	if r, err := a.admin.AlterBrokerConfigs(ctx, set("max.connections.per.ip", "1")); err != nil || r[0].Err != nil {
		t.Fatalf("cluster: %v, %v", r, err)
	}
	described, err := a.admin.DescribeTopicConfigs(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range described[0].Configs {
		if c.Key == "max.message.bytes" && (c.MaybeValue() != "1000" || c.Source != kmsg.ConfigSourceDynamicTopicConfig) {
			t.Errorf("got %v from %v", c.MaybeValue(), c.Source)
		}
	}
	// The limit applies to new connections at once; the admin client holds one.
	nc, err := net.Dial("tcp", clientAddress(a.node))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
		t.Error(err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestMetricsAndHealth(t *testing.T) {
	a := startAdmin(t)
	if _, err := a.admin.CreateTopic(testContext(t), 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	record := kgo.Record{Topic: "t", Partition: 1, Value: []byte("v")}
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(a.node)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(testContext(t), &record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	base := "http://" + a.node.MetricsAddress()
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, base+path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, base+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles without the flag: %d", code)
	}
	_, text := get(t, base+"/metrics")
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			values[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	for name, want := range map[string]float64{
		`cairn_partition_log_end_offset{partition="1",topic="t"}`:   1,
		`cairn_partition_high_watermark{partition="1",topic="t"}`:   1,
		`cairn_partition_log_end_offset{partition="0",topic="t"}`:   0,
		`cairn_partition_leader{partition="1",topic="t"}`:           1,
		`cairn_partition_in_sync_replicas{partition="1",topic="t"}`: 1,
		`cairn_request_seconds_count{api="Produce"}`:                1,
		"cairn_leader_partitions":                                   2,
		"cairn_partitions":                                          2,
		"cairn_offline_partitions":                                  0,
		"cairn_active_controller":                                   1,
		"cairn_request_memory_bytes":                                0,
		"cairn_ready":                                               1,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"cairn_request_bytes_total", "cairn_response_bytes_total", "cairn_raft_saves_total", "cairn_raft_save_seconds_count", "cairn_store_wal_bytes_total", "go_goroutines"} {
		if values[name] <= 0 {
			t.Errorf("%s is %v", name, values[name])
		}
	}
}

func TestProfilesNeedTheFlag(t *testing.T) {
	a := startAdmin(t, "metrics.profiles.enable=true")
	if code, _ := get(t, "http://"+a.node.MetricsAddress()+"/debug/pprof/"); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
}

func TestNodeThatFailedIsNotLive(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	n.fail(errors.New("broken"))
	<-n.Done()
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, "http://"+n.MetricsAddress()+path); code != http.StatusServiceUnavailable || !strings.Contains(body, "broken") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestForwardedRequestsWithoutAControllerHaveAnUnknownOutcome(t *testing.T) {
	c := startCluster(t, 1)
	defer c.stop(t, 1)
	stopNode(t, c.controller)
	b := c.brokers[0].broker
	name := "t"
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what the request's own timeout would do
	for _, req := range []kmsg.Request{
		&kmsg.CreateTopicsRequest{Topics: []kmsg.CreateTopicsRequestTopic{{Topic: name}}},
		&kmsg.DeleteTopicsRequest{TopicNames: []string{name}},
		&kmsg.DeleteTopicsRequest{Version: 6, Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}},
		&kmsg.CreatePartitionsRequest{Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: name}}},
		&kmsg.AlterConfigsRequest{Resources: []kmsg.AlterConfigsRequestResource{{ResourceName: name}}},
		&kmsg.IncrementalAlterConfigsRequest{Resources: []kmsg.IncrementalAlterConfigsRequestResource{{ResourceName: name}}},
	} {
		var got string
		switch r := b.forward(ctx, req).(type) {
		case *kmsg.CreateTopicsResponse:
			got = fmt.Sprint(len(r.Topics), r.Topics[0].Topic, r.Topics[0].ErrorCode)
		case *kmsg.DeleteTopicsResponse:
			got = fmt.Sprint(len(r.Topics), *r.Topics[0].Topic, r.Topics[0].ErrorCode)
		case *kmsg.CreatePartitionsResponse:
			got = fmt.Sprint(len(r.Topics), r.Topics[0].Topic, r.Topics[0].ErrorCode)
		case *kmsg.AlterConfigsResponse:
			got = fmt.Sprint(len(r.Resources), r.Resources[0].ResourceName, r.Resources[0].ErrorCode)
		case *kmsg.IncrementalAlterConfigsResponse:
			got = fmt.Sprint(len(r.Resources), r.Resources[0].ResourceName, r.Resources[0].ErrorCode)
		}
		if want := fmt.Sprint(1, name, kerr.RequestTimedOut.Code); got != want {
			t.Errorf("%T: got %s, want %s", req, got, want)
		}
	}
}
