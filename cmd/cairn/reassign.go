package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func reassignCommand() *cli.Command {
	return &cli.Command{
		Name:  "reassign",
		Usage: "move partitions to other brokers",
		Subcommands: []*cli.Command{
			reassignFileCommand("execute", "start to move partitions to the replicas of a file", tools.ExecuteReassignment,
				&cli.BoolFlag{Name: "additional", Usage: "also while other reassignments are under way"},
				&cli.BoolFlag{Name: "disallow-replication-factor-change", Usage: "refuse to change the number of replicas"}),
			reassignFileCommand("verify", "tell whether the partitions have the replicas of the file; exit code 1 while they have not", tools.VerifyReassignment),
			reassignFileCommand("cancel", "stop moving the partitions of the file, and take them back", tools.CancelReassignments),
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
		Flags: append(append(connectionFlags(), jsonFlag(),
			&cli.StringFlag{Name: "reassignment-json-file", Usage: "`FILE` of partitions and replicas"}), flags...),
		Action: func(c *cli.Context) error {
			if err := need(c, "reassignment-json-file"); err != nil {
				return err
			}
			return action(c.Context, connection(c, ""), tools.ReassignOptions{
				File: c.String("reassignment-json-file"), Additional: c.Bool("additional"), SameFactor: c.Bool("disallow-replication-factor-change"),
			}, output(c))
		},
	}
}
