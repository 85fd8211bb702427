package txn

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"cairn/broker/coordinator"
)

// Defaults of Config, in Kafka's properties.
const (
	DefaultMaxTimeout     = 15 * time.Minute   // transaction.max.timeout.ms
	DefaultExpiration     = 7 * 24 * time.Hour // transactional.id.expiration.ms
	DefaultAbortInterval  = 10 * time.Second   // transaction.abort.timed.out.transaction.cleanup.interval.ms
	DefaultExpireInterval = time.Hour          // transaction.remove.expired.transaction.cleanup.interval.ms
)

// Config configures a Machine. Zero durations stand for the defaults.
type Config struct {
	// Level returns the cluster's transaction.version.
	Level func() int16
	// MaxTimeout is the longest timeout that a producer may ask for.
	MaxTimeout time.Duration
	// Expiration is how long an idle transactional id is remembered.
	Expiration time.Duration
	// AbortInterval is how often open transactions are looked at for their timeout, ExpireInterval how often idle
	// transactional ids are.
	AbortInterval, ExpireInterval time.Duration
	// Send takes the end of a transaction, once it is committed, and has the markers written. It must not block. It is called
	// again with what is not written after some AbortInterval, so it should know what it is at already.
	Send func(Markers)
	// Resigned tells that whoever wrote markers for this partition is to stop. It must not block. nil: nobody wants to know.
	Resigned func()
}

// Validate joins all errors.
func (c Config) Validate() error {
	var errs []error
	if c.Level == nil {
		errs = append(errs, errors.New("no level of transaction.version"))
	}
	if c.Send == nil {
		errs = append(errs, errors.New("nobody to write markers"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"longest timeout", c.MaxTimeout},
		{"expiration", c.Expiration},
		{"abort interval", c.AbortInterval},
		{"expiry interval", c.ExpireInterval},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s %v is negative", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.MaxTimeout, DefaultMaxTimeout},
		{&c.Expiration, DefaultExpiration},
		{&c.AbortInterval, DefaultAbortInterval},
		{&c.ExpireInterval, DefaultExpireInterval},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return c
}

// Machine is the state of one partition of __transaction_state; it implements coordinator.Machine.
//
// Invariant: open has exactly the ids whose transaction is Ongoing; lacking exactly those that are prepared, each with the
// partitions that this coordinator has not heard of the marker yet.
type Machine struct {
	cfg     Config
	ids     map[string]Transaction
	open    map[string]time.Time // when its timeout is over; zero: nobody has looked yet
	lacking map[string]map[Partition]struct{}

	leading bool
	epoch   int32 // of the leader of the partition: the coordinator epoch of markers
	// abortAt and expireAt are when to look for timeouts and for idle ids next, while leading.
	abortAt, expireAt time.Time
	// expireFrom is where the look for idle ids goes on, when it did not get through at once.
	expireFrom []string
}

// New makes the machine of an empty log. It panics when cfg is not valid.
func New(cfg Config) *Machine {
	if err := cfg.Validate(); err != nil {
		panic("BUG: transaction machine: " + err.Error())
	}
	return &Machine{
		cfg: cfg.withDefaults(), ids: map[string]Transaction{}, open: map[string]time.Time{},
		lacking: map[string]map[Partition]struct{}{},
	}
}

// Replay implements coordinator.Machine.
func (m *Machine) Replay(_ coordinator.Meta, r coordinator.Record) error {
	id, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		m.set(id, Transaction{State: Dead})
		return nil
	}
	t, err := decodeValue(r.Value)
	if err != nil {
		return fmt.Errorf("transactional id %q: %w", id, err)
	}
	m.set(id, t)
	return nil
}

// set takes over a transaction's state; Dead forgets it.
func (m *Machine) set(id string, t Transaction) {
	over := m.open[id]
	if m.ids[id].StartMs != t.StartMs {
		over = time.Time{}
	}
	delete(m.open, id)
	delete(m.lacking, id)
	switch {
	case t.State == Dead:
		delete(m.ids, id)
		return
	case t.State == Ongoing:
		m.open[id] = over
	case t.State.prepared():
		m.lacking[id] = partitionSet(t.Partitions)
	}
	m.ids[id] = t
}

func partitionSet(parts []Partition) map[Partition]struct{} {
	set := make(map[Partition]struct{}, len(parts))
	for _, p := range parts {
		set[p] = struct{}{}
	}
	return set
}

// ReplayMarker implements coordinator.Machine. The topic takes part in no transaction.
func (m *Machine) ReplayMarker(int64, int16, bool) {}

// Elected implements coordinator.Machine. What is prepared gets its markers from this coordinator now, all of them: nobody
// knows which were written.
func (m *Machine) Elected(now time.Time, fx *coordinator.Effects) {
	m.leading, m.epoch = true, int32(fx.LeaderEpoch())
	m.abortAt, m.expireAt, m.expireFrom = now.Add(m.cfg.AbortInterval), now.Add(m.cfg.ExpireInterval), nil
	for id := range m.lacking {
		m.lacking[id] = partitionSet(m.ids[id].Partitions)
	}
	m.goOn(now, fx)
}

// goOn has prepared transactions go on: those that no partition lacks the marker of are complete, and the markers of the
// others are sent, perhaps once more.
func (m *Machine) goOn(now time.Time, fx *coordinator.Effects) {
	for _, id := range slices.Sorted(maps.Keys(m.lacking)) {
		t := m.ids[id]
		if len(m.lacking[id]) == 0 {
			done := t.completed(nowMs(now, &t))
			m.append(id, &done, fx)
			continue
		}
		m.send(id, &t, fx)
	}
}

// Resigned implements coordinator.Machine.
func (m *Machine) Resigned() {
	m.leading, m.epoch, m.expireFrom = false, 0, nil
	if m.cfg.Resigned != nil {
		m.cfg.Resigned()
	}
}

// append has the operation write the transaction's new state.
func (m *Machine) append(id string, t *Transaction, fx *coordinator.Effects) {
	if before := m.ids[id].State; !t.State.follows(before) {
		panic(fmt.Sprintf("BUG: transactional id %q goes from %v to %v", id, before, t.State))
	}
	fx.Append(encode(id, t, m.cfg.Level()))
}

// end has the operation write a prepared transaction. One without partitions is complete at once, in the same batch; the
// markers of any other are sent when it is committed.
func (m *Machine) end(id string, t *Transaction, fx *coordinator.Effects) {
	m.append(id, t, fx)
	if len(t.Partitions) == 0 {
		done := t.completed(t.UpdateMs)
		fx.Append(encode(id, &done, m.cfg.Level()))
		return
	}
	m.send(id, t, fx)
}

// nowMs is the time as records have it, which does not go back for one id.
func nowMs(now time.Time, t *Transaction) int64 { return max(now.UnixMilli(), t.UpdateMs) }

// timeoutMax is MaxTimeout as requests have it.
func (m *Machine) timeoutMax() int32 {
	return int32(min(m.cfg.MaxTimeout.Milliseconds(), math.MaxInt32))
}

// Len is the number of transactional ids.
func (m *Machine) Len() int { return len(m.ids) }

// Get returns what is known of a transactional id.
func (m *Machine) Get(id string) (Transaction, bool) {
	t, ok := m.ids[id]
	return t, ok
}
