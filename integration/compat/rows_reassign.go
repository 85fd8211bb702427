package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const reassignCommand = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"

// reassign moves a topic with Kafka's tool: what it proposes, then back again before the move has ended, then for good.
func (s *story) reassign() error {
	s.topic("--create", "--topic", "moved", "--replica-assignment", "1:2,2:1", "--config", "min.insync.replicas=1")
	topics, err := s.file("topics.json", `{"topics":[{"topic":"moved"}],"version":1}`)
	if err != nil {
		return err
	}
	move, err := s.file("move.json", `{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[3,2]},{"topic":"moved","partition":1,"replicas":[2,3]}]}`)
	if err != nil {
		return err
	}
	run := func(args ...string) answer { return s.kafka(s.ctx, reassignCommand, args...) }
	generated := run("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")
	if err := errors.Join(
		generated.wants(0, "Current partition replica assignment\n{\"version\":1,", "\nProposed partition reassignment configuration\n{\"version\":1,"),
		s.produceWith("moved", 20_000),
		run("--list").wants(0, "No partition reassignments found."),
		run("--execute", "--reassignment-json-file", move, "--throttle", "100000").wants(0, "Current partition replica assignment\n\n{\"version\":1,",
			"The inter-broker throttle limit was set to 100000 B/s\n", "Successfully started partition reassignments for moved-0,moved-1\n"),
		run("--list").wants(0, "Current partition reassignments:\n", "moved-0: replicas: 3,2,1. adding: 3. removing: 1.\n"),
		run("--execute", "--reassignment-json-file", move).wants(1, "Cannot execute because there is an existing partition assignment."),
		run("--verify", "--reassignment-json-file", move, "--preserve-throttles").wants(0, "Status of partition reassignment:\n", "Reassignment of partition moved-0 is still in progress.\n"),
		s.config("--describe", "--entity-type", "brokers", "--entity-name", "3").wants(0, "follower.replication.throttled.rate=100000 "),
		s.config("--describe", "--entity-type", "topics", "--entity-name", "moved").wants(0, "follower.replication.throttled.replicas=0:3,1:3 "),
		run("--cancel", "--reassignment-json-file", move).wants(0, "Successfully cancelled partition reassignments for: moved-0,moved-1\n", "Clearing topic-level throttles on topic moved\n"),
	); err != nil {
		return err
	}
	if err := s.until("the cancelled move to end", func() bool { return run("--list").wants(0, "No partition reassignments found.") == nil }); err != nil {
		return err
	}
	err = errors.Join(s.shows("moved", "Partition: 0 | Leader: "), run("--execute", "--reassignment-json-file", move).wants(0, "Successfully started"))
	if err != nil {
		return err
	}
	return errors.Join(s.until("the move to end", func() bool {
		return run("--verify", "--reassignment-json-file", move).wants(0, "Reassignment of partition moved-0 is completed.\nReassignment of partition moved-1 is completed.\n",
			"Clearing broker-level throttles on brokers 1,2,3\n") == nil
	}), s.topic("--describe", "--topic", "moved").wants(0, "Configs: min.insync.replicas=1\n", "\tReplicas: 3,2\t"))
}

// file writes a file for a tool to read.
func (s *story) file(name, text string) (string, error) {
	path := filepath.Join(s.c.Dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// produceWith writes records of 1,000 bytes with Kafka's tool.
func (s *story) produceWith(topic string, records int) error {
	return s.kafka(s.ctx, producerPerf, "--topic", topic, "--num-records", fmt.Sprint(records), "--record-size", "1000", "--throughput", "-1").
		wants(0, fmt.Sprintf("%d records sent, ", records))
}

// until waits for something that a tool will show.
func (s *story) until(what string, holds func() bool) error {
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%v of waiting for %s; describe shows\n%s", 30*time.Second, what, strings.TrimSpace(s.topic("--describe").out))
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}
