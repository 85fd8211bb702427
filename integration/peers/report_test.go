package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestFiguresAreMediansWithTheirSpread(t *testing.T) {
	for _, row := range []struct {
		list []float64
		want string
	}{
		{nil, ""},
		{[]float64{0}, "0"},
		{[]float64{1234.5}, "1234"},
		{[]float64{0.01234}, "0.012"},
		{[]float64{12.34}, "12.3"},
		{[]float64{3, 1, 2}, "2.00 (1.00 to 3.00)"},
	} {
		if got := spreadOf(row.list).String(); got != row.want {
			t.Errorf("%v: %q, want %q", row.list, got, row.want)
		}
	}
}

// kept are results of a part in which each system has the figure of the cell that is compared first, by round.
func kept(part string, of map[string][]float64) map[string]*results {
	r := &results{byID: map[id]result{}, about: about{Rounds: 3, Length: time.Second}}
	c := comparisons()[0]
	for _, s := range systems(1) {
		for round, v := range of[s.String()] {
			i := id{Round: round, Nodes: 1, System: s.String(), Step: c.of(s)}
			r.byID[i] = result{id: i, Figures: figures{c.of(s): {c.metric: v}}}
		}
	}
	return map[string]*results{part: r}
}

func TestReportComparesRoundByRound(t *testing.T) {
	parts := kept(partKey, map[string][]float64{
		"cairn, flush always":     {20, 40, 60, 1}, // the others have no such round
		"Kafka, flush.messages=1": {10, 20, 30}, "NATS, sync_interval always": {40, 80, 120},
	})
	text := newReport(parts).String()
	for _, want := range []string{
		"| produce 1 KiB, MB/s | 40.0 (1.00 to 60.0) | 20.0 (10.0 to 30.0) | 80.0 (40.0 to 120) |  |  |  | 2.00 (2.00 to 2.00) | 0.500 (0.500 to 0.500) |  |  |\n",
		"| 1 | produce 1024 B, 1 producer(s), async, MB/s | cairn, flush always | 40.0 (1.00 to 60.0) | NATS, sync_interval always | 80.0 (40.0 to 120) | 2.00 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "| cairn, flush always | 40.0 (1.00 to 60.0) | Kafka") {
		t.Error("cairn is said to be behind Kafka, and is ahead")
	}
}

func TestLargerLatencyIsBehind(t *testing.T) {
	r := &results{byID: map[id]result{}}
	for system, ms := range map[string]float64{"cairn, flush os": 5, "NATS, defaults": 4, "Kafka, defaults": 6} {
		i := id{Nodes: 3, System: system, Step: latencyCell()}
		r.byID[i] = result{id: i, Figures: figures{latencyCell(): {"p99 ms": ms}}}
	}
	text := newReport(map[string]*results{partMatrix: r}).String()
	if want := "| 3 | end to end at 1000/s, p99 ms | cairn, flush os | 5.00 | NATS, defaults | 4.00 | 1.25 |\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if strings.Contains(text, "| cairn, flush os | 5.00 | Kafka") {
		t.Error("cairn is said to be behind Kafka, and is ahead")
	}
}

func TestProducersHaveWhatIsCompared(t *testing.T) {
	for name, want := range map[string]int{"cairn": 20, "Kafka": 20, "NATS": 8} {
		names, cells := producers(system{name: name})
		keys := 0
		for _, n := range names {
			if keyLoad.MatchString(n) {
				keys++
			}
		}
		if len(names) != want || keys != 2 {
			t.Errorf("%s has %d loads, %d of them compared", name, len(names), keys)
		}
		for _, c := range comparisons() {
			cell := c.of(system{name: name})
			if _, ok := cells[cell]; strings.HasPrefix(cell, "produce") && !ok {
				t.Errorf("%s has no load %q", name, cell)
			}
		}
	}
}

func trialOptions() options {
	return options{rounds: 5, length: time.Second, nodes: []int{1, 3}, only: regexp.MustCompile(""), system: regexp.MustCompile("")}
}

func TestRoundsBeginWithAnotherSystem(t *testing.T) {
	first, steps := map[string]int{}, 0
	seen := map[int]bool{}
	for _, v := range plan(partKey, trialOptions(), &results{}) {
		steps += len(v.steps)
		if v.sys.nodes == 1 && !seen[v.round] {
			seen[v.round] = true
			first[v.sys.String()]++
		}
	}
	if len(first) != 5 || steps != 5*2*6*4 {
		t.Errorf("%d steps; rounds begin with %v", steps, first)
	}
}

func TestAnInterruptedRunGoesOnWhereItWas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.jsonl")
	r, err := openResults(file, false, about{Commit: "abc"})
	if err != nil {
		t.Fatal(err)
	}
	all := plan(partMatrix, trialOptions(), r)
	v := all[0]
	good, bad := v.id(v.steps[0]), v.id(v.steps[1])
	if err := errors.Join(r.add(result{id: good, Figures: figures{"a": {"b": 1}}}), r.add(result{id: bad, Error: "it broke"}), r.close()); err != nil {
		t.Fatal(err)
	}
	r, err = openResults(file, true, about{Commit: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if r.about.Commit != "abc" || r.byID[good].Figures["a"]["b"] != 1 {
		t.Errorf("read back: %+v", r)
	}
	left := plan(partMatrix, trialOptions(), r)[0]
	if left.steps[0].name != v.steps[1].name || len(left.steps) != len(v.steps)-1 {
		t.Errorf("%d of %d steps are left, the first is %s", len(left.steps), len(v.steps), left.steps[0].name)
	}
	if text := newReport(map[string]*results{partMatrix: r}).String(); !strings.Contains(text, "* cairn, flush always on 1 node(s), "+bad.Step+", round 1 of the matrix: it broke\n") {
		t.Errorf("what failed is not told:\n%s", text)
	}
	if err := errors.Join(r.add(result{id: bad, Figures: figures{"a": {"b": 2}}}), r.close()); err != nil {
		t.Fatal(err)
	}
	if r, err = readResults(file); err != nil || !r.done(bad) {
		t.Errorf("a step that was done again: %+v, %v", r.byID[bad], err)
	}
	if r, err = openResults(file, false, about{}); err != nil || len(r.byID) != 0 {
		t.Errorf("a new run begins with %v, %v", r.byID, err)
	}
	if _, err := os.Stat(file + ".old"); err != nil {
		t.Errorf("the results of the earlier run: %v", err)
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

func TestPageKeepsWhatIsAroundTheSection(t *testing.T) {
	for page, want := range map[string]string{
		"# A\n\n## Notes\n\nn\n":                                "# A\n\n" + heading + "new\n## Notes\n\nn\n",
		"# A\n\n" + heading + "old\n\n### x\n\n## Notes\n\nn\n": "# A\n\n" + heading + "new\n## Notes\n\nn\n",
		"# A\n": "# A\n\n" + heading + "new",
	} {
		if got := replaced(page, heading+"new"); got != want {
			t.Errorf("%q became %q, want %q", page, got, want)
		}
	}
}

func TestPlotsOfWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	parts := kept(partMatrix, map[string][]float64{"cairn, flush always": {20}, "NATS, defaults": {5}})
	if err := newReport(parts).plots(filepath.Join(dir, "a.svg"), filepath.Join(dir, "b.svg")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "a.svg"))
	if err != nil || !strings.Contains(string(text), "Throughput, one node") || !strings.Contains(string(text), "20.0") {
		t.Errorf("%v, %s", err, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "b.svg")); err != nil {
		t.Error(err)
	}
}

func TestBenchmarksAreThoseOfOneBuild(t *testing.T) {
	r := &results{byID: map[id]result{}}
	for round, at := range []float64{20, 30} {
		for _, s := range builds(3, "elsewhere") {
			ms := at
			if s.name == nameBefore {
				ms *= 10
			}
			i := id{Round: round, Nodes: 3, System: s.String(), Step: "restart"}
			r.byID[i] = result{id: i, Figures: figures{"start": {"ms": ms}, "cold 100 B": {"MB/s": 7}}}
		}
	}
	want := strings.Repeat("BenchmarkCairn/nodes=3/flush-always/cold-100-B 1 7 MB/s\nBenchmarkCairn/nodes=3/flush-always/start 1 X ms\n", 2) +
		strings.Repeat("BenchmarkCairn/nodes=3/flush-os/cold-100-B 1 7 MB/s\nBenchmarkCairn/nodes=3/flush-os/start 1 X ms\n", 2)
	for build, of := range map[string][]string{nameAfter: {"20", "30", "20", "30"}, nameBefore: {"200", "300", "200", "300"}} {
		expected := want
		for _, ms := range of {
			expected = strings.Replace(expected, "X", ms, 1)
		}
		if got := r.benchmarks(build); got != expected {
			t.Errorf("%s:\n%swant\n%s", build, got, expected)
		}
	}
}
