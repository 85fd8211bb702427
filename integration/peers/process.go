package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a server that can be started again.
type process struct {
	words []string
	log   string

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// start starts it, if it does not run.
func (p *process) start() error {
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd, p.done = exec.Command(p.words[0], p.words[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return errors.Join(err, log.Close())
	}
	go func() { // ends with the process
		defer close(p.done)
		_ = p.cmd.Wait() // killed, or told to end
		_ = log.Close()
	}()
	return nil
}

// end sends a signal and waits.
func (p *process) end(sig syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopLimit):
		_ = p.cmd.Process.Kill() // it did not hear
		return fmt.Errorf("process %d did not end within %v of %v; its log is %s", p.cmd.Process.Pid, stopLimit, sig, p.log)
	}
}

// fleet is the servers of one system, all processes of the same kind.
type fleet struct {
	nodes  []*process // those that clients reach
	others []*process // a controller
	at     []string
	home   string // with the data of all
}

func (f *fleet) dir() string { return f.home }

func (f *fleet) all() []*process { return append(append([]*process(nil), f.others...), f.nodes...) }

func (f *fleet) start() error {
	var errs []error
	for _, p := range f.all() {
		errs = append(errs, p.start())
	}
	return errors.Join(errs...)
}

// stop ends the nodes at the same time, and then the controller, without which they would not end.
func (f *fleet) stop() error {
	ends := make(chan error)
	for _, p := range f.nodes {
		go func() { ends <- p.end(syscall.SIGTERM) }()
	}
	var errs []error
	for range f.nodes {
		errs = append(errs, <-ends)
	}
	for _, p := range f.others {
		errs = append(errs, p.end(syscall.SIGTERM))
	}
	return errors.Join(errs...)
}

func (f *fleet) kill(node int) error { return f.nodes[node].end(syscall.SIGKILL) }

func (f *fleet) close() error { return f.crash() }

func (f *fleet) crash() error {
	var errs []error
	for _, p := range f.all() {
		errs = append(errs, p.end(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

func (f *fleet) logTails() string {
	var b strings.Builder
	for _, p := range f.all() {
		if text, err := os.ReadFile(p.log); err == nil {
			fmt.Fprintf(&b, "%s:\n%s\n", p.log, text[max(0, len(text)-2000):])
		}
	}
	return b.String()
}

func (f *fleet) addresses() []string { return f.at }

func (f *fleet) pids() []int {
	var list []int
	for _, p := range f.all() {
		if p.running() {
			list = append(list, p.cmd.Process.Pid)
		}
	}
	return list
}

// freePorts finds ports of the loopback address that nobody listens on, below those that Linux gives to outgoing connections.
func freePorts(n int) ([]int, error) {
	var list []int
	for tries := 0; len(list) < n; tries++ {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp", local(port))
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			list = append(list, port)
		} else if tries > 1000 {
			return nil, err
		}
	}
	return list, nil
}

// forget has the operating system write what is below a directory to the disk, and keep nothing of it in memory.
func forget(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	})
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// usage is what processes have used: processor time since their start, resident memory now.
type usage struct {
	cpu time.Duration
	rss int64
}

// used adds up.
func used(pids []int) (usage, error) {
	var sum usage
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return sum, err
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may have blanks
		for _, i := range []int{11, 12} {                                         // utime, stime
			ticks, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return sum, err
			}
			sum.cpu += time.Duration(ticks) * time.Second / 100
		}
		pages, err := strconv.ParseInt(fields[21], 10, 64)
		if err != nil {
			return sum, err
		}
		sum.rss += pages * int64(os.Getpagesize())
	}
	return sum, nil
}
