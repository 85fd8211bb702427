package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func dumpCommand() *cli.Command {
	return &cli.Command{
		Name:  "dump",
		Usage: "print what a stopped broker has stored of a partition",
		Description: "Reads the data directory itself and changes nothing; stop the broker first. Batches and records are printed in the lines of Kafka's\n" +
			"own tool. A batch that is damaged is shown as such and does not end the dump, but the exit code is then 1.\n\nExamples:\n\n" +
			"   cairn dump --data-dir data --topic words --partition 0\n   cairn dump --data-dir data --topic words --partition 0 --print-data-log\n" +
			"   cairn dump --data-dir data --topic words --partition 0 --quarantine",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data-dir", Usage: "the data directory `DIR` (log.dirs)"},
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic; without it the partitions in the directory are listed"},
			&cli.IntFlag{Name: "partition", Usage: "partition `N` (default: 0)"},
			&cli.Int64Flag{Name: "from", Usage: "start with the batch that holds `OFFSET`"},
			&cli.BoolFlag{Name: "print-data-log", Usage: "print the records of each batch"},
			&cli.BoolFlag{Name: "offsets-decoder", Usage: "print the records as what those of __consumer_offsets mean (commits and classic groups)"},
			&cli.BoolFlag{Name: "transaction-log-decoder", Usage: "print the records as what those of __transaction_state mean"},
			&cli.BoolFlag{Name: "quarantine", Usage: "print the batches that were taken out of the log instead, by leader epoch and offset"},
			&cli.BoolFlag{Name: "raft", Usage: "print the entries of the Raft log instead"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := need(c, "data-dir"); err != nil {
				return err
			}
			if from := c.Int64("from"); from < 0 {
				return usagef("--from %d: want an offset of 0 or more", from)
			}
			if c.String("topic") == "" {
				for _, name := range []string{"partition", "from", "print-data-log", "raft"} {
					if c.IsSet(name) {
						return usagef("--%s needs --topic; without both, the partitions in the directory are listed", name)
					}
				}
				return tools.ListStored(c.String("data-dir"), output(c))
			}
			partition, err := int32Flag(c, "partition", 0)
			if err != nil {
				return err
			}
			decoder := tools.DecodeNothing
			switch offsets, transactions := c.Bool("offsets-decoder"), c.Bool("transaction-log-decoder"); {
			case offsets && transactions:
				return usagef("--offsets-decoder and --transaction-log-decoder exclude each other")
			case offsets:
				decoder = tools.DecodeOffsets
			case transactions:
				decoder = tools.DecodeTransactions
			}
			return tools.Dump(c.Context, tools.DumpOptions{
				DataDir: c.String("data-dir"), Topic: c.String("topic"), Partition: partition, From: c.Int64("from"),
				PrintData: c.Bool("print-data-log"), Raft: c.Bool("raft"), Quarantine: c.Bool("quarantine"), Decoder: decoder,
			}, output(c))
		},
	}
}
