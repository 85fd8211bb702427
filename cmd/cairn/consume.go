package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const consumeHelp = `Reads all partitions, or --partition, from the end unless told otherwise, until interrupted, --max-messages or --timeout-ms. With --group it is
a member of that consumer group, reads its share of the partitions from where the group has committed, and commits what it has printed.
Without, it is in no group, and commits nothing; Kafka's tool makes a group console-consumer-NNN for itself and prints the same. Partitions
that are added meanwhile are read, too, once they are noticed (--consumer-property metadata.max.age.ms).

Formatter properties (--formatter-property NAME=VALUE): print.timestamp, print.partition, print.offset, print.epoch, print.headers and
print.key (false), print.value (true), key.separator (\t), line.separator (\n), headers.separator (,), null.literal (null).
Keys and values are written as they are; --json writes them as base64, --raw writes values with nothing between them.

Examples:

   cairn consume --topic words --from-beginning --timeout-ms 1000
   cairn consume --topic words --group readers --from-beginning
   cairn consume --include 'words|chat.*' --formatter-property print.key=true
   cairn consume --topic chat --partition 0 --offset 1200 --max-messages 10 --formatter-property print.key=true`

func consumeCommand() *cli.Command {
	d := tools.DefaultConsumeOptions()
	return &cli.Command{
		Name:        "consume",
		Usage:       "print records",
		Description: consumeHelp,
		Flags: append(append(connectionFlags("command-property", "consumer-property"), jsonFlag()), append(unusedFlags("formatter", "formatter-config",
			"key-deserializer", "value-deserializer"),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.StringFlag{Name: "include", Usage: "instead: the topics whose whole names match the regular expression `PATTERN`, those too that come later"},
			&cli.StringFlag{Name: "group", Usage: "`NAME` of the consumer group to be a member of"},
			&cli.IntFlag{Name: "partition", Usage: "read partition `N` alone; -1: all", Value: -1},
			&cli.StringFlag{Name: "offset", Usage: "start at `OFFSET`: earliest, latest, or a number (then with --partition)", Value: d.Offset},
			&cli.BoolFlag{Name: "from-beginning", Usage: "start at the earliest record"},
			&cli.Int64Flag{Name: "max-messages", Usage: "stop after `N` records; -1: go on", Value: d.MaxMessages},
			&cli.IntFlag{Name: "timeout-ms", Usage: "stop when no record came for `MS` milliseconds; 0: wait"},
			&cli.StringFlag{Name: "isolation-level", Usage: "`LEVEL`: read_uncommitted or read_committed", Value: d.Isolation},
			&cli.StringSliceFlag{Name: "formatter-property", Aliases: []string{"property"}, Usage: "what is printed, `NAME=VALUE`; may be repeated"},
			&cli.BoolFlag{Name: "raw", Usage: "write values alone, byte for byte, with nothing between them"},
		)...),
		Action: consume,
	}
}

func consume(c *cli.Context) error {
	if c.String("include") == "" {
		if err := need(c, "topic"); err != nil {
			return err
		}
	}
	tellUnused(c)
	o := tools.DefaultConsumeOptions()
	o.Group, o.Include = c.String("group"), c.String("include")
	o.Topic, o.Offset, o.FromBeginning, o.MaxMessages = c.String("topic"), c.String("offset"), c.Bool("from-beginning"), c.Int64("max-messages")
	o.Isolation, o.FormatterProperties, o.Raw = c.String("isolation-level"), c.StringSlice("formatter-property"), c.Bool("raw")
	if o.MaxMessages < -1 {
		return usagef("--max-messages %d: want 0 or more, or -1 to go on", o.MaxMessages)
	}
	var err error
	if o.Partition, err = int32Flag(c, "partition", -1); err != nil {
		return err
	}
	timeout, err := int32Flag(c, "timeout-ms", 0)
	if err != nil {
		return err
	}
	o.Timeout = time.Duration(timeout) * time.Millisecond
	return tools.Consume(c.Context, connection(c, "command-property"), o, output(c))
}
