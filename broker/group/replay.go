package group

import (
	"fmt"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"
)

// Replay applies a record.
func (m *Machine) Replay(meta coordinator.Meta, rec coordinator.Record) error {
	kind, err := records.Kind(rec.Key)
	if err != nil {
		return err
	}
	switch kind {
	case records.KindOffsetOld, records.KindOffset:
		return m.replayOffset(meta, rec)
	case records.KindGroup:
		return m.replayGroup(rec)
	default:
		return m.replayConsumer(kind, rec)
	}
}

func (m *Machine) replayOffset(meta coordinator.Meta, rec coordinator.Record) error {
	key, err := records.DecodeOffsetKey(rec.Key)
	if err != nil {
		return err
	}
	tp := topicPartition{key.Topic, key.Partition}
	if rec.Value == nil {
		m.removeOffset(key.Group, tp)
		return nil
	}
	o, err := records.DecodeOffset(rec.Value)
	if err != nil {
		return fmt.Errorf("group %q, %s-%d: %w", key.Group, key.Topic, key.Partition, err)
	}
	g := m.addGroup(key.Group)
	m.order++
	c := committed{o, m.order}
	if meta.ProducerID < 0 {
		g.offsets.put(tp, c)
		return nil
	}
	t := m.pending[meta.ProducerID]
	if t == nil {
		t = &transaction{offsets: map[pendingKey]committed{}}
		m.pending[meta.ProducerID] = t
	}
	t.offsets[pendingKey{key.Group, tp}] = c
	g.offsets.begin(tp, meta.ProducerID)
	return nil
}

// removeOffset drops the committed and the pending offsets of a partition.
func (m *Machine) removeOffset(id string, tp topicPartition) {
	g := m.group(id)
	if g == nil {
		return
	}
	delete(g.offsets.committed, tp)
	for producer := range g.offsets.open[tp] {
		t := m.pending[producer]
		if delete(t.offsets, pendingKey{id, tp}); len(t.offsets) == 0 {
			delete(m.pending, producer)
		}
	}
	delete(g.offsets.open, tp)
	m.dropIfGone(g)
}

// ReplayMarker ends a transaction: its offsets are committed, unless one was committed after it, or dropped.
func (m *Machine) ReplayMarker(producerID int64, _ int16, commit bool) {
	t := m.pending[producerID]
	if t == nil {
		return
	}
	delete(m.pending, producerID)
	for key, c := range t.offsets {
		g := m.group(key.group)
		if g == nil {
			panic(fmt.Sprintf("BUG: producer %d has a pending offset of group %q, which is not there", producerID, key.group))
		}
		g.offsets.end(key.topicPartition, producerID)
		if before, ok := g.offsets.committed[key.topicPartition]; commit && (!ok || before.order < c.order) {
			g.offsets.put(key.topicPartition, c)
		}
		m.dropIfGone(g)
	}
}

func (m *Machine) replayGroup(rec coordinator.Record) error {
	id, err := records.DecodeGroupKey(rec.Key)
	if err != nil {
		return err
	}
	if rec.Value == nil {
		if g := m.group(id); g != nil && g.classic != nil {
			m.forget(g)
			g.classic = nil
			m.dropIfGone(g)
		}
		return nil
	}
	saved, err := records.DecodeGroup(rec.Value)
	if err != nil {
		return fmt.Errorf("group %q: %w", id, err)
	}
	g := m.addGroup(id)
	g.consumer = nil // whose tombstones are in the same batch
	if g.classic == nil {
		g.classic = &classicGroup{}
	}
	g.classic.saved = &saved
	if m.leading && !g.classic.live {
		g.classic.revive()
		m.fresh = append(m.fresh, g)
	}
	return nil
}
