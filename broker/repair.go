package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// A replica whose stored data turns out to be damaged is made anew: the controller gives it another replica id, which takes it out
// of leadership, ISR and votes, and it joins its generation again with nothing of what it had, as one whose disk was replaced.
// Who is the last one in sync is not renewed: what of it can be read is still served.

// repairEvery is how often repairs that could not be begun are tried, and those under way are looked at.
const repairEvery = time.Second

// repairs are the replicas here that are damaged, until they are in sync again.
type repairs struct {
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	list map[ids.PartitionID]*repair // guarded by mu
}

// repair is one of them.
type repair struct {
	replica ids.ReplicaID // that owned the damaged data
	refused string        // why the controller does not renew it; logged once
}

func newRepairs() repairs {
	return repairs{wake: make(chan struct{}, 1), list: map[ids.PartitionID]*repair{}}
}

// has reports whether what is stored of the partition is damaged.
func (r *repairs) has(p ids.PartitionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[p] != nil
}

func (r *repairs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

func (r *repairs) drop(p ids.PartitionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, p)
}

// noteDamage hears that data of the owner is damaged. It does not block.
func (m *replicaManager) noteDamage(owner engine.Binding, err error) {
	_, current := m.replicaHere(m.cfg.Images.Image(), owner.Info.ID)
	r := &m.repairs
	r.mu.Lock()
	known := r.list[owner.Info.ID]
	news := known == nil || known.replica != owner.Replica && owner.Replica == current
	if news {
		r.list[owner.Info.ID] = &repair{replica: owner.Replica}
	}
	r.mu.Unlock()
	if news {
		m.cfg.Log.Error("stored data is damaged: the replica is to be copied anew from its peers", zap.String("topic", owner.Info.Topic),
			zap.Int32("partition", owner.Info.Partition), zap.Uint64("replica", uint64(owner.Replica)), zap.Error(err))
		signal(r.wake)
	}
}

// replicaHere is the partition's state with the replica id that this broker has for it; 0: none.
func (m *replicaManager) replicaHere(img *controller.Image, p ids.PartitionID) (*controller.Partition, ids.ReplicaID) {
	t, index, ok := img.PartitionByID(p)
	if !ok {
		return nil, 0
	}
	state := t.Partitions[index]
	at := state.ReplicaOf(m.cfg.NodeID)
	if at < 0 {
		return state, 0
	}
	return state, state.ReplicaIDs[at]
}

// runRepairs has damaged replicas renewed, and says when they are whole again.
func (m *replicaManager) runRepairs(ctx context.Context) {
	ticker := time.NewTicker(repairEvery)
	defer ticker.Stop()
	for {
		select {
		case <-m.repairs.wake:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, p := range m.repairs.partitions() {
			m.repair(ctx, p)
		}
	}
}

func (r *repairs) partitions() []ids.PartitionID {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]ids.PartitionID, 0, len(r.list))
	for p := range r.list {
		list = append(list, p)
	}
	return list
}

// repair takes the next step for one partition.
func (m *replicaManager) repair(ctx context.Context, p ids.PartitionID) {
	state, current := m.replicaHere(m.cfg.Images.Image(), p)
	m.repairs.mu.Lock()
	r := m.repairs.list[p]
	m.repairs.mu.Unlock()
	switch {
	case r == nil:
	case current == 0: // deleted, or moved away
		m.repairs.drop(p)
	case current == r.replica:
		m.renew(ctx, p, r)
	case slices.Contains(state.InSync, m.cfg.NodeID):
		m.repairs.drop(p)
		m.cfg.Log.Info("damaged replica is repaired: it is in sync again", m.partitionFields(p)...)
	}
}

func (m *replicaManager) partitionFields(p ids.PartitionID) []zap.Field {
	t, index, ok := m.cfg.Images.Image().PartitionByID(p)
	if !ok {
		return []zap.Field{zap.Uint64("partitionId", uint64(p))}
	}
	return []zap.Field{zap.String("topic", t.Name), zap.Int32("partition", index)}
}

// renew asks for another replica id. r belongs to the goroutine of the repairs, but for its replica, which never changes.
func (m *replicaManager) renew(ctx context.Context, p ids.PartitionID, r *repair) {
	ctx, cancel := context.WithTimeout(ctx, prefixWithin)
	defer cancel()
	items, err := m.cfg.Client.ReplicaCommand(ctx, controller.RenewReplicas{
		Broker: m.cfg.NodeID, Epoch: m.cfg.Client.Registration().BrokerEpoch, Replicas: []ids.ReplicaID{r.replica},
	})
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case len(items) != 1:
		reason = "the controller's answer names another number of replicas"
	case items[0].Code != 0:
		reason = items[0].Message
	}
	if reason != "" && reason != r.refused {
		m.cfg.Log.Warn("damaged replica cannot be repaired yet; trying again", append(m.partitionFields(p), zap.String("reason", reason))...)
	}
	r.refused = reason
}
