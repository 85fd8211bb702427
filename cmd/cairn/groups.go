package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const groupsHelp = `What consumer groups there are, what they have committed and how far behind they are, of both protocols.

Examples:

   cairn groups list --state
   cairn groups describe --group billing
   cairn groups reset-offsets --group billing --topic orders --to-earliest
   cairn groups delete --group billing`

func groupsCommand() *cli.Command {
	return &cli.Command{
		Name:        "groups",
		Usage:       "list, describe and delete consumer groups, and change what they have committed",
		Description: groupsHelp,
		Subcommands: []*cli.Command{listGroupsCommand(), describeGroupsCommand(), resetOffsetsCommand(), deleteGroupsCommand(), deleteOffsetsCommand()},
	}
}

// groupFlags pick groups.
func groupFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "group", Usage: "`NAME` of a group; may be repeated"},
		&cli.BoolFlag{Name: "all-groups", Usage: "all groups"},
	}
}

func groupSelection(c *cli.Context) tools.GroupSelection {
	return tools.GroupSelection{Groups: c.StringSlice("group"), All: c.Bool("all-groups")}
}

func listGroupsCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "print the names of the groups",
		Description: "Examples:\n\n   cairn groups list\n   cairn groups list --state --type\n" +
			"   cairn groups list --in-state Empty --in-state Dead\n   cairn groups list --of-type consumer --json",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.BoolFlag{Name: "state", Usage: "print the state of each group"},
			&cli.BoolFlag{Name: "type", Usage: "print the type of each group: Classic or Consumer"},
			&cli.StringSliceFlag{Name: "in-state", Usage: "only groups in `STATE`, which is printed; may be repeated"},
			&cli.StringSliceFlag{Name: "of-type", Usage: "only groups of `TYPE`, which is printed; may be repeated"},
		),
		Action: func(c *cli.Context) error {
			o := tools.ListGroupsOptions{ShowState: c.Bool("state"), ShowType: c.Bool("type"), States: c.StringSlice("in-state"), Types: c.StringSlice("of-type")}
			o.ShowState, o.ShowType = o.ShowState || len(o.States) > 0, o.ShowType || len(o.Types) > 0
			return tools.ListGroups(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func describeGroupsCommand() *cli.Command {
	return &cli.Command{
		Name:  "describe",
		Usage: "print committed offsets with lag, members or the state of groups",
		Description: "Examples:\n\n   cairn groups describe --group billing\n   cairn groups describe --group billing --members --verbose\n" +
			"   cairn groups describe --all-groups --state",
		Flags: append(append(connectionFlags(), jsonFlag()), append(groupFlags(),
			&cli.BoolFlag{Name: "offsets", Usage: "what the group has committed of each partition, and its lag; the default"},
			&cli.BoolFlag{Name: "members", Usage: "the members"},
			&cli.BoolFlag{Name: "state", Usage: "the state, the coordinator and the assignor"},
			&cli.BoolFlag{Name: "verbose", Usage: "with assignments and epochs"},
		)...),
		Action: func(c *cli.Context) error {
			return tools.DescribeGroups(c.Context, connection(c, ""), tools.DescribeGroupsOptions{
				GroupSelection: groupSelection(c), Offsets: c.Bool("offsets"), Members: c.Bool("members"), State: c.Bool("state"), Verbose: c.Bool("verbose"),
			}, output(c))
		},
	}
}

const resetHelp = `Shows what the committed offsets of a group without members would be, and with --execute sets them. An offset outside of the log is
set to its start or end. --export prints CSV for --from-file: topic,partition,offset, with the group in front for several groups.

Examples:

   cairn groups reset-offsets --group billing --topic orders --to-earliest
   cairn groups reset-offsets --group billing --topic orders:0,1 --shift-by -100 --execute
   cairn groups reset-offsets --group billing --all-topics --to-datetime 2026-01-31T08:00:00.000 --execute
   cairn groups reset-offsets --group billing --all-topics --to-current --export > offsets.csv
   cairn groups reset-offsets --group billing --from-file offsets.csv --execute`

func resetOffsetsCommand() *cli.Command {
	return &cli.Command{
		Name:        "reset-offsets",
		Usage:       "set the committed offsets of groups, or show what they would be",
		Description: resetHelp,
		Flags: append(append(connectionFlags(), jsonFlag()), append(groupFlags(),
			&cli.StringSliceFlag{Name: "topic", Usage: "`TOPIC[:PARTITION,...]`; may be repeated"},
			&cli.BoolFlag{Name: "all-topics", Usage: "all partitions that the group has committed"},
			&cli.Int64Flag{Name: "to-offset", Usage: "to `OFFSET`"},
			&cli.BoolFlag{Name: "to-earliest", Usage: "to the start of the log"},
			&cli.BoolFlag{Name: "to-latest", Usage: "to the end of the log"},
			&cli.BoolFlag{Name: "to-current", Usage: "to what is committed; to the end of the log where nothing is"},
			&cli.Int64Flag{Name: "shift-by", Usage: "`N` records on from what is committed, or back if negative"},
			&cli.StringFlag{Name: "to-datetime", Usage: "to the first record of `TIME` or later: YYYY-MM-DDThh:mm:ss.sss, in UTC if it has no zone"},
			&cli.StringFlag{Name: "by-duration", Usage: "to the first record that is no older than `PnDTnHnMnS`"},
			&cli.StringFlag{Name: "from-file", Usage: "as the CSV `FILE` says"},
			&cli.BoolFlag{Name: "dry-run", Usage: "change nothing; the default"},
			&cli.BoolFlag{Name: "execute", Usage: "set the offsets"},
			&cli.BoolFlag{Name: "export", Usage: "print CSV"},
		)...),
		Action: func(c *cli.Context) error {
			if c.Bool("dry-run") && c.Bool("execute") {
				return usagef("--dry-run and --execute exclude each other")
			}
			o := tools.ResetOffsetsOptions{
				GroupSelection: groupSelection(c), Topics: c.StringSlice("topic"), AllTopics: c.Bool("all-topics"), Execute: c.Bool("execute"),
				Export: c.Bool("export"), ToEarliest: c.Bool("to-earliest"), ToLatest: c.Bool("to-latest"), ToCurrent: c.Bool("to-current"),
				ToDatetime: c.String("to-datetime"), ByDuration: c.String("by-duration"), File: c.String("from-file"),
			}
			if c.IsSet("to-offset") {
				n := c.Int64("to-offset")
				o.ToOffset = &n
			}
			if c.IsSet("shift-by") {
				n := c.Int64("shift-by")
				o.ShiftBy = &n
			}
			return tools.ResetOffsets(c.Context, connection(c, ""), o, output(c))
		},
	}
}

func deleteGroupsCommand() *cli.Command {
	return &cli.Command{
		Name:        "delete",
		Usage:       "delete groups without members, with what they have committed",
		Description: "Example:\n\n   cairn groups delete --group billing --group audit",
		Flags:       append(append(connectionFlags(), jsonFlag()), groupFlags()...),
		Action: func(c *cli.Context) error {
			return tools.DeleteGroups(c.Context, connection(c, ""), groupSelection(c), output(c))
		},
	}
}

func deleteOffsetsCommand() *cli.Command {
	return &cli.Command{
		Name:        "delete-offsets",
		Usage:       "delete committed offsets of topics that a group is not subscribed to",
		Description: "Examples:\n\n   cairn groups delete-offsets --group billing --topic orders\n   cairn groups delete-offsets --group billing --topic orders:0,1",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "group", Usage: "`NAME` of the group"},
			&cli.StringSliceFlag{Name: "topic", Usage: "`TOPIC[:PARTITION,...]`; may be repeated"},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "group"); err != nil {
				return err
			}
			return tools.DeleteOffsets(c.Context, connection(c, ""), tools.DeleteOffsetsOptions{Group: c.String("group"), Topics: c.StringSlice("topic")}, output(c))
		},
	}
}
