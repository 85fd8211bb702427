package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/tools"
	"cairn/tools/lab/nodes"
)

// rows are the names that the tables of experiments must have.
func rows() []string {
	return []string{
		"clamp-open", "clamp-shut", "isr-shrink", "isr-lag", "single-replica", "all-survives", "all-survives-twice", "below-min", "acks1-accepted", "acks1-offline",
		"acks1-unclean", "acks1-evidence", "acks1-honest", "acks0", "clean-return", "last-two", "purgatory", "purgatory-timeout", "mixed-request",
		"fenced-leader", "pipelining",
	}
}

func TestEachRowHasItsExperiment(t *testing.T) {
	var names []string
	for _, e := range Experiments() {
		names = append(names, e.Name)
		if e.Shows == "" || e.Table == "" {
			t.Errorf("%s does not say what it shows, or of which table it is", e.Name)
		}
		chain, err := e.chain()
		if err != nil {
			t.Error(err)
		}
		judged := 0
		for _, before := range chain {
			for i, s := range before.steps(Fast()) {
				if s.Do == "" || s.Run == nil {
					t.Errorf("%s: step %d of %s does nothing", e.Name, i+1, before.Name)
				}
			}
		}
		for _, s := range e.steps(Defaults()) {
			if s.Expect != "" {
				judged++
			}
		}
		if judged == 0 {
			t.Errorf("%s has no step that expects something", e.Name)
		}
	}
	slices.Sort(names)
	want := slices.Sorted(slices.Values(rows()))
	if !slices.Equal(names, want) {
		t.Errorf("experiments %v\nwant %v", names, want)
	}
}

func TestChainsRunTheirBeginningFirst(t *testing.T) {
	e, err := Find("acks1-honest")
	if err != nil {
		t.Fatal(err)
	}
	chain, err := e.chain()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range chain {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != "acks1-accepted acks1-offline acks1-unclean acks1-evidence acks1-honest" {
		t.Errorf("chain %s", got)
	}
	if _, err := Find("nonsense"); err == nil {
		t.Error("there is an experiment nonsense")
	}
}

// fakeWorld takes steps without a cluster.
func fakeWorld(out *bytes.Buffer) *world {
	return &world{cluster: &nodes.Cluster{}, set: Fast(), narrator: newNarrator(tools.Output{Out: out})}
}

func says(measured string, err error) Step {
	return Step{Do: "do", Expect: "see", Run: func(context.Context, *world) (string, error) { return measured, err }}
}

func TestStepsEndAtTheFirstThatFails(t *testing.T) {
	for _, tc := range []struct {
		name       string
		second     error
		passed     bool
		taken, not int
	}{
		{"all pass", nil, true, 3, 0},
		{"something else was seen", differs("nothing"), false, 2, 1},
		{"it could not be carried out", errors.New("no such broker"), false, 2, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			w, v := fakeWorld(&out), Verdict{}
			e := Experiment{Name: "x", steps: func(Settings) []Step { return []Step{says("one", nil), says("two", tc.second), says("three", nil)} }}
			w.takeSteps(t.Context(), []Experiment{e}, &v)
			if len(v.Steps) != tc.taken || v.NotReached != tc.not || v.Steps[len(v.Steps)-1].Passed != tc.passed {
				t.Errorf("verdict %+v", v)
			}
			v.Passed = tc.passed
			w.narrator.verdict(v)
			for _, want := range []string{"expected: see", "measured: one", map[bool]string{true: "PASSED", false: "FAILED"}[tc.passed]} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

var rewrite = flag.Bool("rewrite", false, "write the golden file instead of comparing with it")

// TestRunsAreToldGolden: how a run that passes and one that fails are told to people, and as JSON.
func TestRunsAreToldGolden(t *testing.T) {
	var all strings.Builder
	for _, problem := range []error{nil, differs("nothing\nat all")} {
		var out bytes.Buffer
		w := fakeWorld(&out)
		steps := []Step{{Do: "start", Run: func(context.Context, *world) (string, error) { return "", nil }}, says("two", problem), says("three", nil)}
		e := Experiment{Name: "x", Shows: "what is shown", steps: func(Settings) []Step { return steps }}
		v := Verdict{Experiment: e.Name, Settings: Fast().properties(), Steps: []StepResult{}}
		w.narrator.begin(e, Fast(), "/tmp/dir")
		w.takeSteps(t.Context(), []Experiment{e}, &v)
		if v.Passed = problem == nil; !v.Passed {
			v.Dir = "/tmp/dir"
		}
		w.narrator.verdict(v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(out.String() + string(text) + "\n")
	}
	seconds := regexp.MustCompile(`("seconds":)[0-9.e-]+|[0-9.]+( s\b)`)
	got, path := seconds.ReplaceAllString(all.String(), "${1}N${2}"), filepath.Join("testdata", "run.golden")
	if *rewrite {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("got\n%s\nwant\n%s (%v)", got, want, err)
	}
}

func TestAwaitJudgesWhatIsSeen(t *testing.T) {
	var out bytes.Buffer
	w := fakeWorld(&out)
	looks := 0
	_, seen, err := w.await(t.Context(), "three", time.Minute, func(context.Context) (string, bool, error) {
		looks++
		if looks == 1 {
			return "", false, errors.New("broker away")
		}
		return "looks", looks == 3, nil
	})
	if err != nil || looks != 3 || seen != "looks" {
		t.Errorf("after %d looks: %q, %v", looks, seen, err)
	}
	_, _, err = w.await(t.Context(), "never", 0, func(context.Context) (string, bool, error) { return "this", false, nil })
	if !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), "this") {
		t.Errorf("a wait that ends in vain: %v", err)
	}
	_, err = w.watch(t.Context(), "holds", time.Minute, func(context.Context) (string, bool, error) { return "that", false, nil })
	if !errors.Is(err, errDiffers) {
		t.Errorf("a watch that sees a change: %v", err)
	}
}

func TestRunSaysWhenTheClusterDoesNotStart(t *testing.T) {
	t.Setenv("CAIRN_TEST_DIR", t.TempDir())
	var out, text bytes.Buffer
	v, err := Run(t.Context(), "clamp-open", Options{Binary: "/nonexistent", Fast: true}, tools.Output{Out: &out, Err: &text, JSON: true})
	if !errors.Is(err, ErrFailed) || v.Passed || v.Problem == "" || v.Dir == "" {
		t.Errorf("verdict %+v, error %v", v, err)
	}
	var printed Verdict
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil || printed.Dir != v.Dir {
		t.Errorf("printed %q: %v", out.String(), err)
	}
	if !strings.Contains(text.String(), "FAILED clamp-open") || !strings.Contains(text.String(), v.Dir) {
		t.Errorf("told:\n%s", text.String())
	}
}

func TestFieldsOfADescription(t *testing.T) {
	line := partitionState{leader: -1, elr: []int32{1}, lastKnownELR: []int32{1}}.String()
	for want, holds := range map[string]bool{
		"Leader: none Isr: Elr: 1 LastKnownElr: 1": true,
		"Isr: Elr: 1":   true,
		"Isr: 1":        false,
		"Leader: 1":     false,
		"Elr:":          false,
		"LastKnownElr:": false,
	} {
		if hasFields(line, want) != holds {
			t.Errorf("%q in %q: %v", want, line, !holds)
		}
	}
}

func TestRangesCoverOrDoNot(t *testing.T) {
	for _, tc := range []struct {
		ranges []lostRange
		covers bool
	}{
		{[]lostRange{{0, 0, 100}}, true},
		{[]lostRange{{1, 40, 100}, {0, 0, 40}}, true},
		{[]lostRange{{0, 0, 100}, {0, 0, 100}}, true}, // reported for two brokers
		{[]lostRange{{0, 0, 99}}, false},
		{[]lostRange{{0, 0, 101}}, false},
		{[]lostRange{{0, 0, 40}, {1, 41, 100}}, false},
		{[]lostRange{{0, 1, 100}}, false},
		{nil, false},
	} {
		if covers(tc.ranges, 100) != tc.covers {
			t.Errorf("%v covers 0..99: %v", tc.ranges, !tc.covers)
		}
	}
}

func TestDumpsAndReportsAreRead(t *testing.T) {
	values, err := dumpedValues(`{"baseOffset":0,"isvalid":true,"records":[{"offset":0,"value":"djA="},{"offset":1,"value":"djE="}]}` + "\n" +
		`{"baseOffset":2,"isvalid":true,"records":[{"offset":2,"value":"djI="}]}` + "\n")
	if err != nil || !numbered(values, "v", 3) || numbered(values, "v", 2) || numbered(values, "w", 3) {
		t.Errorf("%v, %v", values, err)
	}
	if _, err := dumpedValues(`{"baseOffset":0,"isvalid":false}`); !errors.Is(err, errDiffers) {
		t.Errorf("a damaged batch: %v", err)
	}
	losses, err := oneArray[reportedLoss](`[{"topic":"t","partition":0,"leaderEpoch":3,"from":0,"to":100,"cause":"unclean election","broker":1}]`)
	if err != nil || len(losses) != 1 || losses[0].To != 100 || losses[0].LeaderEpoch != 3 {
		t.Errorf("%+v, %v", losses, err)
	}
	if _, err := oneArray[reportedLoss]("no JSON"); err == nil {
		t.Error("text was taken for JSON")
	}
}

func TestComparisonsOfPairs(t *testing.T) {
	same := pair{before: []float64{1, 1, 1, 1, 1}, during: []float64{2, 5.9, 1, 1, 1}}
	if seen, err := comparePairs([]pair{same, same, same}); err != nil {
		t.Errorf("%s: %v", seen, err)
	}
	slow := pair{before: []float64{1, 1, 1, 1, 1}, during: []float64{2, 6.1, 1, 1, 1}}
	if seen, err := comparePairs([]pair{same, slow, slow}); !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), "fetch") {
		t.Errorf("%s: %v", seen, err)
	}
	if _, err := comparePairs([]pair{same, same, slow}); err != nil {
		t.Errorf("one run of three is slow: %v", err)
	}
	grown := pair{idle: footprint{100, 10, 1 << 20}, loaded: footprint{10100, 10, 1 << 20}}
	if _, err := compareFootprints([]pair{grown}); !errors.Is(err, errDiffers) {
		t.Errorf("a goroutine for each request: %v", err)
	}
}
