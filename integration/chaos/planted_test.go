//go:build cairn_planted

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
)

// plantedEnv is what the binary with planted faults knows, and no other: see broker/planted_faults.go.
const plantedEnv = "CAIRN_PLANTED"

// plantedTags: rounds give orders to the machines as well.
const plantedTags = "cairn_planted,cairn_faults"

// calm is a plan in which nothing is done to the cluster for a while.
func calm() Plan {
	return Plan{
		Seed: 1, Flush: "os", Partitions: 2, MinISR: 1, Session: 4 * time.Second, Lag: time.Second, Settle: 3 * time.Second,
		Actions: []Action{{At: 4 * time.Second, Op: opHeal}},
	}
}

// outOfISR has broker 3 fall behind, and be the only one left of those whom the controller takes for in sync when the leader tells it
// nothing of that. If the controller was asked, the partition waits for the others.
func outOfISR() Plan {
	p := calm()
	p.Session = 6 * time.Second
	at := func(ms int, op Op, nodes ...int) Action {
		return Action{At: time.Duration(ms) * time.Millisecond, Op: op, Nodes: nodes}
	}
	p.Actions = []Action{
		at(1000, opFreeze, 3), at(4000, opKill, 1, 2), at(4100, opThaw, 3), at(17_000, opStart, 1, 2), {At: 18 * time.Second, Op: opHeal},
	}
	return p
}

func TestPlantedFaultsAreFound(t *testing.T) {
	if os.Getenv("CAIRN_INTEGRATION") == "" {
		t.Skip("starts processes; set CAIRN_INTEGRATION=1")
	}
	binary := plantedBinary(t)
	for _, row := range []struct {
		fault string
		plan  Plan
		want  []string // one of these is found
	}{
		{"", outOfISR(), nil},
		{"drop", calm(), []string{checker.LostWrite}},
		{"duplicate", calm(), []string{checker.Duplicate}},
		{"isr", outOfISR(), []string{checker.LostWrite}},
		{"marker", calm(), []string{checker.TornTransaction, checker.StuckPartition}},
	} {
		t.Run("planted "+row.fault, func(t *testing.T) {
			t.Parallel() // each has a cluster of its own
			for tries := 1; !plantedRound(t, binary, row.plan, row.fault, row.want); tries++ {
				if tries == plantedTries || row.want == nil {
					t.Fatalf("not as it should be in %d rounds", tries)
				}
			}
		})
	}
}

// plantedTries is how many rounds a fault gets. Some show only when the processes of a busy machine keep to the times of the plan.
const plantedTries = 3

// plantedRound reports whether a round with a fault found one of what it should, and nothing if it has none.
func plantedRound(t *testing.T, binary string, p Plan, fault string, want []string) (asItShould bool) {
	t.Helper()
	o, err := round(t.Context(), binary, p, plantedEnv+"="+fault)
	t.Logf("%s; outcome: %.200v", o.report, err)
	for i, f := range o.report.Findings {
		if i < 5 {
			t.Logf("%s", f)
		}
	}
	asItShould = err == nil
	if want != nil {
		asItShould = err != nil && slices.ContainsFunc(o.report.Findings, func(f checker.Finding) bool { return slices.Contains(want, f.Kind) })
	}
	if o.dir != "" && asItShould {
		if err := os.RemoveAll(o.dir); err != nil {
			t.Error(err)
		}
	}
	return asItShould
}

// plantedBinary builds the product with its planted faults, and sees that the one without the tag has none.
func plantedBinary(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tags := range []string{"", plantedTags} {
		path := filepath.Join(dir, "cairn"+tags)
		build := exec.Command("go", "build", "-tags", tags, "-o", path, "./cmd/cairn")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(text, []byte(plantedEnv)); has != strings.Contains(tags, "planted") {
			t.Errorf("the binary built with tags %q knows of planted faults: %t", tags, has)
		}
	}
	return filepath.Join(dir, "cairn"+plantedTags)
}
