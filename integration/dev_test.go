package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
	told := notes.String()
	for _, d := range []struct{ pattern, becomes string }{
		{regexp.QuoteMeta(dir) + `/[^/\s]+`, "DIR"}, {`127\.0\.0\.1:\d+`, "HOST:PORT"}, {`\d+ ms`, "N ms"}, {`pid \d+`, "pid N"}, {` +`, " "},
	} {
		told = regexp.MustCompile(d.pattern).ReplaceAllString(told, d.becomes)
	}
	if want, err := os.ReadFile("testdata/dev.golden"); err != nil || told != string(want) {
		t.Errorf("it has told\n%s\nwant\n%s (%v)", told, want, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestClusterEndsWithItsTerminal: when the terminal is closed, `cairn dev` ends its nodes and removes all; when it is killed itself, no node outlives it.
func TestClusterEndsWithItsTerminal(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"hangup": syscall.SIGHUP, "kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(deadline(t, 2*time.Minute), cairnBinary(t), "dev", "--nodes", "1", "--port", "0", "--json")
			cmd.Env = append(os.Environ(), "CAIRN_TEST_DIR="+dir)
			caught := make(chan os.Signal, 1) // so that the command does not inherit that hangups are ignored, as they are under nohup
			signal.Notify(caught, syscall.SIGHUP)
			defer signal.Stop(caught)
			in, err := cmd.StdinPipe()
			must(t, err)
			out, err := cmd.StdoutPipe()
			must(t, err)
			notes, err := cmd.StderrPipe()
			must(t, err)
			must(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			must(t, err)
			var told struct{ BootstrapServers, Directory string }
			must(t, json.Unmarshal([]byte(line), &told))
			if !strings.HasPrefix(told.BootstrapServers, "127.0.0.1:") || filepath.Dir(told.Directory) != dir {
				t.Errorf("it has printed %s", line)
			}
			_, err = io.WriteString(in, "nodes\n")
			must(t, err)
			pids := nodePIDs(t, bufio.NewReader(notes), 2)
			must(t, cmd.Process.Signal(sig))
			err = cmd.Wait()
			if sig == syscall.SIGHUP {
				must(t, err)
				if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
					t.Errorf("left behind: %v, %v", left, err)
				}
			}
			for _, pid := range pids {
				until(t, "the end of process "+strconv.Itoa(pid), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid) })
			}
		})
	}
}

// nodePIDs reads the process ids of n nodes from what the command "nodes" prints.
func nodePIDs(t *testing.T, notes *bufio.Reader, n int) (pids []int) {
	t.Helper()
	running := regexp.MustCompile(`running +pid (\d+)`)
	for len(pids) < n {
		line, err := notes.ReadString('\n')
		must(t, err)
		if m := running.FindStringSubmatch(line); m != nil {
			pid, err := strconv.Atoi(m[1])
			must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// isZombie: the process has ended, and whoever has inherited it has not yet been told.
func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
