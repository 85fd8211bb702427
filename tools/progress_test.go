package tools

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sys/unix"

	"cairn/tools/segment"
)

// openTerminal returns a terminal, and a function that closes it and returns what was written to it.
func openTerminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const end = "the end" // closing a terminal may take away what was not read yet
	text := make(chan string, 1)
	go func() {
		var all []byte
		for part := make([]byte, 4096); !bytes.HasSuffix(all, []byte(end)); {
			n, err := master.Read(part)
			if all = append(all, part[:n]...); err != nil {
				break
			}
		}
		text <- string(bytes.TrimSuffix(all, []byte(end)))
	}()
	return terminal, func() string {
		if _, err := terminal.WriteString(end); err != nil {
			t.Error(err)
		}
		got := <-text
		if err := errors.Join(terminal.Close(), master.Close()); err != nil {
			t.Error(err)
		}
		return got
	}
}

// TestProgressIsForTerminals: a person sees a bar while something takes long, and nothing of it when it is done; files and pipes never have one.
func TestProgressIsForTerminals(t *testing.T) {
	if bar := (&capture{}).output(false).Progress("Reading", 100, InBytes); bar != nil {
		t.Error("a bar where nobody looks")
	}
	terminal, text := openTerminal(t)
	out := Output{Err: terminal}
	if bar := out.Progress("Reading nothing", 0, InBytes); bar != nil {
		t.Error("a bar for nothing")
	}
	bar := out.Progress("Reading", 1000, InRecords)
	bar.Set(250)
	bar.Clear()
	out.note("done")
	got := text()
	if !strings.Contains(got, "Reading") || !strings.Contains(got, "25%") || !strings.Contains(got, "250/1000") {
		t.Errorf("drawn was %q", got)
	}
	if visible := afterReturns(got); visible != "done" {
		t.Errorf("what stays is %q, of %q", visible, got)
	}
}

// afterReturns is what a terminal shows in the last line that has text: each carriage return begins the line again.
func afterReturns(text string) string {
	last := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		shown := []rune{}
		for _, part := range strings.Split(strings.TrimSuffix(line, "\n"), "\r") {
			if rest, ok := strings.CutPrefix(part, "\x1b[K"); ok {
				shown, part = nil, rest
			}
			over := []rune(part)
			if len(over) < len(shown) {
				over = append(over, shown[len(over):]...)
			}
			shown = over
		}
		if s := strings.TrimSpace(string(shown)); s != "" {
			last = s
		}
	}
	return last
}

// TestLongCommandsShowProgress: those that read or write much of a log. What they print stays as it is without a terminal.
func TestLongCommandsShowProgress(t *testing.T) {
	_, conn := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "words", "again"))
	ctx, c, dir := testContext(t), &capture{}, t.TempDir()
	input := filepath.Join(dir, "input")
	if err := os.WriteFile(input, []byte(strings.Repeat("a line\n", 50_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	produce := DefaultProduceOptions()
	produce.Topic, produce.File = "words", input
	export := ExportOptions{Topic: "words", Partition: -1, Filter: AllBatches(), Dir: filepath.Join(dir, "out"), Segments: segment.DefaultConfig()}
	for _, tc := range []struct {
		name, bar, prints string
		do                func(Output) error
	}{
		{"produce", "Producing " + input, "", func(out Output) error { return Produce(ctx, conn, produce, out) }},
		{"export", "Exporting words-0", "Exported words-0", func(out Output) error { return ExportSegments(ctx, conn, export, out) }},
		{"import", "Importing again-0", "Imported 50000 records", func(out Output) error {
			return ImportSegments(ctx, conn, ImportOptions{Dir: export.Dir, Topic: "again", Partition: -1}, out)
		}},
	} {
		terminal, text := openTerminal(t)
		out := c.output(false)
		out.Err = terminal
		if err := tc.do(out); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := text(); !strings.Contains(got, tc.bar) || afterReturns(got) != "" {
			t.Errorf("%s: drawn was %q, what stays is %q", tc.name, got, afterReturns(got))
		}
		if !strings.HasPrefix(c.out.String(), tc.prints) {
			t.Errorf("%s: printed %q", tc.name, c.out.String())
		}
	}
}
