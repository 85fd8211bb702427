package group

import (
	"strings"
	"testing"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsumerConfigSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		change func(*ConsumerConfig)
		want   string
	}{
		{func(c *ConsumerConfig) { c.SessionTimeout = time.Second }, "session.timeout.ms 1000"},
		{func(c *ConsumerConfig) { c.HeartbeatInterval = time.Minute }, "heartbeat.interval.ms 60000"},
		{func(c *ConsumerConfig) { c.AssignmentInterval = time.Minute }, "assignment.interval.ms 60000"},
		{func(c *ConsumerConfig) { c.MaxSize = 0 }, "max.size"},
		{func(c *ConsumerConfig) { c.RegexRefresh = time.Second }, "regex.refresh"},
		{func(c *ConsumerConfig) { c.Assignors = nil }, "assignors is empty"},
		{func(c *ConsumerConfig) { c.Assignors = []string{"sticky"} }, `no assignor "sticky"`},
		{func(c *ConsumerConfig) { c.Migration = "sometimes" }, `"sometimes"`},
	} {
		cfg := DefaultConsumerConfig()
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestConfigsOfSingleGroups(t *testing.T) {
	cfg := DefaultConsumerConfig()
	for _, c := range []struct {
		name, value, want string // want "": it is good
	}{
		{ConsumerSessionTimeoutConfig, "50000", ""},
		{ConsumerSessionTimeoutConfig, "1000", "not between 45000 and 60000"},
		{ConsumerSessionTimeoutConfig, "soon", "want milliseconds"},
		{ConsumerHeartbeatIntervalConfig, "15000", ""},
		{ConsumerAssignmentIntervalConfig, "0", ""},
		{"consumer.session", "1", "unknown group config name"},
	} {
		err := cfg.ValidateGroup(map[string]string{c.name: c.value})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}

	s := newStage(t)
	configs := map[string]string{ConsumerHeartbeatIntervalConfig: "7000", ConsumerSessionTimeoutConfig: "50000"}
	s.cfg.GroupConfig = func(string) map[string]string { return configs }
	s.elect()
	a := s.actor("a", "t").beat()
	if a.last.HeartbeatIntervalMillis != 7000 {
		t.Errorf("the group's heartbeat interval is told as %d", a.last.HeartbeatIntervalMillis)
	}
	s.pass(49 * time.Second)
	if s.state() == consumerEmpty {
		t.Error("the broker's session timeout counts, not the group's")
	}
	configs[ConsumerHeartbeatIntervalConfig] = "1" // set before the broker's bounds were narrowed
	if a.beat(); a.last.HeartbeatIntervalMillis != 5000 {
		t.Errorf("a heartbeat interval of %d is below the bound", a.last.HeartbeatIntervalMillis)
	}
}

func TestDescribedConsumerGroup(t *testing.T) {
	s := newStage(t)
	a, b := classicPair(s)
	x := s.actor("x", "t")
	x.instance = ptr("i")
	for range 6 {
		x.beat()
		a.follow()
		b.follow()
	}
	var got *kmsg.ConsumerGroupDescribeResponseGroup
	s.do(func(now time.Time, fx *coordinator.Effects) {
		s.m.ConsumerGroupDescribe("g", now, fx, func(r *kmsg.ConsumerGroupDescribeResponseGroup, _ error) { got = r })
	})
	if got.State != consumerStable || got.AssignorName != "uniform" || got.Epoch != got.AssignmentEpoch || len(got.Members) != 3 {
		t.Fatalf("%+v", got)
	}
	total := 0
	for _, m := range got.Members {
		if m.MemberEpoch != got.Epoch || len(m.SubscribedTopics) != 1 || (m.MemberType == memberTypeConsumer) != (deref(m.InstanceID) == "i") {
			t.Errorf("%+v", m)
		}
		for _, tp := range m.Assignment.TopicPartitions {
			total += len(tp.Partitions)
			if tp.Topic != "t" || tp.TopicID != s.topics.ids["t"] {
				t.Errorf("%+v", tp)
			}
		}
	}
	if total != 12 {
		t.Errorf("%d partitions are described", total)
	}
}
