package integration

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDumpOfAKilledNode: it tells what the running node told, and changes no byte of the directory.
func TestDumpOfAKilledNode(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	at := "--bootstrap-server=" + node.Addr
	cairn(t, "", "topics", "create", at, "--topic", "told", "--partitions", "1")
	cairn(t, "", "bench", "produce", at, "--topic", "told", "--num-records", "3000", "--record-size", "300", "--transactional-id", "teller",
		"--transaction-duration-ms", "10")
	live := cairn(t, "", "dump", at, "--topic", "told", "--print-data-log")
	raft := cairn(t, "", "dump", at, "--topic", "told", "--raft", "--json")
	if verified := cairn(t, "", "dump", at, "--topic", "told", "--verify"); !strings.HasPrefix(verified, "told-0 at broker 1\tlogStartOffset: 0\t") || !strings.HasSuffix(verified, "\tok\n") {
		t.Errorf("verification of the running node: %s", verified)
	}
	must(t, node.Kill())
	dumpsUntouched(t, node.DataDir())
	stored := cairn(t, "", "dump", "--data-dir", node.DataDir(), "--topic", "told", "--print-data-log")
	if got, want := afterLine(stored), afterLine(live); got != want || strings.Count(got, "\n") < 3000 || !strings.Contains(got, " endTxnMarker: COMMIT ") {
		t.Errorf("%d lines of the killed node, %d of the running one; the first are\n%.300s\n%.300s", strings.Count(got, "\n"), strings.Count(want, "\n"), got, want)
	}
	storedRaft := cairn(t, "", "dump", "--data-dir", node.DataDir(), "--topic", "told", "--raft", "--json")
	if got, want := afterLine(storedRaft), afterLine(raft); got != want || !strings.Contains(got, `"kind":"genesis"`) {
		t.Errorf("the Raft log of the killed node is\n%s\nnot as the running one told:\n%s", got, want)
	}
	if !strings.Contains(raft, `"kind":"state"`) || !strings.Contains(raft, `"leaderEpochs":[{"epoch":0,"startOffset":0,`) {
		t.Errorf("state %.500s", raft)
	}
}

// afterLine is text without its first line.
func afterLine(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

// dumpsUntouched verifies and dumps all that a killed node has, and checks that this left its files as they were.
func dumpsUntouched(t *testing.T, dir string) {
	t.Helper()
	before := hashes(t, dir)
	for line := range strings.Lines(cairn(t, "", "dump", "--data-dir", dir, "--verify")) {
		if !strings.HasSuffix(line, "\tok\n") {
			t.Errorf("verification of %s: %s", dir, line)
		}
	}
	for line := range strings.Lines(cairn(t, "", "dump", "--data-dir", dir)) {
		name, _, _ := strings.Cut(line, "\t")
		i := strings.LastIndexByte(name, '-')
		if i < 0 || strings.HasPrefix(name, "__") {
			continue
		}
		for _, what := range []string{"--raft", "--print-data-log"} {
			cairn(t, "", "dump", "--data-dir", dir, "--topic", name[:i], "--partition", name[i+1:], what)
		}
	}
	if after := hashes(t, dir); after != before {
		t.Errorf("reading %s changed it:\n%s\nwas\n%s", dir, after, before)
	}
}

// hashes has a line for each file below a directory.
func hashes(t *testing.T, dir string) string {
	t.Helper()
	var s strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&s, "%s %x\n", path, sha256.Sum256(b))
		return nil
	}))
	return s.String()
}
