package coordtest

import (
	"testing"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/ids"

	"go.uber.org/zap/zaptest"
)

// Host is a broker with a Coordinator over replicas in memory. It is for one goroutine.
type Host[M coordinator.Machine] struct {
	*coordinator.Coordinator[M]
	replicas []*Replica
	reigns   []*Reign
	epoch    ids.LeaderEpoch
}

// NewHost makes a Coordinator over empty replicas of all partitions, which it follows. The test's end closes it; within a
// synctest bubble the clock is the bubble's, and the test calls Close itself.
func NewHost[M coordinator.Machine](t testing.TB, partitions int32, machine func(partition int32) M) *Host[M] {
	t.Helper()
	return NewHostOver(t, make([]*Replica, partitions), machine)
}

// NewHostOver is NewHost over given replicas; nil: an empty one.
func NewHostOver[M coordinator.Machine](t testing.TB, replicas []*Replica, machine func(partition int32) M) *Host[M] {
	t.Helper()
	h := &Host[M]{replicas: replicas, reigns: make([]*Reign, len(replicas))}
	c, err := coordinator.New(coordinator.Config[M]{
		New: machine, Partitions: func() int32 { return int32(len(replicas)) }, Log: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Coordinator = c
	for i := range replicas {
		if replicas[i] == nil {
			replicas[i] = new(Replica)
		}
		h.attach(int32(i))
	}
	return h
}

func (h *Host[M]) attach(i int32) {
	h.replicas[i].Advanced = func() { h.Advanced(i) }
	h.Attach(i, h.replicas[i])
}

// Replica is the replica of a partition.
func (h *Host[M]) Replica(partition int32) *Replica { return h.replicas[partition] }

// Reign is the reign of a partition that was begun last.
func (h *Host[M]) Reign(partition int32) *Reign { return h.reigns[partition] }

// Elect begins a reign of a partition, in the next leader epoch.
func (h *Host[M]) Elect(partition int32) *Reign {
	h.epoch++
	r := h.replicas[partition].Lead(h.epoch)
	h.reigns[partition] = r
	h.Began(partition, r)
	return r
}

// ElectAll begins a reign of every partition.
func (h *Host[M]) ElectAll() {
	for i := range h.replicas {
		h.Elect(int32(i))
	}
}

// Resign ends the reign of a partition.
func (h *Host[M]) Resign(partition int32) { h.Ended(partition, h.reigns[partition], false) }

// Run runs op on the machine of key and waits for its reply: what the one Then of it hears.
func (h *Host[M]) Run(key string, op func(m M, now time.Time, fx *coordinator.Effects)) error {
	done := make(chan error, 1)
	h.Do(key, func(m M, now time.Time, fx *coordinator.Effects) {
		op(m, now, fx)
		fx.Then(func(err error) { done <- err })
	}, func(err error) { done <- err })
	return <-done
}
