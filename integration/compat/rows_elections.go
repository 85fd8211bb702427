package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
)

// row is one check; the rows of a story follow each other on the same cluster.
type row struct {
	tool string
	name string
	do   func() error
}

// story is a cluster of three brokers on which rows are played.
type story struct {
	*bench
	ctx context.Context
	c   *harness.Cluster
	// ends are called when all rows were played.
	ends []func() error
}

// describe is Kafka's description of a topic.
func (s *story) describe(topic string) answer {
	return s.kafka(s.ctx, topicCommand, "--describe", "--topic", topic)
}

// shows waits until cairn describes the first partition of the topic like this, and compares what Kafka's tool prints then. It is cairn that
// looks, because Kafka's clients wait for half a minute for a frozen broker that they still have in their list.
func (s *story) shows(topic, want string) error {
	want = strings.ReplaceAll(want, " | ", "\t")
	return s.showsOnce(topic, fmt.Sprintf("%q", want), func(out string) bool { return strings.Contains(out, want) })
}

// led waits until each partition of the topic has a leader, and compares.
func (s *story) led(topic string) error {
	return s.showsOnce(topic, "a leader of each partition", func(out string) bool { return !strings.Contains(out, "Leader: none") })
}

// showsOnce waits until fits says that the description is as wanted, and compares.
func (s *story) showsOnce(topic, want string, fits func(out string) bool) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		seen := s.cairn(s.ctx, "topics describe", "--topic", topic)
		if seen.code == 0 && fits(seen.out) {
			return same(s.describe(topic), seen)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not seen: %s, but %s", want, seen)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// filtered compares both tools' descriptions with a filter, and looks for partitions in them.
func (s *story) filtered(filter string, shown, hidden []string) error {
	k, c := s.kafka(s.ctx, topicCommand, "--describe", "--"+filter), s.cairn(s.ctx, "topics describe", "--"+filter)
	k.out, c.out = sorted(k.out), sorted(c.out) // Kafka's tool prints topics in the order of a hash table
	errs := []error{same(k, c)}
	for _, topic := range shown {
		errs = append(errs, k.wants(0, "\tTopic: "+topic+"\t"))
	}
	for _, topic := range hidden {
		if strings.Contains(k.out, "\tTopic: "+topic+"\t") {
			errs = append(errs, fmt.Errorf("--%s shows %s: %s", filter, topic, k))
		}
	}
	return errors.Join(errs...)
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

func (s *story) create(topic, assignment, minISR string) error {
	k := s.kafka(s.ctx, topicCommand, "--create", "--topic", topic, "--replica-assignment", assignment, "--config", "min.insync.replicas="+minISR)
	return k.wants(0, "Created topic "+topic+".")
}

// produce writes records to a partition without a retry and returns the first error.
func (s *story) produce(topic string, partition int32, acks kgo.Acks, count int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(s.at, ",")...), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	for i := range count {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "v%d", i)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// elect holds the election of partition 0 with Kafka's tool and of partition 1, in the same state, with cairn's, and compares.
func (s *story) elect(kind, topic string, code int, parts ...string) error {
	k := s.kafka(s.ctx, electionCommand, "--election-type", kind, "--topic", topic, "--partition", "0")
	c := s.cairn(s.ctx, "elect", "--election-type", kind, "--topic", topic, "--partition", "1")
	errs := []error{k.wants(code, parts...), same(k, c, topic+"-0", topic+"-1", "partition 0", "partition 1")}
	if code != 0 { // Kafka's tool prints a stack trace behind it
		first, _, _ := strings.Cut(k.err, "\n")
		if first == "" || !strings.Contains(c.err, first) {
			errs = append(errs, fmt.Errorf("cairn ends with %q, the tool of Kafka with %q", c.err, first))
		}
	}
	return errors.Join(errs...)
}

// offset is the end of a partition that consumers see, as Kafka's tool tells it.
func (s *story) offset(topic, want string) error {
	k := s.kafka(s.ctx, offsetCommand, "--topic", topic)
	return k.wants(0, want)
}

// replicaRows are the rows of the experiments about acks, the in-sync replica set and elections that name output of a tool.
func (s *story) replicaRows() []row {
	rows := []row{
		{"TopicCommand", "topics with their replicas", s.makeTopics},
		{"LeaderElectionCommand", "elections that are not needed", s.notNeeded},
		{"LeaderElectionCommand", "an election of what is not there", s.unknownElections},
		{"TopicCommand", "clamp-shut: Isr: 2, Elr: 3", s.clampShut},
		{"TopicCommand", "isr-shrink: Isr: 2,1", func() error { return s.shows("shrink", "Replicas: 2,3,1 | Isr: 2,1 | Elr:  | LastKnownElr: \n") }},
		{"TopicCommand", "describe, partitions by state", s.filters},
	}
	rows = append(rows, s.limitRows()...)
	return append(rows, []row{
		{"LeaderElectionCommand", "elect: preferred replica not available", s.preferredNotAvailable},
		{"GetOffsetShell", "below-min: NOT_ENOUGH_REPLICAS, nothing appended", s.belowMin},
		{"TopicCommand", "all-survives: Isr: 1, Elr: 2", s.allSurvives},
		{"LeaderElectionCommand", "all-survives-twice: a preferred election gives it back", s.preferredAgain},
		{"TopicCommand", "acks1-offline: Leader: none, Elr: 1, LastKnownElr: 1", s.acks1Offline},
		{"LeaderElectionCommand", "elect: no eligible leader", s.noEligibleLeader},
		{"LeaderElectionCommand", "acks1-unclean: Leader: 3, Isr: 3, no record left", s.acks1Unclean},
	}...)
}

func (s *story) makeTopics() error {
	return errors.Join(s.create("clamp", "2:3,2:3", "3"), s.create("shrink", "2:3:1,2:3:1", "2"), s.create("preferred", "3:1,3:1", "1"),
		s.create("acks1", "1:3,1:3", "1"), s.create("single", "1,1", "1"), s.shows("clamp", "Leader: 2 | Replicas: 2,3 | Isr: 2,3 | Elr:  | LastKnownElr: \n"),
		s.shows("preferred", "Leader: 3 | "), s.shows("acks1", "Leader: 1 | "), s.produce("clamp", 0, kgo.AllISRAcks(), 1), s.offset("clamp", "clamp:0:1"))
}

func (s *story) notNeeded() error {
	all := s.kafka(s.ctx, electionCommand, "--election-type", "preferred", "--all-topic-partitions")
	return errors.Join(s.elect("preferred", "clamp", 0, "Valid replica already elected for partitions clamp-0\n"),
		s.elect("unclean", "clamp", 0, "Valid replica already elected for partitions clamp-0\n"),
		all.wants(0), same(all, s.cairn(s.ctx, "elect", "--election-type", "preferred", "--all-topic-partitions")))
}

func (s *story) unknownElections() error {
	return errors.Join(s.elect("preferred", "nowhere", 1, "Error completing leader election (PREFERRED) for partition: nowhere-0: "+
		"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: ", "1 replica(s) could not be elected"),
		s.elect("unclean", "nowhere", 1, "UnknownTopicOrPartitionException"))
}

// clampShut: broker 3 freezes, and stays so for the rows that follow.
func (s *story) clampShut() error {
	if err := s.c.Node(3).Freeze(); err != nil {
		return err
	}
	s.at = s.c.Node(1).Addr + "," + s.c.Node(2).Addr
	err := s.shows("clamp", "Leader: 2 | Replicas: 2,3 | Isr: 2 | Elr: 3 | LastKnownElr: \n")
	if got := s.produce("clamp", 0, kgo.AllISRAcks(), 1); !errors.Is(got, kerr.NotEnoughReplicas) {
		err = errors.Join(err, fmt.Errorf("acks=all below the minimum: %w", orNoError(got)))
	}
	return errors.Join(err, s.offset("clamp", "clamp:0:1"))
}

func orNoError(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func (s *story) filters() error {
	return errors.Join(
		s.filtered("under-replicated-partitions", []string{"clamp", "shrink", "acks1"}, []string{"single"}),
		s.filtered("under-min-isr-partitions", []string{"clamp"}, []string{"shrink", "single", "acks1"}),
		s.filtered("at-min-isr-partitions", []string{"shrink", "single", "acks1"}, []string{"clamp"}),
		s.filtered("unavailable-partitions", nil, []string{"clamp", "shrink", "single", "acks1"}),
	)
}

func (s *story) preferredNotAvailable() error {
	return errors.Join(s.shows("preferred", "Leader: 1 | Replicas: 3,1 | Isr: 1 | "),
		s.elect("preferred", "preferred", 1, "Error completing leader election (PREFERRED) for partition: preferred-0: "+
			"org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: ", "1 replica(s) could not be elected"))
}

func (s *story) belowMin() error {
	for range 3 {
		if err := s.produce("clamp", 0, kgo.AllISRAcks(), 1); !errors.Is(err, kerr.NotEnoughReplicas) {
			return fmt.Errorf("acks=all: %w", orNoError(err))
		}
	}
	return errors.Join(s.produce("clamp", 0, kgo.LeaderAck(), 1), s.offset("clamp", "clamp:0:1"))
}

// allSurvives: the leader of a partition with two in-sync replicas dies.
func (s *story) allSurvives() error {
	if err := s.produce("shrink", 0, kgo.AllISRAcks(), 100); err != nil {
		return err
	}
	if err := s.c.Node(2).Kill(); err != nil {
		return err
	}
	s.at = s.c.Node(1).Addr
	return errors.Join(s.shows("shrink", "Partition: 0 | Leader: 1 | Replicas: 2,3,1 | Isr: 1 | Elr: 2 | LastKnownElr: \n"),
		s.shows("shrink", "Partition: 1 | Leader: 1 | "),
		s.filtered("unavailable-partitions", []string{"clamp"}, []string{"shrink"}))
}

// preferredAgain: broker 2 comes back and leads again.
func (s *story) preferredAgain() error {
	n := s.c.Node(2)
	if err := n.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if _, err := n.WaitReady(ctx); err != nil {
		return err
	}
	s.at = s.c.Node(1).Addr + "," + n.Addr
	return errors.Join(
		s.shows("shrink", "Partition: 0 | Leader: 1 | Replicas: 2,3,1 | Isr: 2,1 | "), s.shows("shrink", "Partition: 1 | Leader: 1 | Replicas: 2,3,1 | Isr: 2,1 | "),
		s.elect("preferred", "shrink", 0, "Successfully completed leader election (PREFERRED) for partitions shrink-0\n"),
		s.shows("shrink", "Partition: 0 | Leader: 2 | "), s.shows("shrink", "Partition: 1 | Leader: 2 | "), s.offset("shrink", "shrink:0:100"))
}

// acks1Offline: the only in-sync replica dies with records that it alone has.
func (s *story) acks1Offline() error {
	if err := errors.Join(s.produce("acks1", 0, kgo.LeaderAck(), 100), s.c.Node(1).Kill()); err != nil {
		return err
	}
	s.at = s.c.Node(2).Addr
	return errors.Join(s.shows("acks1", "Leader: none | Replicas: 1,3 | Isr:  | Elr: 1 | LastKnownElr: 1\n"),
		s.shows("shrink", "Partition: 0 | Leader: 2 | "), s.shows("shrink", "Partition: 1 | Leader: 2 | "),
		s.filtered("unavailable-partitions", []string{"acks1", "single"}, []string{"shrink"}),
		s.filtered("under-min-isr-partitions", []string{"acks1", "single"}, nil))
}

func (s *story) noEligibleLeader() error {
	return s.elect("unclean", "single", 1, "Error completing leader election (UNCLEAN) for partition: single-0: "+
		"org.apache.kafka.common.errors.EligibleLeadersNotAvailableException: ", "1 replica(s) could not be elected")
}

// acks1Unclean: the replica that lacks the records is made leader all the same.
func (s *story) acks1Unclean() error {
	if err := s.c.Node(3).Thaw(); err != nil {
		return err
	}
	if err := s.shows("shrink", "Isr: 2,3 | "); err != nil { // broker 3 is back
		return err
	}
	return errors.Join(s.elect("unclean", "acks1", 0, "Successfully completed leader election (UNCLEAN) for partitions acks1-0\n"),
		s.shows("acks1", "Partition: 0 | Leader: 3 | Replicas: 1,3 | Isr: 3 | Elr:  | LastKnownElr: \n"),
		s.shows("acks1", "Partition: 1 | Leader: 3 | "), s.offset("acks1", "acks1:0:0"))
}
