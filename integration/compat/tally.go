package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cairn/integration/harness"
)

// errNotOffered says that a tool was refused as it must be, since cairn does not have what it asks for.
var errNotOffered = errors.New("not offered")

// result is how one check ended.
type result struct {
	shape, tool, name string
	err               error
}

// tally counts checks and keeps what they found.
type tally struct {
	passed, failed, skipped, absent int

	results []result
}

func (t *tally) check(shape, tool, name string, do func() error) {
	begun := time.Now()
	err := do()
	took := time.Since(begun).Round(10 * time.Millisecond)
	t.results = append(t.results, result{shape, tool, name, err})
	what := fmt.Sprintf("%s: %s: %s (%v)", shape, tool, name, took)
	switch {
	case err == nil:
		t.passed++
		fmt.Println("ok  ", what)
	case errors.Is(err, errNotOffered):
		t.absent++
		fmt.Printf("none %s: %v\n", what, err)
	default:
		t.failed++
		fmt.Printf("FAIL %s: %v\n", what, err)
	}
}

// String is the line that ends a run.
func (t *tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped, %d not offered", t.passed, t.failed, t.skipped, t.absent)
}

const tableHead = `# Compatibility

What clients and tools of Kafka 4.3.1 do against cairn, unchanged. This page is written by ` + "`make compat`" + `, which runs them all; a tool that is
not offered was refused in words that say so.

`

// writeTable writes the results to docs/compatibility.md.
func (t *tally) writeTable() error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "compatibility.md"), []byte(t.table()), 0o644)
}

func (t *tally) table() string {
	var b strings.Builder
	b.WriteString(tableHead)
	shape := ""
	for _, r := range t.results {
		if r.shape != shape {
			if shape != "" {
				b.WriteString("\n")
			}
			shape = r.shape
			fmt.Fprintf(&b, "## %s%s\n\n| client or tool | what | result |\n|---|---|---|\n", strings.ToUpper(shape[:1]), shape[1:])
		}
		outcome := "passed"
		if r.err != nil {
			first, _, _ := strings.Cut(r.err.Error(), "\n")
			outcome = strings.ReplaceAll(first, "|", `\|`)
			if !errors.Is(r.err, errNotOffered) {
				outcome = "failed: " + outcome
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.tool, r.name, outcome)
	}
	return b.String()
}
