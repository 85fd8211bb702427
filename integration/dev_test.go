package integration

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestClusterInOneTerminal: `cairn dev` starts a cluster that takes load while nodes come and go, and leaves nothing behind.
func TestClusterInOneTerminal(t *testing.T) {
	binary, dir := cairnBinary(t), t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, "dev", "--nodes", "3", "--port", "0")
	cmd.Env = append(os.Environ(), "CAIRN_TEST_DIR="+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	notes := &strings.Builder{}
	cmd.Stderr = notes
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM) }() // fails when it has ended, as it should; after it all nodes end
	bootstrap, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no bootstrap line: %v\n%s", err, notes)
	}
	at := "--bootstrap-server=" + strings.TrimSpace(bootstrap)
	cairn(t, "", "topics", "create", at, "--topic", "t", "--partitions", "6")
	_, err = io.WriteString(in, "kill 2\nstart 2\nnodes\n")
	must(t, err)
	if got := cairn(t, "", "verify", at, "--topic", "t", "--max-messages", "20000"); !strings.Contains(got, "20000 read: 0 lost, 0 duplicated, 0 reordered") {
		t.Errorf("verify printed %s", got)
	}
	if got := cairn(t, "", "bench", "produce", at, "--topic", "t", "--num-records", "5000", "--record-size", "100"); !strings.HasPrefix(got, "5000 records sent, ") {
		t.Errorf("bench produce printed %s", got)
	}
	if got := cairn(t, "", "status", at); !strings.Contains(got, "Partitions: 6  Offline: 0") || strings.Contains(got, "No answer") {
		t.Errorf("status printed\n%s", got)
	}
	_, err = io.WriteString(in, "quit\n")
	must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v\n%s", err, notes)
	}
	if !strings.Contains(notes.String(), "node 2 has ended") || !strings.Contains(notes.String(), "node 2 is ready after") {
		t.Errorf("notes\n%s", notes)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
