package main

import (
	"os"
	"strings"
	"testing"

	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
	orders "cairn/internal/faults"
)

// TestEndOfAProcessIsJudged: by what was wrong with its disk, and by its last words.
func TestEndOfAProcessIsJudged(t *testing.T) {
	const full = "cairn: write data/store/000007.log: no space left on device; make room on that disk, then start again"
	const named = "panic: engine: store failed: fdatasync data/store/000012.log: input/output error; look for what is wrong"
	for _, row := range []struct {
		name, hit, log string
		full           bool
		want           checker.Kind
	}{
		{"by itself", "", "cairn: node 1 is ready\npanic: BUG: x", false, checker.Ended},
		{"broken, and says so", "sync data/store/000012.log", named, false, ""},
		{"broken at several files, and names one", "write data/durable-end\nsync data/store/000012.log\n", named, false, ""},
		{"broken, and names another file", "sync data/store/000044.log", named, false, checker.DiskFailed},
		{"broken, and names none", "sync data/store/000012.log", "panic: BUG: x", false, checker.DiskFailed},
		{"started without room", "", full, true, ""},
		{"without room, later", "", "cairn: node 1 is ready\n" + full, true, checker.Ended},
		{"says that there was no room where there was", "", full, false, checker.Ended},
	} {
		n := &harness.Node{ID: 1, Dir: t.TempDir()}
		f := &faults{machine: newMachine()}
		if row.hit != "" {
			if err := os.WriteFile(orders.HitFile(ordersOf(n)), []byte(row.hit), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f.machine.orders[1] = orders.Orders{Disk: orders.Disk{Full: row.full}}
		if e := f.ended(n, row.log); e.Kind != row.want {
			t.Errorf("%s: found %q (%s), want %q", row.name, e.Kind, e.Text, row.want)
		}
	}
}

func TestLastWordsAreThePanic(t *testing.T) {
	log := "cairn: node 1 is ready\npanic: BUG: it is so\n\ngoroutine 1 [running]:\nmain.main()\n"
	if got := lastWords(log); got != "panic: BUG: it is so" {
		t.Errorf("%q", got)
	}
	if got := lastWords("a\n" + strings.Repeat("b", 1000) + "\n"); got != strings.Repeat("b", 600) {
		t.Errorf("%d bytes", len(got))
	}
}
