package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signals = append(signals, syscall.SIGHUP) // the terminal was closed: a cluster of `cairn dev` ends with it
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	go func() { // lives as long as the process
		<-ctx.Done()
		stop() // the next signal has its default effect: it kills
	}()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if asksForCompletion(args) && slices.Contains(args, "--") {
		return 0 // the library would take the question for an argument behind the dashes, and run the command
	}
	err := newApp(stdout, stderr).RunContext(ctx, args)
	if err == nil {
		return 0
	}
	text := strings.ReplaceAll(err.Error(), ".; ", "; ") // a broker's sentence, and what we say behind it
	_, _ = fmt.Fprintln(stderr, "cairn: "+text)          // nowhere else to say it
	var usage tools.UsageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

const appHelp = `Each command has an example in its help. Results go to standard output; what is said about them, and progress, to standard error.

Exit codes: 0 done; 1 failed, or not all of it could be done; 2 the command line makes no sense, and nothing was done.`

func newApp(stdout, stderr io.Writer) *cli.App {
	cli.FlagStringer = flagLine // the library has it for the whole process alone
	app := &cli.App{
		Name:                      "cairn",
		Usage:                     "a message broker that speaks Kafka's protocol, and its tools",
		Description:               appHelp,
		Version:                   tools.Version,
		HideVersion:               true, // -v means other things elsewhere; `cairn version` tells it
		Writer:                    stdout,
		ErrWriter:                 stderr,
		EnableBashCompletion:      true, // of all shells: see completion.go
		DisableSliceFlagSeparator: true, // values of properties have commas of their own
		Commands: []*cli.Command{
			startCommand(),
			devCommand(),
			statusCommand(),
			topicsCommand(),
			configsCommand(),
			produceCommand(),
			consumeCommand(),
			groupsCommand(),
			transactionsCommand(),
			electCommand(),
			reassignCommand(),
			lossesCommand(),
			recoverCommand(),
			checkpointCommand(),
			restoreCommand(),
			logDirsCommand(),
			quorumCommand(),
			getOffsetsCommand(),
			deleteRecordsCommand(),
			featuresCommand(),
			aclsCommand(),
			dumpCommand(),
			benchCommand(),
			verifyCommand(),
			labCommand(),
			versionCommand(),
			completionCommand(),
		},
		// Errors are printed and turned into exit codes by run alone.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
	}
	var noHelp error // `cairn help NAME` cannot say that there is no such command
	app.CommandNotFound = func(c *cli.Context, name string) {
		noHelp = unknownCommand(c.App.Commands, name, "cairn help")
	}
	app.BashComplete = func(c *cli.Context) { offer(c.App.Writer, c.App.Commands, c.App.Flags) }
	app.After = func(*cli.Context) error { return noHelp }
	app.Action = func(c *cli.Context) error {
		if c.Args().Present() {
			return unknownCommand(c.App.Commands, c.Args().First(), "cairn help")
		}
		return cli.ShowAppHelp(c)
	}
	for _, cmd := range app.Commands {
		prepare(cmd)
	}
	return app
}

// prepare gives a command and its subcommands what all have in common.
func prepare(cmd *cli.Command) {
	cmd.OnUsageError = onUsageError
	cmd.HideHelpCommand = true
	if cmd.BashComplete == nil {
		cmd.BashComplete = func(c *cli.Context) { offer(c.App.Writer, cmd.Subcommands, cmd.Flags) }
	}
	action := cmd.Action
	asks := slices.Contains(slices.Collect(flagNames(cmd.Flags)), "bootstrap-server")
	cmd.Action = func(c *cli.Context) error {
		if c.Args().Present() && cmd.ArgsUsage == "" {
			if len(cmd.Subcommands) > 0 {
				return unknownCommand(c.Command.Subcommands, c.Args().First(), c.Command.HelpName+" --help")
			}
			return usagef("unexpected argument %q; `%s --help` shows what is taken", c.Args().First(), c.Command.HelpName)
		}
		if action == nil {
			return cli.ShowSubcommandHelp(c)
		}
		err := action(c)
		if asks {
			err = tools.Explain(err)
		}
		return err
	}
	for _, sub := range cmd.Subcommands {
		prepare(sub)
	}
}

// connectionFlags are those that each command has that speaks to a cluster.
func connectionFlags(propertyNames ...string) []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "bootstrap-server", Usage: "`HOST:PORT[,HOST:PORT...]` of brokers to ask first (default: " + tools.DefaultBootstrap + ")"},
		&cli.StringFlag{Name: "command-config", Aliases: []string{olderConfigName(propertyNames)}, Usage: "`FILE` of Kafka client properties"},
	}
	if len(propertyNames) > 0 {
		flags = append(flags, &cli.StringSliceFlag{
			Name: propertyNames[0], Aliases: propertyNames[1:], Usage: "a Kafka client property `NAME=VALUE`; may be repeated, wins over the file",
		})
	}
	return flags
}

// olderConfigName is what --command-config was called in Kafka's tools before 4.2; those take both.
func olderConfigName(propertyNames []string) string {
	for _, name := range propertyNames {
		if kind, _, ok := strings.Cut(name, "-"); ok && kind != "command" {
			return kind + ".config"
		}
	}
	return "admin.config"
}

// unusedFlags are flags of Kafka's tool that have no meaning here: a command line that was written for it works, and is told. They are not in the help.
func unusedFlags(names ...string) []cli.Flag {
	var flags []cli.Flag
	for _, name := range names {
		flags = append(flags, &cli.StringFlag{Name: name, Hidden: true, Usage: "no effect"})
	}
	return flags
}

// tellUnused warns of the unused flags that were given.
func tellUnused(c *cli.Context) {
	for _, f := range c.Command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && s.Hidden && c.IsSet(s.Name) {
			output(c).Warn("--%s has no effect here", s.Name)
		}
	}
}

// connection reads connectionFlags; property is the first of its property names, if it has any.
func connection(c *cli.Context, property string) tools.Connection {
	conn := tools.Connection{Bootstrap: c.String("bootstrap-server"), CommandConfig: c.String("command-config"), ClientID: "cairn-" + c.Command.Name}
	if property != "" {
		conn.Properties = c.StringSlice(property)
	}
	return conn
}

// need reports a missing flag. The library's own check would print the whole help instead of saying what is missing.
func need(c *cli.Context, names ...string) error {
	for _, name := range names {
		if c.String(name) == "" {
			return usagef("--%s is missing; `%s --help` shows what is taken", name, c.Command.HelpName)
		}
	}
	return nil
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON for programs"}
}

// output prints to the app's writers.
func output(c *cli.Context) tools.Output {
	return tools.Output{Out: c.App.Writer, Err: c.App.ErrWriter, JSON: c.Bool("json")}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: "Example:\n\n   cairn version",
		Flags:       []cli.Flag{jsonFlag()},
		Action:      func(c *cli.Context) error { return tools.PrintVersion(output(c)) },
	}
}
