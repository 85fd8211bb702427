package txn

import (
	"fmt"
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/ids"
)

var t0 = time.UnixMilli(1_700_000_000_000)

// host runs a machine as the runtime does: what an operation appends is replayed at once, and committed at once unless the
// host holds replies back.
type host struct {
	t       testing.TB
	m       *Machine
	level   int16
	epoch   ids.LeaderEpoch
	now     time.Time
	log     []coordinator.Record
	sent    []Markers
	resigns int
	fresh   int64
	// held keeps the replies of operations, in order, until commit; used when holding is set.
	holding bool
	held    []func(error)
}

func newHost(t testing.TB, level int16) *host {
	h := &host{t: t, level: level, now: t0, fresh: 1000}
	h.restart()
	return h
}

// restart has a new coordinator take over with what the log holds.
func (h *host) restart() {
	h.load()
	h.epoch++
	h.sent = nil
	h.do(func(fx *coordinator.Effects) { h.m.Elected(h.now, fx) })
}

// load makes the machine anew from the log.
func (h *host) load() {
	h.m = New(Config{
		Level: func() int16 { return h.level }, Send: func(ms Markers) { h.sent = append(h.sent, ms) },
		Resigned: func() { h.resigns++ },
	})
	for i, r := range h.log {
		if err := h.m.Replay(coordinator.Meta{Offset: ids.Offset(i)}, r); err != nil {
			h.t.Fatalf("record %d: %v", i, err)
		}
	}
}

func (h *host) do(op func(*coordinator.Effects)) *coordinator.Effects {
	fx := coordinator.NewEffects(h.epoch)
	op(fx)
	for _, b := range fx.Batches() {
		if b.ProducerID != -1 {
			h.t.Fatalf("a transactional batch in the transaction log: %+v", b)
		}
		for _, r := range b.Records {
			h.log = append(h.log, r)
			if err := h.m.Replay(coordinator.Meta{Offset: ids.NoOffset}, r); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	if h.holding {
		h.held = append(h.held, fx.Replies()...)
		return fx
	}
	for _, reply := range fx.Replies() {
		reply(nil)
	}
	return fx
}

// commit runs the replies that were held back, as the log allows.
func (h *host) commit(err error) {
	held := h.held
	h.held = nil
	for _, reply := range held {
		reply(err)
	}
}

func (h *host) freshID() Fresh {
	h.fresh++
	return Fresh(h.fresh)
}

func (h *host) init(id string, expected Producer) (p Producer, err error) {
	err = fmt.Errorf("no answer")
	h.do(func(fx *coordinator.Effects) {
		h.m.InitProducerID(InitRequest{ID: id, TimeoutMs: 60_000, Expected: expected, Fresh: h.freshID()}, h.now, fx,
			func(q Producer, e error) { p, err = q, e })
	})
	return p, err
}

func (h *host) add(id string, p Producer, version int16, parts ...Partition) (err error) {
	err = fmt.Errorf("no answer")
	h.do(func(fx *coordinator.Effects) {
		h.m.AddPartitions(AddRequest{ID: id, Producer: p, Partitions: parts, ClientVersion: version}, h.now, fx, func(e error) { err = e })
	})
	return err
}

func (h *host) verify(id string, p Producer, parts ...Partition) (found []error, err error) {
	err = fmt.Errorf("no answer")
	h.do(func(fx *coordinator.Effects) {
		h.m.VerifyPartitions(AddRequest{ID: id, Producer: p, Partitions: parts}, fx, func(f []error, e error) { found, err = f, e })
	})
	return found, err
}

func (h *host) end(id string, p Producer, commit bool, version int16) (next Producer, err error) {
	err = fmt.Errorf("no answer")
	h.do(func(fx *coordinator.Effects) {
		h.m.EndTxn(EndRequest{ID: id, Producer: p, Commit: commit, ClientVersion: version, Fresh: h.freshID()}, h.now, fx,
			func(q Producer, e error) { next, err = q, e })
	})
	return next, err
}

func (h *host) written(ms Markers, parts ...Partition) (err error) {
	err = fmt.Errorf("no answer")
	h.do(func(fx *coordinator.Effects) { h.m.MarkersWritten(ms, parts, h.now, fx, func(e error) { err = e }) })
	return err
}

func (h *host) expire() (next time.Time) {
	h.do(func(fx *coordinator.Effects) { next = h.m.Expire(h.now, fx) })
	return next
}

// writeAll writes the markers that were sent, to all partitions.
func (h *host) writeAll() {
	sent := h.sent
	h.sent = nil
	for _, ms := range sent {
		if err := h.written(ms, ms.Partitions...); err != nil {
			h.t.Fatalf("markers %+v: %v", ms, err)
		}
	}
}

func (h *host) state(id string) State {
	t, ok := h.m.Get(id)
	if !ok {
		return Dead
	}
	return t.State
}
