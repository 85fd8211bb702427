package engine

import (
	"encoding/binary"
	"errors"
	"slices"

	"cairn/internal/ids"
)

// StoredReplica is a replica of a Raft group of which something is stored.
type StoredReplica struct {
	Shard   ids.ShardID
	Replica ids.ReplicaID
}

// StoredReplicas lists the replicas of which any row of Raft's is stored, whether they run, own data, or are left over.
func (e *Engine) StoredReplicas() ([]StoredReplica, error) {
	seen := map[StoredReplica]bool{}
	for _, kind := range []rowKind{rowEntry, rowState, rowStart, rowBootstrap, rowSnapshot} {
		if err := e.scanReplicas(kind, seen); err != nil {
			return nil, err
		}
	}
	var list []StoredReplica
	for r := range seen {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b StoredReplica) int {
		return slices.Compare([]uint64{uint64(a.Shard), uint64(a.Replica)}, []uint64{uint64(b.Shard), uint64(b.Replica)})
	})
	return list, nil
}

// scanReplicas notes each replica that has a row of the kind. It looks at one row of each.
func (e *Engine) scanReplicas(kind rowKind, seen map[StoredReplica]bool) (err error) {
	it, err := e.newIter(kindBounds(kind))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; {
		k := it.Key()
		if len(k) < replicaKeyLen {
			return errBadKey
		}
		r := StoredReplica{ids.ShardID(binary.BigEndian.Uint64(k[1:])), ids.ReplicaID(binary.BigEndian.Uint64(k[9:]))}
		seen[r] = true
		ok = it.SeekGE(appendReplicaKey(nil, kind, r.Shard, r.Replica+1))
	}
	return it.Error()
}
