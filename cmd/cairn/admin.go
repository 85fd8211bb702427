package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func logDirsCommand() *cli.Command {
	return &cli.Command{
		Name:        "log-dirs",
		Usage:       "print how large the replicas on brokers are",
		Description: "The output is Kafka's: two lines, then JSON; --json leaves the two lines out.\n\nExample:\n\n   cairn log-dirs --broker-list 1,2 --topic-list orders",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.BoolFlag{Name: "describe", Usage: "what it does anyway"},
			&cli.StringFlag{Name: "broker-list", Usage: "only brokers `ID[,ID...]`"},
			&cli.StringFlag{Name: "topic-list", Usage: "only topics `NAME[,NAME...]`"},
		),
		Action: func(c *cli.Context) error {
			o := tools.LogDirsOptions{Topics: splitNames(c.String("topic-list"))}
			if c.IsSet("broker-list") {
				ids, err := tools.ParseIDs(c.String("broker-list"))
				if err != nil {
					return usagef("--broker-list: %v", err)
				}
				o.Brokers = ids
			}
			return tools.LogDirs(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func quorumFlags() []cli.Flag {
	return append(connectionFlags(), jsonFlag(),
		&cli.BoolFlag{Name: "status", Usage: "who leads, and how far the others are behind (the default)"},
		&cli.BoolFlag{Name: "replication", Usage: "a table of all replicas"},
		&cli.BoolFlag{Name: "human-readable", Usage: "times as how long ago they were"},
	)
}

func describeQuorum(c *cli.Context) error {
	if c.Bool("status") && c.Bool("replication") {
		return usagef("--status and --replication: take one of them")
	}
	return tools.DescribeQuorum(c.Context, connection(c, ""), tools.QuorumOptions{
		Replication: c.Bool("replication"), HumanReadable: c.Bool("human-readable"),
	}, output(c))
}

// errFixedVoters is the word that voters do not come and go.
var errFixedVoters = errors.New("the voters of the metadata log are those of controller.quorum.voters in the configuration of every node, and cannot be changed while the cluster exists")

func quorumCommand() *cli.Command {
	fixed := func(name, usage string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, Description: "Takes the arguments of Kafka's tool, and says what holds instead.\n\nExample:\n\n   cairn quorum " + name,
			ArgsUsage: "...", SkipFlagParsing: true,
			Action: func(c *cli.Context) error { return refuseAll(c, errFixedVoters) },
		}
	}
	return &cli.Command{
		Name:        "quorum",
		Usage:       "print the state of the metadata log and its replicas",
		Description: "Without a subcommand it describes.\n\nExamples:\n\n   cairn quorum --status\n   cairn quorum describe --replication --human-readable",
		Flags:       quorumFlags(),
		Action:      describeQuorum,
		Subcommands: []*cli.Command{
			{
				Name: "describe", Usage: "print the state of the metadata log and its replicas",
				Description: "Examples:\n\n   cairn quorum describe --status\n   cairn quorum describe --replication --human-readable",
				Flags:       quorumFlags(),
				Action:      describeQuorum,
			},
			fixed("add-controller", "not there yet: the voters are fixed"),
			fixed("remove-controller", "not there yet: the voters are fixed"),
		},
	}
}

// refuseAll answers whatever arguments with err, but for a question for help: whoever knows Kafka's tool gives its flags, and is not to hear that the
// flags are what is wrong.
func refuseAll(c *cli.Context, err error) error {
	if first := c.Args().First(); first == "--help" || first == "-h" {
		return cli.ShowSubcommandHelp(c)
	}
	return err
}

func getOffsetsCommand() *cli.Command {
	return &cli.Command{
		Name:  "get-offsets",
		Usage: "print offsets of partitions: where they begin or end, or that of a time",
		Description: "Examples:\n\n   cairn get-offsets --topic orders\n   cairn get-offsets --topic 'orders|audit' --partitions 0,1 --time earliest\n" +
			"   cairn get-offsets --topic-partitions orders:0-3,audit",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "a regular expression `PATTERN` that matches whole names; all topics without it"},
			&cli.StringFlag{Name: "partitions", Usage: "only partitions `N[,N...]`"},
			&cli.StringFlag{Name: "topic-partitions", Usage: "instead of both: `PATTERN[:N|:FROM-TO][,...]`, TO exclusive"},
			&cli.StringFlag{Name: "time", Usage: "`TIME`: latest, earliest, max-timestamp, earliest-local, latest-tiered, earliest-pending-upload, or ms since 1970", Value: "latest"},
			&cli.BoolFlag{Name: "exclude-internal-topics", Usage: "leave internal topics out"},
		),
		Action: func(c *cli.Context) error {
			o := tools.GetOffsetsOptions{
				Topic: c.String("topic"), TopicPartitions: c.String("topic-partitions"), Time: c.String("time"), ExcludeInternal: c.Bool("exclude-internal-topics"),
			}
			if c.IsSet("partitions") {
				list, err := tools.ParseIDs(c.String("partitions"))
				if err != nil {
					return usagef("--partitions: %v", err)
				}
				o.Partitions = list
			}
			return tools.GetOffsets(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func deleteRecordsCommand() *cli.Command {
	return &cli.Command{
		Name:  "delete-records",
		Usage: "delete the records of partitions below an offset",
		Description: "The file is Kafka's: {\"version\":1,\"partitions\":[{\"topic\":\"orders\",\"partition\":0,\"offset\":100}]}; offset -1 stands for all records.\n" +
			"They are gone from every live replica when the command has ended. The exit code is 1 when not all could be deleted.\n\n" +
			"Example:\n\n   cairn delete-records --offset-json-file offsets.json",
		Flags: append(connectionFlags(), jsonFlag(), &cli.StringFlag{Name: "offset-json-file", Usage: "`FILE` of partitions and offsets"}),
		Action: func(c *cli.Context) error {
			if err := need(c, "offset-json-file"); err != nil {
				return err
			}
			return tools.DeleteRecords(c.Context, connection(c, ""), c.String("offset-json-file"), output(c))
		},
	}
}

// errNoACLs is the word that there are none.
var errNoACLs = errors.New("there are no ACLs yet: whoever reaches a listener may do everything, so keep the listeners on networks that you trust")

func aclsCommand() *cli.Command {
	return &cli.Command{
		Name:            "acls",
		Usage:           "not there yet: cairn has no authorization",
		Description:     "Takes the arguments of Kafka's tool, and says what holds instead.\n\nExample:\n\n   cairn acls --list",
		ArgsUsage:       "...",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return refuseAll(c, errNoACLs) },
	}
}
