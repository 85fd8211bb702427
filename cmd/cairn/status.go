package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "one screen about the cluster",
		Description: "Shows brokers, controller, partitions without leader or with too few replicas, disks, losses, and the groups with the largest lag.\n" +
			"With --check the exit code is 1 when something asks for attention.\n\nExamples:\n\n   cairn status\n   cairn status --check --json",
		Flags: append(connectionFlags(), jsonFlag(), &cli.BoolFlag{Name: "check", Usage: "exit code 1 unless all is well"}),
		Action: func(c *cli.Context) error {
			return tools.Status(c.Context, connection(c, ""), c.Bool("check"), output(c))
		},
	}
}
