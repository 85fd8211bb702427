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
func (r *runner) playGroups(ctx context.Context, c *harness.Cluster, shape string, all []*play) {
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
				r.note(shape, p.name, row.name, ends[i])
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

// divided waits until the members share the partitions, and each of them is read on.
func (p *play) divided(members ...*stockMember) error {
	return p.dividedWithin(p.settle, members...)
}

func (p *play) dividedWithin(limit time.Duration, members ...*stockMember) error {
	if err := dividedWithin(p.ctx, limit, groupPartitions, members...); err != nil {
		return err
	}
	var before [groupPartitions]int64
	for i := range before {
		before[i] = furthest(members, i)
	}
	return p.within(limit, func() error {
		for i, at := range before {
			if furthest(members, i) <= at {
				return fmt.Errorf("partition %d is divided, but nobody reads on from offset %d", i, at)
			}
		}
		return nil
	})
}

// furthest is how far one of the members has read a partition.
func furthest(members []*stockMember, partition int) int64 {
	last := int64(-1)
	for _, m := range members {
		last = max(last, m.readUpTo(int32(partition)))
	}
	return last
}

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
	return p.dividedWithin(2*p.settle, g.members...) // processes of many clients start at the same time
}

func (p *play) join() error {
	words := slices.Concat(p.driver.command, []string{"member", p.driver.at, p.group.name, p.group.name}, p.memberArgs)
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
	return errors.Join(p.group.drop(syscall.SIGKILL), p.divided(p.group.members...))
}

func (p *play) groupGrows() error {
	if err := p.whole(2); err != nil {
		return err
	}
	return errors.Join(p.join(), p.divided(p.group.members...))
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
	err := p.divided(m[0], m[2])
	if err != nil {
		err = fmt.Errorf("it is frozen: %w", err)
	}
	return errors.Join(err, m[1].signal(syscall.SIGCONT), p.divided(m...))
}

func (p *play) groupGoesOn() error {
	if err := p.whole(3); err != nil {
		return err
	}
	return p.divided(p.group.members...)
}

// groupLeaves has one member leave, and waits until all that was written was read by some member.
func (p *play) groupLeaves() error {
	if err := p.whole(3); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.settle+time.Minute)
	defer cancel()
	g := p.group
	if err := errors.Join(g.drop(syscall.SIGTERM), p.divided(g.members...)); err != nil {
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
	if err := p.within(p.settle, func() error { return unread(ends, g.all) }); err != nil {
		return err
	}
	return g.watch.end(g.all)
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
		_ = p.group.watch.end(p.group.all) // told by its scenario
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
	seen   bool // an offset was committed; valid with the result
	result chan []setback
	err    error
}

// setback is a committed offset that was lower than one before.
type setback struct {
	partition int32
	from, to  int64
}

// watchCommits starts a watch: a goroutine that ends with it.
func (p *play) watchCommits(group string) *commitWatch {
	ctx, cancel := context.WithCancel(p.ctx)
	w := &commitWatch{cancel: cancel, result: make(chan []setback, 1)}
	go func() {
		last, back := map[int32]int64{}, []setback(nil)
		for {
			offsets, err := p.admin.FetchOffsets(ctx, group)
			if err == nil {
				for _, o := range offsets.Offsets().Sorted() {
					if o.At < last[o.Partition] {
						back = append(back, setback{o.Partition, last[o.Partition], o.At})
					}
					last[o.Partition] = o.At
				}
			}
			select {
			case <-ctx.Done():
				w.seen = len(last) > 0
				w.result <- back
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return w
}

// end ends the watch and says what was wrong. It is no fault of the broker when a member committed for a partition of another one: like Kafka's, it
// knows the members of a classic group, not what they divide among them.
func (w *commitWatch) end(members []*stockMember) error {
	w.once.Do(func() {
		w.cancel()
		back := <-w.result
		if !w.seen {
			w.err = errors.New("no offset was ever committed")
		}
		for _, b := range back {
			if committedAstray(members, b) {
				fmt.Printf("     the client took the committed offset of partition %d from %d back to %d, as it says itself\n", b.partition, b.from, b.to)
				continue
			}
			w.err = errors.Join(w.err, fmt.Errorf("partition %d: the committed offset went from %d back to %d", b.partition, b.from, b.to))
		}
	})
	return w.err
}

func committedAstray(members []*stockMember, b setback) bool {
	return slices.ContainsFunc(members, func(m *stockMember) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.astray[fmt.Sprintf("%d %d", b.partition, b.to)]
	})
}
