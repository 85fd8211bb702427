package nodes

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTicks is the unit of CPU times in /proc on Linux: 100 per second on every architecture that Go runs on.
const clockTicks = 100

// Usage is what a process has used since its start, from /proc.
type Usage struct {
	CPU          time.Duration // user and system
	RSS          int64         // bytes resident now
	PeakRSS      int64         // bytes resident at most
	WrittenBytes int64         // sent to the storage layer
}

// Usage reads the figures of the running node.
func (n *Node) Usage() (Usage, error) {
	var u Usage
	stat, err := n.procFile("stat")
	if err != nil {
		return u, err
	}
	// The command name, in parentheses, may hold anything; fields count from behind it, the state being the third of the file.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has only %d fields", n.PID(), len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		t, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc/%d/stat: %w", n.PID(), err)
		}
		ticks += t
	}
	u.CPU = time.Duration(ticks) * time.Second / clockTicks
	status, err := n.procFile("status")
	if err != nil {
		return u, err
	}
	u.RSS, u.PeakRSS = 1024*labelled(status, "VmRSS:"), 1024*labelled(status, "VmHWM:")
	io, err := n.procFile("io")
	if err != nil {
		return u, err
	}
	u.WrittenBytes = labelled(io, "write_bytes:")
	return u, nil
}

func (n *Node) procFile(name string) ([]byte, error) {
	return os.ReadFile(fmt.Sprintf("/proc/%d/%s", n.PID(), name))
}

// freezeLimit bounds the time from SIGSTOP until a process stands still.
const freezeLimit = 10 * time.Second

// waitStopped waits until each thread of the process stands still, or is gone: on a busy machine some go on until one has had the signal.
func (n *Node) waitStopped() error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); ; <-look.C {
		moving, err := n.moving()
		if err != nil || moving == "" {
			return err
		}
		if time.Since(begun) > freezeLimit {
			return fmt.Errorf("node %d goes on %v after SIGSTOP: %s", n.ID, freezeLimit, moving)
		}
	}
}

// StandsStill reports whether a node that was frozen still is: somebody else may have let it go on.
func (n *Node) StandsStill() (bool, error) {
	moving, err := n.moving()
	return moving == "", err
}

// moving names a thread of the process that does not stand still; empty: there is none.
func (n *Node) moving() (string, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.PID()))
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if state := stateOf(stat); err == nil && !strings.Contains("TtZX", state) {
			return file + " has the state " + state, nil
		}
	}
	return "", err
}

// stateOf is the state of a thread by its line in /proc, behind the name in parentheses, which may hold anything.
func stateOf(stat []byte) string {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) == 0 {
		return "?"
	}
	return fields[0]
}

// labelled finds the number behind a label at the start of a line; 0 where there is none.
func labelled(text []byte, label string) int64 {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), label); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// Get fetches a page of the metrics listener.
func (n *Node) Get(path string) (int, string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + n.Metrics + path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, string(body), err
}
