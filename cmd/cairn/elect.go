package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const electHelp = `preferred makes the first replica of each partition its leader, where it is in sync. unclean gives a partition without a leader
back to its clients although no replica that holds everything is alive: what the others held beyond the new leader is lost. Look first
with --dry-run what that would be; afterwards cairn losses lists it, and cairn recover brings back what returning brokers kept.

An unclean election waits until the old leader's lease is over: at most broker.session.timeout.ms after it was last heard. The
exit code is 1 when a partition could not be elected.

Examples:

   cairn elect --election-type preferred --all-topic-partitions
   cairn elect --election-type unclean --topic orders --partition 0 --dry-run
   cairn elect --election-type unclean --path-to-json-file partitions.json`

func electCommand() *cli.Command {
	return &cli.Command{
		Name:        "elect",
		Usage:       "elect leaders of partitions, or show what an election would lose",
		Description: electHelp,
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "election-type", Usage: "`TYPE`: preferred or unclean"},
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic, with --partition"},
			&cli.IntFlag{Name: "partition", Usage: "partition `N` of --topic", Value: -1},
			&cli.BoolFlag{Name: "all-topic-partitions", Usage: "all partitions of the cluster"},
			&cli.StringFlag{Name: "path-to-json-file", Usage: "`FILE` with {\"partitions\":[{\"topic\":\"t\",\"partition\":0}]}"},
			&cli.BoolFlag{Name: "dry-run", Usage: "hold no election; show each replica, and what the election would lose"},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "election-type"); err != nil {
				return err
			}
			partition, err := int32Flag(c, "partition", -1)
			if err != nil {
				return err
			}
			return tools.Elect(c.Context, connection(c, ""), tools.ElectOptions{
				Type: c.String("election-type"), DryRun: c.Bool("dry-run"),
				PartitionSelection: tools.PartitionSelection{
					Topic: c.String("topic"), Partition: partition, All: c.Bool("all-topic-partitions"), File: c.String("path-to-json-file"),
				},
			}, output(c))
		},
	}
}
