//go:build cairn_planted

package main

import (
	"bytes"
	"cmp"
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
		Seed: 1, Flush: "os", Partitions: 2, MinISR: 1, Session: 4 * time.Second, Lag: time.Second,
		Actions: []Action{{At: 2500 * time.Millisecond, Op: opHeal}},
	}
}

// outOfISR cuts broker 3 off from the other brokers, not from the controllers, and then leaves it alone: if the leader has told the controller
// nothing of the ISR that it goes by, broker 3 leads, without what was acknowledged meanwhile. If the controller was asked, the partition waits for
// the others, as long as within. What has to be so before the next step is waited for. A frozen broker would not do: what was sent to it waits in
// its sockets, and it takes that as it goes on.
func outOfISR(within time.Duration) Plan {
	p := calm()
	p.Actions = nil
	for _, other := range []int{1, 2} {
		p.Actions = append(p.Actions, Action{At: 500 * time.Millisecond, Op: opCut, From: other, To: 3}, Action{At: 500 * time.Millisecond, Op: opCut, From: 3, To: other})
	}
	p.Actions = append(
		p.Actions,
		Action{Op: opAwaitAcks, Within: 30 * time.Second},
		Action{Op: opKill, Nodes: []int{1, 2}},
		Action{Op: opAwaitLead, Nodes: []int{3}, Within: within},
		Action{Op: opHeal, Reset: true},
		Action{Op: opStart, Nodes: []int{1, 2}},
	)
	return p
}

// patience is how long a round with a fault waits for what will not come.
const patience = 3 * time.Second

// TestPlantedFaultsAreFound: each in the first round with it, and nothing in the same rounds without a fault.
func TestPlantedFaultsAreFound(t *testing.T) {
	if os.Getenv("CAIRN_INTEGRATION") == "" {
		t.Skip("starts processes; set CAIRN_INTEGRATION=1")
	}
	binary := plantedBinary(t)
	for _, row := range []struct {
		fault, plan string
		Plan
		want []string // each of them is found; nil: nothing is
	}{
		{"", "out of ISR", outOfISR(6 * time.Second), nil},
		{"isr", "out of ISR", outOfISR(20 * time.Second), []string{checker.LostWrite}},
		{"", "calm", calm(), nil},
		{"drop", "calm", calm(), []string{checker.LostWrite}},
		{"duplicate", "calm", calm(), []string{checker.Duplicate}},
		{"marker", "calm", calm(), []string{checker.TornTransaction, checker.StuckPartition}},
	} {
		t.Run(cmp.Or(row.fault, "none")+", "+row.plan, func(t *testing.T) {
			t.Parallel() // each has a cluster of its own
			if row.want != nil {
				row.Patience = patience
			}
			plantedRound(t, binary, row.Plan, row.fault, row.want)
		})
	}
}

// plantedRound runs a round with a fault, and sees that each of what it should finds is found, and nothing if there is no fault.
func plantedRound(t *testing.T, binary string, p Plan, fault string, want []string) {
	t.Helper()
	o, err := round(t.Context(), binary, p, plantedEnv+"="+fault)
	t.Logf("%s; outcome: %.300v", o.report, err)
	if want == nil && err != nil {
		t.Errorf("without a fault: %v", err)
	}
	for _, kind := range want {
		if !slices.ContainsFunc(o.report.Findings, func(f checker.Finding) bool { return f.Kind == kind }) {
			t.Errorf("the fault is not found as %q", kind)
		}
	}
	if t.Failed() {
		t.Logf("plan, history, end, logs and data are kept in %s", o.dir)
	} else if err := os.RemoveAll(o.dir); err != nil {
		t.Error(err)
	}
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
