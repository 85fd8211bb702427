package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// askCompletion is what the library calls the flag by which a shell asks, at the end of a line, for the words that may come next. The scripts below ask the
// binary itself, so that they never lag behind the commands. Each line of the answer is a word, a tab, and what it means; the script picks
// those that begin as what was typed does, flags only when that is a dash, and offers files where nothing is left.
const askCompletion = "--generate-bash-completion"

func asksForCompletion(args []string) bool {
	return len(args) > 0 && args[len(args)-1] == askCompletion
}

// offer answers with commands and flags, but for those that the help does not show. What cannot be written nobody waits for any more.
func offer(w io.Writer, cmds []*cli.Command, flags []cli.Flag) {
	for _, c := range cmds {
		if !c.Hidden {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", c.Name, c.Usage)
		}
	}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		_, meaning, _ := strings.Cut(f.String(), "\t")
		for _, name := range f.Names() {
			if len(name) > 1 {
				_, _ = fmt.Fprintf(w, "--%s\t%s\n", name, meaning)
			}
		}
	}
}

// offerWords answers with arguments and the command's flags.
func offerWords(words ...string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		for _, word := range words {
			_, _ = fmt.Fprintln(c.App.Writer, word)
		}
		offer(c.App.Writer, nil, c.Command.Flags)
	}
}

const bashCompletion = `_cairn() {
  local cur="${COMP_WORDS[COMP_CWORD]}" words
  words=$("${COMP_WORDS[@]:0:COMP_CWORD}" --generate-bash-completion 2>/dev/null | cut -f1)
  [[ "$cur" == -* ]] || words=$(grep -v '^-' <<<"$words")
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _cairn cairn
`

const zshCompletion = `#compdef cairn
_cairn() {
  local -a offers
  local tab=$'\t'
  offers=("${(@f)$("${(@)words[1,CURRENT-1]}" --generate-bash-completion 2>/dev/null)}")
  if [[ "$PREFIX" == -* ]]; then
    offers=("${(@M)offers:#-*}")
  else
    offers=("${(@)offers:#-*}")
  fi
  offers=("${(@)offers:#}")
  if (( $#offers )); then
    offers=("${(@)offers//:/\\:}")
    offers=("${(@)offers/$tab/:}")
    _describe cairn offers
  else
    _files
  fi
}
if [[ "$funcstack[1]" == _cairn ]]; then
  _cairn # a file of fpath is the function itself when it is first called
else
  compdef _cairn cairn
fi
`

const fishCompletion = `function __cairn_offers
    set -l words (commandline -opc)
    set -l offers ($words --generate-bash-completion 2>/dev/null)
    if string match -q -- '-*' (commandline -ct)
        set -g __cairn_offered (string match -- '-*' $offers)
    else
        set -g __cairn_offered (string match -v -- '-*' $offers)
    end
    test (count $__cairn_offered) -gt 0
end
complete -c cairn -n __cairn_offers -f -a '$__cairn_offered'
`

type completionScript struct{ shell, text string }

// completionScripts are for the shells that there is a script for, the default first.
func completionScripts() []completionScript {
	return []completionScript{{"bash", bashCompletion}, {"zsh", zshCompletion}, {"fish", fishCompletion}}
}

const completionHelp = `SHELL is bash (the default), zsh or fish. The script is for the shell's start file; it asks the binary what there is.

Examples:

   source <(cairn completion)          # bash
   source <(cairn completion zsh)      # behind compinit
   cairn completion fish | source`

func completionCommand() *cli.Command {
	var shells []string
	for _, script := range completionScripts() {
		shells = append(shells, script.shell)
	}
	return &cli.Command{
		Name:         "completion",
		Usage:        "print the completion script for bash, zsh or fish",
		ArgsUsage:    "[SHELL]",
		Description:  completionHelp,
		BashComplete: offerWords(shells...),
		Action: func(c *cli.Context) error {
			shell := cmp.Or(c.Args().First(), shells[0])
			i := slices.Index(shells, shell)
			if i < 0 || c.Args().Len() > 1 {
				return usagef("no completion for %q; want one of %s", strings.Join(c.Args().Slice(), " "), strings.Join(shells, ", "))
			}
			_, err := fmt.Fprint(c.App.Writer, completionScripts()[i].text)
			return err
		},
	}
}
