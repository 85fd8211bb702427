package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"cairn/integration/workload"
)

const groupPartitions = 12

// clientGroup is a group of members that are processes of a client, while a load writes.
type clientGroup struct {
	name    string
	members []*stockMember // the ones that live
	all     []*stockMember
	load    *workload.Load
	watch   *commitWatch
}

// groupJoins starts three members, and waits until they share the partitions.
func (p *play) groupJoins() (err error) {
	if _, err := p.driver.do(p.ctx, order{Do: "member"}); err != nil {
		return err
	}
	g := &clientGroup{name: p.slug + "-group"}
	p.group = g
	g.load, err = workload.Start(p.c.Bootstrap(), workload.Options{Topic: g.name, Partitions: groupPartitions, RecordBytes: 100, Every: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	g.watch = p.watchCommits(g.name)
	for range 3 {
		if err := p.join(); err != nil {
			return err
		}
	}
	return divided(p.ctx, groupPartitions, g.members...)
}

func (p *play) join() error {
	words := append(append([]string(nil), p.driver.command...), "member", p.driver.at, p.group.name, p.group.name)
	m, err := startMember(exec.CommandContext(p.ctx, words[0], words[1:]...))
	if err == nil {
		p.group.members, p.group.all = append(p.group.members, m), append(p.group.all, m)
	}
	return err
}

// drop ends the member that came last.
func (g *clientGroup) drop(sig syscall.Signal) error {
	last := len(g.members) - 1
	m := g.members[last]
	g.members = g.members[:last]
	return m.end(sig)
}

// whole says whether a group of three is there to go on with.
func (p *play) whole() error {
	if p.group == nil {
		return fmt.Errorf("%w: no groups", errNotOffered)
	}
	if len(p.group.members) != 3 {
		return errors.New("the group did not come to its three members")
	}
	return nil
}

func (p *play) groupLoses() error {
	if err := p.whole(); err != nil {
		return err
	}
	if err := errors.Join(p.group.drop(syscall.SIGKILL), divided(p.ctx, groupPartitions, p.group.members...)); err != nil {
		return fmt.Errorf("one was killed: %w", err)
	}
	if err := errors.Join(p.join(), divided(p.ctx, groupPartitions, p.group.members...)); err != nil {
		return fmt.Errorf("one came: %w", err)
	}
	return nil
}

// groupLeaves has one member leave, and waits until all that was written was read by some member.
func (p *play) groupLeaves() error {
	if err := p.whole(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	g := p.group
	if err := errors.Join(g.drop(syscall.SIGTERM), divided(ctx, groupPartitions, g.members...)); err != nil {
		return fmt.Errorf("one left: %w", err)
	}
	if err := g.load.Stop(ctx); err != nil {
		return err
	}
	g.load = nil
	ends, err := p.admin.ListEndOffsets(ctx, g.name)
	if err != nil {
		return err
	}
	if err := p.eventually(func() error { return unread(ends, g.all) }); err != nil {
		return err
	}
	return g.watch.end()
}

// endMembers ends what groups have started.
func (p *play) endMembers() {
	if p.group == nil {
		return
	}
	for len(p.group.members) > 0 {
		_ = p.group.drop(syscall.SIGKILL) // it may have ended before
	}
	if p.group.watch != nil {
		_ = p.group.watch.end() // told by its scenario
	}
	if p.group.load != nil {
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		defer cancel()
		_ = p.group.load.Stop(ctx) // the scenario has failed already
	}
}

// commitWatch looks at the committed offsets of a group every now and then until its end.
type commitWatch struct {
	cancel context.CancelFunc
	once   sync.Once
	result chan error
	err    error
}

// watchCommits starts a watch: a goroutine that ends with it.
func (p *play) watchCommits(group string) *commitWatch {
	ctx, cancel := context.WithCancel(p.ctx)
	w := &commitWatch{cancel: cancel, result: make(chan error, 1)}
	go func() {
		last, seen := map[int32]int64{}, false
		var back error
		for {
			offsets, err := p.admin.FetchOffsets(ctx, group)
			if err == nil {
				for _, o := range offsets.Offsets().Sorted() {
					if o.At < last[o.Partition] {
						back = errors.Join(back, fmt.Errorf("partition %d: the committed offset went from %d back to %d", o.Partition, last[o.Partition], o.At))
					}
					last[o.Partition], seen = o.At, true
				}
			}
			select {
			case <-ctx.Done():
				if !seen {
					back = errors.Join(back, errors.New("no offset was ever committed"))
				}
				w.result <- back
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return w
}

// end ends the watch and says what was wrong.
func (w *commitWatch) end() error {
	w.once.Do(func() {
		w.cancel()
		w.err = <-w.result
	})
	return w.err
}
