package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Node is one cairn process and what it keeps between its lives. Its methods are not safe for concurrent use.
type Node struct {
	ID      int
	Dir     string            // holds the data directory, the properties file and the log
	Addr    string            // host:port of its client listener; empty for a controller
	Metrics string            // host:port of its metrics listener
	Props   map[string]string // written to the properties file at each start
	Begun   func(pid int)     // if set, is told of each start
	Env     []string          // NAME=value, besides those of this process
	// Group: the process gets a process group of its own, so that the terminal's interrupt does not reach it, and is killed when the thread ends that
	// started it, however that comes.
	Group bool

	binary string
	proc   *process
	frozen bool
}

// process is one life of a node.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed at the ready line
	done  chan struct{} // closed when the process has ended and been waited for
	state *os.ProcessState
	begun time.Time
}

// ErrNotReady is returned when a node did not come up.
var ErrNotReady = errors.New("node is not ready")

// DataDir is where the node keeps its data.
func (n *Node) DataDir() string { return filepath.Join(n.Dir, "data") }

// LogFile has the output of all lives of the node.
func (n *Node) LogFile() string { return filepath.Join(n.Dir, "log.txt") }

// Start begins a life; it does not wait until the node serves.
func (n *Node) Start() error {
	if n.Running() {
		return fmt.Errorf("node %d runs already", n.ID)
	}
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(n.Props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, n.Props[k])
	}
	file := filepath.Join(n.Dir, "server.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	args := []string{"start", "--config", file}
	if level := os.Getenv("CAIRN_LOG_LEVEL"); level != "" {
		args = append(args, "--log-level", level)
	}
	cmd := exec.Command(n.binary, args...)
	cmd.Env = append(os.Environ(), n.Env...)
	cmd.Stderr, cmd.Dir, cmd.SysProcAttr = log, n.Dir, &syscall.SysProcAttr{Setpgid: n.Group}
	if n.Group {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	p := &process{cmd: cmd, ready: make(chan struct{}), done: make(chan struct{}), begun: time.Now()}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("node %d: %w", n.ID, err), log.Close())
	}
	n.proc, n.frozen = p, false
	if n.Begun != nil {
		n.Begun(n.PID())
	}
	go p.watch(out, log)
	return nil
}

// watch copies standard output to the log, looks for the ready line and reaps the process.
func (p *process) watch(out io.Reader, log *os.File) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	seen := false
	for lines.Scan() {
		line := lines.Text()
		if !seen && strings.HasPrefix(line, "cairn: node ") && strings.Contains(line, " is ready") {
			seen = true
			close(p.ready)
		}
		_, _ = fmt.Fprintln(log, line) // the log is for people; a test does not depend on it
	}
	_ = p.cmd.Wait() // the state says how it ended
	p.state = p.cmd.ProcessState
	_ = log.Close()
}

// Running reports whether the node has a process.
func (n *Node) Running() bool {
	if n.proc == nil {
		return false
	}
	select {
	case <-n.proc.done:
		return false
	default:
		return true
	}
}

// PID is the process id of the running node.
func (n *Node) PID() int { return n.proc.cmd.Process.Pid }

// Ended is closed when the process that Start began last has ended.
func (n *Node) Ended() <-chan struct{} { return n.proc.done }

// WaitReady waits until the node has said that it serves, and returns how long that took from its start.
func (n *Node) WaitReady(ctx context.Context) (time.Duration, error) {
	select {
	case <-n.proc.ready:
		return time.Since(n.proc.begun), nil
	case <-n.proc.done:
		return 0, fmt.Errorf("%w: node %d ended: %v; its log is %s:\n%s", ErrNotReady, n.ID, n.proc.state, n.LogFile(), n.LogTail())
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: node %d: %w; its log is %s:\n%s", ErrNotReady, n.ID, ctx.Err(), n.LogFile(), n.LogTail())
	}
}

// LogTail is the end of the log, at most 4 KiB.
func (n *Node) LogTail() string {
	b, err := os.ReadFile(n.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// Kill ends the process with SIGKILL and waits for that.
func (n *Node) Kill() error { return n.end(syscall.SIGKILL, 10*time.Second) }

// Quit ends the process with SIGQUIT, after which the end of its log says what each of its goroutines was doing.
func (n *Node) Quit() error { return n.end(syscall.SIGQUIT, 10*time.Second) }

// Stop ends the process with SIGTERM; an exit code other than 0 is an error.
func (n *Node) Stop(limit time.Duration) error {
	if err := n.end(syscall.SIGTERM, limit); err != nil {
		return err
	}
	if code := n.proc.state.ExitCode(); code != 0 {
		return fmt.Errorf("node %d: exit code %d after SIGTERM; its log is %s:\n%s", n.ID, code, n.LogFile(), n.LogTail())
	}
	return nil
}

// Freeze stops the process in its tracks; Thaw lets it go on.
func (n *Node) Freeze() error {
	n.frozen = true
	if err := n.proc.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return n.waitStopped()
}

// Thaw is the end of Freeze.
func (n *Node) Thaw() error {
	n.frozen = false
	return n.proc.cmd.Process.Signal(syscall.SIGCONT)
}

// Serving reports whether the node runs and is not frozen.
func (n *Node) Serving() bool { return n.Running() && !n.frozen }

func (n *Node) end(sig syscall.Signal, limit time.Duration) error {
	if !n.Running() {
		return fmt.Errorf("node %d is not running", n.ID)
	}
	if err := n.proc.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("node %d: %w", n.ID, err)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-n.proc.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("node %d runs %v after %v; its log is %s:\n%s", n.ID, limit, sig, n.LogFile(), n.LogTail())
	}
}

// ExitCode waits for the end of the process and returns its code; -1 when a signal ended it.
func (n *Node) ExitCode(ctx context.Context) (int, error) {
	select {
	case <-n.proc.done:
		return n.proc.state.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("node %d goes on running: %w", n.ID, ctx.Err())
	}
}
