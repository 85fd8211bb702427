package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// CorruptError says that a stored batch is not what was written.
type CorruptError struct {
	Topic     string
	Partition int32
	Offset    ids.Offset // base offset of the batch, or where it was looked for
	Err       error
}

func (c *CorruptError) Error() string {
	return fmt.Sprintf("engine: %s-%d: stored batch at offset %d is corrupt: %v", c.Topic, c.Partition, c.Offset, c.Err)
}

// Unwrap is the reason.
func (c *CorruptError) Unwrap() error { return c.Err }

// IsDamage reports whether the error says that what is stored is not what was written: a replica that has this is to be
// made anew from its peers.
func IsDamage(err error) bool {
	var c *CorruptError
	return errors.As(err, &c) || errors.Is(err, ErrCorruptRow) || err != nil && pebble.IsCorruptionError(err)
}

// damaged makes the error of a damaged batch, and tells Config.OnDamage.
func (l *Log) damaged(base ids.Offset, err error) error {
	i := l.binding.Info
	c := &CorruptError{Topic: i.Topic, Partition: i.Partition, Offset: base, Err: err}
	if l.e.cfg.OnDamage != nil {
		l.e.cfg.OnDamage(l.binding, c)
	}
	return c
}

// A leader cannot send a damaged entry, and must not stop for that: Raft gets a stub with the entry's own header, which says
// all that applying it takes, and whoever sends messages drops one that has a stub in it.

// stubBytes is how much longer than prefix and header a stub is: no proposal is as short, and what a void entry keeps is
// shorter.
const stubBytes = 2

// stubProposal stands for the proposal of a damaged batch.
func stubProposal(row *EntryRow) []byte {
	whole := make([]byte, 1+batch.HeaderLen)
	whole[0], whole[1+headerMagic] = plainPrefix, magicData
	restoreProposal(whole[1:], row)
	return whole[:1+HeaderLen+stubBytes]
}

// IsStub reports whether a Raft entry's command stands for a proposal that is damaged here.
func IsStub(cmd []byte) bool {
	return len(cmd) == 1+HeaderLen+stubBytes && cmd[1+headerMagic] == magicData
}

// CarriesBatch reports whether a partition's Raft entry has such a command that saving it takes room for records.
func CarriesBatch(cmd []byte) bool {
	return len(cmd) > 1+headerMagic && cmd[1+headerMagic] == magicData
}

// ErrStoreDamaged says that a file of the store is damaged in a place that is needed for more than one partition: the broker
// has to stop, and its data directory to be emptied.
var ErrStoreDamaged = errors.New("engine: a file of the store is damaged; empty the data directory, and the broker copies everything anew from its peers")

// discard takes the deleted rows of a damaged partition out of the store's files at once: whatever read over them, a
// compaction too, would fail.
func (e *Engine) discard(p ids.PartitionID, former []replicaID) error {
	spans := make([]pebble.KeyRange, 0, 2+len(former))
	for _, kind := range []rowKind{rowData, rowTime} {
		lo, hi := partitionBounds(kind, p)
		spans = append(spans, pebble.KeyRange{Start: lo, End: hi})
	}
	for _, id := range former {
		lo, hi := replicaEntryBounds(id.Shard, id.Replica)
		spans = append(spans, pebble.KeyRange{Start: lo, End: hi})
	}
	for _, span := range spans {
		if err := e.readAround(span); err != nil {
			return fmt.Errorf("%w: %w", ErrStoreDamaged, err)
		}
		if err := e.db.Excise(context.Background(), span); err != nil {
			return fmt.Errorf("%w: %w", ErrStoreDamaged, err)
		}
	}
	return nil
}

// readAround checks that the rows next to the span can be read: Excise takes a neighbour that cannot for one that is not there.
func (e *Engine) readAround(span pebble.KeyRange) (err error) {
	it, err := e.newIter(nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	it.SeekLT(span.Start)
	if err := it.Error(); err != nil {
		return err
	}
	it.SeekGE(span.End)
	return it.Error()
}
