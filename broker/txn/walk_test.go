package txn

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The walk runs producers, zombies among them, against a coordinator that crashes, loses what was not committed, repeats
// markers and changes its transaction.version, and partitions as brokers keep them. All along the machine is what its log
// makes anew, and in the end each transaction is committed as a whole or not at all, as its producer was told.

// event is what a partition's log holds: data of a piece of work, or a marker.
type event struct {
	producer Producer
	work     int
	marker   bool
	commit   bool
}

// partition is a partition's log and what its leader keeps of producers.
type partition struct {
	log       []event
	producers map[int64]*producerState
}

type producerState struct {
	epoch       int16
	coordinator int32
	open        bool
}

// takeMarker appends a marker by the rules of the partition's leader.
func (p *partition) takeMarker(ms Markers) error {
	s := p.producers[ms.Producer.ID]
	if s == nil {
		s = &producerState{epoch: -1, coordinator: -1}
		p.producers[ms.Producer.ID] = s
	}
	switch e := ms.Producer.Epoch; {
	case ms.CoordinatorEpoch < s.coordinator:
		return kerr.TransactionCoordinatorFenced
	case e < s.epoch, ms.Version >= Version2 && e == s.epoch && s.open:
		return kerr.InvalidProducerEpoch
	}
	s.epoch, s.coordinator, s.open = ms.Producer.Epoch, ms.CoordinatorEpoch, false
	p.log = append(p.log, event{producer: ms.Producer, marker: true, commit: ms.Commit})
	return nil
}

// takeData appends what the coordinator has let through.
func (p *partition) takeData(who Producer, work int) bool {
	s := p.producers[who.ID]
	if s == nil {
		s = &producerState{epoch: who.Epoch, coordinator: -1}
		p.producers[who.ID] = s
	}
	if who.Epoch < s.epoch {
		return false
	}
	s.epoch, s.open = who.Epoch, true
	p.log = append(p.log, event{producer: who, work: work})
	return true
}

// client is a producer of a transactional id. Several share one id, and fence each other.
type client struct {
	id      string
	version int16
	who     Producer
	work    int  // the transaction under way; 0: none is
	waiting bool // for an answer
	// repeat is the EndTxn whose answer was lost.
	repeat *EndRequest
}

// outcome is what a client was told of its transaction.
type outcome int

const (
	unknown outcome = iota
	committed
	aborted
)

type walk struct {
	*host
	rng        *rand.Rand
	partitions map[Partition]*partition
	clients    []*client
	works      int
	told       map[int]outcome
	markers    []Markers
	durable    int // records of the log that are committed
	ends       int
	highest    map[string]Producer // the last producer that an id's owner was told
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{
		host: newHost(t, Version2), rng: rand.New(rand.NewPCG(seed, 0)), partitions: map[Partition]*partition{}, told: map[int]outcome{},
		highest: map[string]Producer{},
	}
	w.holding = true
	for _, p := range []Partition{a0, a1, b0} {
		w.partitions[p] = &partition{producers: map[int64]*producerState{}}
	}
	for i, version := range []int16{Version2, Version2, Version0, Version0, Version2, Version0} {
		w.clients = append(w.clients, &client{id: fmt.Sprintf("id-%d", i/2), who: noProducer, version: version})
	}
	return w
}

func TestWalk(t *testing.T) {
	steps, first, last := 2000, uint64(1), uint64(60)
	if s, err := strconv.ParseUint(os.Getenv("CAIRN_WALK_SEED"), 10, 64); err == nil {
		first, last = s, s
	}
	ends := 0
	for seed := first; seed <= last; seed++ {
		w := newWalk(t, seed)
		for range steps {
			w.step()
			if w.rng.IntN(10) == 0 {
				w.compareWithLog()
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		w.settle()
		w.check()
		ends += w.ends
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if ends < int(last-first+1)*20 {
		t.Errorf("only %d transactions ended as their producers wanted", ends)
	}
}

func (w *walk) step() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(60)) * time.Millisecond)
	w.takeSent()
	switch n := w.rng.IntN(100); {
	case n < 60:
		w.act(w.clients[w.rng.IntN(len(w.clients))])
	case n < 80:
		w.durable = len(w.log)
		w.commit(nil)
	case n < 95:
		w.deliver()
	case n < 98:
		w.expire()
	case n < 99:
		w.crash()
	default:
		w.level = int16(w.rng.IntN(3))
	}
}

// takeSent takes the markers to send, but for those that are on their way.
func (w *walk) takeSent() {
	for _, ms := range w.sent {
		if !slices.ContainsFunc(w.markers, func(o Markers) bool { return sameEnd(o, ms) }) {
			w.markers = append(w.markers, ms)
		}
	}
	w.sent = nil
}

// crash has another coordinator take over; of what is not committed, a part survives.
func (w *walk) crash() {
	w.m.Resigned()
	w.log = w.log[:w.durable+w.rng.IntN(len(w.log)-w.durable+1)]
	w.durable = len(w.log)
	w.commit(coordinator.ErrNotCoordinator)
	w.restart()
	// What the former coordinator sent may still be on its way. With Version0 a marker that comes late ends the next
	// transaction of the same epoch: that is why there is a Version2.
	dead := w.rng.IntN(2) == 0
	w.markers = slices.DeleteFunc(w.markers, func(ms Markers) bool { return dead || ms.Version < Version2 })
}

// deliver writes one partition's marker, and perhaps the answer is lost.
func (w *walk) deliver() {
	if len(w.markers) == 0 {
		return
	}
	i := w.rng.IntN(len(w.markers))
	ms := w.markers[i]
	p := ms.Partitions[w.rng.IntN(len(ms.Partitions))]
	err := w.partitions[p].takeMarker(ms)
	if w.rng.IntN(4) == 0 {
		return
	}
	if errors.Is(err, kerr.TransactionCoordinatorFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
		w.markers = slices.Delete(w.markers, i, i+1)
		return
	}
	w.do(func(fx *coordinator.Effects) {
		w.m.MarkersWritten(ms, []Partition{p}, w.now, fx, func(err error) {
			if errors.Is(err, kerr.InvalidTxnState) {
				w.markers = slices.DeleteFunc(w.markers, func(o Markers) bool { return sameEnd(o, ms) })
			}
		})
	})
	if ms.Version < Version2 { // and is not sent again
		rest := slices.DeleteFunc(slices.Clone(ms.Partitions), func(o Partition) bool { return o == p })
		if w.markers[i].Partitions = rest; len(rest) == 0 {
			w.markers = slices.Delete(w.markers, i, i+1)
		}
	}
}

func sameEnd(a, b Markers) bool {
	return a.ID == b.ID && a.Producer == b.Producer && a.CoordinatorEpoch == b.CoordinatorEpoch
}

func (w *walk) act(c *client) {
	switch {
	case c.waiting:
	case c.who == noProducer:
		if w.rng.IntN(30) == 0 { // and fences others then: not too often
			w.begin(c)
		}
	case c.repeat != nil:
		w.finish(c, *c.repeat)
	case w.rng.IntN(3) > 0:
		w.produce(c)
	case w.rng.IntN(12) == 0:
		c.who, c.work = noProducer, 0 // begins anew, as after a crash
	default:
		w.finish(c, EndRequest{ID: c.id, Producer: c.who, Commit: w.rng.IntN(3) > 0, ClientVersion: c.version, Fresh: w.freshID()})
	}
}

func (w *walk) begin(c *client) {
	c.waiting = true
	w.do(func(fx *coordinator.Effects) {
		w.m.InitProducerID(InitRequest{ID: c.id, TimeoutMs: 6000, Expected: noProducer, Fresh: w.freshID()}, w.now, fx, func(p Producer, err error) {
			c.waiting = false
			switch {
			case err == nil:
				if h := w.highest[c.id]; p == h {
					w.t.Errorf("%s was given %+v twice", c.id, p)
				}
				c.who, w.highest[c.id] = p, p
			case !errors.Is(err, kerr.ConcurrentTransactions) && !errors.Is(err, coordinator.ErrNotCoordinator):
				w.t.Errorf("init: %v", err)
			}
		})
	})
}

// produce adds a partition to the transaction and writes to it once that is committed.
func (w *walk) produce(c *client) {
	c.waiting = true
	if c.work == 0 {
		w.works++
		c.work = w.works
	}
	p := []Partition{a0, a1, b0}[w.rng.IntN(3)]
	who, work := c.who, c.work
	w.do(func(fx *coordinator.Effects) {
		w.m.AddPartitions(AddRequest{ID: c.id, Producer: who, Partitions: []Partition{p}, ClientVersion: c.version}, w.now, fx, func(err error) {
			c.waiting = false
			t, known := w.m.Get(c.id)
			switch {
			case err == nil && known && t.State == Ongoing && t.ProducerID == who.ID && t.Epoch == who.Epoch && t.has(p):
				// The leader takes no data when the verified transaction has ended meanwhile.
				if w.partitions[p].takeData(who, work) {
					return
				}
				c.who, c.work = noProducer, 0
			case err == nil, errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerIDMapping):
				c.who, c.work = noProducer, 0
			}
		})
	})
}

func (w *walk) finish(c *client, req EndRequest) {
	c.waiting, c.repeat = true, nil
	work := c.work
	w.do(func(fx *coordinator.Effects) {
		w.m.EndTxn(req, w.now, fx, func(next Producer, err error) {
			c.waiting = false
			if err == nil && w.rng.IntN(5) == 0 || errors.Is(err, coordinator.ErrNotCoordinator) || errors.Is(err, kerr.ConcurrentTransactions) {
				c.repeat = &req
				return
			}
			c.work = 0
			if err != nil { // fenced, or timed out: whatever the outcome is, the client does not know it
				if !errors.Is(err, kerr.InvalidTxnState) {
					c.who = noProducer
				}
				return
			}
			c.who = next
			w.ends++
			w.told[work] = aborted
			if req.Commit {
				w.told[work] = committed
			}
		})
	})
}

// compareWithLog makes the machine anew from its log.
func (w *walk) compareWithLog() {
	other := newHost(w.t, w.level)
	other.log = w.log
	other.load()
	if !reflect.DeepEqual(w.m.ids, other.m.ids) || !slices.Equal(slices.Sorted(maps.Keys(w.m.open)), slices.Sorted(maps.Keys(other.m.open))) {
		w.t.Errorf("the machine is\n%+v, its log makes\n%+v", w.m.ids, other.m.ids)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(w.m.lacking)), slices.Sorted(maps.Keys(other.m.lacking))) {
		w.t.Errorf("lacking %v, by the log %v", w.m.lacking, other.m.lacking)
	}
}

// settle lets all transactions end, by their timeout if nothing else.
func (w *walk) settle() {
	w.holding = false
	w.durable = len(w.log)
	w.commit(nil)
	w.restart()
	w.now = w.now.Add(time.Minute)
	w.expire()
	w.markers = nil
	w.takeSent()
	for _, ms := range w.markers {
		for _, p := range ms.Partitions {
			if err := w.partitions[p].takeMarker(ms); err != nil {
				w.t.Errorf("last markers %+v: %v", ms, err)
			}
		}
		if err := w.written(ms, ms.Partitions...); err != nil {
			w.t.Errorf("last markers %+v: %v", ms, err)
		}
	}
}

// check reads each partition as a read-committed consumer does.
func (w *walk) check() {
	fate := map[int]outcome{}
	for name, p := range w.partitions {
		open := map[int64][]int{}
		for _, e := range p.log {
			if !e.marker {
				open[e.producer.ID] = append(open[e.producer.ID], e.work)
				continue
			}
			for _, work := range open[e.producer.ID] {
				now := aborted
				if e.commit {
					now = committed
				}
				if before := fate[work]; before != unknown && before != now {
					w.t.Errorf("work %d is half committed: %v in %v", work, now, name)
				}
				fate[work] = now
			}
			delete(open, e.producer.ID)
		}
		for producer, works := range open {
			if len(works) > 0 {
				w.t.Errorf("%v: works %v of producer %d have no end", name, works, producer)
			}
		}
	}
	for work, told := range w.told {
		if got := fate[work]; got != unknown && got != told {
			w.t.Errorf("work %d: its producer was told %v, and it is %v", work, told, got)
		}
	}
	for id, t := range w.m.ids {
		if t.State == Ongoing || t.State.prepared() {
			w.t.Errorf("%s is left %v", id, t.State)
		}
	}
}
