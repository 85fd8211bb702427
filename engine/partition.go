package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// ErrNoPartition says that the store has nothing of a partition.
var ErrNoPartition = errors.New("engine: no such partition")

// ErrBound refuses to touch a partition that a replica owns and has loaded.
var ErrBound = errors.New("engine: partition is bound")

// ErrBeyondBase refuses a generation whose base offset is below the end of the data: what lies above it must be moved
// to quarantine first.
var ErrBeyondBase = errors.New("engine: data above the base offset of the generation")

// Partitions lists all partitions that the store has data of, in the order of their ids.
func (e *Engine) Partitions() ([]PartitionInfo, error) {
	var infos []PartitionInfo
	err := e.scanOwners(func(o ownerRow) { infos = append(infos, o.Info) })
	return infos, err
}

func (e *Engine) scanOwners(fn func(ownerRow)) (err error) {
	it, err := e.newIter(kindBounds(rowOwner))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		_, p, err := parsePartitionKey(it.Key())
		if err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		o, err := decodeOwnerRow(p, v)
		if err != nil {
			return err
		}
		fn(o)
	}
	return it.Error()
}

func (e *Engine) owner(p ids.PartitionID) (o ownerRow, found bool, err error) {
	found, err = e.get(appendPartitionKey(nil, rowOwner, p), func(v []byte) (err error) {
		o, err = decodeOwnerRow(p, v)
		return err
	})
	return o, found, err
}

// Bind makes a replica the owner of a partition's data and loads the log. It is durable and idempotent, and must be
// called before the replica starts and after the previous owner was unloaded and released. obs hears of its saves.
// From then on a save of any other shard for the partition stops the process.
func (e *Engine) Bind(b Binding, obs Observer) (*Log, error) {
	if l, ok := e.Log(b.Info.ID); ok {
		return l, l.rebind(b, obs)
	}
	if err := e.storeOwner(b); err != nil {
		return nil, fmt.Errorf("bind %s: %w", b.Info.label(), err)
	}
	l, err := e.loadLog(b)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", b.Info.label(), err)
	}
	if l.sh.last == 0 && l.state.Next < b.BaseOffset {
		return nil, fmt.Errorf("bind %s: %w: stored to %d, base %d", b.Info.label(), ErrIncomplete, l.state.Next, b.BaseOffset)
	}
	l.obs = obs
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logs[b.Info.ID] != nil || e.shards[l.sh.id] != nil {
		return nil, fmt.Errorf("bind %s: %w", b.Info.label(), ErrBound)
	}
	e.logs[b.Info.ID] = l
	e.addShardLocked(l.sh)
	return l, nil
}

// rebind is a Bind of what is bound already, by the same owner before it starts again.
func (l *Log) rebind(b Binding, obs Observer) error {
	if l.binding != b {
		return fmt.Errorf("bind %s to shard %d replica %d: %w to shard %d replica %d", b.Info.label(), b.Shard, b.Replica, ErrBound, l.binding.Shard, l.binding.Replica)
	}
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	l.obs = obs
	l.sh.replayNext, l.sh.replayUntil = l.sh.start.Index+1, l.Applied()
	return nil
}

// storeOwner writes the owner row and, for a new owner, its start point: nothing logged yet, and the data below the
// base offset as the last owner left it.
func (e *Engine) storeOwner(b Binding) error {
	old, found, err := e.owner(b.Info.ID)
	if err != nil {
		return err
	}
	if found && old.Binding == b {
		return nil
	}
	batch := e.newBatch(0)
	defer batch.Close()
	row := ownerRow{Binding: b}
	start := StartPoint{LogState: LogState{Next: b.BaseOffset, LeaderEpoch: ids.NoEpoch, MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}}
	meta := metaRow{Shard: b.Shard, LogStart: b.BaseOffset}
	if found {
		row.Old = slices.Clone(old.Old)
		if was := (replicaID{old.Shard, old.Replica}); was != (replicaID{b.Shard, b.Replica}) {
			row.Old = append(row.Old, was)
		}
		if err := e.inherit(batch, old, b, &start.LogState, &meta); err != nil {
			return err
		}
	}
	set(batch, appendPartitionKey(nil, rowOwner, b.Info.ID), row.appendTo(nil))
	set(batch, appendPartitionKey(nil, rowMeta, b.Info.ID), meta.appendTo(nil))
	set(batch, appendReplicaKey(nil, rowStart, b.Shard, b.Replica), start.appendTo(nil))
	return e.commit(batch, flushDurable)
}

// inherit is what a new generation knows of the log that the former owner left below its base offset.
func (e *Engine) inherit(batch *pebble.Batch, old ownerRow, b Binding, state *LogState, meta *metaRow) error {
	l, err := e.loadLog(old.Binding)
	if err != nil {
		return err
	}
	switch {
	case l.state.Next > b.BaseOffset:
		return fmt.Errorf("%w: end %d, base %d", ErrBeyondBase, l.state.Next, b.BaseOffset)
	case l.state.Next < b.BaseOffset:
		return fmt.Errorf("%w: end %d, base %d", ErrIncomplete, l.state.Next, b.BaseOffset)
	}
	state.MaxTimestamp, state.MaxTimestampBase, state.LogBytes = l.state.MaxTimestamp, l.state.MaxTimestampBase, l.state.LogBytes
	meta.LogStart, meta.StartBytes, meta.Epochs = l.logStart, l.startBytes, epochsWithoutIndex(l.epochsStored())
	if !l.HasGenesis() {
		if err := l.rebuildProducers(); err != nil {
			return err
		}
	}
	p := producersRow{Shard: b.Shard, Next: l.state.Next, Snapshot: l.producers.AppendSnapshot(nil)}
	set(batch, appendPartitionKey(nil, rowProducers, b.Info.ID), p.appendTo(nil))
	return nil
}

// rebuildProducers makes the producer state of a log that nobody has bound from its stored batches alone, all of which it reads. A replica
// that joined a generation gets the state below the base offset with the genesis; one that is to begin the next generation before the
// genesis came has nothing else, and without it would take a repeated batch for a new one.
func (l *Log) rebuildProducers() error {
	var s producer.State
	now := clock.Now().UnixMilli()
	err := l.scanHeaders(l.logStart, l.state.Next, func(h batch.Header, raw []byte) (bool, error) {
		info := batchInfo(&h, ids.Offset(h.BaseOffset), ids.LeaderEpoch(h.LeaderEpoch), raw)
		s.Append(info.producerBatch(), now)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("producers of %s: %w", l.binding.Info.label(), err)
	}
	l.producers = s
	return nil
}

// set adds a row to a batch. Batch.Set only fails for indexed batches.
func set(b *pebble.Batch, key, value []byte) {
	if err := b.Set(key, value, nil); err != nil {
		panic(fmt.Sprintf("BUG: batch refuses a row: %v", err))
	}
}

func deleteRange(b *pebble.Batch, lo, hi []byte) {
	if err := b.DeleteRange(lo, hi, nil); err != nil {
		panic(fmt.Sprintf("BUG: batch refuses a range: %v", err))
	}
}

func deleteRow(b *pebble.Batch, key []byte) {
	if err := b.Delete(key, nil); err != nil {
		panic(fmt.Sprintf("BUG: batch refuses a key: %v", err))
	}
}

// Release detaches the observer and drops what is in memory of the log, after its replica was unloaded. The data
// stays. A save that still comes stops the process.
func (e *Engine) Release(p ids.PartitionID) {
	e.mu.Lock()
	l := e.logs[p]
	if l != nil {
		delete(e.logs, p)
		e.removeShardLocked(l.sh.id)
		delete(e.expected, l.sh.id)
	}
	e.mu.Unlock()
	if l == nil {
		return
	}
	l.startMu.Lock()
	l.released = true // a compaction under way writes nothing more
	l.startMu.Unlock()
	e.tails.remove(&l.tail)
	e.idle.Lock()
	defer e.idle.Unlock()
	if e.closed.Load() {
		return
	}
	b := e.newBatch(0)
	defer b.Close()
	if l.checkpointTo(b); !b.Empty() {
		_ = e.commit(b, flushLazy) // ErrClosed: Close has written the checkpoint
	}
}

// Log is the bound log of a partition.
func (e *Engine) Log(p ids.PartitionID) (*Log, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	l, ok := e.logs[p]
	return l, ok
}

// OpenLog is the bound log of a partition or, when it is not bound, a read-only view of what is stored now.
func (e *Engine) OpenLog(p ids.PartitionID) (*Log, error) {
	if l, ok := e.Log(p); ok {
		return l, nil
	}
	o, found, err := e.owner(p)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: %d", ErrNoPartition, p)
	}
	return e.loadLog(o.Binding)
}

// DeletePartition removes all of a partition, the rows of all its owners included, in one commit. The partition
// must not be bound. Deleting what is not there is no error.
func (e *Engine) DeletePartition(p ids.PartitionID) error {
	if _, ok := e.Log(p); ok {
		return fmt.Errorf("delete partition %d: %w", p, ErrBound)
	}
	o, found, err := e.owner(p)
	if err != nil {
		return fmt.Errorf("delete partition %d: %w", p, err)
	}
	b := e.newBatch(0)
	defer b.Close()
	for _, kind := range []rowKind{rowData, rowTime, rowQuarantine, rowAborted} {
		lo, hi := partitionBounds(kind, p)
		deleteRange(b, lo, hi)
	}
	for _, kind := range []rowKind{rowOwner, rowMeta, rowCheckpoint, rowProducers, rowStartState, rowCompaction} {
		deleteRow(b, appendPartitionKey(nil, kind, p))
	}
	if found {
		for _, id := range append(o.Old, replicaID{o.Shard, o.Replica}) {
			deleteReplica(b, id)
		}
	}
	err = e.commit(b, flushDurable)
	e.space.deleted(partitionBounds(rowData, p))
	for _, id := range append(o.Old, replicaID{o.Shard, o.Replica}) {
		e.space.deleted(replicaEntryBounds(id.Shard, id.Replica))
	}
	return err
}

// deleteReplica removes all rows of a replica of a shard.
func deleteReplica(b *pebble.Batch, id replicaID) {
	lo, hi := replicaEntryBounds(id.Shard, id.Replica)
	deleteRange(b, lo, hi)
	for _, kind := range []rowKind{rowState, rowStart, rowBootstrap, rowSnapshot} {
		deleteRow(b, appendReplicaKey(nil, kind, id.Shard, id.Replica))
	}
}

// label is topic and partition as Kafka writes them, with the storage key: for errors.
func (i PartitionInfo) label() string {
	return fmt.Sprintf("%s-%d (partition %d)", i.Topic, i.Partition, i.ID)
}
