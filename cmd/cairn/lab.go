package main

import (
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"cairn/tools"
	"cairn/tools/lab"
)

const labRunHelp = `Starts a controller and three brokers as processes of this binary on free ports of 127.0.0.1, with their data in a temporary directory,
then freezes, kills and restarts them as the experiment says. Each step is printed with what must be seen and what was measured. The exit
code is 0 when all is as expected; otherwise 1, and the directory with data and logs is kept.

The times at which a silent broker is given up are the defaults, so most experiments take up to a minute; --fast lowers them.

Examples:

   cairn lab run all-survives
   cairn lab run acks1-honest --fast --keep`

func labCommand() *cli.Command {
	var names []string
	for _, e := range lab.Experiments() {
		names = append(names, e.Name)
	}
	return &cli.Command{
		Name:        "lab",
		Usage:       "replay experiments on a cluster of its own",
		Description: "Examples:\n\n   cairn lab list\n   cairn lab run all-survives --fast",
		Subcommands: []*cli.Command{
			{
				Name:        "list",
				Usage:       "print the experiments",
				Description: "Example:\n\n   cairn lab list",
				Flags:       []cli.Flag{jsonFlag()},
				Action:      func(c *cli.Context) error { return lab.List(output(c)) },
			},
			{
				Name:        "run",
				Usage:       "run an experiment and judge it",
				ArgsUsage:   "NAME",
				Description: labRunHelp, BashComplete: offerWords(names...),
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "fast", Usage: "lower replica.lag.time.max.ms and broker.session.timeout.ms"},
					&cli.BoolFlag{Name: "keep", Usage: "keep the directory after a success too"},
					&cli.BoolFlag{Name: "json", Usage: "print the verdict as JSON, and the steps on standard error"},
				},
				Action: labRun,
			},
		},
	}
}

func labRun(c *cli.Context) error {
	name := c.Args().First()
	if name == "" {
		return usagef("name the experiment; `cairn lab list` lists them")
	}
	for _, arg := range c.Args().Tail() { // the library stops reading flags at the name
		flag := strings.TrimLeft(arg, "-")
		if flag == arg || c.Set(flag, "true") != nil {
			return usagef("unexpected argument %q; `%s --help` shows what is taken", arg, c.Command.HelpName)
		}
	}
	if _, err := lab.Find(name); err != nil {
		return tools.UsageError{Err: err}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = lab.Run(c.Context, name, lab.Options{Binary: binary, Fast: c.Bool("fast"), Keep: c.Bool("keep")}, output(c))
	return err
}
