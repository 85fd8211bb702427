package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
	"cairn/integration/network"
)

const (
	termWithin  = 15 * time.Second
	electWithin = 5 * time.Second
)

// faults carries out the actions of a plan on a cluster.
type faults struct {
	cluster *harness.Cluster
	net     *network.Network
	admin   *kadm.Client
	history *checker.Recorder
	load    *load // once it has begun
	frozen  map[int]bool
	topics  int
	machine machine
	// diskEnds is how many processes have ended because of their disks, as they should.
	diskEnds int
}

// run carries out the actions, each at its time or as soon after as those before it allow.
func (f *faults) run(ctx context.Context, actions []Action) error {
	begun := time.Now()
	for _, a := range actions {
		if err := pause(ctx, time.Until(begun.Add(a.At))); err != nil {
			return err
		}
		f.lookForEnded()
		f.history.Add(checker.Event{Kind: checker.Fault, Text: a.String()})
		if err := f.do(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *faults) do(ctx context.Context, a Action) error {
	for _, id := range a.Nodes {
		n := f.cluster.Node(id)
		if err := f.node(a.Op, n); err != nil {
			return err
		}
		if err := f.order(ctx, a, n); err != nil {
			return err
		}
	}
	switch a.Op {
	case opSplit:
		f.net.Split(a.Nodes...)
	case opCut:
		f.net.Cut(a.From, a.To)
	case opSlow:
		f.slow(a)
	case opHeal:
		f.net.Heal(a.Reset)
	case opElect:
		f.elect(ctx, kadm.ElectPreferredReplica, 0, 1, 2, 3, 4, 5)
	case opUnclean:
		f.history.Add(checker.Event{Kind: checker.Unclean, Partition: a.Partition})
		f.elect(ctx, kadm.ElectLiveReplica, a.Partition)
	case opCreate:
		f.create(ctx)
	case opAwaitAcks, opAwaitLead:
		f.await(ctx, a)
	}
	return nil
}

// await waits for what the action names, and writes down what came of it.
func (f *faults) await(ctx context.Context, a Action) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.Within)
	defer cancel()
	var missing []int32
	if a.Op == opAwaitAcks {
		missing = f.load.waitAcknowledged(ctx)
	} else {
		missing = f.waitLeader(ctx, int32(a.Nodes[0]))
	}
	f.history.Add(checker.Event{Kind: checker.Fault, Text: fmt.Sprintf("waited for %v; not so with the partitions %v", time.Since(begun), missing)})
}

// waitLeader waits until the broker leads all partitions, and returns those that it does not lead.
func (f *faults) waitLeader(ctx context.Context, broker int32) (others []int32) {
	for {
		askCtx, cancel := context.WithTimeout(ctx, time.Second)
		meta, err := f.admin.Metadata(askCtx, topic)
		cancel()
		if err == nil {
			others = nil
			for _, p := range meta.Topics[topic].Partitions.Sorted() {
				if p.Leader != broker {
					others = append(others, p.Partition)
				}
			}
		}
		if err == nil && len(others) == 0 && len(meta.Topics[topic].Partitions) > 0 || pause(ctx, 50*time.Millisecond) != nil {
			return others
		}
	}
}

// node does to one node what can be done to it in the state it is in: plans overlap faults without looking.
func (f *faults) node(op Op, n *harness.Node) error {
	switch {
	case op == opStart && !n.Running():
		return f.start(n)
	case op == opKill && n.Running():
		delete(f.frozen, n.ID)
		f.machine.ends(n.ID)
		return n.Kill()
	case op == opFreeze && n.Running():
		f.frozen[n.ID] = true
		return unlessEnded(n.Freeze())
	case op == opThaw && n.Running():
		delete(f.frozen, n.ID)
		return unlessEnded(n.Thaw())
	case op == opTerm && n.Running() && !f.frozen[n.ID]:
		begun := time.Now()
		f.machine.ends(n.ID)
		if err := n.Stop(termWithin); err == nil {
			return nil
		} else if !n.Running() {
			if code, _ := n.ExitCode(context.Background()); code < 0 { // it has ended, so this does not wait
				return nil // by the signal: it came before the process, just started, could catch it
			}
			if d := f.machine.orders[n.ID].Disk; d.Full || d.Fail != "" {
				return nil // it could not write what it wanted to
			}
			return err
		}
		f.history.Add(checker.Event{Kind: checker.Fault, Text: fmt.Sprintf("node %d is killed %v after SIGTERM", n.ID, time.Since(begun))})
		return n.Kill()
	}
	return nil
}

// unlessEnded is the error of a signal; the process may have ended by itself meanwhile.
func unlessEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (f *faults) slow(a Action) {
	for _, id := range f.net.Nodes() {
		for _, slow := range a.Nodes {
			if id != slow {
				f.net.Slow(id, slow, network.Speed{Delay: a.Delay})
				f.net.Slow(slow, id, network.Speed{Delay: a.Delay})
			}
		}
	}
}

// elect asks for elections. What comes of it depends on the state of the cluster, and is written down.
func (f *faults) elect(ctx context.Context, how kadm.ElectLeadersHow, partitions ...int32) {
	ctx, cancel := context.WithTimeout(ctx, electWithin)
	defer cancel()
	set := kadm.TopicsSet{}
	for _, p := range partitions {
		set.Add(topic, p)
	}
	res, err := f.admin.ElectLeaders(ctx, how, set)
	text := fmt.Sprint("answer of elections: ", err)
	for _, p := range res[topic] {
		text += fmt.Sprintf(" %d:%v", p.Partition, p.Err)
	}
	f.history.Add(checker.Event{Kind: checker.Fault, Text: text})
}

func (f *faults) create(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, electWithin)
	defer cancel()
	f.topics++
	_, err := f.admin.CreateTopic(ctx, 3, brokers, nil, fmt.Sprintf("more-%d", f.topics))
	f.history.Add(checker.Event{Kind: checker.Fault, Text: fmt.Sprint("answer of the creation: ", err)})
}

// end heals everything: all nodes run, on machines that are well, and the network is whole.
func (f *faults) end(ctx context.Context) error {
	f.net.Heal(false)
	f.lookForEnded()
	for _, n := range f.cluster.Nodes {
		if err := f.node(opThaw, n); err != nil {
			return err
		}
		if err := f.well(ctx, n); err != nil {
			return err
		}
		if err := f.node(opStart, n); err != nil {
			return err
		}
	}
	f.history.Add(checker.Event{Kind: checker.Fault, Text: "all is healed"})
	for _, n := range slices.Backward(f.cluster.Nodes) {
		if _, err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
