package main

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// section is a part of docs/benchmarks.md: the heading without its marks, and what is below it.
type section struct{ title, text string }

// notes is the section that people write, at the end of the file.
const notes = "Notes"

const preface = "# Benchmarks\n\nWritten by `make bench`, all but the notes at the end; a section says of when it is. Client and brokers are on the same machine. The median run by throughput is shown. " +
	"MB are 10^6 bytes of record values.\n"

// rewrite puts the sections into the file in the place of those with the same titles, new ones before the notes. The others stay.
func rewrite(file string, sections []section) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(format(merge(parse(string(old)), sections))), 0o644)
}

// parse returns the sections of a file; what is above the first is left out.
func parse(text string) []section {
	var list []section
	for _, part := range strings.Split("\n"+text, "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		list = append(list, section{title, strings.Trim(body, "\n") + "\n"})
	}
	return list
}

func merge(old, update []section) []section {
	merged := slices.Clone(old)
	for _, s := range update {
		if at := slices.IndexFunc(merged, func(o section) bool { return o.title == s.title }); at >= 0 {
			merged[at] = s
			continue
		}
		at := slices.IndexFunc(merged, func(o section) bool { return o.title == notes })
		if at < 0 {
			at = len(merged)
		}
		merged = slices.Insert(merged, at, s)
	}
	return merged
}

func format(sections []section) string {
	var b strings.Builder
	b.WriteString(preface)
	b.WriteString(body(sections))
	return b.String()
}

// body is the text of sections without the preface.
func body(sections []section) string {
	var b strings.Builder
	for _, s := range sections {
		b.WriteString("\n## " + s.title + "\n\n" + strings.Trim(s.text, "\n") + "\n")
	}
	return b.String()
}
