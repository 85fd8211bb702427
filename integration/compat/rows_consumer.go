package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupCommand = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

// settleTime is how long a group may take to divide its partitions anew: a session timeout and what a busy machine needs.
const settleTime = 30 * time.Second

// stockMember is a Java consumer in a group, a process of its own.
type stockMember struct {
	cmd   *exec.Cmd
	done  chan struct{} // closed once all that it printed is taken in
	drops bool          // see stockClient
	left  []string      // what it had when it was told to stop

	mu   sync.Mutex
	has  []string        // guarded by mu
	read map[string]bool // guarded by mu; "PARTITION OFFSET"
	last map[int32]int64 // guarded by mu; the greatest offset that was read, by partition
	// astray are commits, "PARTITION OFFSET", that the client should not have made, as its driver says; see clients/node. guarded by mu
	astray map[string]bool
}

// member starts a Java consumer.
func (s *story) member(classes, group, topic, protocol string) (*stockMember, error) {
	cmd := exec.CommandContext(s.ctx, "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "cairn.Member", s.at, group, topic, protocol)
	return startMember(cmd)
}

// startMember starts a process that prints "has" with its partitions when they change, "read PARTITION OFFSET" for each record, and
// "astray PARTITION OFFSET" for a commit that is its client's mistake.
func startMember(cmd *exec.Cmd) (*stockMember, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m := &stockMember{cmd: cmd, done: make(chan struct{}), read: map[string]bool{}, last: map[int32]int64{}, astray: map[string]bool{}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		defer close(m.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.heard(lines.Text())
		}
	}()
	return m, nil
}

// heard takes in a line.
func (m *stockMember) heard(line string) {
	what, rest, _ := strings.Cut(line, " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch what {
	case "has":
		m.has = strings.Fields(rest)
	case "astray":
		m.astray[rest] = true
	default:
		m.noteReadLocked(rest)
	}
}

func (m *stockMember) signal(sig syscall.Signal) error { return m.cmd.Process.Signal(sig) }

// end sends the signal that ends it, and waits. What it printed before is not lost.
func (m *stockMember) end(sig syscall.Signal) error {
	if sig == syscall.SIGTERM {
		m.left = m.owned()
	}
	err := m.signal(sig)
	select {
	case <-m.done:
	case <-time.After(settleTime):
		err = errors.Join(err, fmt.Errorf("the member did not end within %v of the signal %v", settleTime, sig), m.cmd.Process.Kill())
	}
	_ = m.cmd.Wait() // its code tells of the signal
	return err
}

func (m *stockMember) owned() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has
}

// divided waits until the members have all of so many partitions, none of them twice, and each about its share.
func divided(ctx context.Context, partitions int, members ...*stockMember) error {
	return dividedWithin(ctx, settleTime, partitions, members...)
}

func dividedWithin(ctx context.Context, limit time.Duration, partitions int, members ...*stockMember) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		owners, even := map[string]int{}, true
		var text strings.Builder
		for i, m := range members {
			list := m.owned()
			even = even && len(list) >= partitions/len(members)
			for _, p := range list {
				owners[p]++
			}
			fmt.Fprintf(&text, " member %d: %v;", i, list)
		}
		sum := 0
		for _, n := range owners {
			sum += n
		}
		if even && len(owners) == partitions && sum == partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d partitions are not divided among %d members:%s", partitions, len(members), text.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// consumerGroup is what the rows of one group share.
type consumerGroup struct {
	*story
	classes string
	members []*stockMember // the ones that live
	all     []*stockMember
	load    *workload.Load
}

// start starts members, and waits until the partitions are divided among them and those that were there.
func (g *consumerGroup) start(partitions int, group, topic string, protocols ...string) error {
	for _, protocol := range protocols {
		m, err := g.member(g.classes, group, topic, protocol)
		if err != nil {
			return err
		}
		g.members, g.all = append(g.members, m), append(g.all, m)
	}
	return divided(g.ctx, partitions, g.members...)
}

// lose ends the last member.
func (g *consumerGroup) lose(sig syscall.Signal) error {
	last := len(g.members) - 1
	m := g.members[last]
	g.members = g.members[:last]
	return m.end(sig)
}

// killAll ends what a failed row has left.
func (g *consumerGroup) killAll() error {
	var errs []error
	for len(g.members) > 0 {
		errs = append(errs, g.lose(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

func (g *consumerGroup) endAll() error {
	var errs []error
	for len(g.members) > 0 {
		errs = append(errs, g.lose(syscall.SIGTERM))
	}
	g.all = nil
	return errors.Join(errs...)
}

// consumerRows are the rows of the consumer protocol (KIP-848), with the stock Java consumer.
func (r *runner) consumerRows(s *story) []row {
	g := &consumerGroup{story: s, classes: r.classes}
	s.ends = append(s.ends, g.killAll)
	const name = "Java consumer, group.protocol=consumer"
	return []row{
		{name, "three members divide 12 partitions", g.joinThree},
		{"ConsumerGroupCommand", "list, describe: group, state, members", g.described},
		{"ConsumerGroupCommand", "reset-offsets of a group that is not there: it is made", g.resetMissing},
		{name, "one is killed, one frozen and back", g.killAndFreeze},
		{name, "all brokers are restarted, one after the other", g.rollBrokers},
		{name, "one unsubscribes; every record was read", g.leaveAndCount},
		{name, "a regular expression, and a topic that comes later", g.regex},
		{name, "a classic group becomes a consumer group and a classic one again", g.migrate},
	}
}

func (g *consumerGroup) newTopic(name string, partitions int32) error {
	ctx, cancel := context.WithTimeout(g.ctx, 30*time.Second)
	defer cancel()
	return workload.CreateTopic(ctx, g.c.Bootstrap(), name, partitions, 3, nil)
}

func (g *consumerGroup) joinThree() (err error) {
	if err = g.newTopic("grouped", 12); err != nil {
		return err
	}
	g.load, err = workload.Start(g.c.Bootstrap(), workload.Options{Topic: "grouped", Partitions: 12, RecordBytes: 100, Every: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	return g.start(12, "g", "grouped", "consumer", "consumer", "consumer")
}

func (g *consumerGroup) described() error {
	command := func(args ...string) answer { return g.kafka(g.ctx, groupCommand, args...) }
	return errors.Join(
		command("--list", "--type", "consumer", "--state").wants(0, "g ", "Consumer", "Stable"),
		command("--describe", "--group", "g").wants(0, "GROUP", "LOG-END-OFFSET", "grouped"),
		command("--describe", "--group", "g", "--state").wants(0, "uniform", "Stable"),
		command("--describe", "--group", "g", "--members", "--verbose").wants(0, "CURRENT-EPOCH", "TARGET-ASSIGNMENT", "grouped:"),
	)
}

// resetMissing resets the offsets of groups that nobody has heard of, with Kafka's tool and with cairn: nothing comes of a dry run, and a group of --execute.
func (g *consumerGroup) resetMissing() error {
	var errs []error
	for _, how := range []string{"--dry-run", "--execute"} {
		args := []string{"--topic", "grouped:3", "--to-earliest"}
		stock := g.kafka(g.ctx, groupCommand, append([]string{"--reset-offsets", "--group", "stock", how}, args...)...)
		if how == "--execute" {
			args = append(args, how)
		}
		own := g.cairn(g.ctx, "groups reset-offsets", append(args, "--group", "owned")...)
		errs = append(errs, stock.wants(0, "stock", "grouped"), sameFields(stock, own, "stock", "owned"))
		list := g.kafka(g.ctx, groupCommand, "--list")
		for _, group := range []string{"stock", "owned"} {
			if there := strings.Contains(list.out, group); there != (how == "--execute") {
				errs = append(errs, fmt.Errorf("%s: the group %s is there: %v", how, group, there))
			}
		}
	}
	return errors.Join(errs...)
}

// sameFields compares what two tools print, whatever is between the words.
func sameFields(kafka, cairn answer, replace ...string) error {
	want := strings.Fields(strings.NewReplacer(replace...).Replace(kafka.out))
	if kafka.code != cairn.code || !slices.Equal(want, strings.Fields(cairn.out)) {
		return fmt.Errorf("cairn: %s\nbut Kafka's tool: %s", cairn, kafka)
	}
	return nil
}

func (g *consumerGroup) killAndFreeze() error {
	if err := g.lose(syscall.SIGKILL); err != nil {
		return err
	}
	if err := divided(g.ctx, 12, g.members...); err != nil {
		return err
	}
	frozen := g.members[1]
	if err := frozen.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := divided(g.ctx, 12, g.members[0])
	return errors.Join(err, frozen.signal(syscall.SIGCONT), divided(g.ctx, 12, g.members...))
}

func (g *consumerGroup) rollBrokers() error {
	return errors.Join(roll(g.ctx, g.c, "grouped"), divided(g.ctx, 12, g.members...))
}

// rollLimit bounds a restart of all brokers, which on a machine with much else to do takes minutes.
const rollLimit = 5 * time.Minute

// roll restarts all brokers, one after the other, each once all replicas of the topics are in sync.
func roll(ctx context.Context, c *harness.Cluster, topics ...string) error {
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, rollLimit)
	defer cancel()
	for _, n := range c.Brokers() {
		if err := errors.Join(n.Stop(30*time.Second), n.Start()); err != nil {
			return err
		}
		if _, err := n.WaitReady(ctx); err != nil {
			return err
		}
		for _, topic := range topics {
			if err := workload.WaitTopic(ctx, kadm.NewClient(cl), topic, func(p kadm.PartitionDetail) bool {
				return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveAndCount has one member leave, and waits until the members have read all that was written, between them.
func (g *consumerGroup) leaveAndCount() error {
	ctx, cancel := context.WithTimeout(g.ctx, time.Minute)
	defer cancel()
	if err := errors.Join(g.lose(syscall.SIGTERM), divided(ctx, 12, g.members...), g.load.Stop(ctx)); err != nil {
		return err
	}
	cl, err := kgo.NewClient(workload.ClientOptions(g.c.Bootstrap())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "grouped")
	if err != nil {
		return err
	}
	for {
		err := unread(ends, g.all)
		if err == nil {
			return g.endAll()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// unread says how many of the records before the ends no member has read.
func unread(ends kadm.ListedOffsets, members []*stockMember) error {
	missing, first := 0, ""
	var excused []*stockMember
	ends.Each(func(o kadm.ListedOffset) {
		for at := range o.Offset {
			record := fmt.Sprintf("%d %d", o.Partition, at)
			if hasRead(members, record) {
				continue
			}
			if m := droppedBy(members, o, at); m != nil && !slices.Contains(excused, m) {
				excused = append(excused, m)
				continue
			}
			if missing++; first == "" {
				first = record
			}
		}
	})
	if missing > 0 {
		return fmt.Errorf("%d records were read by nobody, the first is (partition, offset) %s", missing, first)
	}
	return nil
}

// droppedBy finds the member that may have committed the record without printing it, the one case of a lost record that is the client's own: kcat
// throws away the record that it is handed when it has been told to stop (its handle_message), while librdkafka had noted it as read when it
// handed it over, and commits that at the end. So each kcat that was told to stop may lack one record, of a partition that it had then, behind
// all that it has printed of it. It is the same with Kafka as the broker.
func droppedBy(members []*stockMember, p kadm.ListedOffset, at int64) *stockMember {
	for _, m := range members {
		if m.drops && slices.Contains(m.left, fmt.Sprintf("%s-%d", p.Topic, p.Partition)) && m.readUpTo(p.Partition) < at {
			return m
		}
	}
	return nil
}

// readUpTo is the last offset of the partition that the member has read, -1 for none.
func (m *stockMember) readUpTo(partition int32) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.last[partition]; ok {
		return last
	}
	return -1
}

// noteReadLocked takes in "PARTITION OFFSET".
func (m *stockMember) noteReadLocked(record string) {
	m.read[record] = true
	partition, offset, _ := strings.Cut(record, " ")
	p, err := strconv.ParseInt(partition, 10, 32)
	at, err2 := strconv.ParseInt(offset, 10, 64)
	if err == nil && err2 == nil {
		m.last[int32(p)] = max(m.last[int32(p)], at)
	}
}

func hasRead(members []*stockMember, record string) bool {
	for _, m := range members {
		m.mu.Lock()
		read := m.read[record]
		m.mu.Unlock()
		if read {
			return true
		}
	}
	return false
}

func (g *consumerGroup) regex() error {
	if err := errors.Join(g.newTopic("logs-a", 4), g.newTopic("xlogs-a", 4)); err != nil {
		return err
	}
	if err := g.start(4, "r", "^logs-.*", "consumer"); err != nil {
		return err
	}
	if err := g.newTopic("logs-b", 2); err != nil {
		return err
	}
	return errors.Join(divided(g.ctx, 6, g.members...), g.endAll())
}

func (g *consumerGroup) migrate() error {
	if err := g.start(12, "m", "grouped", "classic", "classic"); err != nil {
		return err
	}
	if err := g.start(12, "m", "grouped", "consumer"); err != nil {
		return fmt.Errorf("a member of the consumer protocol among classic ones: %w", err)
	}
	if err := g.kafka(g.ctx, groupCommand, "--list", "--type", "consumer").wants(0, "\nm "); err != nil {
		return err
	}
	if err := errors.Join(g.lose(syscall.SIGTERM), divided(g.ctx, 12, g.members...)); err != nil {
		return fmt.Errorf("it leaves: %w", err)
	}
	return errors.Join(g.kafka(g.ctx, groupCommand, "--list", "--type", "classic").wants(0, "\nm "), g.endAll())
}
