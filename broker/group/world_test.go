package group

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/ids"
)

// entry is one record or marker of a partition's log.
type entry struct {
	rec      coordinator.Record
	producer int64
	epoch    int16
	marker   bool
	commit   bool
}

// world runs one machine as the runtime does, with its log in memory and a clock of its own.
type world struct {
	t      testing.TB
	cfg    Config
	m      *Machine
	now    time.Time
	log    []entry
	wakeUp time.Time
	lines  []string // what was answered since the last look
	issued int
	refuse error // what appends end with
}

// testTopics are topics by name; each has 12 partitions.
type testTopics map[string][16]byte

func (t testTopics) Topic(name string) ([16]byte, int32, bool) {
	id, ok := t[name]
	return id, 12, ok
}

func (t testTopics) TopicByID(id [16]byte) (string, int32, bool) {
	for name, other := range t {
		if other == id {
			return name, 12, true
		}
	}
	return "", 0, false
}

func (t testTopics) Names() iter.Seq[string] { return maps.Keys(t) }
func (t testTopics) Version() int64          { return 1 }

func newWorld(t testing.TB) *world {
	w := &world{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_700_000_000_000)}
	w.cfg.Topics = testTopics{"t": {1}, "u": {2}}
	w.cfg.GroupConfig = func(string) map[string]string { return nil }
	w.cfg.NewID = func() string {
		w.issued++
		return fmt.Sprint(w.issued)
	}
	if err := w.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w.elect()
	return w
}

// elect makes a new leader of what is in the log.
func (w *world) elect() {
	w.m = w.follower()
	w.run(w.m.Elected)
}

// follower replays the log.
func (w *world) follower() *Machine {
	m := New(w.cfg, 0)
	for i, e := range w.log {
		if e.marker {
			m.ReplayMarker(e.producer, e.epoch, e.commit)
			continue
		}
		meta := coordinator.Meta{Offset: ids.Offset(i), Timestamp: w.now.UnixMilli(), ProducerID: e.producer, ProducerEpoch: e.epoch}
		if err := m.Replay(meta, e.rec); err != nil {
			w.t.Fatalf("replaying record %d: %v", i, err)
		}
	}
	return m
}

// do runs an operation, and what is due then.
func (w *world) do(op func(now time.Time, fx *coordinator.Effects)) {
	w.run(op)
	w.expire()
}

func (w *world) run(op func(now time.Time, fx *coordinator.Effects)) {
	fx := &coordinator.Effects{}
	op(w.now, fx)
	w.apply(fx)
}

func (w *world) apply(fx *coordinator.Effects) {
	var err error
	if len(fx.Batches()) > 0 {
		err = w.refuse
	}
	for _, b := range fx.Batches() {
		for _, r := range b.Records {
			if err != nil {
				continue
			}
			w.log = append(w.log, entry{rec: r, producer: b.ProducerID, epoch: b.ProducerEpoch})
			meta := coordinator.Meta{Offset: ids.NoOffset, Timestamp: w.now.UnixMilli(), ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch}
			if err := w.m.Replay(meta, r); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if err != nil {
		for _, undo := range fx.Undos() {
			more := &coordinator.Effects{}
			undo(err, more)
			w.refuse, err = nil, w.refuse // what an undo appends is not undone
			w.apply(more)
			w.refuse = err
		}
	}
	for _, reply := range fx.Replies() {
		reply(err)
	}
}

// expire calls the machine as often as it wants.
func (w *world) expire() {
	for i := 0; ; i++ {
		if i == 1000 {
			w.t.Fatal("Expire wants to be called for ever")
		}
		w.run(func(now time.Time, fx *coordinator.Effects) { w.wakeUp = w.m.Expire(now, fx) })
		if w.wakeUp.IsZero() || w.wakeUp.After(w.now) {
			return
		}
	}
}

// pass lets time go by, stopping wherever the machine wants to be called.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for !w.wakeUp.IsZero() && !w.wakeUp.After(end) {
		w.now = w.wakeUp
		w.expire()
	}
	w.now = end
	w.expire()
}

// marker ends a transaction.
func (w *world) marker(producer int64, commit bool) {
	w.log = append(w.log, entry{producer: producer, marker: true, commit: commit})
	w.m.ReplayMarker(producer, 0, commit)
}

// say notes an answer.
func (w *world) say(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// said returns the answers since the last look.
func (w *world) said() string {
	s := strings.Join(w.lines, "\n")
	w.lines = nil
	if s != "" {
		s += "\n"
	}
	return s
}

// check holds the leader against a replica that has the log alone.
func (w *world) check() error {
	leader, follower := persistent(w.m), persistent(w.follower())
	if leader != follower {
		return fmt.Errorf("the leader has\n%sa follower has\n%s", leader, follower)
	}
	for id, g := range w.m.groups {
		switch {
		case g.id != id:
			return fmt.Errorf("group %q is filed under %q", g.id, id)
		case g.classic != nil && g.consumer != nil:
			return fmt.Errorf("group %q is of two kinds", id)
		case g.classic == nil && g.consumer == nil && g.offsets.empty():
			return fmt.Errorf("group %q is nothing", id)
		}
		if c := g.classic; c != nil {
			if err := errors.Join(checkClassic(c), checkTimer(w.m, g, c.deadline())); err != nil {
				return fmt.Errorf("group %q: %w", id, err)
			}
		}
	}
	return nil
}

func checkTimer(m *Machine, g *group, deadline time.Time) error {
	if !deadline.IsZero() && (g.timer.position == 0 || g.timer.at.After(deadline)) {
		return fmt.Errorf("deadline %v, timer %+v", deadline, g.timer)
	}
	if p := g.timer.position; p > 0 && m.timers[p-1] != g {
		return fmt.Errorf("timer at another's place %d", p)
	}
	return nil
}

func checkClassic(c *classicGroup) error {
	waiting := c.members.joining()
	switch {
	case !c.live:
		return errors.New("no live layer on a leader")
	case len(c.members.list) != len(c.members.byID):
		return fmt.Errorf("%d members, %d by id", len(c.members.list), len(c.members.byID))
	case c.state == stateEmpty && c.members.len() > 0:
		return errors.New("members in Empty")
	case c.state != stateEmpty && c.state != statePreparing && c.members.len() == 0:
		return fmt.Errorf("no members in %v", c.state)
	case c.members.len() > 0 && c.members.get(c.leader) == nil:
		return fmt.Errorf("leader %q is no member", c.leader)
	case c.state != statePreparing && waiting > 0:
		return fmt.Errorf("%d wait for a join in %v", waiting, c.state)
	case c.state == statePreparing && c.joinDeadline.IsZero():
		return errors.New("a join phase without an end")
	case (c.state == stateCompleting) && c.syncDeadline.IsZero() && len(c.unsynced) > 0:
		return errors.New("a sync phase without an end")
	}
	return nil
}

// persistent tells the state that all replicas share.
func persistent(m *Machine) string {
	var b strings.Builder
	for _, id := range m.sortedGroups() {
		g := m.groups[id]
		if g.classic != nil && g.classic.saved != nil {
			s := g.classic.saved
			fmt.Fprintf(&b, "%s classic type=%q gen=%d protocol=%q leader=%q\n", id, s.ProtocolType, s.Generation, deref(s.Protocol), deref(s.Leader))
			for _, mb := range s.Members {
				fmt.Fprintf(&b, "  %s instance=%q client=%s%s sub=%q assignment=%q\n", mb.MemberID, deref(mb.InstanceID), mb.ClientID, mb.ClientHost, mb.Subscription, mb.Assignment)
			}
		}
		for _, tp := range g.offsets.sorted() {
			fmt.Fprintf(&b, "%s %s-%d %s\n", id, tp.topic, tp.partition, offsetText(g.offsets.committed[tp]))
		}
		for _, tp := range g.offsets.all() {
			if o := slices.Sorted(maps.Keys(g.offsets.open[tp])); len(o) > 0 {
				fmt.Fprintf(&b, "%s %s-%d open in %v\n", id, tp.topic, tp.partition, o)
			}
		}
	}
	for _, producer := range slices.Sorted(maps.Keys(m.pending)) {
		t := m.pending[producer]
		keys := slices.SortedFunc(maps.Keys(t.offsets), func(a, b pendingKey) int {
			if c := strings.Compare(a.group, b.group); c != 0 {
				return c
			}
			return compareTopicPartitions(a.topicPartition, b.topicPartition)
		})
		for _, k := range keys {
			fmt.Fprintf(&b, "producer %d: %s %s-%d %s\n", producer, k.group, k.topic, k.partition, offsetText(t.offsets[k]))
		}
	}
	return b.String()
}

func offsetText(c committed) string {
	return fmt.Sprintf("offset=%d epoch=%d meta=%q at=%d expires=%d id=%x", c.Offset.Offset, c.LeaderEpoch, c.Metadata, c.Committed, c.Expires, c.TopicID[:2])
}
