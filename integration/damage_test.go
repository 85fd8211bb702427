package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/integration/harness"
)

// damage flips one bit of the largest of a stopped node's stored files with record values, at a part of its size.
func damage(t *testing.T, node *harness.Node, part float64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(node.DataDir(), "store", "*.blob"))
	must(t, err)
	var largest string
	size := int64(0)
	for _, path := range files {
		info, err := os.Stat(path)
		must(t, err)
		if info.Size() > size {
			largest, size = path, info.Size()
		}
	}
	if size == 0 {
		t.Fatal("no values are in files")
	}
	f, err := os.OpenFile(largest, os.O_RDWR, 0)
	must(t, err)
	b, at := make([]byte, 1), int64(part*float64(size))
	_, err = f.ReadAt(b, at)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	must(t, err)
	must(t, f.Close())
}

// restart stops a node in order and starts it again, with something done in between.
func restart(t *testing.T, node *harness.Node, between func()) {
	t.Helper()
	must(t, node.Stop(20*time.Second))
	between()
	must(t, node.Start())
	_, err := node.WaitReady(deadline(t, 20*time.Second))
	must(t, err)
}

func logged(t *testing.T, node *harness.Node, text string) bool {
	t.Helper()
	b, err := os.ReadFile(node.LogFile())
	must(t, err)
	return strings.Contains(string(b), text)
}

// TestFlippedBitIsRepairedFromThePeers: the leader finds that a batch of its is damaged, steps down, and copies everything anew; a
// consumer gets every record. Alone, it serves what it can and says so.
func TestFlippedBitIsRepairedFromThePeers(t *testing.T) {
	c := three(t, quick())
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap(), ",")
	cairn(t, "", "topics", "create", at, "--topic", "kept", "--replica-assignment", "1:2:3")
	cairn(t, "", "topics", "create", at, "--topic", "alone", "--replica-assignment", "2")
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "%d %s\n", i, strings.Repeat("x", 2000))
	}
	for _, topic := range []string{"kept", "alone"} {
		cairn(t, lines.String(), "produce", at, "--topic", topic, "--sync")
	}
	one := c.Node(1)
	restart(t, one, func() {}) // what was in memory and in the write-ahead log goes to files
	restart(t, one, func() { damage(t, one, 0.5) })
	until(t, "all are in sync", func() bool { return len(describe(t, at, "kept").ISR) == 3 })
	cairn(t, "", "elect", at, "--election-type", "preferred", "--topic", "kept", "--partition", "0")
	if leader := describe(t, at, "kept").Leader; leader != 1 {
		t.Fatalf("led by %d", leader)
	}
	got := cairn(t, "", "consume", at, "--topic", "kept", "--from-beginning", "--max-messages", "60", "--timeout-ms", "30000")
	if got != lines.String() {
		t.Errorf("%d bytes consumed, %d produced", len(got), lines.Len())
	}
	until(t, "repaired", func() bool { return logged(t, one, "damaged replica is repaired") })
	if !logged(t, one, "stored data is damaged") {
		t.Error("the log does not tell of the damage")
	}
	until(t, "all are in sync", func() bool { return len(describe(t, at, "kept").ISR) == 3 })
	cairn(t, "", "elect", at, "--election-type", "preferred", "--topic", "kept", "--partition", "0")
	got = cairn(t, "", "consume", at, "--topic", "kept", "--from-beginning", "--max-messages", "60", "--timeout-ms", "30000")
	if got != lines.String() {
		t.Errorf("%d bytes consumed from the repaired one, %d produced", len(got), lines.Len())
	}
	damagedAlone(t, c, at)
}

// damagedAlone: the only replica of a partition is damaged. The other partitions go on, and so does the process.
func damagedAlone(t *testing.T, c *harness.Cluster, at string) {
	t.Helper()
	two := c.Node(2)
	restart(t, two, func() {})
	restart(t, two, func() { damage(t, two, 0.75) }) // both topics are in that file, the second one above
	cmd := exec.CommandContext(deadline(t, time.Minute), cairnBinary(t), "consume", at, "--topic", "alone", "--from-beginning", "--timeout-ms", "3000")
	out, err := cmd.Output() // it may give up, or wait for what does not come
	if n := strings.Count(string(out), "\n"); n == 0 || n >= 60 {
		t.Errorf("%d records in front of the damage: %v", n, err)
	}
	until(t, "the damage is told", func() bool { return logged(t, two, "damaged replica cannot be repaired yet") })
	if !two.Running() {
		t.Error("the broker has ended")
	}
	cairn(t, "more\n", "produce", at, "--topic", "alone", "--sync")
	if p := describe(t, at, "alone"); p.Leader != 2 || len(p.ISR) != 1 {
		t.Errorf("%+v", p)
	}
}
