package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// transcript runs command lines against a node and keeps what they print, by command.
type transcript struct {
	t     *testing.T
	at    string // --bootstrap-server of the node
	dir   string // for files; DIR in the lines and in the goldens
	data  string // directory of the node; DATA in the goldens
	texts map[string]*strings.Builder
	seen  map[string]bool // command paths that were run, and those with " --json"
}

// startedNode runs `cairn start` in this process until the test ends, and returns where it listens and a function that stops it and returns
// what it has printed.
func startedNode(t *testing.T, dataDir string) (address string, stop func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, log := &sharedBuffer{wrote: make(chan struct{}, 1)}, &sharedBuffer{wrote: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{
			"cairn", "start", "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "log.dirs=" + dataDir, "--override", "offsets.topic.num.partitions=1",
			"--override", "transaction.state.log.num.partitions=1", "--override", "group.initial.rebalance.delay.ms=0", "--log-level", "warn",
		}, out, log)
	}()
	stop = sync.OnceValue(func() string {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the node ended with exit code %d:\n%s", code, log)
		}
		return out.String()
	})
	t.Cleanup(func() { stop() })
	deadline := time.After(time.Minute)
	for {
		if m := regexp.MustCompile(`PLAINTEXT://(127\.0\.0\.1:\d+)`).FindStringSubmatch(out.String()); m != nil {
			return m[1], stop
		}
		select {
		case <-out.wrote:
		case <-deadline:
			t.Fatalf("the node is not ready: %s\n%s", out, log)
		}
	}
}

// sharedBuffer is a buffer for several goroutines, which says when something comes.
type sharedBuffer struct {
	mu    sync.Mutex
	b     bytes.Buffer // guarded by mu
	wrote chan struct{}
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// words splits a line at blanks; 'a b' is one word.
func words(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

// run runs a command line on the node and keeps what it prints: standard output as it is, lines of standard error behind "2> ".
func (s *transcript) run(line string) { s.runAs(line, func(text string) string { return text }) }

// loose is run for outputs with figures that differ from run to run.
func (s *transcript) loose(line string) { s.runAs(line, withoutNumbers) }

// withoutNumbers has N for each number, and one blank for several.
func withoutNumbers(text string) string {
	text = regexp.MustCompile(`(^|[^\w.])-?\d+(\.\d+)?(e-\d+)?( ([KMGT]i)?B\b)?`).ReplaceAllString(text, "${1}N")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}

func (s *transcript) runAs(line string, scrub func(string) string) {
	s.t.Helper()
	path, takesServer := s.command(line)
	args := slices.Concat([]string{"cairn"}, words(strings.ReplaceAll(line, "DIR", s.dir)))
	if takesServer && !strings.Contains(line, "--data-dir") {
		n := len(strings.Fields(path))
		args = slices.Concat(args[:n], []string{"--bootstrap-server", s.at}, args[n:])
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	code := run(ctx, args, &out, &said)
	text := out.String()
	errs := ""
	for l := range strings.Lines(scrub(s.fixed(said.String()))) {
		errs += "2> " + l
	}
	if code != 0 {
		errs += fmt.Sprintf("[exit code %d]\n", code)
	}
	top := strings.Fields(path)[1]
	if s.texts[top] == nil {
		s.texts[top] = &strings.Builder{}
	}
	fmt.Fprintf(s.texts[top], "$ cairn %s\n%s%s", line, scrub(s.fixed(text)), errs)
	s.seen[path] = true
	if slices.Contains(args, "--json") {
		s.seen[path+" --json"] = true
	}
}

// await runs a line until it prints what is wanted. It is no part of the transcript.
func (s *transcript) await(line string, wanted func(out string) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for {
		var out, said bytes.Buffer
		n := len(strings.Fields(line))
		run(ctx, append(slices.Concat([]string{"cairn"}, words(line))[:n+1:n+1], "--bootstrap-server", s.at), &out, &said)
		if wanted(out.String()) {
			return
		}
		if ctx.Err() != nil {
			s.t.Fatalf("cairn %s goes on printing %s%s", line, &out, &said)
		}
	}
}

// command finds the command of a line, and whether it takes the address of a server.
func (s *transcript) command(line string) (path string, takesServer bool) {
	s.t.Helper()
	path, cmds := "cairn", newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands
	var cmd *cli.Command
	for _, word := range words(line) {
		i := slices.IndexFunc(cmds, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 {
			break
		}
		path, cmd, cmds = path+" "+word, cmds[i], cmds[i].Subcommands
	}
	if cmd == nil {
		s.t.Fatalf("cairn %s: no command", line)
	}
	return path, slices.Contains(slices.Collect(flagNames(cmd.Flags)), "bootstrap-server")
}

// differing is what differs from run to run in all outputs.
var differing = []struct {
	pattern *regexp.Regexp
	becomes string
}{
	{regexp.MustCompile(`127\.0\.0\.1(:|","port":)\d+`), "HOST${1}PORT"},
	{regexp.MustCompile(`"20\d\d-\d\d-\d\dT[^"]*"`), `"TIME"`},
	{regexp.MustCompile(`(^|[^.\d])1[6-9]\d{11}\b`), "${1}TIME"}, // and no fraction
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,:]\d{3}Z?`), "TIME"},
	{regexp.MustCompile(`(bytes|size|crc|producerId|"(?:bytes|size|crc|producerId)")(: |:)\d+`), "$1${2}N"},
	{regexp.MustCompile(`"ageMs":\d+`), `"ageMs":N`},
	{regexp.MustCompile(`(cairn|perf-consumer)-[0-9a-z]+(-[0-9a-f-]{36})?\b`), "$1-ID"},
}

// ids are topic ids, directory ids and the cluster's.
var ids = regexp.MustCompile(`[\w-]+`)

func (s *transcript) fixed(text string) string {
	text = ids.ReplaceAllStringFunc(text, func(word string) string {
		if len(word) == 22 && word != "LatestCoordinatorEpoch" {
			return "ID"
		}
		return word
	})
	text = strings.ReplaceAll(strings.ReplaceAll(text, s.dir, "DIR"), s.data, "DATA")
	for _, d := range differing {
		text = d.pattern.ReplaceAllString(text, d.becomes)
	}
	return text
}

// file writes a file of the lines.
func (s *transcript) file(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// compare compares what was printed with testdata/COMMAND.golden.
func (s *transcript) compare() {
	s.t.Helper()
	for name, text := range s.texts {
		path := filepath.Join("testdata", name+".golden")
		if *rewrite {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(text.String()), 0o644)); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			s.t.Error(err)
		} else if text.String() != string(want) {
			s.t.Errorf("%s differs (-rewrite writes it):\n%s", path, firstDifference(text.String(), string(want)))
		}
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	command := ""
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if strings.HasPrefix(y, "$ ") {
			command = y
		}
		if x != y {
			return fmt.Sprintf("%s\ngot  %s\nwant %s", command, x, y)
		}
	}
	return ""
}
