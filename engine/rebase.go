package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// A replica that joins a generation which it did not found brings what it has stored in line with that generation's log
// below its base offset, before it is started: Rebase cuts off what differs and changes the owner, Prefix adds what is
// missing. Both work on a partition that nobody has bound. After a crash the owner row says how far they were.

var (
	// ErrIncomplete refuses to bind a replica that lacks data below the base offset of its generation.
	ErrIncomplete = errors.New("engine: data below the base offset of the generation is missing")
	// ErrNotOwner says that another replica owns the partition's data.
	ErrNotOwner = errors.New("engine: not the owner of the partition's data")
)

// Stored describes what is stored of a partition that may have no running replica.
type Stored struct {
	Binding
	Start, End ids.Offset
	Epochs     []EpochStart // of what is stored, ascending; Index is of the owner's log, 0 below its base
}

// Complete reports whether all data below the base offset of the owner's generation are there: it may be bound.
func (s Stored) Complete() bool { return s.End >= s.BaseOffset }

// Owner is who may write the partition; false when nothing of it is stored.
func (e *Engine) Owner(p ids.PartitionID) (Binding, bool, error) {
	o, found, err := e.owner(p)
	return o.Binding, found, err
}

// Stored reads what is stored of a partition; false when nothing is.
func (e *Engine) Stored(p ids.PartitionID) (s Stored, found bool, err error) {
	l, ok := e.Log(p)
	if !ok {
		o, found, err := e.owner(p)
		if err != nil || !found {
			return s, false, err
		}
		if l, err = e.loadLog(o.Binding); err != nil {
			return s, false, err
		}
	}
	return Stored{Binding: l.binding, Start: l.Start(), End: l.End(), Epochs: l.epochsStored()}, true, nil
}

// epochsStored are the epochs of what is stored: of a prefix that is not complete, those that have begun.
func (l *Log) epochsStored() []EpochStart {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	epochs := l.epochs
	if l.sh.last == 0 && l.state.Next < l.binding.BaseOffset {
		n := len(epochs)
		for n > 0 && epochs[n-1].Start >= l.state.Next {
			n--
		}
		epochs = epochs[:n:n]
	}
	return epochs
}

// Rebase says how a new owner's log relates to what is stored.
type Rebase struct {
	Binding
	// Agreed is up to where the stored log is that of the generation. What lies behind it differs, and is moved to
	// quarantine. What is both above BaseOffset and agreed on comes again through Raft and is dropped.
	Agreed ids.Offset
	// Start is the log start of the generation: what lies below is dropped.
	Start ids.Offset
	// Epochs are those of the generation's log below its base.
	Epochs []EpochStart
	// Damaged: what is stored is not to be relied on. Nothing of it is kept, but for what can be read of a tail that differs,
	// which goes to quarantine.
	Damaged bool
}

// quarantineCommitBytes is how much goes to quarantine in one commit.
const quarantineCommitBytes = 32 << 20

// Rebase makes r.Binding the owner of the partition's data, as far as it agrees with the log of that generation, and
// removes what earlier owners stored of their Raft logs. The change of owner, the cut and the quarantine of what is cut are
// one durable commit; of a tail that is longer than memory is meant for, a part is in quarantine before. The partition
// must not be bound. Repeating it after a crash is harmless.
func (e *Engine) Rebase(r Rebase) error {
	if _, ok := e.Log(r.Info.ID); ok {
		return fmt.Errorf("rebase %s: %w", r.Info.label(), ErrBound)
	}
	if err := e.rebase(r); err != nil {
		return fmt.Errorf("rebase %s: %w", r.Info.label(), err)
	}
	return nil
}

func (e *Engine) rebase(r Rebase) error {
	old, found, err := e.owner(r.Info.ID)
	if err != nil {
		return err
	}
	b := e.newBatch(0)
	defer func() { b.Close() }()
	start := min(r.Start, r.BaseOffset)
	state := LogState{Next: start, LeaderEpoch: ids.NoEpoch, MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}
	meta := metaRow{Shard: r.Shard, LogStart: start, Epochs: epochsWithoutIndex(r.Epochs)}
	check, compaction := checkpointRow{Shard: r.Shard}, compactionRow{}
	var former []replicaID
	if found {
		c := cutter{e: e, batch: b}
		hw, err := c.cutOwner(old, r, &state, &meta)
		b, compaction.Holes = c.batch, c.holes
		if err != nil {
			return err
		}
		check.HighWatermark = max(0, min(hw, state.Next))
		former = append(old.Old, replicaID{old.Shard, old.Replica})
		for _, id := range former {
			deleteReplica(b, id)
		}
	}
	id := r.Info.ID
	row, point := ownerRow{Binding: r.Binding}, StartPoint{LogState: state}
	set(b, appendPartitionKey(nil, rowOwner, id), row.appendTo(nil))
	set(b, appendPartitionKey(nil, rowMeta, id), meta.appendTo(nil))
	set(b, appendPartitionKey(nil, rowCheckpoint, id), check.appendTo(nil))
	set(b, appendPartitionKey(nil, rowCompaction, id), compaction.appendTo(nil))
	set(b, appendPartitionKey(nil, rowProducers, id), (&producersRow{Shard: r.Shard, Next: state.Next}).appendTo(nil))
	set(b, appendReplicaKey(nil, rowStart, r.Shard, r.Replica), point.appendTo(nil))
	if err := e.commit(b, flushDurable); err != nil {
		return err
	}
	if r.Damaged {
		return e.discard(id, former)
	}
	return nil
}

func epochsWithoutIndex(epochs []EpochStart) []EpochStart {
	out := make([]EpochStart, len(epochs))
	for i, x := range epochs {
		out[i] = EpochStart{Epoch: x.Epoch, Start: x.Start}
	}
	return out
}

// cutter takes the end off a log that nobody has bound.
type cutter struct {
	e     *Engine
	l     *Log
	batch *pebble.Batch
	holes ids.Offset // in what is left, see compactionRow
	// markers: there are some in what goes to quarantine.
	markers bool
}

// cutOwner is cut for what that owner left. It returns the high watermark that was known there.
func (c *cutter) cutOwner(old ownerRow, r Rebase, state *LogState, meta *metaRow) (hw ids.Offset, err error) {
	if c.l, err = c.e.loadLog(old.Binding); err != nil {
		if !r.Damaged || !IsDamage(err) {
			return 0, err
		}
		c.e.log.Error("damaged rows cannot be read: a tail that differed from the leader's log is not kept",
			zap.String("topic", r.Info.Topic), zap.Int32("partition", r.Info.Partition), zap.Error(err))
		c.drop(r.Info.ID, 0)
		return 0, nil
	}
	if old.Shard == r.Shard && old.Replica == r.Replica && c.l.sh.last > 0 {
		return 0, fmt.Errorf("replica %d of shard %d has begun its log", r.Replica, r.Shard)
	}
	return c.l.HighWatermark(), c.cut(r, state, meta)
}

// cut adds what it takes to the batch, and tells what is left.
func (c *cutter) cut(r Rebase, state *LogState, meta *metaRow) error {
	l := c.l
	end := l.state.Next
	agreed, err := l.baseOf(min(r.Agreed, end)) // a batch that is only half agreed on is not
	if r.Damaged && IsDamage(err) {
		agreed, err = min(r.Agreed, end), nil
	}
	if err != nil {
		return err
	}
	err = c.quarantine(max(agreed, l.logStart), r.Damaged)
	if r.Damaged && (err == nil || IsDamage(err)) {
		if err != nil {
			c.e.log.Error("the rest of a damaged tail cannot be kept", zap.String("topic", r.Info.Topic), zap.Int32("partition", r.Info.Partition), zap.Error(err))
		}
		c.drop(r.Info.ID, 0)
		return nil
	}
	if err != nil {
		return err
	}
	keep, err := l.baseOf(min(agreed, r.BaseOffset))
	if err != nil {
		return err
	}
	// What compaction has removed here because of records that are not agreed on is missing: the rest is of no use either. The same goes for
	// markers: one that is not agreed on may have told compaction what became of a transaction with records below.
	spoiled := agreed < l.compaction.Holes || l.compaction.Holes > l.logStart && c.markers
	if keep <= max(l.logStart, state.Next) || spoiled { // nothing is left that the generation has
		c.drop(r.Info.ID, 0)
		return nil
	}
	removed, err := l.bytesFrom(keep)
	if err != nil {
		return err
	}
	stored := l.state.LogBytes - l.compaction.Removed
	*state = LogState{
		Next: keep, LeaderEpoch: ids.NoEpoch, MaxTimestamp: l.state.MaxTimestamp, MaxTimestampBase: l.state.MaxTimestampBase,
		LogBytes: stored - removed,
	}
	c.holes = min(l.compaction.Holes, keep)
	if l.state.MaxTimestampBase >= keep {
		if state.MaxTimestamp, state.MaxTimestampBase, err = l.maxTimestampBelow(keep); err != nil {
			return err
		}
	}
	meta.StartBytes = l.startBytes
	if start := meta.LogStart; start > l.logStart {
		base, err := l.baseOf(start) // the batch that holds it counts, as everywhere
		if err != nil {
			return err
		}
		behind, err := l.bytesFrom(base)
		if err != nil {
			return err
		}
		meta.StartBytes = max(l.startBytes, stored-behind)
	} else {
		meta.LogStart = l.logStart
	}
	if keep < end {
		c.drop(r.Info.ID, keep)
	}
	return nil
}

// drop removes the data from an offset on.
func (c *cutter) drop(id ids.PartitionID, from ids.Offset) {
	for _, kind := range []rowKind{rowData, rowTime, rowAborted} {
		_, hi := partitionBounds(kind, id)
		deleteRange(c.batch, appendKey(nil, kind, uint64(id), uint64(from)), hi)
	}
}

// quarantine copies the batches from an offset on; of a damaged log those that can be read.
func (c *cutter) quarantine(from ids.Offset, damaged bool) error {
	l, now, bytes := c.l, clock.Now().UnixMilli(), 0
	if from >= l.state.Next {
		return nil
	}
	return l.scanStored(from, l.state.Next, func(base ids.Offset, _ int, value func() ([]byte, error)) (bool, error) {
		if base < from {
			return true, nil
		}
		v, err := value()
		if err == nil && damaged {
			_, err = l.checkStored(base, v)
		}
		if damaged && IsDamage(err) {
			c.e.log.Error("a damaged batch cannot be kept", zap.String("topic", l.binding.Info.Topic), zap.Int32("partition", l.binding.Info.Partition),
				zap.Int64("offset", int64(base)), zap.Error(err))
			return true, nil
		}
		if err != nil {
			return false, err
		}
		h, err := batch.ParseHeader(v)
		if err != nil {
			return false, fmt.Errorf("batch at offset %d: %w", base, err)
		}
		c.markers = c.markers || h.IsControl()
		q := quarantineRow{Shard: l.binding.Shard, AtMs: now, Batch: v}
		set(c.batch, appendQuarantineKey(nil, l.binding.Info.ID, ids.LeaderEpoch(h.LeaderEpoch), base), q.appendTo(nil))
		if bytes += len(v); bytes >= quarantineCommitBytes {
			bytes = 0
			if err := c.e.commit(c.batch, flushLazy); err != nil { // in order before the one that cuts
				return false, err
			}
			c.batch.Close()
			c.batch = c.e.newBatch(0)
		}
		return true, nil
	})
}

// bytesFrom is the size of the batches from an offset on, which is the base of one, or the log end.
func (l *Log) bytesFrom(from ids.Offset) (n int64, err error) {
	if from >= l.state.Next {
		return 0, nil
	}
	err = l.scanStored(from, l.state.Next, func(base ids.Offset, size int, _ func() ([]byte, error)) (bool, error) {
		if base >= from {
			n += int64(size)
		}
		return true, nil
	})
	return n, err
}

// maxTimestampBelow is the largest timestamp below an offset, and the base of the first batch with it.
func (l *Log) maxTimestampBelow(limit ids.Offset) (int64, ids.Offset, error) {
	best, from := timeRow{MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}, l.logStart
	row, base, ok, err := l.timeRowBefore(0, limit)
	if err != nil {
		return -1, ids.NoOffset, err
	}
	if ok {
		best, from = row, base+1
	}
	err = l.scanHeaders(from, limit, func(h batch.Header, _ []byte) (bool, error) {
		if h.MaxTimestamp > best.MaxTimestamp {
			best = timeRow{h.MaxTimestamp, ids.Offset(h.BaseOffset)}
		}
		return true, nil
	})
	return best.MaxTimestamp, best.MaxTimestampBase, err
}

// Prefix adds what a new owner lacks below the base offset of its generation. It belongs to one goroutine.
type Prefix struct {
	e         *Engine
	b         Binding
	state     LogState
	holes     compactionRow // where the log that is copied has lost batches to compaction
	empty     bool          // nothing is stored: the first batch may begin below the log start
	timeBytes int64
}

// OpenPrefix goes on where Rebase, or an earlier Prefix, ended. ErrNotOwner unless b owns the data; ErrBound.
func (e *Engine) OpenPrefix(b Binding) (*Prefix, error) {
	if _, ok := e.Log(b.Info.ID); ok {
		return nil, fmt.Errorf("prefix of %s: %w", b.Info.label(), ErrBound)
	}
	o, found, err := e.owner(b.Info.ID)
	if err != nil {
		return nil, err
	}
	if !found || o.Binding != b {
		return nil, fmt.Errorf("prefix of %s: %w", b.Info.label(), ErrNotOwner)
	}
	sh, tip, _, err := e.loadShard(replicaID{b.Shard, b.Replica})
	if err != nil {
		return nil, err
	}
	if sh.last > 0 {
		return nil, fmt.Errorf("prefix of %s: its log has begun", b.Info.label())
	}
	p := &Prefix{e: e, b: b, state: tip, timeBytes: tip.LogBytes}
	if p.holes, err = e.compactionOf(b.Info.ID); err != nil {
		return nil, err
	}
	it, err := e.newIter(partitionBounds(rowData, b.Info.ID))
	if err != nil {
		return nil, err
	}
	p.empty = !it.First()
	return p, errors.Join(it.Error(), it.Close())
}

// Next is the offset to go on at.
func (p *Prefix) Next() ids.Offset { return p.state.Next }

// Append stores batches as they are in the log of another replica, in order, from Next on, and the aborted transactions whose markers are
// among them. They are checked whole; nothing is stored after an error. raw is borrowed. They are durable after Finish, or a prefix of them after a crash before it.
func (p *Prefix) Append(raw []byte, aborted []AbortedTransaction) error {
	b := p.e.newBatch(len(raw))
	defer b.Close()
	state, timeBytes, holes, empty := p.state, p.timeBytes, p.holes, p.empty
	for len(raw) > 0 {
		h, err := batch.ParseHeader(raw)
		if err == nil && h.Size() > len(raw) {
			err = fmt.Errorf("%w: %d bytes of %d", batch.ErrCorruptMessage, len(raw), h.Size())
		}
		if err == nil {
			err = batch.VerifyCRC(raw[:h.Size()])
		}
		base, next := ids.Offset(h.BaseOffset), ids.Offset(h.NextOffset())
		if err == nil && (base < state.Next && (!empty || next <= state.Next) || next > p.b.BaseOffset) {
			err = fmt.Errorf("offsets [%d, %d) do not fit in behind %d and below the base %d", base, next, state.Next, p.b.BaseOffset)
		}
		if err != nil {
			return fmt.Errorf("prefix of %s: %w", p.b.Info.label(), err)
		}
		set(b, appendDataKey(nil, p.b.Info.ID, base), raw[:h.Size()])
		if base > state.Next || h.RecordCount <= h.LastOffsetDelta {
			holes.Holes = next
		}
		state.Next, empty = next, false
		state.LogBytes += int64(h.Size())
		if h.MaxTimestamp > state.MaxTimestamp {
			state.MaxTimestamp, state.MaxTimestampBase = h.MaxTimestamp, base
		}
		if state.LogBytes-timeBytes >= timeRowEvery && state.MaxTimestampBase >= 0 {
			timeBytes = state.LogBytes
			row := timeRow{MaxTimestamp: state.MaxTimestamp, MaxTimestampBase: state.MaxTimestampBase}
			set(b, appendTimeKey(nil, p.b.Info.ID, base), row.appendTo(nil))
		}
		raw = raw[h.Size():]
	}
	if err := p.putAborted(b, aborted, state.Next); err != nil {
		return err
	}
	p.put(b, state, holes)
	if err := p.e.commit(b, flushLazy); err != nil {
		return err
	}
	p.state, p.timeBytes, p.holes, p.empty = state, timeBytes, holes, empty
	return nil
}

// putAborted stores the aborted transactions whose markers are in [Next, next).
func (p *Prefix) putAborted(b *pebble.Batch, aborted []AbortedTransaction, next ids.Offset) error {
	for _, a := range aborted {
		if a.Last < p.state.Next || a.Last >= next || a.First > a.Last {
			return fmt.Errorf("prefix of %s: aborted transaction %+v in [%d, %d)", p.b.Info.label(), a, p.state.Next, next)
		}
		row := abortedRow{ProducerID: a.ProducerID, First: a.First, Stable: a.Stable}
		set(b, appendAbortedKey(nil, p.b.Info.ID, a.Last), row.appendTo(nil))
	}
	return nil
}

// Finish says that there is nothing between Next and the base offset, and makes all durable: the owner may be bound.
func (p *Prefix) Finish() error {
	b := p.e.newBatch(0)
	defer b.Close()
	state, holes := p.state, p.holes
	if state.Next < p.b.BaseOffset {
		holes.Holes = p.b.BaseOffset
	}
	state.Next = p.b.BaseOffset
	p.put(b, state, holes)
	if err := p.e.commit(b, flushDurable); err != nil {
		return err
	}
	p.state, p.holes = state, holes
	return nil
}

func (p *Prefix) put(b *pebble.Batch, state LogState, holes compactionRow) {
	if holes != p.holes {
		set(b, appendPartitionKey(nil, rowCompaction, p.b.Info.ID), holes.appendTo(nil))
	}
	point := StartPoint{LogState: state}
	set(b, appendReplicaKey(nil, rowStart, p.b.Shard, p.b.Replica), point.appendTo(nil))
}

// DropFormerOwners removes what earlier owners of the partition's data stored of their Raft logs. They must not run.
func (e *Engine) DropFormerOwners(p ids.PartitionID) error {
	o, found, err := e.owner(p)
	if err != nil || !found || len(o.Old) == 0 {
		return err
	}
	b := e.newBatch(0)
	defer b.Close()
	for _, id := range o.Old {
		deleteReplica(b, id)
	}
	o.Old = nil
	set(b, appendPartitionKey(nil, rowOwner, p), o.appendTo(nil))
	return e.commit(b, flushLazy)
}

// ProducersSnapshot is the producer state after the last saved entry, for Genesis.Producers.
func (l *Log) ProducersSnapshot() []byte {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	if l.producers.Len() == 0 {
		return nil
	}
	return l.producers.SnapshotWithin(producersTravelMax)
}
