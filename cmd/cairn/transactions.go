package main

import (
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const transactionsHelp = `What transactions there are and who has them open. Options and columns are those of Kafka's kafka-transactions.

A transaction hangs when it is open in a partition and no coordinator knows of it: readers of committed records wait at it until
it is aborted. Those that a coordinator knows end by themselves, at the latest after their timeout.

Examples:

   cairn transactions list
   cairn transactions find-hanging --topic orders
   cairn transactions abort --topic orders --partition 0 --start-offset 1234`

func transactionsCommand() *cli.Command {
	return &cli.Command{
		Name:        "transactions",
		Usage:       "list and describe transactions and producers, find those that hang and abort them",
		Description: transactionsHelp,
		Subcommands: []*cli.Command{
			listTransactionsCommand(), describeTransactionCommand(), describeProducersCommand(), abortTransactionCommand(),
			findHangingCommand(), forceTerminateCommand(),
		},
	}
}

func listTransactionsCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "print the transactional ids, their coordinators and their states",
		Description: "Examples:\n\n   cairn transactions list\n   cairn transactions list --duration-filter 60000 --json\n" +
			"   cairn transactions list --transactional-id-pattern 'billing-.*'",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.Int64Flag{Name: "duration-filter", Value: -1, Usage: "only transactions that are open for longer than `MS`; negative: all"},
			&cli.StringFlag{Name: "transactional-id-pattern", Usage: "only ids that the regular expression `PATTERN` matches as a whole"},
		),
		Action: func(c *cli.Context) error {
			o := tools.ListTransactionsOptions{LongerThan: c.Int64("duration-filter"), Pattern: c.String("transactional-id-pattern")}
			return tools.ListTransactions(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func describeTransactionCommand() *cli.Command {
	return &cli.Command{
		Name:        "describe",
		Usage:       "print the state of a transactional id",
		Description: "Example:\n\n   cairn transactions describe --transactional-id billing-1",
		Flags:       append(connectionFlags(), jsonFlag(), &cli.StringFlag{Name: "transactional-id", Usage: "transactional `ID`"}),
		Action: func(c *cli.Context) error {
			if err := need(c, "transactional-id"); err != nil {
				return err
			}
			return tools.DescribeTransaction(c.Context, connection(c, ""), c.String("transactional-id"), output(c))
		},
	}
}

// partitionFlags name one partition.
func partitionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
		&cli.IntFlag{Name: "partition", Usage: "`NUMBER` of the partition"},
	}
}

// needPartition reads partitionFlags.
func needPartition(c *cli.Context) (topic string, partition int32, err error) {
	if !c.IsSet("partition") {
		return "", 0, usagef("--partition is missing; `%s --help` shows what is taken", c.Command.HelpName)
	}
	if err := need(c, "topic"); err != nil {
		return "", 0, err
	}
	partition, err = int32Flag(c, "partition", 0)
	return c.String("topic"), partition, err
}

func describeProducersCommand() *cli.Command {
	return &cli.Command{
		Name:        "describe-producers",
		Usage:       "print the producers that a partition knows, and their open transactions",
		Description: "Example:\n\n   cairn transactions describe-producers --topic orders --partition 0",
		Flags: append(append(connectionFlags(), jsonFlag()), append(partitionFlags(),
			&cli.IntFlag{Name: "broker-id", Value: -1, Usage: "ask the replica of broker `ID` instead of the leader"},
		)...),
		Action: func(c *cli.Context) error {
			topic, partition, err := needPartition(c)
			if err != nil {
				return err
			}
			broker, err := int32Flag(c, "broker-id", -1)
			if err != nil {
				return err
			}
			return tools.DescribeProducers(c.Context, connection(c, ""), tools.DescribeProducersOptions{Topic: topic, Partition: partition, Broker: broker}, output(c))
		},
	}
}

func abortTransactionCommand() *cli.Command {
	return &cli.Command{
		Name:  "abort",
		Usage: "abort a transaction that hangs in a partition",
		Description: "Only for transactions that find-hanging prints: one that a coordinator knows is to be ended by forceTerminateTransaction.\n\n" +
			"Examples:\n\n   cairn transactions abort --topic orders --partition 0 --start-offset 1234\n" +
			"   cairn transactions abort --topic orders --partition 0 --producer-id 2003 --producer-epoch 4 --coordinator-epoch 7",
		Flags: append(append(connectionFlags(), jsonFlag()), append(partitionFlags(),
			&cli.Int64Flag{Name: "start-offset", Usage: "the transaction that begins at `OFFSET`"},
			&cli.Int64Flag{Name: "producer-id", Usage: "`ID` of the producer, instead of the offset"},
			&cli.Int64Flag{Name: "producer-epoch", Usage: "its `EPOCH`"},
			&cli.Int64Flag{Name: "coordinator-epoch", Usage: "`EPOCH` of the coordinator"},
		)...),
		Action: func(c *cli.Context) error {
			topic, partition, err := needPartition(c)
			if err != nil {
				return err
			}
			return tools.AbortTransaction(c.Context, connection(c, ""), tools.AbortTransactionOptions{
				Topic: topic, Partition: partition, StartOffset: optional(c, "start-offset"),
				ProducerID: optional(c, "producer-id"), ProducerEpoch: optional(c, "producer-epoch"), CoordinatorEpoch: optional(c, "coordinator-epoch"),
			}, output(c))
		},
	}
}

// optional is the value of a flag, or nil if it is not there.
func optional(c *cli.Context, name string) *int64 {
	if !c.IsSet(name) {
		return nil
	}
	n := c.Int64(name)
	return &n
}

func findHangingCommand() *cli.Command {
	return &cli.Command{
		Name:        "find-hanging",
		Usage:       "print the transactions that are open in partitions and known to no coordinator",
		Description: "Examples:\n\n   cairn transactions find-hanging --topic orders\n   cairn transactions find-hanging --broker-id 1 --max-transaction-timeout 60",
		Flags: append(append(connectionFlags(), jsonFlag()), append(partitionFlags(),
			&cli.IntFlag{Name: "broker-id", Usage: "only partitions with a replica on broker `ID`"},
			&cli.IntFlag{Name: "max-transaction-timeout", Value: 15, Usage: "only transactions that are open for longer than `MINUTES`"},
		)...),
		Action: func(c *cli.Context) error {
			minutes, err := numberFlag(c, "max-transaction-timeout", 0, math.MaxInt64/int64(time.Minute))
			if err != nil {
				return err
			}
			o := tools.FindHangingOptions{Topic: c.String("topic"), MaxTimeout: time.Duration(minutes) * time.Minute}
			for name, to := range map[string]**int32{"broker-id": &o.Broker, "partition": &o.Partition} {
				if c.IsSet(name) {
					n, err := int32Flag(c, name, 0)
					if err != nil {
						return err
					}
					*to = &n
				}
			}
			return tools.FindHangingTransactions(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func forceTerminateCommand() *cli.Command {
	return &cli.Command{
		Name:    "forceTerminateTransaction",
		Aliases: []string{"force-terminate"},
		Usage:   "abort the open transaction of a transactional id and fence its producer",
		Description: "A transactional id that nobody has used is made by it, as by Kafka's tool, with a warning.\n\n" +
			"Example:\n\n   cairn transactions forceTerminateTransaction --transactionalId billing-1",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "transactionalId", Aliases: []string{"transactional-id"}, Usage: "transactional `ID`"}),
		Action: func(c *cli.Context) error {
			if err := need(c, "transactionalId"); err != nil {
				return err
			}
			return tools.ForceTerminateTransaction(c.Context, connection(c, ""), c.String("transactionalId"), output(c))
		},
	}
}
