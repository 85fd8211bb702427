package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const checkpointHelp = `Makes a copy of the data directory of a running broker, on its machine and by hard links where DIR is on the same file system: it takes no room
at first, and as much as the broker rewrites or deletes later. DIR must not be there yet, the directory above it must. The copy is
consistent: all that was acknowledged by that broker before. Copy it elsewhere for a backup that survives the disk. README tells how to
start from it.

Examples:

   cairn checkpoint /backup/monday
   cairn checkpoint --broker 2 /data/checkpoints/monday`

func checkpointCommand() *cli.Command {
	return &cli.Command{
		Name:        "checkpoint",
		Usage:       "copy the data of a running broker",
		ArgsUsage:   "DIR",
		Description: checkpointHelp,
		Flags: append(connectionFlags(), jsonFlag(),
			&cli.IntFlag{Name: "broker", Usage: "of broker `N`; not needed if there is only one", Value: -1},
		),
		Action: func(c *cli.Context) error {
			dir, err := oneDir(c)
			if err != nil {
				return err
			}
			broker, err := int32Flag(c, "broker", -1)
			if err != nil {
				return err
			}
			return tools.Checkpoint(c.Context, connection(c, ""), tools.CheckpointOptions{Broker: broker, Dir: dir}, output(c))
		},
	}
}

const restoreHelp = `Makes DIR, a checkpoint or a copy of one, a data directory to start a broker on. The broker comes back as one whose disk was replaced: with new
replicas, which keep what they have in common with their leaders and copy the rest. A partition without another replica has to be
given a leader by hand then: cairn elect --election-type unclean. With --whole-cluster it comes back as it was, which is right only if
every node of the cluster is restored; their checkpoints have to be made while nothing is written.

Examples:

   cairn restore /data/broker2
   cairn restore --whole-cluster /data/broker2`

func restoreCommand() *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "make a checkpoint a data directory",
		ArgsUsage:   "DIR",
		Description: restoreHelp,
		Flags: []cli.Flag{
			jsonFlag(),
			&cli.BoolFlag{Name: "whole-cluster", Usage: "every node of the cluster is restored"},
		},
		Action: func(c *cli.Context) error {
			dir, err := oneDir(c)
			if err != nil {
				return err
			}
			return tools.Restore(dir, c.Bool("whole-cluster"), output(c))
		},
	}
}

// oneDir is the only argument.
func oneDir(c *cli.Context) (string, error) {
	if c.Args().Len() != 1 {
		return "", usagef("want one directory behind the flags; `%s --help` shows what is taken", c.Command.HelpName)
	}
	return c.Args().First(), nil
}
