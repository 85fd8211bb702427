package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func topicsCommand() *cli.Command {
	return &cli.Command{
		Name:        "topics",
		Usage:       "create, list, describe, alter and delete topics",
		Description: "Examples:\n\n   cairn topics create --topic orders --partitions 6 --replication-factor 3\n   cairn topics describe --topic orders",
		Subcommands: []*cli.Command{
			topicsCreateCommand(), topicsListCommand(), topicsDescribeCommand(), topicsAlterCommand(), topicsDeleteCommand(),
		},
	}
}

const topicErrorPrefix = "Error while executing topic command"

// topicError puts Kafka's words in front of what went wrong, but not of a use that makes no sense, which nothing was executed for.
func topicError(err error) error {
	var usage tools.UsageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	return fmt.Errorf("%s : %w", topicErrorPrefix, err)
}

// countFlag reads a flag that is a number from 1 on, or -1 when it was not given.
func countFlag(c *cli.Context, name string, highest int64) (int64, error) {
	if c.Int(name) == -1 {
		return -1, nil
	}
	return numberFlag(c, name, 1, highest)
}

func topicsCreateCommand() *cli.Command {
	return &cli.Command{
		Name:  "create",
		Usage: "create a topic",
		Description: "Examples:\n\n   cairn topics create --topic orders --partitions 6 --replication-factor 3\n" +
			"   cairn topics create --topic audit --replica-assignment 1:2,2:3 --config retention.ms=86400000",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.IntFlag{Name: "partitions", Usage: "`N` partitions; -1: the brokers' num.partitions", Value: -1},
			&cli.IntFlag{Name: "replication-factor", Usage: "`N` replicas of each partition; -1: the brokers' default.replication.factor", Value: -1},
			&cli.StringFlag{Name: "replica-assignment", Usage: "brokers of each partition, `ID:ID,ID:ID`: partitions by commas, replicas by colons, the preferred leader first"},
			&cli.StringSliceFlag{Name: "config", Usage: "a topic config `NAME=VALUE`; may be repeated"},
			&cli.BoolFlag{Name: "if-not-exists", Usage: "leave a topic that exists as it is, without error"},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "topic"); err != nil {
				return err
			}
			partitions, err := countFlag(c, "partitions", math.MaxInt32)
			if err != nil {
				return err
			}
			factor, err := countFlag(c, "replication-factor", math.MaxInt16)
			if err != nil {
				return err
			}
			return topicError(tools.CreateTopic(c.Context, connection(c, ""), tools.CreateTopicOptions{
				Topic: c.String("topic"), Partitions: int32(partitions), ReplicationFactor: int16(factor),
				ReplicaAssignment: c.String("replica-assignment"), Configs: c.StringSlice("config"), IfNotExists: c.Bool("if-not-exists"),
			}, output(c)))
		},
	}
}

// selectionFlags pick topics; required says whether at least one flag is needed.
func selectionFlags() []cli.Flag {
	return append(connectionFlags(), jsonFlag(),
		&cli.StringFlag{Name: "topic", Usage: "`NAME`s or regular expressions, separated by commas, each matching whole names"},
		&cli.BoolFlag{Name: "exclude-internal", Usage: "leave internal topics out"},
		&cli.BoolFlag{Name: "if-exists", Usage: "no error when no topic matches"},
	)
}

func selection(c *cli.Context) tools.TopicSelection {
	return tools.TopicSelection{
		Topic: c.String("topic"), TopicID: c.String("topic-id"), ExcludeInternal: c.Bool("exclude-internal"), IfExists: c.Bool("if-exists"),
	}
}

func topicsListCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "print the names of the topics",
		Description: "Example:\n\n   cairn topics list --exclude-internal",
		Flags:       selectionFlags(),
		Action: func(c *cli.Context) error {
			return topicError(tools.ListTopics(c.Context, connection(c, ""), selection(c), output(c)))
		},
	}
}

func topicsDescribeCommand() *cli.Command {
	return &cli.Command{
		Name:  "describe",
		Usage: "print topics with their partitions, leaders and replicas",
		Description: "Examples:\n\n   cairn topics describe --topic orders\n" +
			"   cairn topics describe --under-replicated-partitions",
		Flags: append(selectionFlags(),
			&cli.StringFlag{Name: "topic-id", Usage: "one topic by its `ID`"},
			&cli.BoolFlag{Name: "under-replicated-partitions", Aliases: []string{"under-replicated"}, Usage: "only partitions with fewer in-sync replicas than replicas"},
			&cli.BoolFlag{Name: "under-min-isr-partitions", Aliases: []string{"under-min-isr"}, Usage: "only partitions with fewer in-sync replicas than min.insync.replicas"},
			&cli.BoolFlag{Name: "at-min-isr-partitions", Aliases: []string{"at-min-isr"}, Usage: "only partitions with exactly min.insync.replicas in-sync replicas"},
			&cli.BoolFlag{Name: "unavailable-partitions", Aliases: []string{"unavailable"}, Usage: "only partitions without a live leader"},
			&cli.BoolFlag{Name: "topics-with-overrides", Usage: "only topics with configs of their own, without their partitions"},
			&cli.IntFlag{Name: "partition-size-limit-per-response", Usage: "ask for `N` partitions at a time", Value: 2000},
		),
		Action: func(c *cli.Context) error {
			limit, err := int32Flag(c, "partition-size-limit-per-response", 1)
			if err != nil {
				return err
			}
			return topicError(tools.DescribeTopics(c.Context, connection(c, ""), tools.DescribeTopicsOptions{
				TopicSelection: selection(c), UnderReplicated: c.Bool("under-replicated-partitions"), UnderMinISR: c.Bool("under-min-isr-partitions"),
				AtMinISR: c.Bool("at-min-isr-partitions"), Unavailable: c.Bool("unavailable-partitions"),
				WithOverrides: c.Bool("topics-with-overrides"), PartitionsPerAsk: limit,
			}, output(c)))
		},
	}
}

func topicsAlterCommand() *cli.Command {
	return &cli.Command{
		Name:  "alter",
		Usage: "add partitions to a topic, or change its configs",
		Description: "Examples:\n\n   cairn topics alter --topic orders --partitions 12\n" +
			"   cairn topics alter --topic orders --config retention.ms=3600000 --delete-config max.message.bytes",
		Flags: append(selectionFlags(),
			&cli.IntFlag{Name: "partitions", Usage: "the new number `N` of partitions; it can only grow"},
			&cli.StringFlag{Name: "replica-assignment", Usage: "brokers of all partitions, the existing ones too, `ID:ID,ID:ID`"},
			&cli.StringSliceFlag{Name: "config", Usage: "set a topic config, `NAME=VALUE`; may be repeated"},
			&cli.StringSliceFlag{Name: "delete-config", Usage: "reset the topic config `NAME` to its default; may be repeated"},
		),
		Action: func(c *cli.Context) error {
			partitions := int32(0) // as many as there are
			if c.IsSet("partitions") {
				var err error
				if partitions, err = int32Flag(c, "partitions", 1); err != nil {
					return err
				}
			}
			return topicError(tools.AlterTopics(c.Context, connection(c, ""), tools.AlterTopicOptions{
				TopicSelection: selection(c), Partitions: partitions, ReplicaAssignment: c.String("replica-assignment"),
				Configs: c.StringSlice("config"), DeleteConfigs: c.StringSlice("delete-config"),
			}, output(c)))
		},
	}
}

func topicsDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:        "delete",
		Usage:       "delete topics and their data",
		Description: "Example:\n\n   cairn topics delete --topic orders",
		Flags:       append(selectionFlags(), &cli.StringFlag{Name: "topic-id", Usage: "one topic by its `ID`"}),
		Action: func(c *cli.Context) error {
			return topicError(tools.DeleteTopics(c.Context, connection(c, ""), selection(c), output(c)))
		},
	}
}
