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

// numbered are lines with the numbers from one up to another, exclusive.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d %s\n", i, strings.Repeat("x", 2000))
	}
	return b.String()
}

func consumed(t *testing.T, at, topic string, records int) string {
	t.Helper()
	return cairn(t, "", "consume", at, "--topic", topic, "--from-beginning", "--max-messages", fmt.Sprint(records), "--timeout-ms", "30000")
}

// replaceBy puts a checkpoint in place of a stopped node's data.
func replaceBy(t *testing.T, node *harness.Node, checkpoint string) {
	t.Helper()
	must(t, os.RemoveAll(node.DataDir()))
	must(t, os.Rename(checkpoint, node.DataDir()))
}

// refusedStart starts a node that is expected to end at once, and returns what it has said.
func refusedStart(t *testing.T, node *harness.Node) string {
	t.Helper()
	must(t, node.Start())
	until(t, "the start is refused", func() bool { return !node.Running() })
	b, err := os.ReadFile(node.LogFile())
	must(t, err)
	return string(b)
}

// TestBrokerRestoredFromACheckpoint: it comes back with new replicas among brokers that went on, and all have everything.
func TestBrokerRestoredFromACheckpoint(t *testing.T) {
	t.Parallel()
	c := three(t, quick())
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap(), ",")
	cairn(t, "", "topics", "create", at, "--topic", "kept", "--replica-assignment", "2:1:3")
	cairn(t, "", "topics", "create", at, "--topic", "alone", "--replica-assignment", "2")
	cairn(t, numbered(0, 60), "produce", at, "--topic", "kept", "--sync")
	cairn(t, numbered(0, 20), "produce", at, "--topic", "alone", "--sync")
	two := c.Node(2)
	checkpoint := filepath.Join(filepath.Dir(two.DataDir()), "checkpoint")
	cairn(t, "", "checkpoint", at, "--broker", "2", checkpoint)
	if out, err := exec.CommandContext(deadline(t, time.Minute), cairnBinary(t), "checkpoint", at, "--broker", "2", checkpoint).CombinedOutput(); err == nil {
		t.Errorf("made it twice: %s", out)
	}
	cairn(t, numbered(60, 120), "produce", at, "--topic", "kept", "--sync")
	must(t, two.Kill())
	replaceBy(t, two, checkpoint)
	if text := refusedStart(t, two); !strings.Contains(text, "cairn restore "+two.DataDir()) {
		t.Errorf("refused with\n%s", text)
	}
	cairn(t, "", "restore", two.DataDir())
	must(t, two.Start())
	_, err := two.WaitReady(deadline(t, 30*time.Second))
	must(t, err)
	until(t, "all are in sync", func() bool { return len(describe(t, at, "kept").ISR) == 3 })
	cairn(t, "", "elect", at, "--election-type", "preferred", "--topic", "kept", "--partition", "0")
	if leader := describe(t, at, "kept").Leader; leader != 2 {
		t.Errorf("led by %d", leader)
	}
	if got := consumed(t, at, "kept", 120); got != numbered(0, 120) {
		t.Errorf("%d bytes are read from the restored broker", len(got))
	}
	cairn(t, "", "elect", at, "--election-type", "unclean", "--topic", "alone", "--partition", "0")
	if got := consumed(t, at, "alone", 20); got != numbered(0, 20) {
		t.Errorf("%d bytes are read of what only the restored broker had", len(got))
	}
}

// TestWholeClusterRestoredFromACheckpoint: one node is a cluster of its own, and comes back as it was.
func TestWholeClusterRestoredFromACheckpoint(t *testing.T) {
	t.Parallel()
	c := single(t, nil)
	node, at := c.Nodes[0], "--bootstrap-server="+c.Bootstrap()[0]
	cairn(t, "", "topics", "create", at, "--topic", "t")
	cairn(t, numbered(0, 40), "produce", at, "--topic", "t", "--sync")
	checkpoint := filepath.Join(filepath.Dir(node.DataDir()), "checkpoint")
	cairn(t, "", "checkpoint", at, checkpoint)
	cairn(t, numbered(40, 60), "produce", at, "--topic", "t", "--sync")
	must(t, node.Kill())
	replaceBy(t, node, checkpoint)
	if out, err := exec.CommandContext(deadline(t, time.Minute), cairnBinary(t), "restore", node.DataDir()).CombinedOutput(); err == nil || !strings.Contains(string(out), "--whole-cluster") {
		t.Errorf("a controller alone: %v, %s", err, out)
	}
	cairn(t, "", "restore", "--whole-cluster", node.DataDir())
	must(t, node.Start())
	_, err := node.WaitReady(deadline(t, 30*time.Second))
	must(t, err)
	cairn(t, numbered(40, 50), "produce", at, "--topic", "t", "--sync")
	if got := consumed(t, at, "t", 50); got != numbered(0, 50) {
		t.Errorf("%d bytes are read", len(got))
	}
}
