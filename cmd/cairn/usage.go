package main

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/urfave/cli/v2"

	"cairn/internal/nearest"
	"cairn/tools"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usagef is the error for a command line that makes no sense; the message tells what would.
func usagef(format string, args ...any) error {
	return tools.UsageError{Err: fmt.Errorf(format, args...)}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	name := "cairn"
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	if flag, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok && c.Command != nil {
		return unknownFlag(c.Command, name, flag)
	}
	for _, before := range singleDashes() {
		if text := err.Error(); strings.Contains(text, before) {
			err = errors.New(strings.Replace(text, before, before+"-", 1))
		}
	}
	return usagef("%w; `%s --help` shows what is taken", err, name)
}

// singleDashes are how the flag library begins the name of a flag in its errors, whatever was typed.
func singleDashes() []string { return []string{" flag -", "needs an argument: -"} }

// unknownFlag says what may have been meant. With Kafka's tools, what is a subcommand here is a flag.
func unknownFlag(cmd *cli.Command, name, flag string) error {
	for _, sub := range cmd.Subcommands {
		if sub.HasName(flag) {
			return usagef("no flag --%s; did you mean `%s %s`?", flag, name, flag)
		}
	}
	if len(flag) == 1 {
		return usagef("no flag -%s; `%s --help` shows what is taken", flag, name)
	}
	if near := nearest.Name(flag, flagNames(cmd.Flags)); near != "" {
		return usagef("no flag --%s; did you mean --%s? `%s --help` shows what is taken", flag, near, name)
	}
	return usagef("no flag --%s; `%s --help` shows what is taken", flag, name)
}

// unknownCommand is the error for an argument where a command is wanted; help is what lists them.
func unknownCommand(cmds []*cli.Command, name, help string) error {
	if near := nearest.Name(name, commandNames(cmds)); near != "" {
		return usagef("no command %q; did you mean %q? `%s` lists them", name, near, help)
	}
	return usagef("no command %q; `%s` lists them", name, help)
}

func flagNames(flags []cli.Flag) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range flags {
			for _, name := range f.Names() {
				if !yield(name) {
					return
				}
			}
		}
	}
}

func commandNames(cmds []*cli.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range cmds {
			if !yield(c.Name) {
				return
			}
		}
	}
}

// tellsDefault is whether a default belongs into the help. 0 and -1 stand for a flag that was not given, unless the usage gives them a meaning.
func tellsDefault(text, usage string) bool {
	switch text {
	case "":
		return false
	case "0", "-1":
		return strings.Contains(usage, text+":") && !strings.Contains(usage, "(default: ")
	default:
		return true
	}
}

// flagLine is the line of a flag in the help: the name with its value, a tab, and the meaning. The library's own line repeats the value for
// each other name and the whole for flags that may be repeated, which leaves no room for the meaning.
func flagLine(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	names, usage, value := f.Names(), d.GetUsage(), ""
	if d.TakesValue() {
		value = " VALUE"
		if _, rest, ok := strings.Cut(usage, "`"); ok {
			if placeholder, _, ok := strings.Cut(rest, "`"); ok {
				value, usage = " "+placeholder, strings.ReplaceAll(usage, "`"+placeholder+"`", placeholder)
			}
		}
		if text := d.GetDefaultText(); tellsDefault(text, usage) {
			usage += " (default: " + text + ")"
		}
	}
	line := "--" + names[0] + value + "\t" + usage
	for _, alias := range names[1:] {
		if len(alias) == 1 {
			line = strings.Replace(line, "\t", ", -"+alias+"\t", 1)
		} else {
			line += " (also --" + alias + ")"
		}
	}
	return line
}
