package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
)

// Scrubbing reads what nobody asks for, so that damage is found while the other replicas are still there to repair it. Batches are checked
// as when they are read for a client, other rows by the checksums of the blocks that they are in.

// scrubPiece is how much is read with one iterator, in bytes: an iterator keeps files from being deleted.
const scrubPiece = 4 << 20

// Scrub reads everything that is stored. Damage that concerns a partition is reported to Config.OnDamage; the error, which wraps
// ErrStoreDamaged, is about other rows. wait is called behind each piece with its size; false ends it early. bytes is how much was read.
func (e *Engine) Scrub(wait func(bytes int) bool) (bytes int64, err error) {
	s := &scrub{e: e, wait: wait}
	for _, l := range e.boundLogs() {
		if !s.log(l) {
			return s.bytes, nil
		}
	}
	for _, id := range e.metadataReplicas() {
		if !s.metadata(id) {
			break
		}
	}
	return s.bytes, s.err
}

// boundLogs are the logs of the partitions that run here, in the order of their ids.
func (e *Engine) boundLogs() []*Log {
	e.mu.RLock()
	defer e.mu.RUnlock()
	logs := make([]*Log, 0, len(e.logs))
	for _, l := range e.logs {
		logs = append(logs, l)
	}
	slices.SortFunc(logs, func(a, b *Log) int { return int(a.binding.Info.ID) - int(b.binding.Info.ID) })
	return logs
}

func (e *Engine) metadataReplicas() (list []replicaID) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for id := range e.shards {
		if id.Shard == ids.MetadataShard {
			list = append(list, id)
		}
	}
	return list
}

type scrub struct {
	e     *Engine
	wait  func(int) bool
	bytes int64
	err   error
}

// log reads the rows of one partition. It goes on behind damage with the next partition, since this one is made anew as a whole.
func (s *scrub) log(l *Log) (more bool) {
	p, id := l.binding.Info.ID, l.sh.id
	for from := l.Start(); from < l.End(); {
		next, n, err := l.scrubPiece(from)
		if !s.read(n) {
			return false
		}
		if err != nil {
			return s.failed(err)
		}
		if next <= from { // what is here has expired meanwhile
			break
		}
		from = max(next, l.Start())
	}
	spans := [][2][]byte{}
	add := func(lo, hi []byte) { spans = append(spans, [2][]byte{lo, hi}) }
	add(replicaEntryBounds(id.Shard, id.Replica))
	for _, kind := range []rowKind{rowTime, rowQuarantine, rowAborted} {
		add(partitionBounds(kind, p))
	}
	for _, kind := range []rowKind{rowOwner, rowMeta, rowCheckpoint, rowProducers, rowStartState} {
		add(oneRow(appendPartitionKey(nil, kind, p)))
	}
	for _, kind := range []rowKind{rowState, rowStart, rowBootstrap} {
		add(oneRow(appendReplicaKey(nil, kind, id.Shard, id.Replica)))
	}
	more, err := s.spans(spans)
	if err != nil && pebble.IsCorruptionError(err) {
		err = l.damaged(l.Start(), fmt.Errorf("rows beside the batches: %w", err))
	}
	return more && (err == nil || s.failed(err))
}

// failed goes on behind damage, which was reported, and behind a store that is closed it does not.
func (s *scrub) failed(err error) bool {
	if IsDamage(err) {
		return true
	}
	s.err = errors.Join(s.err, err)
	return false
}

// metadata reads the rows of the metadata shard, which no peer repairs.
func (s *scrub) metadata(id replicaID) (more bool) {
	spans := [][2][]byte{}
	lo, hi := replicaEntryBounds(id.Shard, id.Replica)
	spans = append(spans, [2][]byte{lo, hi})
	for _, kind := range []rowKind{rowState, rowStart, rowBootstrap, rowSnapshot} {
		lo, hi := oneRow(appendReplicaKey(nil, kind, id.Shard, id.Replica))
		spans = append(spans, [2][]byte{lo, hi})
	}
	more, err := s.spans(spans)
	if err != nil {
		if pebble.IsCorruptionError(err) {
			err = fmt.Errorf("%w: %w", ErrStoreDamaged, err)
		}
		s.err = errors.Join(s.err, err)
	}
	return more && err == nil
}

// oneRow are the bounds of a single key.
func oneRow(key []byte) (lo, hi []byte) { return key, append(slices.Clone(key), 0) }

func (s *scrub) read(n int) bool {
	s.bytes += int64(n)
	return s.wait(n)
}

func (s *scrub) spans(spans [][2][]byte) (more bool, err error) {
	for _, span := range spans {
		for at := span[0]; at != nil; {
			next, n, err := s.e.scrubRows(at, span[1])
			if err != nil {
				return true, err
			}
			if !s.read(n) {
				return false, nil
			}
			at = next
		}
	}
	return true, nil
}

// scrubRows reads rows from a key on. next is where to go on; nil: at the end.
func (e *Engine) scrubRows(from, to []byte) (next []byte, bytes int, err error) {
	it, err := e.newIter(from, to)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if bytes >= scrubPiece {
			return slices.Clone(it.Key()), bytes, nil
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, bytes, err
		}
		bytes += len(it.Key()) + len(v)
	}
	return nil, bytes, it.Error()
}

// scrubPiece checks stored batches from the one that holds from on. next is where to go on.
func (l *Log) scrubPiece(from ids.Offset) (next ids.Offset, bytes int, err error) {
	next = from
	err = l.scanStored(from, l.End(), func(base ids.Offset, size int, value func() ([]byte, error)) (bool, error) {
		b, err := value()
		if err != nil {
			return false, err
		}
		bytes += size
		next, err = l.checkStored(base, b)
		return bytes < scrubPiece, err
	})
	return next, bytes, err
}
