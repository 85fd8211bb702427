package txn

import (
	"maps"
	"slices"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Markers is the end of a transaction for its partitions.
type Markers struct {
	ID       string
	Producer Producer
	Commit   bool
	// CoordinatorEpoch is the leader epoch of the coordinator's partition: of two coordinators the later one counts.
	CoordinatorEpoch int32
	// Version is the transaction.version by which the transaction was kept: with Version2 the epoch is above that of what
	// was written.
	Version int16
	// Partitions that lack the marker, sorted. Read-only.
	Partitions []Partition
}

// send has the markers of a prepared transaction written once that is committed.
func (m *Machine) send(id string, t *Transaction, fx *coordinator.Effects) {
	ms := Markers{
		ID: id, Producer: Producer{t.ProducerID, t.Epoch}, Commit: t.State == PrepareCommit, CoordinatorEpoch: m.epoch,
		Version: t.ClientVersion, Partitions: t.Partitions,
	}
	if lacking, known := m.lacking[id]; known && len(lacking) < len(t.Partitions) {
		ms.Partitions = slices.SortedFunc(maps.Keys(lacking), comparePartitions)
	}
	fx.Then(func(err error) {
		if err == nil {
			m.cfg.Send(ms)
		}
	})
}

// MarkersWritten tells that partitions have the marker, or are no more. With the last of them the transaction is complete.
// reply hears nil when what is known of it is committed; any error but INVALID_TXN_STATE, which says that these markers
// are not wanted any more, means to tell again.
func (m *Machine) MarkersWritten(ms Markers, written []Partition, now time.Time, fx *coordinator.Effects, reply func(error)) {
	t, known := m.ids[ms.ID]
	if !known || !t.State.prepared() || ms.Producer != (Producer{t.ProducerID, t.Epoch}) || ms.CoordinatorEpoch != m.epoch {
		fx.Then(func(err error) { reply(firstOf(err, kerr.InvalidTxnState)) })
		return
	}
	lacking := m.lacking[ms.ID]
	for _, p := range written {
		delete(lacking, p)
	}
	if len(lacking) == 0 {
		done := t.completed(nowMs(now, &t))
		m.append(ms.ID, &done, fx)
	}
	fx.Then(reply)
}
