package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// offered is what a line is completed with: the words, in turn with what they mean.
func offered(t *testing.T, line string) (words, meanings []string) {
	t.Helper()
	code, out, err := runLine(t, line+" "+askCompletion)
	if code != 0 || err != "" {
		t.Errorf("cairn %s: exit code %d, %s", line, code, err)
	}
	for l := range strings.Lines(out) {
		word, meaning, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		words, meanings = append(words, word), append(meanings, meaning)
	}
	return words, meanings
}

func TestCompletionOffersCommandsAndFlags(t *testing.T) {
	for line, want := range map[string][]string{
		"":                             {"topics", "consume", "help"},
		"topics":                       {"create", "--help"},
		"topics cre":                   {"create"},
		"topics create":                {"--partitions", "--replica-assignment", "--help"},
		"topics create --topic t":      {"--partitions"},
		"topics create --nonsense":     {"--partitions"},
		"produce --topic t --acks all": {"--acks", "--request-required-acks", "--file"},
		"completion":                   {"bash", "zsh", "fish"},
		"lab run":                      {"all-survives", "--fast"},
	} {
		words, meanings := offered(t, line)
		for _, w := range want {
			if !slices.Contains(words, w) {
				t.Errorf("cairn %s is not completed with %s, but with %s", line, w, words)
			}
		}
		for i, w := range words {
			if strings.HasPrefix(w, "--") && meanings[i] == "" {
				t.Errorf("cairn %s: nothing tells what %s means", line, w)
			}
		}
	}
	if words, _ := offered(t, "produce"); slices.Contains(words, "--batch-size") {
		t.Error("a flag without effect is offered")
	}
	if words, _ := offered(t, "checkpoint --"); words != nil {
		t.Errorf("behind two dashes, where flags have ended, %s are offered", words)
	}
}

// TestCompletionNeverRunsTheCommand: two dashes end the flags, the question of the shell among them.
func TestCompletionNeverRunsTheCommand(t *testing.T) {
	for _, line := range []string{"restore --", "version --", "start -- x"} {
		if code, out, err := runLine(t, line+" "+askCompletion); code != 0 || out+err != "" {
			t.Errorf("cairn %s: exit code %d, printed %s%s", line, code, out, err)
		}
	}
}

// TestCompletionScripts has each shell that is there complete lines. The commands are played by a script that offers what it is to offer.
func TestCompletionScripts(t *testing.T) {
	dir := t.TempDir()
	const fake = `#!/bin/sh
case "$*" in
"--generate-bash-completion") printf 'topics\tcreate: list\nconsume\tprint records\n--help\tshow help\n' ;;
"topics --generate-bash-completion") printf 'create\tmake: one\nconfigs\tof it\n--topic\tNAME of it\n--time\tms\n' ;;
*) exit 1 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "cairn"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	// How a shell is made to complete the line of $words, of which the last may be empty, and to print what it offers, a word a line.
	drive := map[string]string{
		"bash": `COMP_WORDS=(@WORDS@); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _cairn; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `_describe() { for o in "${(@P)2}"; do [[ "$o" == "$PREFIX"* ]] && print -r -- "${o%%:*}"; done }; _files() { print FILES }
words=(@WORDS@); CURRENT=$#words; PREFIX="$words[-1]"; _cairn`,
		"fish": `complete -C '@LINE@' | string split -f1 \t`,
	}
	for _, script := range completionScripts() {
		path, err := exec.LookPath(script.shell)
		if err != nil {
			t.Logf("no %s here", script.shell)
			continue
		}
		prefix := map[string]string{"zsh": "compdef() { }\n"}[script.shell]
		for line, want := range map[string]string{
			"cairn ":           "consume topics",
			"cairn co":         "consume",
			"cairn --":         "--help",
			"cairn topics ":    "configs create",
			"cairn topics c":   "configs create",
			"cairn topics --t": "--time --topic",
		} {
			words := strings.Split(line, " ")
			for i, w := range words {
				words[i] = "'" + w + "'"
			}
			text := prefix + script.text + strings.NewReplacer("@WORDS@", strings.Join(words, " "), "@LINE@", line).Replace(drive[script.shell])
			out, err := exec.Command(path, "-c", text).CombinedOutput()
			got := strings.Fields(string(out))
			slices.Sort(got)
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s completes %q with %q (%v), want %q", script.shell, line, got, err, want)
			}
		}
	}
}
