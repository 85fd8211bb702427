package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The classes of Kafka's tools for administration and load.
const (
	configCommand  = "kafka.admin.ConfigCommand"
	featureCommand = "org.apache.kafka.tools.FeatureCommand"
	aclCommand     = "org.apache.kafka.tools.AclCommand"
	producerPerf   = "org.apache.kafka.tools.ProducerPerformance"
	logDirsCommand = "org.apache.kafka.tools.LogDirsCommand"
	quorumCommand  = "org.apache.kafka.tools.MetadataQuorumCommand"
	deleteCommand  = "org.apache.kafka.tools.DeleteRecordsCommand"
	apiVersions    = "org.apache.kafka.tools.BrokerApiVersionsCommand"
)

// adminRows are the rows of the tools for administration and load.
func (s *story) adminRows() []row {
	return []row{
		{"TopicCommand", "create, with and without --if-not-exists", s.createTopics},
		{"TopicCommand", "alter: more partitions, never fewer", s.alterTopics},
		{"TopicCommand", "list, describe by id, with overrides", s.listTopics},
		{"ConfigCommand", "topics: set, describe, delete", s.topicConfigs},
		{"ConfigCommand", "brokers: one, all, defaults of the cluster", s.brokerConfigs},
		{"ConfigCommand", "groups: set, describe, delete", s.groupConfigs},
		{"ConfigCommand", "users, clients, ips", s.noQuotas},
		{"ProducerPerformance", "10,000 records, acks=all", s.producerPerformance},
		{"ConsumerPerformance", "10,000 records, in a group", s.consumerPerformance},
		{"ConsumerGroupCommand", "describe, reset-offsets, delete-offsets, delete", s.groupOffsets},
		{"EndToEndLatency", "200 records, acks=all", s.endToEndLatency},
		{"GetOffsetShell", "latest, earliest, of a time, of nothing", s.offsets},
		{"FeatureCommand", "describe, downgrade, upgrade", s.features},
		{"BrokerApiVersionsCommand", "all brokers", func() error { return s.kafka(s.ctx, apiVersions).wants(0, "Produce(0): 0 to 13", "(id: 3 rack: null") }},
		{"AclCommand", "list", s.noACLs},
		{"LogDirsCommand", "describe: sizes and lags", s.logDirs},
		{"MetadataQuorumCommand", "describe: status, replication", s.metadataQuorum},
		{"ReassignPartitionsCommand", "generate, execute with a throttle, list, verify, cancel", s.reassign},
		{"DeleteRecordsCommand", "up to an offset, all, out of range", s.deleteRecords},
		{"TopicCommand", "delete", s.deleteTopics},
	}
}

func (s *story) topic(args ...string) answer { return s.kafka(s.ctx, topicCommand, args...) }

func (s *story) createTopics() error {
	return errors.Join(
		s.topic("--create", "--topic", "stock", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=86400000").wants(0, "Created topic stock.\n"),
		s.topic("--create", "--topic", "stock", "--if-not-exists").wants(0),
		s.topic("--create", "--topic", "stock").wants(1, "Error while executing topic command : Topic 'stock' already exists."),
		s.topic("--create", "--topic", "a.b").wants(0, "WARNING: Due to limitations in metric names", "Created topic a.b."),
		s.topic("--create", "--topic", "a_b").wants(1, "Topic 'a_b' collides with existing topic: a.b"),
		s.topic("--create", "--topic", "wide", "--replication-factor", "4").wants(1, "Unable to replicate the partition 4 time(s)"),
		s.topic("--create", "--topic", "odd", "--config", "retention.years=1").wants(1, "Unknown topic config name: retention.years"),
	)
}

func (s *story) alterTopics() error {
	return errors.Join(
		s.topic("--alter", "--topic", "stock", "--partitions", "3").wants(0),
		s.topic("--alter", "--topic", "stock", "--partitions", "2").wants(1, "The topic stock currently has 3 partition(s); 2 would not be an increase."),
		s.topic("--alter", "--topic", "nowhere", "--partitions", "2").wants(1, "Topic 'nowhere' does not exist as expected"),
		s.led("stock"), s.shows("stock", "PartitionCount: 3 | ReplicationFactor: 3 | Configs: retention.ms=86400000\n"),
	)
}

func (s *story) listTopics() error {
	described := s.topic("--describe", "--topic", "stock")
	_, id, _ := strings.Cut(described.out, "TopicId: ")
	id, _, _ = strings.Cut(id, "\t")
	byID, overridden := s.topic("--describe", "--topic-id", id), s.topic("--describe", "--topics-with-overrides")
	return errors.Join(
		s.topic("--list").wants(0, "a.b\nstock\n"),
		byID.wants(0, "Topic: stock\t"), same(byID, s.cairn(s.ctx, "topics describe", "--topic-id", id), "Elr: N/A", "Elr: "),
		overridden.wants(0, "Topic: stock\t"), same(overridden, s.cairn(s.ctx, "topics describe", "--topics-with-overrides")),
		same(s.topic("--list"), s.cairn(s.ctx, "topics list")),
	)
}

func (s *story) config(args ...string) answer { return s.kafka(s.ctx, configCommand, args...) }

func (s *story) topicConfigs() error {
	of := []string{"--entity-type", "topics", "--entity-name", "stock"}
	alter := func(args ...string) answer { return s.config(append(append([]string{"--alter"}, of...), args...)...) }
	describe := func() answer { return s.config(append([]string{"--describe"}, of...)...) }
	return errors.Join(
		alter("--add-config", "max.message.bytes=5000,cleanup.policy=[compact,delete]").wants(0, "Completed updating config for topic stock.\n"),
		same(describe(), s.cairn(s.ctx, "configs describe", of...)),
		describe().wants(0, "Dynamic configs for topic stock are:\n",
			"  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}\n",
			"  max.message.bytes=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:message.max.bytes=1048588}\n"),
		s.config(append([]string{"--describe", "--all"}, of...)...).wants(0, "All configs for topic stock are:\n", "  segment.bytes=1073741824 sensitive=false"),
		alter("--add-config", "max.message.bytes=-5").wants(1, "InvalidConfigurationException"),
		alter("--delete-config", "max.message.bytes,cleanup.policy,retention.ms").wants(0, "Completed updating config for topic stock.\n"),
		describe().wants(0, "Dynamic configs for topic stock are:\n"),
	)
}

func (s *story) brokerConfigs() error {
	defaults := []string{"--entity-type", "brokers", "--entity-default"}
	one := []string{"--entity-type", "brokers", "--entity-name", "2"}
	run := func(action string, of []string, args ...string) answer {
		return s.config(append(append([]string{action}, of...), args...)...)
	}
	return errors.Join(
		run("--alter", defaults, "--add-config", "message.max.bytes=900000").wants(0, "Completed updating default config for brokers in the cluster.\n"),
		run("--describe", defaults).wants(0, "Default configs for brokers in the cluster are:\n",
			"  message.max.bytes=900000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=900000}\n"),
		run("--alter", one, "--add-config", "leader.replication.throttled.rate=1000000").wants(0, "Completed updating config for broker 2.\n"),
		same(run("--describe", one, "--all"), s.cairn(s.ctx, "configs describe", append(one, "--all")...)),
		run("--describe", one).wants(0, "Dynamic configs for broker 2 are:\n",
			"  leader.replication.throttled.rate=1000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:leader.replication.throttled.rate=1000000"),
		run("--describe", one, "--all").wants(0, "All configs for broker 2 are:\n", "  node.id=2 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=2"),
		run("--alter", one, "--add-config", "node.id=7").wants(1, "InvalidConfigurationException"),
		run("--alter", one, "--delete-config", "leader.replication.throttled.rate").wants(0),
		run("--alter", defaults, "--delete-config", "message.max.bytes").wants(0),
		s.config("--describe", "--entity-type", "brokers").wants(0, "Dynamic configs for broker 3 are:\n", "Default configs for brokers in the cluster are:\n"),
	)
}

func (s *story) groupConfigs() error {
	of := []string{"--entity-type", "groups", "--entity-name", "tellers"}
	run := func(action string, args ...string) answer {
		return s.config(append(append([]string{action}, of...), args...)...)
	}
	return errors.Join(
		run("--alter", "--add-config", "consumer.session.timeout.ms=50000").wants(0, "Completed updating config for group tellers.\n"),
		same(run("--describe"), s.cairn(s.ctx, "configs describe", of...)),
		run("--describe").wants(0, "Dynamic configs for group tellers are:\n",
			"  consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, DEFAULT_CONFIG:"),
		run("--alter", "--add-config", "consumer.session.timeout.ms=1").wants(1, "InvalidConfigurationException"),
		run("--alter", "--delete-config", "consumer.session.timeout.ms").wants(0, "Completed updating config for group tellers.\n"),
		run("--describe").wants(0, "Dynamic configs for group tellers are:\n"),
	)
}

// notOffered is the result of a tool that must end with these words.
func notOffered(why string, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errNotOffered, why)
}

func (s *story) noQuotas() error {
	const words = "UnsupportedVersionException: The node does not support DESCRIBE_CLIENT_QUOTAS"
	var errs []error
	for _, kind := range []string{"users", "clients", "ips"} {
		errs = append(errs, s.config("--describe", "--entity-type", kind).wants(1, words))
	}
	return notOffered("there are no quotas", errs...)
}

func (s *story) noACLs() error {
	return notOffered("there is no authorization", s.kafka(s.ctx, aclCommand, "--list").wants(1, "The node does not support DESCRIBE_ACLS"))
}

func (s *story) producerPerformance() error {
	a := s.kafka(s.ctx, producerPerf, "--topic", "stock", "--num-records", "10000", "--record-size", "500", "--throughput", "-1", "--command-property", "acks=all")
	return a.wants(0, "10000 records sent, ", " records/sec (", " ms 99.9th.")
}

func (s *story) offsets() error {
	ask := func(args ...string) answer {
		return s.kafka(s.ctx, offsetCommand, append([]string{"--topic", "stock"}, args...)...)
	}
	future := ask("--time", "4102444800000")
	return errors.Join(
		ask().wants(0, "stock:0:", "stock:1:", "stock:2:"), same(ask(), s.cairn(s.ctx, "get-offsets", "--topic", "stock")),
		ask("--time", "earliest").wants(0, "stock:0:0\nstock:1:0\nstock:2:0\n"),
		ask("--time", "1").wants(0, "stock:0:0\nstock:1:0\nstock:2:0\n"),
		ask("--time", "max-timestamp", "--partitions", "0").wants(0, "stock:0:"),
		future.wants(0),
		s.kafka(s.ctx, offsetCommand, "--topic", "nowhere").wants(1, "Could not match any topic-partitions"),
	)
}

func (s *story) features() error {
	described, ourDescription := s.kafka(s.ctx, featureCommand, "describe"), s.cairn(s.ctx, "features describe")
	down, up, beyond := []string{"--feature", "transaction.version=1"}, []string{"--feature", "transaction.version=2"}, []string{"--feature", "transaction.version=9"}
	theirs := func(op string, args ...string) answer {
		return s.kafka(s.ctx, featureCommand, append([]string{op}, args...)...)
	}
	ours := func(op string, args ...string) answer { return s.cairn(s.ctx, "features "+op, args...) }
	kafkaDown, cairnUp := theirs("downgrade", down...), ours("upgrade", up...)
	cairnDown, kafkaUp := ours("downgrade", down...), theirs("upgrade", up...)
	return errors.Join(
		described.wants(0, "Feature: eligible.leader.replicas.version"), same(described, ourDescription),
		kafkaDown.wants(0, "transaction.version was downgraded to 1.\n"), same(kafkaDown, cairnDown),
		kafkaUp.wants(0, "transaction.version was upgraded to 2.\n"), same(kafkaUp, cairnUp),
		same(theirs("downgrade", append(down, "--dry-run")...), ours("downgrade", append(down, "--dry-run")...)),
		same(theirs("upgrade", beyond...), ours("upgrade", beyond...)),
	)
}

func (s *story) logDirs() error {
	a := s.kafka(s.ctx, logDirsCommand, "--describe", "--topic-list", "stock", "--broker-list", "1,3")
	if err := a.wants(0, "Received log directory information from brokers 1,3\n"); err != nil {
		return err
	}
	var told struct {
		Brokers []struct {
			LogDirs []struct {
				Partitions []struct {
					Partition       string
					Size, OffsetLag int64
				}
			}
		}
	}
	_, line, _ := strings.Cut(a.out, "{")
	if err := json.Unmarshal([]byte("{"+line), &told); err != nil {
		return fmt.Errorf("%w: %s", err, a)
	}
	for _, b := range told.Brokers {
		if len(b.LogDirs) != 1 || len(b.LogDirs[0].Partitions) != 3 {
			return fmt.Errorf("not one directory with three partitions: %s", a)
		}
		for _, p := range b.LogDirs[0].Partitions {
			if !strings.HasPrefix(p.Partition, "stock-") || p.Size < 1_000_000 || p.OffsetLag != 0 {
				return fmt.Errorf("partition %s has %d bytes, lag %d: %s", p.Partition, p.Size, p.OffsetLag, a)
			}
		}
	}
	return nil
}

func (s *story) metadataQuorum() error {
	status, table := s.kafka(s.ctx, quorumCommand, "describe", "--status"), s.kafka(s.ctx, quorumCommand, "describe", "--replication")
	return errors.Join(
		same(status, s.cairn(s.ctx, "quorum describe", "--status")),
		status.wants(0, "ClusterId:  ", "LeaderId:               100\n", "CurrentVoters:          [{\"id\": 100, \"endpoints\": [\"CONTROLLER://127.0.0.1:",
			"CurrentObservers:       [{\"id\": 1, \"directoryId\": "),
		table.wants(0, "NodeId\tDirectoryId", "Leader", "Observer"),
	)
}

func (s *story) deleteRecords() error {
	file := func(name, partitions string) string {
		path, err := s.file(name, `{"version":1,"partitions":[`+partitions+`]}`)
		if err != nil {
			return err.Error() // the tool will not find it
		}
		return path
	}
	some := file("some.json", `{"topic":"stock","partition":0,"offset":5},{"topic":"stock","partition":1,"offset":7}`)
	all, beyond := file("all.json", `{"topic":"stock","partition":2,"offset":-1}`), file("beyond.json", `{"topic":"stock","partition":0,"offset":1000000000}`)
	first := s.kafka(s.ctx, deleteCommand, "--offset-json-file", some)
	return errors.Join(
		first.wants(0, "Executing records delete operation\nRecords delete operation completed:\n", "partition: stock-0\tlow_watermark: 5\n", "partition: stock-1\tlow_watermark: 7\n"),
		same(sortedLines(first), sortedLines(s.cairn(s.ctx, "delete-records", "--offset-json-file", some))),
		s.kafka(s.ctx, offsetCommand, "--topic", "stock", "--time", "earliest").wants(0, "stock:0:5\nstock:1:7\nstock:2:0\n"),
		s.kafka(s.ctx, deleteCommand, "--offset-json-file", all).wants(0, "partition: stock-2\tlow_watermark: "),
		s.kafka(s.ctx, deleteCommand, "--offset-json-file", beyond).wants(0, "partition: stock-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException"),
	)
}

func sortedLines(a answer) answer {
	a.out = sorted(a.out)
	return a
}

func (s *story) deleteTopics() error {
	return errors.Join(
		s.topic("--delete", "--topic", "stock").wants(0),
		s.topic("--delete", "--topic", "stock").wants(1, "Topic 'stock' does not exist as expected"),
		s.topic("--delete", "--topic", "stock", "--if-exists").wants(0),
	)
}
