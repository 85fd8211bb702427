package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
	orders "cairn/internal/faults"
)

// ordersFile has the faults of a node's machine, in the directory in which its process starts.
const ordersFile = "orders.json"

// brokenWithin is how long a process may go on after a write or a sync of it has failed.
const brokenWithin = 5 * time.Second

// machine is what is known of the machines that the nodes run on, and of the processes there.
type machine struct {
	orders map[int]orders.Orders
	up     map[int]int64  // nodes that nobody has ended, with the length of their log when they started
	broken map[int]string // at what the disk of a node has failed since it started
}

func newMachine() machine {
	return machine{map[int]orders.Orders{}, map[int]int64{}, map[int]string{}}
}

// ends notes that the node is about to be ended.
func (m machine) ends(id int) { delete(m.up, id) }

// takesOrders has the nodes, all of which run, watched from now on. It fails if they are of a binary that does without faults.
func (f *faults) takesOrders() error {
	for _, n := range f.cluster.Nodes {
		if _, err := os.Stat(orders.TakenFile(ordersOf(n))); err != nil {
			return fmt.Errorf("node %d takes no orders: build cairn with -tags cairn_faults: %w", n.ID, err)
		}
		f.machine.up[n.ID] = 0
	}
	return nil
}

func ordersOf(n *harness.Node) string { return filepath.Join(n.Dir, ordersFile) }

func (f *faults) start(n *harness.Node) error {
	f.lookForEnded()
	// What the disk of the process before has failed at is no matter of the next one.
	if err := os.Remove(orders.HitFile(ordersOf(n))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	size := int64(0)
	if info, err := os.Stat(n.LogFile()); err == nil {
		size = info.Size()
	}
	f.machine.up[n.ID] = size
	delete(f.machine.broken, n.ID)
	return n.Start()
}

// order does to a node's machine what the action says.
func (f *faults) order(ctx context.Context, a Action, n *harness.Node) error {
	o := f.machine.orders[n.ID]
	switch a.Op {
	case opFull:
		o.Disk.Full, o.Disk.Told, o.Disk.LeftBytes = true, a.Told, a.Left
	case opLag:
		o.Disk.SlowMs = a.Delay.Milliseconds()
	case opFail:
		o.Disk.Fail = a.On
	case opMend:
		if err := f.awaitBroken(ctx, n); err != nil {
			return err
		}
		o.Disk = orders.Disk{}
	case opClock:
		o.ClockMs = a.Delay.Milliseconds()
	default:
		return nil
	}
	f.machine.orders[n.ID] = o
	return orders.Give(ordersOf(n), o)
}

// well is the end of all that is wrong with a node's machine.
func (f *faults) well(ctx context.Context, n *harness.Node) error {
	if err := f.awaitBroken(ctx, n); err != nil {
		return err
	}
	f.machine.orders[n.ID] = orders.Orders{}
	return orders.Give(ordersOf(n), orders.Orders{})
}

// awaitBroken sees to it that a process whose disk has failed ends.
func (f *faults) awaitBroken(ctx context.Context, n *harness.Node) error {
	hit, err := os.ReadFile(orders.HitFile(ordersOf(n)))
	if err != nil {
		return nil //nolint:nilerr // there was nothing to write meanwhile
	}
	f.machine.broken[n.ID] = string(hit)
	if err := os.Remove(orders.HitFile(ordersOf(n))); err != nil {
		return err
	}
	if n.Serving() {
		timer := time.NewTimer(brokenWithin)
		defer timer.Stop()
		select {
		case <-n.Ended():
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			f.history.Add(checker.Event{Kind: checker.DiskFailed, Text: fmt.Sprintf("node %d goes on %v after this failed: %s", n.ID, brokenWithin, hit)})
		}
	}
	f.lookForEnded()
	return nil
}

// lookForEnded notes processes that have ended though nobody ended them, and none of the reasons is there for which they should.
func (f *faults) lookForEnded() {
	for _, n := range f.cluster.Nodes {
		from, up := f.machine.up[n.ID]
		if !up || n.Running() {
			continue
		}
		f.machine.ends(n.ID)
		log, err := logFrom(n, from)
		if err != nil {
			log = err.Error()
		}
		e := f.ended(n, log)
		if e.Kind == "" {
			e.Kind, e.Text = checker.Fault, "ended as its disk demands"
			f.diskEnds++
		}
		e.Text = fmt.Sprintf("node %d %s; its log says: %s", n.ID, e.Text, lastWords(log))
		f.history.Add(e)
	}
}

// ended says what is wrong with the end of a process that wrote this log; no kind: nothing.
func (f *faults) ended(n *harness.Node, log string) (e checker.Event) {
	failed := f.machine.broken[n.ID]
	if hit, err := os.ReadFile(orders.HitFile(ordersOf(n))); err == nil {
		failed = string(hit)
	}
	named := false // several may fail at the same time, and one of them is what the process ends by
	for _, line := range strings.Split(strings.TrimSpace(failed), "\n") {
		_, file, _ := strings.Cut(line, " ")
		named = named || file != "" && strings.Contains(log, file+": input/output error")
	}
	switch {
	case named:
	case failed != "":
		e.Kind, e.Text = checker.DiskFailed, "ended after this failed, and does not name it: "+failed
	case f.machine.orders[n.ID].Disk.Full && !strings.Contains(log, " is ready") && strings.Contains(log, "no space left on device"):
		// A start needs some room, and says so.
	default:
		e.Kind, e.Text = checker.Ended, "ended by itself"
	}
	return e
}

// logFrom is the log of a node from so many bytes on, of what is very long the end.
func logFrom(n *harness.Node, from int64) (text string, err error) {
	file, err := os.Open(n.LogFile())
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	b, err := io.ReadAll(io.NewSectionReader(file, from, 64<<20))
	return string(b), err
}

// lastWords is why a process ended, by its log.
func lastWords(log string) string {
	const most = 600
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, l := range lines {
		for _, begin := range []string{"panic: ", "fatal error: ", "BUG: "} {
			if strings.HasPrefix(l, begin) {
				return l[:min(len(l), most)]
			}
		}
	}
	l := lines[len(lines)-1]
	return l[:min(len(l), most)]
}
