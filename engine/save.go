package engine

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/internal/ids"
)

// The write path. One call of SaveRaftState carries the updates of all shards of one Raft worker that are ready
// together, and becomes one Pebble commit with one fsync:
//
//  1. collect: each shard's entries become rows in the batch. Offsets are given out here (encode.go), on copies of
//     the shard's state. Payload is copied once, from Entry.Cmd into the batch; Entry.Cmd is Raft's and read-only.
//  2. hard states and checkpoints go in last, and the batch is committed. A batch above commitBytesMax is committed
//     in pieces in order, unsynced but for the last one: the write-ahead log keeps the order, so a crash leaves a
//     prefix, and nothing of it was promised to anyone before the last one.
//  3. publish: memory learns what is now durable, under each shard's mutex.
//  4. observers are told, outside of all locks.
//
// A rejected simpler way is to update memory while encoding: readers would then see, and the leader acknowledge,
// what is not durable yet.

// saver is the scratch of one call.
type saver struct {
	e     *Engine
	batch *pebble.Batch
	saves []*pendingSave
	flush flushLevel
	bytes int
	row   EntryRow
	key   []byte
	value []byte
}

// pendingSave is what one shard's update changes, before it is published. It starts as a copy of the shard's state.
type pendingSave struct {
	sh     *shard
	update *pb.Update

	hard      pb.State
	hardDirty bool
	last      ids.RaftIndex
	lastTerm  ids.Term

	state      LogState
	genesis    ids.RaftIndex
	epochs     []EpochStart
	metaDirty  bool
	metaLocked bool // startMu is held until the meta row is published
	checkpoint checkpointRow
	checkDirty bool
	producers  *producer.State // of a genesis or a snapshot: what the entries behind it go on from; nil: none
	txns       producer.Transactions
	txnsOwned  bool       // txns is a copy that this save may change
	abortedTo  ids.Offset // see Log

	truncated *truncation
	installed *StartPoint

	saved []SavedEntry
	infos []BatchInfo // parallel to saved
}

// savedKept bounds the scratch that a shard keeps between saves, in entries.
const savedKept = 1024

func (e *Engine) saveRaftState(updates []pb.Update) error {
	began := clock.Now()
	s := e.savers.Get().(*saver)
	defer s.release()
	s.e, s.flush, s.bytes = e, flushLazy, 0
	s.batch = e.newBatch(sizeOf(updates))
	for i := range updates {
		if err := s.collect(&updates[i]); err != nil {
			return err
		}
	}
	if len(s.saves) == 0 {
		return nil
	}
	for _, p := range s.saves {
		s.putState(p)
		if delay := e.cfg.Faults.SaveDelay; delay != nil {
			delay(p.sh.id.Shard)
		}
	}
	if err := e.commit(s.batch, s.flush); err != nil {
		return err
	}
	e.stats.saved(time.Since(began), s.bytes, s.flush != flushLazy)
	e.space.used(s.bytes)
	for _, p := range s.saves {
		p.publish()
	}
	for _, p := range s.saves {
		p.notify()
	}
	return nil
}

// Rough sizes of what a batch holds next to payload, so that its buffer is allocated once.
const (
	entryRowBytes  = 160
	updateRowBytes = 128
)

func sizeOf(updates []pb.Update) int {
	n := 0
	for i := range updates {
		n += updateRowBytes
		for j := range updates[i].EntriesToSave {
			n += len(updates[i].EntriesToSave[j].Cmd) + entryRowBytes
		}
	}
	return n
}

// release gives the scratch back, and the shards.
func (s *saver) release() {
	for i, p := range s.saves {
		p.end()
		s.saves[i] = nil
	}
	s.saves = s.saves[:0]
	s.row = EntryRow{}
	s.batch.Close()
	s.batch = nil
	s.e.savers.Put(s)
}

// collect adds the rows of one update to the batch.
func (s *saver) collect(u *pb.Update) error {
	id := replicaID{ids.ShardID(u.ShardID), ids.ReplicaID(u.ReplicaID)}
	hasSnapshot := !pb.IsEmptySnapshot(u.Snapshot)
	if !hasSnapshot && len(u.EntriesToSave) == 0 && pb.IsEmptyState(u.State) {
		return nil
	}
	sh := s.e.saveTarget(id)
	p := sh.begin(u)
	if !pb.IsEmptyState(u.State) && u.State != p.hard {
		if u.State.Term != p.hard.Term || u.State.Vote != p.hard.Vote || sh.log == nil {
			s.waitFor(sh)
		}
		p.hard, p.hardDirty = u.State, true
	}
	if !hasSnapshot && len(u.EntriesToSave) == 0 && !p.hardDirty {
		p.end()
		return nil
	}
	s.saves = append(s.saves, p)
	if hasSnapshot {
		s.waitFor(sh)
		if err := s.install(p, &u.Snapshot); err != nil {
			return err
		}
	}
	if len(u.EntriesToSave) == 0 {
		return nil
	}
	s.waitFor(sh)
	return s.entries(p, u.EntriesToSave)
}

// waitFor notes that the commit has something of the shard that must be kept. The metadata shard is always fsynced.
func (s *saver) waitFor(sh *shard) {
	s.flush = max(s.flush, flushSaved)
	if sh.log == nil {
		s.flush = flushDurable
	}
}

// saveTarget finds the shard of a save. The metadata shard needs no Bind.
func (e *Engine) saveTarget(id replicaID) *shard {
	if sh := e.shard(id); sh != nil {
		return sh
	}
	if id.Shard != ids.MetadataShard {
		panic(fmt.Sprintf("BUG: save of shard %d replica %d, which owns no partition", id.Shard, id.Replica))
	}
	sh, err := e.metadataShard(id)
	if err != nil {
		panic(fmt.Sprintf("engine: load the metadata shard: %v", err))
	}
	return sh
}

func (s *saver) entries(p *pendingSave, entries []pb.Entry) error {
	if first := ids.RaftIndex(entries[0].Index); first <= p.last {
		if err := s.truncate(p, first); err != nil {
			return err
		}
	}
	for i := range entries {
		e := &entries[i]
		if ids.RaftIndex(e.Index) != p.last+1 {
			panic(fmt.Sprintf("BUG: shard %d: entry %d saved behind %d", p.sh.id.Shard, e.Index, p.last))
		}
		s.entry(p, e)
		p.last, p.lastTerm = ids.RaftIndex(e.Index), ids.Term(e.Term)
		s.bytes += len(e.Cmd)
		if s.batch.Len() > s.e.commitBytesMax {
			if err := s.commitPiece(); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitPiece commits what the batch has grown to and goes on with a fresh one. The meta rows go along: they must
// agree with the entries.
func (s *saver) commitPiece() error {
	for _, p := range s.saves {
		s.putMeta(p)
	}
	if err := s.e.commit(s.batch, flushLazy); err != nil {
		return err
	}
	s.batch.Close()
	s.batch = s.e.newBatch(0)
	return nil
}

// putState adds what goes into the last commit of a save: what is derived from its entries, and the hard state.
func (s *saver) putState(p *pendingSave) {
	id := p.sh.id
	if l := p.sh.log; l != nil {
		s.putLogState(p, l)
	}
	if p.hardDirty {
		s.key = appendReplicaKey(s.key[:0], rowState, id.Shard, id.Replica)
		s.value = appendStateRow(s.value[:0], p.hard)
		set(s.batch, s.key, s.value)
	}
}

func (s *saver) putLogState(p *pendingSave, l *Log) {
	partition := l.binding.Info.ID
	s.putMeta(p)
	if c := l.checkpointRow(p.last); c != l.checkpointStored() {
		p.checkpoint, p.checkDirty = c, true
		s.key = appendPartitionKey(s.key[:0], rowCheckpoint, partition)
		s.value = c.appendTo(s.value[:0])
		set(s.batch, s.key, s.value)
	}
	if m := &l.saves; m.producersReady && m.producers.Index <= ids.RaftIndex(p.hard.Commit) {
		s.key = appendPartitionKey(s.key[:0], rowProducers, partition)
		set(s.batch, s.key, m.producers.appendTo(nil))
		m.dropProducers()
	}
}

// putMeta adds the meta row when the save changes it, and holds it until the save is published.
func (s *saver) putMeta(p *pendingSave) {
	if !p.metaDirty {
		return
	}
	l := p.sh.log
	if !p.metaLocked {
		l.startMu.Lock()
		p.metaLocked = true
	}
	s.key = appendPartitionKey(s.key[:0], rowMeta, l.binding.Info.ID)
	meta := p.meta(l)
	s.value = meta.appendTo(s.value[:0])
	set(s.batch, s.key, s.value)
}

// checkpointRow is what is to be stored lazily. The applied index is not stored before its entry is.
func (l *Log) checkpointRow(last ids.RaftIndex) checkpointRow {
	return checkpointRow{Shard: l.binding.Shard, Applied: min(l.Applied(), last), HighWatermark: max(0, l.HighWatermark())}
}

// checkpointTo adds what is to be stored lazily to b. No save may be under way.
func (l *Log) checkpointTo(b *pebble.Batch) {
	if !l.sh.saving.CompareAndSwap(false, true) {
		return // the caller should have waited; nothing is lost, what is stored only lags
	}
	defer l.sh.saving.Store(false)
	c := l.checkpointRow(l.LastIndex())
	if c == l.checkpointStored() {
		return
	}
	l.sh.mu.Lock()
	l.checkpoint.put(c)
	l.sh.mu.Unlock()
	set(b, appendPartitionKey(nil, rowCheckpoint, l.binding.Info.ID), c.appendTo(nil))
}

// meta needs startMu.
func (p *pendingSave) meta(l *Log) metaRow {
	m := metaRow{Shard: l.binding.Shard, LogStart: l.logStart, StartBytes: l.startBytes, GenesisIndex: p.genesis, Epochs: p.epochs}
	if p.installed != nil {
		m.LogStart, m.StartBytes = p.installed.Next, p.installed.LogBytes
	}
	return m
}

// begin starts a save of the shard.
func (sh *shard) begin(u *pb.Update) *pendingSave {
	if !sh.saving.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("BUG: two saves of shard %d replica %d at once", sh.id.Shard, sh.id.Replica))
	}
	p := &sh.pending
	*p = pendingSave{sh: sh, update: u, saved: p.saved[:0], infos: p.infos[:0]}
	// Only saves change what is copied here, so no lock is needed to read it.
	p.hard, p.last, p.lastTerm = sh.hard, sh.last, sh.lastTerm
	if l := sh.log; l != nil {
		p.state, p.genesis, p.epochs = l.state, l.genesis, l.epochs
		p.txns, p.abortedTo = l.txns, l.abortedTo
	}
	return p
}

func (p *pendingSave) unlockMeta() {
	if p.metaLocked {
		p.metaLocked = false
		p.sh.log.startMu.Unlock()
	}
}

// end gives the shard free for its next save.
func (p *pendingSave) end() {
	sh := p.sh
	p.unlockMeta()
	saved, infos := p.saved[:0], p.infos[:0]
	if cap(saved) > savedKept {
		saved, infos = nil, nil
	}
	*p = pendingSave{sh: sh, saved: saved, infos: infos}
	sh.saving.Store(false)
}

// publish makes the committed save visible.
func (p *pendingSave) publish() {
	sh, l := p.sh, p.sh.log
	sh.mu.Lock()
	sh.hard = p.hard
	if p.installed != nil {
		p.publishInstall()
	}
	if p.truncated != nil {
		p.publishTruncation()
	}
	sh.last, sh.lastTerm = p.last, p.lastTerm
	for i := range p.saved {
		sh.recent.append(p.saved[i].Index, recentEntry{term: p.saved[i].Term, next: p.saved[i].Next})
	}
	if l != nil {
		p.publishLog(l)
	}
	sh.mu.Unlock()
	if l == nil {
		return
	}
	p.unlockMeta()
	l.snapshotProducers()
}

// publishLog needs sh.mu. The tail goes first: whoever sees the new log end finds what lies below it in the tail or
// in the store.
func (p *pendingSave) publishLog(l *Log) {
	l.tail.append(p.update.EntriesToSave, p.saved)
	l.state, l.genesis, l.epochs = p.state, p.genesis, p.epochs
	now := clock.Now().UnixMilli()
	if p.checkDirty {
		l.checkpoint.put(p.checkpoint)
	}
	if p.producers != nil {
		l.producers, l.undos = *p.producers, nil
	}
	for i := range p.saved {
		if p.saved[i].Kind != KindData {
			continue
		}
		l.appendMs = now
		if p.infos[i].ProducerID < 0 {
			continue
		}
		u := l.producers.Append(p.infos[i].producerBatch(), now)
		l.undos = append(l.undos, undo{p.saved[i].Index, u})
	}
	l.txns, l.abortedTo = p.txns, p.abortedTo
	if hw := l.HighWatermark(); l.txns.Unsettled(hw) {
		l.txns.Settle(hw)
	}
	l.forgetUndos(ids.RaftIndex(p.hard.Commit))
}

// forgetUndos drops the undos of committed batches: they are never truncated.
func (l *Log) forgetUndos(commit ids.RaftIndex) {
	n := 0
	for n < len(l.undos) && l.undos[n].index <= commit {
		n++
	}
	if n == 0 {
		return
	}
	kept := copy(l.undos, l.undos[n:])
	clear(l.undos[kept:])
	l.undos = l.undos[:kept]
}

// producersEvery is how many entries may follow a snapshot of the producer state before the next one is taken: it
// bounds what a restart reads. With many producers it is more, so that snapshots cost no more than the log.
const producersEvery = 4096

// dropProducers forgets the snapshot that waits.
func (m *saveMarks) dropProducers() { m.producers, m.producersReady = producersRow{}, false }

func (l *Log) snapshotProducers() {
	m := &l.saves
	last := l.sh.last
	if m.producersReady || last < m.producersAt+l.e.cfg.producersEvery {
		return
	}
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	if last < m.producersAt+ids.RaftIndex(4*l.producers.Len()) {
		return
	}
	snapshot := l.producers.AppendSnapshot(nil)
	m.producers = producersRow{Shard: l.binding.Shard, Index: last, Next: l.state.Next, Ended: l.txns.Ended(), Snapshot: snapshot}
	m.producersReady, m.producersAt = true, last
}

// notify tells the observer of a published save.
func (p *pendingSave) notify() {
	if p.sh.log == nil || p.sh.log.obs == nil {
		return
	}
	obs := p.sh.log.obs
	if p.installed != nil {
		obs.SnapshotInstalled(p.installed.Index, p.installed.Next)
	}
	if p.truncated != nil {
		obs.Truncated(p.truncated.first, p.truncated.state.Next)
	}
	if len(p.saved) > 0 {
		obs.Saved(p.saved)
	}
}
