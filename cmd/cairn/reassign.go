package main

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func reassignCommand() *cli.Command {
	return &cli.Command{
		Name:  "reassign",
		Usage: "move partitions to other brokers",
		Description: `First an assignment is made and saved to a file, by hand or from what generate proposes; then it is executed, and verified until all is moved.

Examples:

   cairn reassign generate --topics-to-move-json-file topics.json --broker-list 3,4,5
   cairn reassign execute --reassignment-json-file move.json --throttle 50000000
   cairn reassign verify --reassignment-json-file move.json`,
		Subcommands: []*cli.Command{
			reassignGenerateCommand(),
			reassignFileCommand("execute", "start to move partitions to the replicas of a file", tools.ExecuteReassignment,
				&cli.BoolFlag{Name: "additional", Usage: "also while other reassignments are under way, or to change the throttle"},
				&cli.BoolFlag{Name: "disallow-replication-factor-change", Usage: "refuse to change the number of replicas"},
				&cli.Int64Flag{Name: "throttle", Usage: "give and take at most `N` bytes a second per broker for the move; `cairn reassign verify` takes that away"},
				&cli.Int64Flag{Name: "replica-alter-log-dirs-throttle", Usage: "refused: a broker has one data directory"}),
			reassignFileCommand("verify", "tell whether the partitions have the replicas of the file, and then take throttles away; exit code 1 while they have not",
				tools.VerifyReassignment, preserveFlag()),
			reassignFileCommand("cancel", "stop moving the partitions of the file, and take them back", tools.CancelReassignments, preserveFlag()),
			{
				Name:        "list",
				Usage:       "print the reassignments that are under way",
				Description: "Example:\n\n   cairn reassign list",
				Flags:       append(connectionFlags(), jsonFlag()),
				Action: func(c *cli.Context) error {
					return tools.ListReassignments(c.Context, connection(c, ""), output(c))
				},
			},
		},
	}
}

type reassignAction func(ctx context.Context, conn tools.Connection, o tools.ReassignOptions, out tools.Output) error

// reassignFileCommand is a command about the partitions of Kafka's reassignment file.
func reassignFileCommand(name, usage string, action reassignAction, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  name,
		Usage: usage,
		Description: "The file is Kafka's: {\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[1,2,3]}]}, the preferred\n" +
			"leader first.\n\nExample:\n\n   cairn reassign " + name + " --reassignment-json-file move.json",
		Flags: append(append(connectionFlags(), jsonFlag(), timeoutFlag(),
			&cli.StringFlag{Name: "reassignment-json-file", Usage: "`FILE` of partitions and replicas"}), flags...),
		Action: func(c *cli.Context) error {
			if err := need(c, "reassignment-json-file"); err != nil {
				return err
			}
			switch {
			case c.IsSet("replica-alter-log-dirs-throttle"):
				return usagef("--replica-alter-log-dirs-throttle: a broker of cairn has one data directory, so nothing moves between directories")
			case c.IsSet("throttle") && c.Int64("throttle") < 1:
				return usagef("--throttle %d: want 1 byte a second or more; without it nothing is throttled", c.Int64("throttle"))
			}
			timeout, err := numberFlag(c, "timeout", 1, math.MaxInt32)
			if err != nil {
				return err
			}
			return action(c.Context, connection(c, ""), tools.ReassignOptions{
				File: c.String("reassignment-json-file"), Additional: c.Bool("additional"), SameFactor: c.Bool("disallow-replication-factor-change"),
				Throttle: c.Int64("throttle"), PreserveThrottles: c.Bool("preserve-throttles"), Timeout: time.Duration(timeout) * time.Millisecond,
			}, output(c))
		},
	}
}

func preserveFlag() cli.Flag {
	return &cli.BoolFlag{Name: "preserve-throttles", Usage: "leave throttles in place"}
}

func timeoutFlag() cli.Flag {
	return &cli.Int64Flag{Name: "timeout", Usage: "give up after `MS` milliseconds; what was asked for may go on", Value: 60_000}
}

func reassignGenerateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "print an assignment that spreads topics over brokers; nothing moves",
		Description: "The file is Kafka's: {\"topics\":[{\"topic\":\"orders\"}],\"version\":1}. Save what is proposed for `cairn reassign execute`.\n\nExample:\n\n" +
			"   cairn reassign generate --topics-to-move-json-file topics.json --broker-list 3,4,5",
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "topics-to-move-json-file", Usage: "`FILE` of topics"},
			&cli.StringFlag{Name: "broker-list", Usage: "`ID[,ID...]` of the brokers to use"},
			&cli.BoolFlag{Name: "disable-rack-aware", Usage: "leave racks out of account"},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "topics-to-move-json-file", "broker-list"); err != nil {
				return err
			}
			brokers, err := tools.ParseIDs(c.String("broker-list"))
			if err != nil {
				return usagef("--broker-list: %v", err)
			}
			return tools.GenerateReassignment(c.Context, connection(c, ""), tools.GenerateOptions{
				File: c.String("topics-to-move-json-file"), Brokers: brokers, DisableRackAware: c.Bool("disable-rack-aware"),
			}, output(c))
		},
	}
}

// splitNames splits a list at its commas.
func splitNames(text string) []string {
	var names []string
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
