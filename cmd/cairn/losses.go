package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func lossesCommand() *cli.Command {
	return &cli.Command{
		Name:  "losses",
		Usage: "list the records that are known to be lost",
		Description: "Each line is a range of offsets of one leader epoch: offsets alone are given out again. It tells why the records were lost, when,\n" +
			"and which broker holds what is left of them.\n\nExamples:\n\n   cairn losses\n   cairn losses --topic orders --partition 0 --json",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "only topic `NAME`"},
			&cli.IntFlag{Name: "partition", Usage: "only partition `N` of --topic", Value: -1},
		),
		Action: func(c *cli.Context) error {
			partition, err := int32Flag(c, "partition", -1)
			if err != nil {
				return err
			}
			return tools.Losses(c.Context, connection(c, ""), tools.LossesOptions{Topic: c.String("topic"), Partition: partition}, output(c))
		},
	}
}

const recoverHelp = `Reads what brokers keep in quarantine of a partition, the records that they had to give up when they followed another leader, and
produces them to a topic. Key, value, headers and timestamp stay as they were; the headers cairn.origin.topic, cairn.origin.partition,
cairn.origin.leader.epoch and cairn.origin.offset are added. Nothing is removed from quarantine without --remove. The list of losses shows
what was recovered; a second run passes over that, unless with --again, and with --remove removes it.

Examples:

   cairn recover --topic orders --partition 0 --to orders-recovered
   cairn recover --topic orders --partition 0 --broker 1 --to orders-recovered --remove
   cairn recover --topic orders --partition 0 --data-dir /data/broker1 --to orders-recovered`

func recoverCommand() *cli.Command {
	return &cli.Command{
		Name:        "recover",
		Usage:       "produce records from quarantine to a topic",
		Description: recoverHelp,
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic that the records were in"},
			&cli.IntFlag{Name: "partition", Usage: "partition `N` of it", Value: -1},
			&cli.IntFlag{Name: "broker", Usage: "the quarantine of broker `N` alone; without it that of each live broker", Value: -1},
			&cli.StringFlag{Name: "data-dir", Usage: "the data directory `DIR` of a stopped broker instead"},
			&cli.StringFlag{Name: "to", Usage: "`NAME` of the topic that gets the records"},
			&cli.BoolFlag{Name: "remove", Usage: "remove from quarantine what was recovered, now or before"},
			&cli.BoolFlag{Name: "again", Usage: "produce also what was recovered before"},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "topic", "to"); err != nil {
				return err
			}
			partition, err := int32Flag(c, "partition", 0)
			if err != nil {
				return err
			}
			broker, err := int32Flag(c, "broker", -1)
			if err != nil {
				return err
			}
			return tools.Recover(c.Context, connection(c, ""), tools.RecoverOptions{
				Topic: c.String("topic"), Partition: partition, Broker: broker, DataDir: c.String("data-dir"),
				To: c.String("to"), Remove: c.Bool("remove"), Again: c.Bool("again"),
			}, output(c))
		},
	}
}
