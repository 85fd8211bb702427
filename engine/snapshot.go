package engine

import (
	"fmt"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/clock"
	"cairn/internal/ids"
)

// Snapshots of a partition carry no data: they stand at the start of its Raft log, and what is retained follows by
// ordinary appends. dragonboat's snapshot records are therefore kept in memory only: after a restart the record is
// made up from the start point, so that the Raft log begins where it really begins and not at the last record.
// The metadata shard has ordinary snapshots, whose records are stored.

// snapshotStart is what travels with a snapshot next to dragonboat's own frame: the start point at which it stands,
// the leader epochs begun until there, and the producer state there.
type snapshotStart struct {
	StartPoint
	epochs     []EpochStart
	producers  []byte // a snapshot of a producer.State; empty: there are none
	receivedMs int64  // when it came, ms; not a part of what travels
}

// encode is the form that travels.
func (s *snapshotStart) encode() []byte {
	version := byte(rowVersion)
	if len(s.producers) > 0 {
		version = rowVersionTxn
	}
	dst := appendEpochs([]byte{version}, s.epochs, true)
	if len(s.producers) > 0 {
		dst = bin.AppendBytes(dst, s.producers)
	}
	return s.StartPoint.appendTo(dst)
}

func decodeSnapshotStart(b []byte) (s snapshotStart, err error) {
	r := bin.NewReader(b)
	version := r.Version(rowVersionTxn)
	s.epochs = readEpochs(&r, true)
	if version >= rowVersionTxn {
		s.producers = r.Bytes()
		if err := new(producer.State).LoadSnapshot(s.producers, 0); err != nil {
			r.Fail("%v", err)
		}
	}
	point := r.Rest()
	if err := r.Done(); err != nil {
		return snapshotStart{}, fmt.Errorf("start point of a snapshot: %w", err)
	}
	s.StartPoint, err = decodeStartPoint(point)
	return s, err
}

// EncodeStartPoint is where the Raft log of this replica starts, and the same for ExpectSnapshot on the receiver of
// a snapshot; false when it starts at its beginning.
func (l *Log) EncodeStartPoint() (StartPoint, []byte, bool, error) {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	s := l.startAt()
	if s.Index == 0 {
		return s.StartPoint, nil, false, nil
	}
	var err error
	if s.producers, err = l.startSnapshot(s.StartPoint); err != nil {
		return s.StartPoint, nil, false, err
	}
	return s.StartPoint, s.encode(), true, nil
}

// ExpectSnapshot tells what the log is at the start point at which a snapshot, on its way to the replica, stands;
// start is from EncodeStartPoint of the sender. The transport calls it when it receives the snapshot's first frame,
// before Raft saves it. A second stream may be announced while the first waits for its save, so the newest few are
// kept, by index.
func (e *Engine) ExpectSnapshot(s ids.ShardID, r ids.ReplicaID, start []byte) error {
	at, err := decodeSnapshotStart(start)
	if err != nil {
		return err
	}
	at.receivedMs = clock.Now().UnixMilli()
	e.mu.Lock()
	defer e.mu.Unlock()
	id := replicaID{s, r}
	known := slices.DeleteFunc(e.expected[id], func(k snapshotStart) bool { return k.Index == at.Index })
	known = known[max(0, len(known)-expectedMax+1):]
	e.expected[id] = append(known, at)
	return nil
}

// expectedMax bounds the start points that are remembered for one replica.
const expectedMax = 4

// takeExpected panics without an expectation: the next offset would be unknown.
func (e *Engine) takeExpected(id replicaID, ss *pb.Snapshot) snapshotStart {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.expected[id]
	i := slices.IndexFunc(known, func(k snapshotStart) bool { return k.Index == ids.RaftIndex(ss.Index) })
	if i < 0 {
		panic(fmt.Sprintf("BUG: shard %d replica %d installs a snapshot at index %d, none of the %d expected ones", id.Shard, id.Replica, ss.Index, len(known)))
	}
	at := known[i]
	e.expected[id] = slices.DeleteFunc(known, func(k snapshotStart) bool { return k.Index <= at.Index })
	at.Term, at.Membership = ids.Term(ss.Term), ss.Membership
	return at
}

// install lets the log begin anew at a received snapshot.
func (s *saver) install(p *pendingSave, ss *pb.Snapshot) error {
	sh := p.sh
	at := snapshotStart{StartPoint: StartPoint{Index: ids.RaftIndex(ss.Index), Term: ids.Term(ss.Term), Membership: ss.Membership}}
	if sh.log == nil {
		if err := s.putSnapshot(sh.id, *ss); err != nil {
			return err
		}
	} else {
		at = s.e.takeExpected(sh.id, ss)
		if err := s.installLog(p, &at); err != nil {
			return fmt.Errorf("install snapshot of %s at index %d: %w", sh.log.binding.Info.label(), ss.Index, err)
		}
	}
	lo, hi := replicaEntryBounds(sh.id.Shard, sh.id.Replica)
	deleteRange(s.batch, lo, hi)
	set(s.batch, appendReplicaKey(nil, rowStart, sh.id.Shard, sh.id.Replica), at.StartPoint.appendTo(nil))
	p.installed = &at.StartPoint
	p.state, p.last, p.lastTerm = at.LogState, at.Index, at.Term
	return nil
}

// installLog drops the partition's data, which is below what the leader retains. What was not committed may be more
// than that, and goes to quarantine.
func (s *saver) installLog(p *pendingSave, at *snapshotStart) error {
	l := p.sh.log
	from := max(ids.RaftIndex(p.sh.hard.Commit), p.sh.start.Index) + 1
	if err := s.quarantine(l, from, p.last+1); err != nil {
		return err
	}
	partition := l.binding.Info.ID
	for _, kind := range []rowKind{rowData, rowTime, rowAborted} {
		lo, hi := partitionBounds(kind, partition)
		deleteRange(s.batch, lo, hi)
	}
	deleteRow(s.batch, appendPartitionKey(nil, rowCompaction, partition))
	l.saves.timeBytes = at.LogBytes
	l.saves.dropProducers()
	l.saves.producersAt = at.Index
	s.installProducers(p, at)
	p.genesis, p.epochs, p.metaDirty = at.Index, at.epochs, true
	return nil
}

// publishInstall needs sh.mu, and startMu for a log.
func (p *pendingSave) publishInstall() {
	sh, l := p.sh, p.sh.log
	sh.start, sh.snapshot = *p.installed, plainSnapshot(p.update.Snapshot)
	sh.recent = recent{}
	sh.replayNext, sh.replayUntil = 0, 0
	if l == nil {
		return
	}
	l.tail.clear()
	l.undos = nil // the producers follow, see installProducers
	l.logStart, l.startBytes = p.installed.Next, p.installed.LogBytes
	l.dropped, l.dropBytes = l.logStart, l.startBytes
	l.compaction = compactionRow{}
	l.SetHighWatermark(l.logStart)
}

// putSnapshot adds a stored snapshot record to the batch.
func (s *saver) putSnapshot(id replicaID, ss pb.Snapshot) error {
	v, err := appendSnapshotRow(nil, ss)
	if err != nil {
		return err
	}
	set(s.batch, appendReplicaKey(nil, rowSnapshot, id.Shard, id.Replica), v)
	return nil
}

// plainSnapshot is a copy without the reference count that dragonboat hangs on a record in use.
func plainSnapshot(ss pb.Snapshot) pb.Snapshot {
	return pb.Snapshot{
		Filepath: ss.Filepath, FileSize: ss.FileSize, Index: ss.Index, Term: ss.Term, Membership: ss.Membership,
		Files: ss.Files, Checksum: ss.Checksum, Dummy: ss.Dummy, ShardID: ss.ShardID, Type: ss.Type,
		Imported: ss.Imported, OnDiskIndex: ss.OnDiskIndex, Witness: ss.Witness,
	}
}

// SaveSnapshots takes the records of snapshots that were made here. It runs at the same time as saves.
func (d logDB) SaveSnapshots(updates []pb.Update) error {
	for i := range updates {
		u := &updates[i]
		if pb.IsEmptySnapshot(u.Snapshot) {
			continue
		}
		sh, err := d.e.known(key(u.ShardID, u.ReplicaID))
		if err != nil {
			return err
		}
		if sh.log == nil {
			if err := d.e.storeSnapshot(sh.id, u.Snapshot); err != nil {
				return err
			}
		}
		sh.mu.Lock()
		if u.Snapshot.Index > sh.snapshot.Index {
			sh.snapshot = plainSnapshot(u.Snapshot)
		}
		sh.mu.Unlock()
	}
	return nil
}

func (e *Engine) storeSnapshot(id replicaID, ss pb.Snapshot) error {
	v, err := appendSnapshotRow(nil, ss)
	if err != nil {
		return err
	}
	b := e.newBatch(0)
	defer b.Close()
	set(b, appendReplicaKey(nil, rowSnapshot, id.Shard, id.Replica), v)
	return e.commit(b, flushDurable)
}

// GetSnapshot is the newest record made or installed since the start; at start the one made up at the start point,
// or none when the log begins at its beginning.
func (d logDB) GetSnapshot(shardID, replicaID uint64) (pb.Snapshot, error) {
	sh, err := d.e.known(key(shardID, replicaID))
	if err != nil {
		return pb.Snapshot{}, err
	}
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if sh.log == nil || !pb.IsEmptySnapshot(sh.snapshot) {
		return sh.snapshot, nil
	}
	if sh.start.Index == 0 {
		return pb.Snapshot{}, nil
	}
	return pb.Snapshot{
		ShardID: shardID, Index: uint64(sh.start.Index), Term: uint64(sh.start.Term), Membership: sh.start.Membership,
		OnDiskIndex: uint64(sh.start.Index), Dummy: true, Type: pb.OnDiskStateMachine,
	}, nil
}
