package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const groupPartitions = 12

// clientsAtOnce is how many clients have a group at the same time.
const clientsAtOnce = 4

// clientGroup is a group of members that are processes of a client, while a load writes.
type clientGroup struct {
	name    string
	members []*stockMember // the ones that live
	all     []*stockMember
	load    *workload.Load
	watch   *commitWatch
}

// groupRows are the steps that a group of each client goes through; a step is taken by several clients at the same time. between is done once all
// have taken the step before, and nil for most.
func groupRows(r *runner) []groupRow {
	return []groupRow{
		{name: "group: three members, 12 partitions", do: (*play).groupJoins},
		{name: "group: one is killed", do: (*play).groupLoses},
		{name: "group: one comes", do: (*play).groupGrows},
		{name: "group: one is frozen, and comes back", do: (*play).groupFreezes},
		{name: "group: all brokers are restarted, one after the other", between: r.rollForGroups, do: (*play).groupGoesOn},
		{name: "group: one unsubscribes; all was read, commits only go on", do: (*play).groupLeaves},
		{name: "list and describe groups", do: (*play).describeGroups},
	}
}

type groupRow struct {
	name    string
	between func(ctx context.Context, c *harness.Cluster, plays []*play) error
	do      func(*play) error
}

// playGroups takes groups of all clients through the steps.
func (r *runner) playGroups(ctx context.Context, c *harness.Cluster, all []*play) {
	for plays := range slices.Chunk(all, clientsAtOnce) {
		for _, row := range groupRows(r) {
			var failed error
			if row.between != nil {
				failed = row.between(ctx, c, plays)
			}
			ends := make([]ending, len(plays))
			var running sync.WaitGroup
			for i, p := range plays {
				running.Go(func() {
					begun := time.Now()
					ends[i].err = errors.Join(failed, row.do(p))
					ends[i].took = time.Since(begun)
				})
			}
			running.Wait()
			for i, p := range plays {
				r.note(clientsShape, p.name, row.name, ends[i])
			}
		}
		for _, p := range plays {
			p.endMembers()
		}
	}
}

// rollForGroups restarts the brokers while the groups read.
func (r *runner) rollForGroups(ctx context.Context, c *harness.Cluster, plays []*play) error {
	topics := []string{"__consumer_offsets"}
	for _, p := range plays {
		topics = append(topics, p.groupName())
	}
	return roll(ctx, c, topics...)
}

func (p *play) groupName() string { return p.slug + "-group" }

// groupJoins starts three members, and waits until they share the partitions.
func (p *play) groupJoins() (err error) {
	if _, err := p.driver.do(p.ctx, order{Do: "member"}); err != nil {
		return err
	}
	g := &clientGroup{name: p.groupName()}
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
	cmd := exec.CommandContext(p.ctx, words[0], words[1:]...)
	log, err := os.Create(filepath.Join(p.c.Dir, fmt.Sprintf("%s-member-%d.stderr", p.slug, len(p.group.all))))
	if err != nil {
		return err
	}
	cmd.Stderr = log
	m, err := startMember(cmd)
	if err == nil {
		m.drops = p.drops
		p.group.members, p.group.all = append(p.group.members, m), append(p.group.all, m)
	}
	return errors.Join(err, log.Close()) // the process has its own
}

// drop ends the member that came last.
func (g *clientGroup) drop(sig syscall.Signal) error {
	last := len(g.members) - 1
	m := g.members[last]
	g.members = g.members[:last]
	return m.end(sig)
}

// whole says whether a group of so many is there to go on with.
func (p *play) whole(members int) error {
	if p.group == nil {
		return fmt.Errorf("%w: no groups", errNotOffered)
	}
	if n := len(p.group.members); n != members {
		return fmt.Errorf("the group did not come to its %d members, it has %d", members, n)
	}
	return nil
}

func (p *play) groupLoses() error {
	if err := p.whole(3); err != nil {
		return err
	}
	return errors.Join(p.group.drop(syscall.SIGKILL), divided(p.ctx, groupPartitions, p.group.members...))
}

func (p *play) groupGrows() error {
	if err := p.whole(2); err != nil {
		return err
	}
	return errors.Join(p.join(), divided(p.ctx, groupPartitions, p.group.members...))
}

// groupFreezes stops a process for longer than its session, so that the others get what it had; then it goes on, and has to find out.
func (p *play) groupFreezes() error {
	if err := p.whole(3); err != nil {
		return err
	}
	m := p.group.members
	if err := m[1].signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := divided(p.ctx, groupPartitions, m[0], m[2])
	if err != nil {
		err = fmt.Errorf("it is frozen: %w", err)
	}
	return errors.Join(err, m[1].signal(syscall.SIGCONT), divided(p.ctx, groupPartitions, m...))
}

func (p *play) groupGoesOn() error {
	if err := p.whole(3); err != nil {
		return err
	}
	return divided(p.ctx, groupPartitions, p.group.members...)
}

// groupLeaves has one member leave, and waits until all that was written was read by some member.
func (p *play) groupLeaves() error {
	if err := p.whole(3); err != nil {
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
	p.group = nil
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
