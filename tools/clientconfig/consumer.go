package clientconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumerTable is the consumer's properties of Kafka 4.3 with their defaults, sorted by name.
func consumerTable() []property {
	return []property{
		{name: "allow.auto.create.topics", def: "true", check: boolean},
		{name: "auto.commit.interval.ms", def: "5000", check: atLeast(100)},
		{name: "auto.offset.reset", def: "latest", check: oneOf("latest", "earliest", "none")},
		{name: "bootstrap.servers", check: anything},
		{name: "check.crcs", def: "true", check: boolean, inert: true},
		{name: "client.id", check: anything},
		{name: "client.rack", check: anything},
		{name: "connections.max.idle.ms", def: "540000", check: atLeast(1)},
		{name: "default.api.timeout.ms", def: "60000", check: atLeast(0), inert: true},
		{name: "enable.auto.commit", def: "true", check: boolean},
		{name: "fetch.max.bytes", def: "52428800", check: between(1, 1<<30)},
		{name: "fetch.max.wait.ms", def: "500", check: atLeast(10)},
		{name: "fetch.min.bytes", def: "1", check: atLeast(0)},
		{name: "group.id", check: anything},
		{name: "group.instance.id", check: anything},
		{name: "group.protocol", def: "classic", check: groupProtocol},
		{name: "heartbeat.interval.ms", def: "3000", check: atLeast(1)},
		{name: "isolation.level", def: "read_uncommitted", check: oneOf("read_uncommitted", "read_committed")},
		{name: "max.partition.fetch.bytes", def: "1048576", check: atLeast(1)},
		{name: "max.poll.interval.ms", def: "300000", check: atLeast(1), inert: true},
		{name: "max.poll.records", def: "500", check: atLeast(1)},
		{name: "metadata.max.age.ms", def: "300000", check: atLeast(1)},
		{name: "partition.assignment.strategy", def: "range,cooperative-sticky", check: assignors},
		{name: "receive.buffer.bytes", def: "65536", check: atLeast(-1), inert: true},
		{name: "request.timeout.ms", def: "30000", check: atLeast(1)},
		{name: "security.protocol", def: "PLAINTEXT", check: plaintext},
		{name: "session.timeout.ms", def: "45000", check: atLeast(1)},
	}
}

func groupProtocol(v string) error {
	switch strings.ToLower(v) {
	case "classic":
		return nil
	case "consumer":
		return errors.New("the client inside this tool speaks the classic protocol; the broker takes both")
	}
	return errors.New("want classic")
}

// assignorsByName are the strategies by their short names and by the names of Kafka's classes.
func assignorsByName() map[string]kgo.GroupBalancer {
	return map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
		"org.apache.kafka.clients.consumer.RangeAssignor":             kgo.RangeBalancer(),
		"org.apache.kafka.clients.consumer.RoundRobinAssignor":        kgo.RoundRobinBalancer(),
		"org.apache.kafka.clients.consumer.StickyAssignor":            kgo.StickyBalancer(),
		"org.apache.kafka.clients.consumer.CooperativeStickyAssignor": kgo.CooperativeStickyBalancer(),
	}
}

func splitList(v string) []string {
	var out []string
	for _, name := range strings.Split(v, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func assignors(v string) error {
	names, known := splitList(v), assignorsByName()
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return known[name] == nil }) {
		return errors.New("want some of range, roundrobin, sticky, cooperative-sticky, with commas between them")
	}
	return nil
}

// Consumer is a checked configuration of a consumer; ParseConsumer makes it.
type Consumer struct {
	settings
	Group          string // empty: none
	MaxPollRecords int
}

// ParseConsumer checks properties by Kafka's rules. Names without effect are in Warnings; the error joins all that is wrong.
func ParseConsumer(given map[string]string) (Consumer, error) {
	s, err := parse(consumerTable(), given)
	if err != nil {
		return Consumer{}, err
	}
	if s.ms("heartbeat.interval.ms") >= s.ms("session.timeout.ms") {
		return Consumer{}, fmt.Errorf("heartbeat.interval.ms=%s must be below session.timeout.ms=%s", s.values["heartbeat.interval.ms"], s.values["session.timeout.ms"])
	}
	return Consumer{settings: s, Group: s.values["group.id"], MaxPollRecords: s.int("max.poll.records")}, nil
}

// Warnings tell which properties have no effect.
func (c Consumer) Warnings() []string { return c.warnings() }

// FetchOptions are the options of a franz-go client for reading, with or without a group.
func (c Consumer) FetchOptions() []kgo.Opt {
	isolation := kgo.ReadUncommitted()
	if c.values["isolation.level"] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	reset := kgo.NewOffset()
	switch c.values["auto.offset.reset"] {
	case "earliest":
		reset = reset.AtStart()
	case "latest":
		reset = reset.AtEnd()
	default:
		reset = kgo.NoResetOffset()
	}
	// A frozen broker answers nothing; beyond the wait that a fetch itself asks for, request.timeout.ms bounds the answer.
	overhead := min(max(c.ms("request.timeout.ms"), time.Second), time.Minute)
	opts := []kgo.Opt{
		kgo.FetchIsolationLevel(isolation), kgo.ConsumeResetOffset(reset), kgo.FetchMinBytes(int32(c.int("fetch.min.bytes"))),
		kgo.FetchMaxBytes(int32(c.int("fetch.max.bytes"))), kgo.FetchMaxPartitionBytes(int32(c.int("max.partition.fetch.bytes"))),
		kgo.FetchMaxWait(c.ms("fetch.max.wait.ms")), kgo.RequestTimeoutOverhead(overhead), kgo.MetadataMaxAge(c.ms("metadata.max.age.ms")),
		kgo.ConnIdleTimeout(c.ms("connections.max.idle.ms")), kgo.BrokerMaxReadBytes(int32(max(c.int("fetch.max.bytes"), 100<<20))),
	}
	if c.bool("allow.auto.create.topics") {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	if rack := c.values["client.rack"]; rack != "" {
		opts = append(opts, kgo.Rack(rack))
	}
	if id := c.values["client.id"]; id != "" {
		opts = append(opts, kgo.ClientID(id))
	}
	return opts
}

// GroupOptions are the options of a member of Group, beside FetchOptions.
func (c Consumer) GroupOptions() []kgo.Opt {
	var balancers []kgo.GroupBalancer
	known := assignorsByName()
	for _, name := range splitList(c.values["partition.assignment.strategy"]) {
		balancers = append(balancers, known[name])
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(c.Group), kgo.Balancers(balancers...), kgo.SessionTimeout(c.ms("session.timeout.ms")),
		kgo.HeartbeatInterval(c.ms("heartbeat.interval.ms")), kgo.AutoCommitInterval(c.ms("auto.commit.interval.ms")),
	}
	if !c.bool("enable.auto.commit") {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if id := c.values["group.instance.id"]; id != "" {
		opts = append(opts, kgo.InstanceID(id))
	}
	return opts
}
