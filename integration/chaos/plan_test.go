package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/integration/chaos/checker"
)

func TestPlanOfASeedIsAlwaysTheSame(t *testing.T) {
	if a, b := newPlan(7, 10*time.Second), newPlan(7, 10*time.Second); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if a, b := newPlan(7, 10*time.Second), newPlan(8, 10*time.Second); reflect.DeepEqual(a.Actions, b.Actions) {
		t.Error("two seeds have one plan")
	}
}

// TestPlansCoverAllActions: each action occurs, in order, and of what is begun each is ended or healed by the end of the round.
func TestPlansCoverAllActions(t *testing.T) {
	seen := map[Op]int{}
	for seed := range uint64(200) {
		p := newPlan(seed, 10*time.Second)
		if !slices.IsSortedFunc(p.Actions, func(a, b Action) int { return int(a.At - b.At) }) || len(p.Actions) == 0 {
			t.Fatalf("seed %d: %v", seed, p.Actions)
		}
		if last := p.Actions[len(p.Actions)-1].At; last > 30*time.Second {
			t.Errorf("seed %d lasts %v", seed, last)
		}
		for _, a := range p.Actions {
			seen[a.Op]++
			if a.Op == opUnclean && (a.Partition < 0 || a.Partition >= p.Partitions) {
				t.Errorf("seed %d: %s of %d partitions", seed, a, p.Partitions)
			}
		}
	}
	for _, op := range allOps() {
		if seen[op] < 20 {
			t.Errorf("%s occurs %d times in 200 plans", op, seen[op])
		}
	}
}

// TestSeedsOfCICoverAllActions: whatever is offered is done in one of the rounds that CI runs on seeds that are always the same.
func TestSeedsOfCICoverAllActions(t *testing.T) {
	text, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`make chaos SEED=(\d+) ROUNDS=(\d+) PARALLEL=\d+ LENGTH=(\w+)`).FindSubmatch(text)
	if m == nil {
		t.Fatal(".ci/run has no rounds with a seed")
	}
	first, err := strconv.ParseUint(string(m[1]), 10, 64)
	rounds, err2 := strconv.ParseUint(string(m[2]), 10, 64)
	length, err3 := time.ParseDuration(string(m[3]))
	if err := errors.Join(err, err2, err3); err != nil || rounds < 10 {
		t.Fatalf("%s: %v", m[0], err)
	}
	seen := map[Op]int{}
	for seed := first; seed < first+rounds; seed++ {
		for _, a := range newPlan(seed, length).Actions {
			seen[a.Op]++
		}
	}
	for _, op := range allOps() {
		if seen[op] == 0 {
			t.Errorf("%s occurs in none of %s", op, m[0])
		}
	}
}

// allOps are those that plans of seeds have.
func allOps() []Op {
	return []Op{
		opKill, opTerm, opStart, opFreeze, opThaw, opSplit, opCut, opSlow, opHeal, opElect, opUnclean, opCreate, opFull, opLag, opFail, opMend, opClock,
	}
}

// TestPlansThatLoseAreKnown: a plan with an unclean election has no transactions.
func TestPlansThatLoseAreKnown(t *testing.T) {
	losing := 0
	for seed := range uint64(50) {
		p := newPlan(seed, 10*time.Second)
		if p.loses() {
			losing++
		}
		p.Actions = slices.DeleteFunc(p.Actions, func(a Action) bool { return a.Op == opUnclean })
		if p.loses() {
			t.Errorf("seed %d loses records without an unclean election", seed)
		}
	}
	if losing < 5 || losing > 35 {
		t.Errorf("%d of 50 plans lose records", losing)
	}
}

// TestPartitionsThatHaveNotServedAreKnown: what was sent before does not count, and the writers of transactions only where they are asked for.
func TestPartitionsThatHaveNotServedAreKnown(t *testing.T) {
	l := &load{
		plan: Plan{Partitions: 3}, fresh: map[int32]time.Duration{0: 2 * time.Second, 1: time.Second}, freshTxn: map[string]time.Duration{"a": time.Second, "b": 2 * time.Second},
	}
	partitions, writers := l.behind(time.Second)
	if !slices.Equal(partitions, []int32{1, 2}) || !slices.Equal(writers, []string{"a"}) {
		t.Errorf("%v, %v", partitions, writers)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.begun = time.Now().Add(-time.Second - time.Minute/2)
	if stuck := l.waitAcknowledged(ctx); len(stuck) != 3 {
		t.Errorf("of what was sent before nothing counts, and %v are behind", stuck)
	}
}

// TestFailedRoundSaysHowItIsRunAgain: with the same plan.
func TestFailedRoundSaysHowItIsRunAgain(t *testing.T) {
	for _, length := range []time.Duration{6 * time.Second, 90 * time.Second, 1500 * time.Millisecond} {
		want := newPlan(11, length)
		m := regexp.MustCompile(`^make chaos SEED=(\d+) LENGTH=(\w[\w.]*), or make chaos REPLAY=/kept$`).FindStringSubmatch(again(want, "/kept"))
		if m == nil {
			t.Fatal(again(want, "/kept"))
		}
		seed, err := strconv.ParseUint(m[1], 10, 64)
		same, err2 := time.ParseDuration(m[2])
		if err := errors.Join(err, err2); err != nil || !reflect.DeepEqual(newPlan(seed, same), want) {
			t.Errorf("%s: another plan (%v)", m[0], err)
		}
	}
}

func TestPlanIsReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	want := newPlan(11, 10*time.Second)
	if err := writeJSON(filepath.Join(dir, planFile), want); err != nil {
		t.Fatal(err)
	}
	plans, err := options{replay: dir, rounds: 2}.plans()
	if err != nil || len(plans) != 2 || !reflect.DeepEqual(plans[1], want) {
		t.Errorf("%v, %v", plans, err)
	}
}

// TestRecheckJudgesWhatARoundLeft: a lost record is found again in the files of a round.
func TestRecheckJudgesWhatARoundLeft(t *testing.T) {
	dir := t.TempDir()
	var file bytes.Buffer
	r := checker.NewRecorder(&file)
	r.Add(checker.Event{Kind: checker.Sent, Client: "w", Value: 1, Acks: -1})
	r.Add(checker.Event{Kind: checker.Acked, Client: "w", Value: 1})
	if _, err := r.End(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, historyFile), file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f := checker.Final{Log: map[int32][]checker.Entry{0: {{Value: 1}}}}
	for _, row := range []struct {
		name string
		want string
	}{{"whole", ""}, {"lost", checker.LostWrite}} {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, finalFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = recheck(dir, &out)
		if (err == nil) != (row.want == "") || !strings.Contains(out.String(), row.want) {
			t.Errorf("%s: %v\n%s", row.name, err, out.String())
		}
		f.Log = nil
	}
}
