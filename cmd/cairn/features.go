package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func featuresCommand() *cli.Command {
	describe := func(c *cli.Context) error { return tools.DescribeFeatures(c.Context, connection(c, ""), output(c)) }
	return &cli.Command{
		Name:        "features",
		Usage:       "print the features of the cluster and their levels, and change the levels",
		Description: "Without a subcommand it describes.\n\nExamples:\n\n   cairn features\n   cairn features upgrade --feature transaction.version=2",
		Flags:       append(connectionFlags(), jsonFlag()),
		Action:      describe,
		Subcommands: []*cli.Command{
			{
				Name: "describe", Usage: "print the features of the cluster and their levels", Description: "Example:\n\n   cairn features describe",
				Flags: append(connectionFlags(), jsonFlag()), Action: describe,
			},
			updateFeaturesCommand(tools.UpgradeFeatures, "raise the levels of features", "transaction.version=2", "a feature and its new level, `NAME=LEVEL`; may be repeated"),
			updateFeaturesCommand(tools.DowngradeFeatures, "lower the levels of features", "transaction.version=1", "a feature and its new level, `NAME=LEVEL`; may be repeated"),
			updateFeaturesCommand(tools.DisableFeatures, "set features to level 0", "group.version", "the `NAME` of a feature; may be repeated"),
		},
	}
}

func updateFeaturesCommand(op tools.FeatureOperation, usage, example, value string) *cli.Command {
	flags := append(connectionFlags(), jsonFlag(),
		&cli.StringSliceFlag{Name: "feature", Usage: value},
		&cli.BoolFlag{Name: "dry-run", Usage: "change nothing; say what would happen"},
	)
	if op != tools.UpgradeFeatures {
		flags = append(flags, &cli.BoolFlag{Name: "unsafe", Usage: "also where something would be lost by it"})
	}
	return &cli.Command{
		Name: string(op), Usage: usage,
		Description: "All of them are changed, or none.\n\nExample:\n\n   cairn features " + string(op) + " --feature " + example,
		Flags:       flags,
		Action: func(c *cli.Context) error {
			return tools.UpdateFeatures(c.Context, connection(c, ""), tools.UpdateFeaturesOptions{
				Operation: op, Features: c.StringSlice("feature"), DryRun: c.Bool("dry-run"), Unsafe: c.Bool("unsafe"),
			}, output(c))
		},
	}
}
