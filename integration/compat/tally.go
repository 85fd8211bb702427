package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	t.note(shape, tool, name, ending{err, time.Since(begun)})
}

// ending is how a check ended, and after what time.
type ending struct {
	err  error
	took time.Duration
}

// note takes in how a check ended.
func (t *tally) note(shape, tool, name string, e ending) {
	err := e.err
	t.results = append(t.results, result{shape, tool, name, err})
	what := fmt.Sprintf("%s: %s: %s (%v)", shape, tool, name, e.took.Round(10*time.Millisecond))
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

What clients and tools of Kafka do against cairn, unchanged. This page is written by ` + "`make compat`" + ` (Kafka's tools of version 4.3.1) and
` + "`make compat-all`" + ` (the clients too); each replaces the sections that it ran whole. A tool that is not offered was refused in words that
say so; what a client does not offer has a note.

`

// writeTable writes the results to docs/compatibility.md.
func (t *tally) writeTable(whole bool) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "compatibility.md")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(tableHead+merge(string(old), t.sections(whole))), 0o644)
}

// section is a part of the page: its title, and all of its text.
type section struct{ title, text string }

// sections are the results by what they are of. The matrix of clients is among them when all clients are in it.
func (t *tally) sections(whole bool) []section {
	var all []section
	for i, r := range t.results {
		if i > 0 && r.shape == t.results[i-1].shape || r.shape == clientsShape && !whole {
			continue
		}
		title := "## " + strings.ToUpper(r.shape[:1]) + r.shape[1:]
		body := t.rows(r.shape)
		if r.shape == clientsShape {
			body = t.matrix()
		}
		all = append(all, section{title, title + "\n\n" + body})
	}
	return all
}

// merge replaces the sections of a page that are anew, keeps its others, and adds what it lacks.
func merge(old string, anew []section) string {
	var texts []string
	_, rest, found := strings.Cut(old, "\n## ")
	for _, text := range strings.Split(rest, "\n## ") {
		if !found {
			break
		}
		text = "## " + strings.TrimRight(text, "\n") + "\n"
		title, _, _ := strings.Cut(text, "\n")
		if i := slices.IndexFunc(anew, func(s section) bool { return s.title == title }); i >= 0 {
			text = anew[i].text
			anew = slices.Delete(slices.Clone(anew), i, i+1)
		}
		texts = append(texts, text)
	}
	for _, s := range anew {
		texts = append(texts, s.text)
	}
	return strings.Join(texts, "\n")
}

// rows are the results of a story or of a cluster, one below the other.
func (t *tally) rows(shape string) string {
	var b strings.Builder
	b.WriteString("| client or tool | what | result |\n|---|---|---|\n")
	for _, r := range t.results {
		if r.shape == shape {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.tool, r.name, r.outcome())
		}
	}
	return b.String()
}

// outcome is how a check ended, in one line.
func (r result) outcome() string {
	if r.err == nil {
		return "passed"
	}
	first, _, _ := strings.Cut(r.err.Error(), "\n")
	first = strings.ReplaceAll(first, "|", `\|`)
	if errors.Is(r.err, errNotOffered) {
		return first
	}
	return "failed: " + first
}

// matrix shows each scenario by each client, and notes why one failed or is not offered.
func (t *tally) matrix() string {
	var clients, names, notes []string
	cells := map[[2]string]string{}
	for _, r := range t.results {
		if r.shape != clientsShape {
			continue
		}
		if !slices.Contains(clients, r.tool) {
			clients = append(clients, r.tool)
		}
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
		cell := r.outcome()
		if r.err != nil {
			what, why, _ := strings.Cut(cell, ": ")
			note := slices.Index(notes, why)
			if note < 0 {
				note = len(notes)
				notes = append(notes, why)
			}
			what, _, _ = strings.Cut(what, " by ")
			cell = fmt.Sprintf("%s (%d)", what, note+1)
		}
		cells[[2]string{r.name, r.tool}] = cell
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(clients, " | "), strings.Repeat("---|", len(clients)))
	for _, name := range names {
		b.WriteString("| " + name)
		for _, client := range clients {
			b.WriteString(" | " + cells[[2]string{name, client}])
		}
		b.WriteString(" |\n")
	}
	for i, note := range notes {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%d. %s\n", i+1, note)
	}
	return b.String()
}
