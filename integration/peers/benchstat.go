package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Two builds of cairn, one from before a change and that of now, take turns like systems of their own. Their figures are written as Go's
// benchmarks are, for benchstat.

const (
	nameBefore = "cairn before"
	nameAfter  = "cairn"
)

// builds are the two, in both modes.
func builds(nodes int, before string) []system {
	openBefore := func(_ string, count int, safe bool) (servers, error) { return openBuild(before, count, safe) }
	return []system{
		{nameBefore, "flush always", true, nodes, openBefore, dialWire},
		{nameAfter, "flush always", true, nodes, openCairn, dialWire},
		{nameBefore, "flush os", false, nodes, openBefore, dialWire},
		{nameAfter, "flush os", false, nodes, openCairn, dialWire},
	}
}

// writeBenchmarks makes the files of both builds.
func writeBenchmarks(dir string, kept map[string]*results) error {
	var errs []error
	for name, file := range map[string]string{nameBefore: "peers-before.txt", nameAfter: "peers-after.txt"} {
		var text strings.Builder
		for _, part := range sortedKeys(kept) {
			text.WriteString(kept[part].benchmarks(name))
		}
		path := filepath.Join(dir, file)
		errs = append(errs, os.WriteFile(path, []byte(text.String()), 0o644))
		fmt.Println("written to", path)
	}
	return errors.Join(errs...)
}

// benchmarks are the lines of one build: of each cell of each round, without what failed.
func (r *results) benchmarks(build string) string {
	var list []result
	for _, one := range r.byID {
		if strings.HasPrefix(one.System, build+", ") {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.System, b.System), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Round, b.Round))
	})
	word := strings.NewReplacer(" ", "-", ",", "", "/", "-per-").Replace
	var b strings.Builder
	for _, one := range list {
		_, mode, _ := strings.Cut(one.System, ", ")
		for _, cell := range sortedKeys(one.Figures) {
			fmt.Fprintf(&b, "BenchmarkCairn/nodes=%d/%s/%s 1", one.Nodes, word(mode), word(cell))
			for _, metric := range sortedKeys(one.Figures[cell]) {
				fmt.Fprintf(&b, " %g %s", one.Figures[cell][metric], strings.ReplaceAll(metric, " ", "-"))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
