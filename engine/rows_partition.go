package engine

import (
	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/ids"
)

// PartitionInfo names a partition.
type PartitionInfo struct {
	ID        ids.PartitionID
	Topic     string
	TopicID   ids.UUID
	Partition int32
}

// Binding makes one replica of one shard the owner of a partition's data.
type Binding struct {
	Info       PartitionInfo
	Shard      ids.ShardID
	Replica    ids.ReplicaID
	Generation int32
	BaseOffset ids.Offset // first offset of the generation
}

// replicaID names a replica of a shard on this broker.
type replicaID struct {
	Shard   ids.ShardID
	Replica ids.ReplicaID
}

// ownerRow says who may write a partition. It is written before its owner starts.
type ownerRow struct {
	Binding
	Old []replicaID // earlier owners whose rows may still be there
}

func (o *ownerRow) appendTo(dst []byte) []byte {
	dst = bin.AppendBytes(append(dst, rowVersion), o.Info.Topic)
	dst = append(dst, o.Info.TopicID[:]...)
	dst = bin.AppendUvarint(dst, uint32(o.Info.Partition))
	dst = bin.AppendUvarint(dst, uint64(o.Shard))
	dst = bin.AppendUvarint(dst, uint64(o.Replica))
	dst = bin.AppendUvarint(dst, uint32(o.Generation))
	dst = bin.AppendUvarint(dst, uint64(o.BaseOffset))
	dst = bin.AppendUvarint(dst, uint64(len(o.Old)))
	for _, old := range o.Old {
		dst = bin.AppendUvarint(dst, uint64(old.Shard))
		dst = bin.AppendUvarint(dst, uint64(old.Replica))
	}
	return dst
}

func decodeOwnerRow(p ids.PartitionID, b []byte) (ownerRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	var o ownerRow
	o.Info.ID = p
	o.Info.Topic = r.String()
	r.Fixed(o.Info.TopicID[:])
	o.Info.Partition = r.PositiveInt32()
	o.Shard = ids.ShardID(r.Uvarint())
	o.Replica = ids.ReplicaID(r.Uvarint())
	o.Generation = r.PositiveInt32()
	o.BaseOffset = ids.Offset(r.Int64())
	if n := r.Count(2); n > 0 {
		o.Old = make([]replicaID, n)
	}
	for i := range o.Old {
		o.Old[i] = replicaID{Shard: ids.ShardID(r.Uvarint()), Replica: ids.ReplicaID(r.Uvarint())}
	}
	if err := r.Done(); err != nil {
		return ownerRow{}, rowError(rowOwner, err)
	}
	return o, nil
}

// metaRow is written in the commit of each entry that changes it.
type metaRow struct {
	Shard        ids.ShardID
	LogStart     ids.Offset
	StartBytes   int64         // LogState.LogBytes at LogStart: the log's size is the difference
	GenesisIndex ids.RaftIndex // 0: the shard's log has none yet
	Epochs       []EpochStart
}

func (m *metaRow) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(m.Shard))
	dst = bin.AppendUvarint(dst, uint64(m.LogStart))
	dst = bin.AppendUvarint(dst, uint64(m.StartBytes))
	dst = bin.AppendUvarint(dst, uint64(m.GenesisIndex))
	return appendEpochs(dst, m.Epochs, true)
}

func decodeMetaRow(b []byte) (metaRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	m := metaRow{Shard: ids.ShardID(r.Uvarint()), LogStart: ids.Offset(r.Int64()), StartBytes: r.Int64(), GenesisIndex: ids.RaftIndex(r.Uvarint())}
	m.Epochs = readEpochs(&r, true)
	if err := r.Done(); err != nil {
		return metaRow{}, rowError(rowMeta, err)
	}
	return m, nil
}

// checkpointRow is written lazily, with later saves: it may lag behind, never lead.
type checkpointRow struct {
	Shard         ids.ShardID // Applied is an index of this shard's log
	Applied       ids.RaftIndex
	HighWatermark ids.Offset
}

func (c *checkpointRow) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(c.Shard))
	dst = bin.AppendUvarint(dst, uint64(c.Applied))
	return bin.AppendUvarint(dst, uint64(c.HighWatermark))
}

func decodeCheckpointRow(b []byte) (checkpointRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	c := checkpointRow{Shard: ids.ShardID(r.Uvarint()), Applied: ids.RaftIndex(r.Uvarint()), HighWatermark: ids.Offset(r.Int64())}
	return c, rowError(rowCheckpoint, r.Done())
}

// producersRow is the producer state after an entry; entries behind it are appended to it at start.
type producersRow struct {
	Shard    ids.ShardID // Index is an index of this shard's log
	Index    ids.RaftIndex
	Next     ids.Offset // next offset after Index
	Ended    []producer.EndedTransaction
	Snapshot []byte // of a producer.State
}

func (p *producersRow) appendTo(dst []byte) []byte {
	version := byte(rowVersion)
	if len(p.Ended) > 0 {
		version = rowVersionTxn
	}
	dst = bin.AppendUvarint(append(dst, version), uint64(p.Shard))
	dst = bin.AppendUvarint(dst, uint64(p.Index))
	dst = bin.AppendUvarint(dst, uint64(p.Next))
	if len(p.Ended) > 0 {
		dst = appendEnded(dst, p.Ended)
	}
	return append(dst, p.Snapshot...)
}

func appendEnded(dst []byte, ended []producer.EndedTransaction) []byte {
	dst = bin.AppendUvarint(dst, uint64(len(ended)))
	for _, t := range ended {
		dst = bin.AppendUvarint(dst, uint64(t.ProducerID))
		dst = bin.AppendUvarint(dst, uint64(t.First))
		dst = bin.AppendUvarint(dst, uint64(t.Last))
		dst = bin.AppendBool(dst, t.Aborted)
	}
	return dst
}

// readEnded fails for an empty list, which is not stored, and for one that does not ascend.
func readEnded(r *bin.Reader) []producer.EndedTransaction {
	ended := make([]producer.EndedTransaction, r.Count(4))
	if len(ended) == 0 {
		r.Fail("no transactions where there should be some")
	}
	for i := range ended {
		t := producer.EndedTransaction{ProducerID: r.Int64(), First: ids.Offset(r.Int64()), Last: ids.Offset(r.Int64()), Aborted: r.Bool()}
		if t.First > t.Last || i > 0 && t.Last <= ended[i-1].Last {
			r.Fail("transaction %d: [%d, %d]", i, t.First, t.Last)
		}
		ended[i] = t
	}
	return ended
}

// decodeProducersRow does not look into the snapshot, which aliases b.
func decodeProducersRow(b []byte) (producersRow, error) {
	r := bin.NewReader(b)
	version := r.Version(rowVersionTxn)
	p := producersRow{Shard: ids.ShardID(r.Uvarint()), Index: ids.RaftIndex(r.Uvarint()), Next: ids.Offset(r.Int64())}
	if version >= rowVersionTxn {
		p.Ended = readEnded(&r)
	}
	p.Snapshot = r.Rest()
	return p, rowError(rowProducers, r.Done())
}

// abortedRow is an aborted transaction; the key has the offset of its marker.
type abortedRow struct {
	ProducerID int64
	First      ids.Offset
	// Stable is the first offset that belonged to an open transaction after the marker, or the offset behind it: no transaction with a
	// later marker begins below.
	Stable ids.Offset
}

func (a *abortedRow) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(a.ProducerID))
	dst = bin.AppendUvarint(dst, uint64(a.First))
	return bin.AppendUvarint(dst, uint64(a.Stable))
}

func decodeAbortedRow(b []byte) (abortedRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	a := abortedRow{ProducerID: r.Int64(), First: ids.Offset(r.Int64()), Stable: ids.Offset(r.Int64())}
	return a, rowError(rowAborted, r.Done())
}

// timeRow is the running maximum of timestamps, the batch at the key's base offset included.
type timeRow struct {
	MaxTimestamp     int64      // ms
	MaxTimestampBase ids.Offset // base offset of the first batch with it
}

func (t *timeRow) appendTo(dst []byte) []byte {
	dst = bin.AppendVarint(append(dst, rowVersion), t.MaxTimestamp)
	return bin.AppendUvarint(dst, uint64(t.MaxTimestampBase))
}

func decodeTimeRow(b []byte) (timeRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	t := timeRow{MaxTimestamp: r.Varint(), MaxTimestampBase: ids.Offset(r.Int64())}
	return t, rowError(rowTime, r.Done())
}

// quarantineRow is a batch that a truncation took out of the log.
type quarantineRow struct {
	Shard ids.ShardID
	Index ids.RaftIndex // where it stood in that shard's log
	Term  ids.Term
	AtMs  int64 // when it was replaced, ms since 1970
	Batch []byte
}

func (q *quarantineRow) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(q.Shard))
	dst = bin.AppendUvarint(dst, uint64(q.Index))
	dst = bin.AppendUvarint(dst, uint64(q.Term))
	dst = bin.AppendVarint(dst, q.AtMs)
	return append(dst, q.Batch...)
}

// decodeQuarantineRow does not look into the batch, which aliases b.
func decodeQuarantineRow(b []byte) (quarantineRow, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	q := quarantineRow{Shard: ids.ShardID(r.Uvarint()), Index: ids.RaftIndex(r.Uvarint()), Term: ids.Term(r.Uvarint()), AtMs: r.Varint(), Batch: r.Rest()}
	return q, rowError(rowQuarantine, r.Done())
}
