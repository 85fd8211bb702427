package group

import (
	"time"

	"cairn/broker/coordinator"
)

// Client is who sent a request.
type Client struct {
	ID   string
	Host string // as Kafka shows it: a slash and the address
}

// Reply answers a request: with a response, which may carry Kafka's error codes, or with an error of the runtime (the
// response is nil then), which the handler maps.
type Reply[R any] func(resp R, err error)

// answer replies once all that was appended so far is committed.
func answer[R any](fx *coordinator.Effects, reply Reply[R], resp R) {
	fx.Then(func(err error) {
		if err != nil {
			var none R
			resp = none
		}
		reply(resp, err)
	})
}

// Machine is the groups and offsets of one partition of __consumer_offsets. See coordinator.Machine for who calls it.
type Machine struct {
	cfg       Config
	partition int32

	groups  map[string]*group
	pending map[int64]*transaction // open transactions by producer id
	// order counts replayed offset commits. It stands for their offsets, which a leader does not know at once.
	order uint64

	// leading: the live layer of classic groups exists.
	leading bool
	timers  timerHeap
	// fresh are groups whose live layer came with a record, whose timers start with the next Expire.
	fresh []*group
	// later are operations on consumer groups that have something to do when their records are replayed.
	later []*consumerOp
	// nextCheck is when expired offsets are looked for.
	nextCheck time.Time
}

var _ coordinator.Machine = (*Machine)(nil)

// New makes the empty machine of a partition. cfg is valid.
func New(cfg Config, partition int32) *Machine {
	return &Machine{cfg: cfg, partition: partition, groups: map[string]*group{}, pending: map[int64]*transaction{}}
}

// Elected starts the sessions of all members.
func (m *Machine) Elected(now time.Time, fx *coordinator.Effects) {
	m.leading = true
	m.nextCheck = now.Add(m.cfg.OffsetsCheck)
	for _, id := range m.sortedGroups() {
		g := m.groups[id]
		switch {
		case g.classic != nil:
			g.classic.revive()
			m.startClassic(g, now, fx)
		case g.consumer != nil:
			m.electedConsumer(g, now, fx)
		}
	}
}

// Resigned answers all that waits and drops the live layer.
func (m *Machine) Resigned() {
	m.leading = false
	m.timers, m.fresh, m.later = nil, nil, nil
	for _, g := range m.groups {
		g.timer = timer{}
		if g.classic != nil {
			g.classic.resign()
		}
		if g.consumer != nil {
			m.resignedConsumer(g)
		}
		m.dropIfGone(g)
	}
}

// Expire does what is due and returns the next deadline.
func (m *Machine) Expire(now time.Time, fx *coordinator.Effects) (next time.Time) {
	if !m.leading {
		return time.Time{}
	}
	fresh := m.fresh
	m.fresh = nil
	for _, g := range fresh {
		if g.classic != nil && m.groups[g.id] == g {
			m.startClassic(g, now, fx)
		}
	}
	m.settle(fx)
	for g := m.timers.due(now); g != nil; g = m.timers.due(now) {
		switch {
		case g.consumer != nil:
			m.wakeAt(g, m.expireConsumer(g, now, fx))
		case g.classic != nil:
			m.wakeAt(g, m.expireClassic(g, now, fx))
		}
	}
	if !now.Before(m.nextCheck) {
		m.nextCheck = now.Add(m.cfg.OffsetsCheck)
		m.expireOffsets(now, fx)
	}
	if len(m.later) > 0 {
		return now
	}
	return earliest(m.nextCheck, m.timers.first())
}
