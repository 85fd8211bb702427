package engine

import (
	"errors"
	"fmt"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// logDB is the engine as dragonboat sees it.
type logDB struct{ e *Engine }

var _ raftio.ILogDB = logDB{}

// logDBName is stored by dragonboat, which refuses a directory that another kind of LogDB wrote.
const logDBName = "cairn"

type logDBFactory struct{ e *Engine }

// LogDBFactory gives the engine to a NodeHost as its LogDB. The NodeHost closing it does not close the engine.
func (e *Engine) LogDBFactory() config.LogDBFactory { return logDBFactory{e} }

// Name implements config.LogDBFactory.
func (f logDBFactory) Name() string { return logDBName }

// Create implements config.LogDBFactory. The directories are dragonboat's own and stay unused.
func (f logDBFactory) Create(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error) {
	if f.e.readOnly {
		return nil, errors.New("engine: opened read-only")
	}
	return logDB(f), nil
}

// Name implements raftio.ILogDB.
func (d logDB) Name() string { return logDBName }

// Close does nothing: the engine outlives its NodeHost.
func (d logDB) Close() error { return nil }

// BinaryFormat implements raftio.ILogDB.
func (d logDB) BinaryFormat() uint32 { return raftio.PlainLogDBBinVersion }

// ListNodeInfo lists the replicas that were ever started here and not removed.
func (d logDB) ListNodeInfo() (infos []raftio.NodeInfo, err error) {
	it, err := d.e.newIter(kindBounds(rowBootstrap))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		_, s, r, err := parseReplicaKey(it.Key())
		if err != nil {
			return nil, err
		}
		infos = append(infos, raftio.NodeInfo{ShardID: uint64(s), ReplicaID: uint64(r)})
	}
	return infos, it.Error()
}

func key(shard, replica uint64) replicaID {
	return replicaID{ids.ShardID(shard), ids.ReplicaID(replica)}
}

// SaveBootstrapInfo stores the members a replica is started with.
func (d logDB) SaveBootstrapInfo(shardID, replicaID uint64, bootstrap pb.Bootstrap) error {
	b := d.e.newBatch(0)
	defer b.Close()
	set(b, appendReplicaKey(nil, rowBootstrap, ids.ShardID(shardID), ids.ReplicaID(replicaID)), appendBootstrapRow(nil, bootstrap))
	return d.e.commit(b, flushDurable)
}

// GetBootstrapInfo returns what SaveBootstrapInfo stored.
func (d logDB) GetBootstrapInfo(shardID, replicaID uint64) (bootstrap pb.Bootstrap, err error) {
	found, err := d.e.get(appendReplicaKey(nil, rowBootstrap, ids.ShardID(shardID), ids.ReplicaID(replicaID)), func(v []byte) (err error) {
		bootstrap, err = decodeBootstrapRow(v)
		return err
	})
	if err == nil && !found {
		err = raftio.ErrNoBootstrapInfo
	}
	return bootstrap, err
}

// SaveRaftState is the write path: see save.go.
func (d logDB) SaveRaftState(updates []pb.Update, _ uint64) error { return d.e.saveRaftState(updates) }

// IterateEntries reads entries back: see iterate.go.
func (d logDB) IterateEntries(entries []pb.Entry, size, shardID, replicaID, low, high, maxSize uint64) ([]pb.Entry, uint64, error) {
	sh, err := d.e.known(key(shardID, replicaID))
	if err != nil {
		return nil, 0, err
	}
	return d.e.iterateEntries(sh, entries, size, ids.RaftIndex(low), ids.RaftIndex(high), maxSize)
}

// ReadRaftState says at start what is stored of a replica behind lastIndex, the index of its snapshot record.
func (d logDB) ReadRaftState(shardID, replicaID, lastIndex uint64) (raftio.RaftState, error) {
	sh, err := d.e.known(key(shardID, replicaID))
	if err != nil {
		return raftio.RaftState{}, err
	}
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if sh.last == 0 && pb.IsEmptyState(sh.hard) {
		return raftio.RaftState{}, raftio.ErrNoSavedLog
	}
	state := raftio.RaftState{State: sh.hard, FirstIndex: lastIndex + 1}
	state.State.Commit = max(state.State.Commit, lastIndex) // the record may have been stored after the state
	if last := uint64(sh.last); last > lastIndex {
		state.EntryCount = last - lastIndex
	}
	return state, nil
}

// known is the shard of a replica that is bound, or of the metadata group.
func (e *Engine) known(id replicaID) (*shard, error) {
	if sh := e.shard(id); sh != nil {
		return sh, nil
	}
	if id.Shard == ids.MetadataShard {
		return e.metadataShard(id)
	}
	return nil, fmt.Errorf("shard %d replica %d: %w", id.Shard, id.Replica, errUnbound)
}

var errUnbound = errors.New("engine: replica owns no partition")

// metadataShard loads the metadata shard at its first use.
func (e *Engine) metadataShard(id replicaID) (*shard, error) {
	sh, _, _, err := e.loadShard(id)
	if err != nil {
		return nil, err
	}
	if _, err := e.get(appendReplicaKey(nil, rowSnapshot, id.Shard, id.Replica), func(v []byte) (err error) {
		sh.snapshot, err = decodeSnapshotRow(v)
		return err
	}); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.shards[id]; other != nil {
		return other, nil
	}
	e.addShardLocked(sh)
	return sh, nil
}

// CompactEntriesTo does nothing: Pebble compacts by itself.
func (d logDB) CompactEntriesTo(uint64, uint64, uint64) (<-chan struct{}, error) {
	done := make(chan struct{})
	close(done)
	return done, nil
}

// RemoveNodeData removes all that Raft stored for a replica. A partition's data stays (see DeletePartition), and the
// replica must be released.
func (d logDB) RemoveNodeData(shardID, replicaID uint64) error {
	id := key(shardID, replicaID)
	if sh := d.e.shard(id); sh != nil && sh.log != nil {
		return fmt.Errorf("remove shard %d replica %d: %w", shardID, replicaID, ErrBound)
	}
	b := d.e.newBatch(0)
	defer b.Close()
	deleteReplica(b, id)
	if err := d.e.commit(b, flushDurable); err != nil {
		return err
	}
	d.e.mu.Lock()
	defer d.e.mu.Unlock()
	d.e.removeShardLocked(id)
	return nil
}

// ImportSnapshot is not supported: repairing a lost quorum is the controller's work.
func (d logDB) ImportSnapshot(pb.Snapshot, uint64) error {
	return errors.New("engine: snapshots cannot be imported")
}
