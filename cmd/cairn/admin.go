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

func quorumCommand() *cli.Command {
	return &cli.Command{
		Name:        "quorum",
		Usage:       "print the state of the metadata log and its replicas",
		Description: "Examples:\n\n   cairn quorum --status\n   cairn quorum --replication --human-readable",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.BoolFlag{Name: "status", Usage: "who leads, and how far the others are behind (the default)"},
			&cli.BoolFlag{Name: "replication", Usage: "a table of all replicas"},
			&cli.BoolFlag{Name: "human-readable", Usage: "times as how long ago they were"},
		),
		Action: func(c *cli.Context) error {
			if c.Bool("status") && c.Bool("replication") {
				return usagef("--status and --replication: take one of them")
			}
			return tools.DescribeQuorum(c.Context, connection(c, ""), tools.QuorumOptions{
				Replication: c.Bool("replication"), HumanReadable: c.Bool("human-readable"),
			}, output(c))
		},
	}
}

func getOffsetsCommand() *cli.Command {
	return &cli.Command{
		Name:        "get-offsets",
		Usage:       "print offsets of partitions: where they begin or end, or that of a time",
		Description: "Examples:\n\n   cairn get-offsets --topic orders\n   cairn get-offsets --topic 'orders|audit' --partitions 0,1 --time earliest",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "a regular expression `PATTERN` that matches whole names; all topics without it"},
			&cli.StringFlag{Name: "partitions", Usage: "only partitions `N[,N...]`"},
			&cli.StringFlag{Name: "time", Usage: "`TIME`: latest, earliest, max-timestamp, earliest-local, latest-tiered, earliest-pending-upload, or ms since 1970", Value: "latest"},
			&cli.BoolFlag{Name: "exclude-internal-topics", Usage: "leave internal topics out"},
		),
		Action: func(c *cli.Context) error {
			o := tools.GetOffsetsOptions{Topic: c.String("topic"), Time: c.String("time"), ExcludeInternal: c.Bool("exclude-internal-topics")}
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

func featuresCommand() *cli.Command {
	return &cli.Command{
		Name:        "features",
		Usage:       "print the features of the cluster and their levels",
		Description: "Example:\n\n   cairn features",
		Flags:       append(connectionFlags(), jsonFlag()),
		Action: func(c *cli.Context) error {
			return tools.DescribeFeatures(c.Context, connection(c, ""), output(c))
		},
	}
}

// errNoACLs is the word that there are none.
var errNoACLs = errors.New("there are no ACLs yet: whoever reaches a listener may do everything, so keep the listeners on networks that you trust")

func aclsCommand() *cli.Command {
	return &cli.Command{
		Name:        "acls",
		Usage:       "not there yet: cairn has no authorization",
		Description: "Takes the arguments of Kafka's tool, and says what holds instead.\n\nExample:\n\n   cairn acls --list",
		ArgsUsage:   "...",
		// Whoever knows Kafka's tool gives its flags, and is not to hear that the flags are what is wrong.
		SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			if first := c.Args().First(); first == "--help" || first == "-h" {
				return cli.ShowSubcommandHelp(c)
			}
			return errNoACLs
		},
	}
}
