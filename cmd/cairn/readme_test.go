package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// commandLine finds `cairn ...` in backticks and, in indented blocks, bin/cairn up to a comment or the line's end.
var commandLine = regexp.MustCompile("(?m)`(?:bin/)?cairn ([^`]+)`|^ {4}(?:bin/)?cairn ([^#\n]+)")

// TestReadmeAndHelpAgree: each command line in the README has a command and flags that there are, and each command is in the README.
func TestReadmeAndHelpAgree(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	app := newApp(&bytes.Buffer{}, &bytes.Buffer{})
	seen := map[string]bool{}
	for _, m := range commandLine.FindAllStringSubmatch(string(readme), -1) {
		line := m[1] + m[2]
		seen[strings.Fields(line)[0]] = true
		checkReadmeLine(t, app.Commands, line)
	}
	if len(seen) < 10 {
		t.Errorf("only %d commands found: the test looks in the wrong place", len(seen))
	}
	for _, c := range app.Commands {
		if !seen[c.Name] && !c.Hidden {
			t.Errorf("the README does not mention `cairn %s`", c.Name)
		}
	}
}

// checkReadmeLine follows the words of a line down the commands; what is in capitals stands for something.
func checkReadmeLine(t *testing.T, cmds []*cli.Command, line string) {
	t.Helper()
	var cmd *cli.Command
	for _, word := range strings.Fields(line) {
		word = strings.Trim(word, ",;)")
		switch {
		case strings.HasPrefix(word, "--"):
			name, _, _ := strings.Cut(word[2:], "=")
			if cmd != nil && name != "help" && !slices.Contains(slices.Collect(flagNames(cmd.Flags)), name) {
				t.Errorf("README: `cairn %s`: there is no flag --%s", line, name)
			}
		case len(cmds) > 0 && word != strings.ToUpper(word):
			i := slices.IndexFunc(cmds, func(c *cli.Command) bool { return c.HasName(word) })
			if i < 0 && cmd == nil && word == "help" {
				return
			}
			if i < 0 {
				t.Errorf("README: `cairn %s`: there is no command %s", line, word)
				return
			}
			cmd, cmds = cmds[i], cmds[i].Subcommands
		}
	}
}
