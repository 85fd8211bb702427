package engine

import (
	"errors"
	"fmt"
	"slices"

	"cairn/internal/ids"
)

// foundPartition is what an opened store has of a partition.
type foundPartition struct {
	storedShard
	owner   ownerRow
	log     *Log
	partial bool // data below the base of its generation are missing, so it cannot be bound
}

// readStored binds what is there, and reads what Raft has saved of it.
func (w *modelWalk) readStored() (map[ids.PartitionID]*foundPartition, error) {
	infos, err := w.e.Partitions()
	if err != nil {
		return nil, err
	}
	found := map[ids.PartitionID]*foundPartition{}
	for _, i := range infos {
		p := &foundPartition{}
		if p.owner, _, err = w.e.owner(i.ID); err != nil {
			return nil, err
		}
		found[i.ID] = p
		obs := &walkObserver{w: w}
		p.log, err = w.e.Bind(p.owner.Binding, obs)
		if errors.Is(err, ErrIncomplete) {
			p.partial = true
			p.log, err = w.e.OpenLog(i.ID)
			if err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		obs.begin(p.log)
		if p.storedShard, err = readShard(w.db, replicaID{p.owner.Shard, p.owner.Replica}); err != nil {
			return nil, fmt.Errorf("%s: %w", i.label(), err)
		}
	}
	meta := &foundPartition{}
	found[0] = meta
	meta.storedShard, err = readShard(w.db, w.slots[0].id)
	return found, err
}

// fits says in what the store differs from a world.
func (w *modelWalk) fits(found map[ids.PartitionID]*foundPartition, want world) error {
	n := 0
	for _, c := range want {
		if c == nil {
			continue
		}
		n++
		p := found[c.s.binding.Info.ID]
		if p == nil {
			return fmt.Errorf("partition %d is not there", c.s.binding.Info.ID)
		}
		if err := c.fits(p); err != nil {
			return fmt.Errorf("partition %d: %w", c.s.binding.Info.ID, err)
		}
	}
	if n != len(found) {
		return fmt.Errorf("%d partitions are there, want %d", len(found), n)
	}
	return nil
}

func (c *cell) fits(p *foundPartition) error {
	if p.owner.Binding != c.s.binding || !slices.Equal(p.owner.Old, c.v.former) {
		return fmt.Errorf("owner %+v, want %+v, before %v", p.owner, c.s.binding, c.v.former)
	}
	if err := c.s.same(&p.storedShard, &c.v); err != nil || c.s.metadata() {
		return err
	}
	l, v := p.log, &c.v
	switch {
	case l.LogStartPoint().Index != v.raftStart:
		return fmt.Errorf("the Raft log starts behind %d, want %d", l.LogStartPoint().Index, v.raftStart)
	case l.Start() != v.logStart:
		return fmt.Errorf("log start %d, want %d", l.Start(), v.logStart)
	case l.Compacted() != v.clean && (!v.cleaning || l.Compacted() < v.clean || l.Compacted() > v.compactTo):
		return fmt.Errorf("compacted to %d, want %d", l.Compacted(), v.clean)
	case len(v.quarantined) != quarantineCount(l):
		return fmt.Errorf("%d batches in quarantine, want %d", quarantineCount(l), len(v.quarantined))
	case l.HighWatermark() < max(v.logStart, min(v.highWatermark, l.End())):
		return fmt.Errorf("high watermark %d, stored was %d", l.HighWatermark(), v.highWatermark)
	}
	return nil
}

func quarantineCount(l *Log) (n int) {
	_ = l.ScanQuarantine(func(Quarantined) bool {
		n++
		return true
	})
	return n
}

// pieces is the world in which a save that was committed in pieces was broken off: its last entries and the hard state are missing. nil: what is
// found is none.
func (w *modelWalk) pieces(found map[ids.PartitionID]*foundPartition, before, after world) world {
	part := make(world, len(before))
	for i, b := range before {
		a := after[i]
		if part[i] = b; b == a || a == nil {
			continue
		}
		if b == nil || a.s != b.s {
			return nil
		}
		p := found[a.s.binding.Info.ID]
		if p == nil || b.fits(p) == nil { // its turn had not come
			continue
		}
		c := *a
		c.v.hard, c.v.highWatermark = b.v.hard, b.v.highWatermark
		last := int(p.last)
		if a.v.start > b.v.start && last == len(a.v.entries) { // a snapshot; whoever reads the state takes what it holds for committed
			c.v.hard.Commit = max(c.v.hard.Commit, uint64(last))
			part[i] = &c
			continue
		}
		if last <= a.v.kept || last > len(a.v.entries) || a.v.kept == len(a.v.entries) {
			continue
		}
		c.v.entries = a.v.entries[:last:last]
		part[i] = &c
	}
	return part
}

// settle goes on from a world.
func (w *modelWalk) settle(found map[ids.PartitionID]*foundPartition, now world) {
	for i, c := range now {
		s := w.slots[i]
		s.modelShard, s.bound = nil, nil
		if c == nil {
			continue
		}
		p := found[c.s.binding.Info.ID]
		s.modelShard = c.s
		v := c.v
		if v.cleaning = false; p.log != nil {
			v.clean = p.log.Compacted()
		}
		if p.log != nil && !p.partial {
			s.bound, s.hw = p.log, p.log.HighWatermark()
			s.learn(s.bound)
		}
		s.recovered(v)
		if s.bound != nil && s.hw > max(s.hwMax, s.bound.Start()) {
			w.t.Errorf("seed %d: high watermark %d of partition %d, told was at most %d", w.seed, s.hw, s.binding.Info.ID, s.hwMax)
		}
	}
	w.worlds = nil
	w.worlds = []world{w.state()}
	w.durable.Store(0)
	w.begun.Store(0)
	for _, s := range w.slots {
		if s.bound != nil {
			w.checkFull(s)
		}
	}
	w.checkRows()
}

// walkObserver hears of saves, and compares them with what the log had.
type walkObserver struct {
	w    *modelWalk
	last ids.RaftIndex
	next ids.Offset
}

func (o *walkObserver) begin(l *Log) { o.last, o.next = l.LastIndex(), l.End() }

// Saved implements Observer.
func (o *walkObserver) Saved(entries []SavedEntry) {
	for i := range entries {
		e := &entries[i]
		if e.Index != o.last+1 || e.Base != o.next && e.Kind != KindGenesis || e.Next < o.next {
			o.w.t.Errorf("seed %d: told of entry %+v behind index %d, offset %d", o.w.seed, *e, o.last, o.next)
		}
		o.last, o.next = e.Index, e.Next
	}
}

// Truncated implements Observer.
func (o *walkObserver) Truncated(first ids.RaftIndex, next ids.Offset) {
	if first > o.last || next > o.next {
		o.w.t.Errorf("seed %d: told of a truncation to index %d, offset %d behind index %d, offset %d", o.w.seed, first, next, o.last, o.next)
	}
	o.last, o.next = first-1, next
}

// SnapshotInstalled implements Observer.
func (o *walkObserver) SnapshotInstalled(index ids.RaftIndex, next ids.Offset) {
	o.last, o.next = index, next
}
