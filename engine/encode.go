package engine

import (
	"encoding/binary"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// What an entry means is decided here, from the log before it alone, so that all replicas decide alike.

// entry adds the rows of one entry to the batch and takes it into p's state.
func (s *saver) entry(p *pendingSave, e *pb.Entry) {
	row := &s.row
	*row = EntryRow{
		Index: ids.RaftIndex(e.Index), Term: ids.Term(e.Term), Type: e.Type, Cmd: e.Cmd,
		Key: e.Key, ClientID: e.ClientID, SeriesID: e.SeriesID, RespondedTo: e.RespondedTo,
	}
	saved := SavedEntry{Index: row.Index, Term: row.Term, Base: p.state.Next, Bytes: max(0, len(e.Cmd)-1)}
	if p.sh.log != nil && e.Type == pb.EncodedEntry {
		s.proposal(p, row, &saved)
	}
	row.LogState = p.state
	saved.Kind, saved.Next = row.Kind, p.state.Next
	s.putEntry(p, row)
	p.saved = append(p.saved, saved)
	p.infos = append(p.infos, row.Batch)
}

func (s *saver) putEntry(p *pendingSave, row *EntryRow) {
	id := p.sh.id
	s.key = appendEntryKey(s.key[:0], id.Shard, id.Replica, row.Index)
	s.value = row.appendTo(s.value[:0])
	set(s.batch, s.key, s.value)
}

// plainPrefix is dragonboat's prefix byte of an encoded entry: version 0, not compressed, no session.
const plainPrefix = 0

// proposal decides what a proposal means; what it is not valid for is void.
func (s *saver) proposal(p *pendingSave, row *EntryRow, saved *SavedEntry) {
	row.Kind = KindVoid
	if len(row.Cmd) == 0 || row.Cmd[0] != plainPrefix {
		row.Cmd = row.Cmd[:min(1, len(row.Cmd))]
		return
	}
	data := row.Cmd[1:]
	h, err := ParseHeader(data)
	if err == nil {
		saved.Ordinal, saved.HeaderTerm, saved.LeaderEpoch = h.Ordinal, h.Term, h.LeaderEpoch
	}
	if err != nil || !inOrder(h, row.Term, &p.state) || !s.take(p, row, h, data) {
		row.Cmd = row.Cmd[:1+min(HeaderLen, len(data))]
		return
	}
	row.Kind = h.Kind
	p.state.OrdinalTerm, p.state.Ordinal = h.Term, h.Ordinal
}

// inOrder says whether the header is that of the next proposal of the entry's own term. Proposals of one term can be
// dropped in the middle of a row without an error, and can be appended by a leader of a later term.
func inOrder(h Header, term ids.Term, s *LogState) bool {
	if h.Term != term {
		return false
	}
	if s.OrdinalTerm != term {
		return h.Ordinal == 1
	}
	return h.Ordinal == s.Ordinal+1
}

// take lets a proposal that is in order take effect; false when it cannot.
func (s *saver) take(p *pendingSave, row *EntryRow, h Header, data []byte) bool {
	switch {
	case h.Kind == KindGenesis:
		return s.takeGenesis(p, row.Index, data)
	case p.genesis == 0:
		return false
	case h.Kind == KindEpochStart:
		return p.takeEpochStart(row.Index, h, data)
	case h.LeaderEpoch != p.state.LeaderEpoch:
		return false // its leader was never registered under this epoch, or is not any more
	case h.Kind == KindLogStart:
		o, err := DecodeLogStart(data)
		return err == nil && o <= p.state.Next
	default:
		return s.takeData(p, row, h, data)
	}
}

func (s *saver) takeGenesis(p *pendingSave, index ids.RaftIndex, data []byte) bool {
	g, err := DecodeGenesis(data)
	if err != nil || p.genesis != 0 {
		return false
	}
	b := p.sh.log.binding
	if len(g.Producers) > 0 {
		p.producers = new(producer.State)
		if p.producers.LoadSnapshot(g.Producers, clock.Now().UnixMilli()) != nil {
			return false // DecodeGenesis has looked
		}
		p.txns, p.txnsOwned = p.producers.Transactions(), true
		// Index 0: should the genesis be replaced, the next one says it again.
		row := producersRow{Shard: b.Shard, Next: g.BaseOffset, Snapshot: g.Producers}
		set(s.batch, appendPartitionKey(nil, rowProducers, b.Info.ID), row.appendTo(nil))
	}
	if g.Generation != b.Generation || g.BaseOffset != b.BaseOffset {
		panic(fmt.Sprintf("BUG: %s is bound as generation %d from offset %d, its log begins generation %d from offset %d",
			b.Info.label(), b.Generation, b.BaseOffset, g.Generation, g.BaseOffset))
	}
	p.genesis, p.epochs, p.metaDirty = index, g.Epochs, true
	p.state.Next, p.state.LeaderEpoch = g.BaseOffset, ids.NoEpoch
	if n := len(g.Epochs); n > 0 {
		p.state.LeaderEpoch = g.Epochs[n-1].Epoch
	}
	return true
}

func (p *pendingSave) takeEpochStart(index ids.RaftIndex, h Header, data []byte) bool {
	if DecodeEpochStart(data) != nil || h.LeaderEpoch <= p.state.LeaderEpoch {
		return false
	}
	n := len(p.epochs)
	p.epochs = append(p.epochs[:n:n], EpochStart{Epoch: h.LeaderEpoch, Start: p.state.Next, Index: index})
	p.state.LeaderEpoch, p.metaDirty = h.LeaderEpoch, true
	return true
}

func (s *saver) takeData(p *pendingSave, row *EntryRow, h Header, data []byte) bool {
	if len(data) < batch.HeaderLen {
		return false
	}
	bh := batch.DecodeHeader(data)
	if bh.LastOffsetDelta < 0 || bh.RecordCount < 0 {
		return false
	}
	base := p.state.Next
	row.Batch = batchInfo(&bh, base, h.LeaderEpoch, data)
	row.Cmd = row.Cmd[:1]
	partition := p.sh.log.binding.Info.ID
	op := s.batch.SetDeferred(dataKeyLen, len(data))
	appendDataKey(op.Key[:0], partition, base)
	copy(op.Value, data)
	patchBatch(op.Value, base, len(data))
	if err := op.Finish(); err != nil {
		panic(fmt.Sprintf("BUG: batch refuses a row: %v", err))
	}
	p.state.Next = base + ids.Offset(bh.LastOffsetDelta) + 1
	p.state.LogBytes += int64(len(data))
	if bh.MaxTimestamp > p.state.MaxTimestamp {
		p.state.MaxTimestamp, p.state.MaxTimestampBase = bh.MaxTimestamp, base
	}
	s.timeRow(p, partition, base)
	if bh.IsTransactional() {
		s.transaction(p, partition, row.Batch.producerBatch())
	}
	return true
}

// batchInfo describes the batch data, whose header is bh, at base in the log.
func batchInfo(bh *batch.Header, base ids.Offset, epoch ids.LeaderEpoch, data []byte) BatchInfo {
	info := BatchInfo{
		Base: base, Size: int32(len(data)), LastOffsetDelta: bh.LastOffsetDelta, Count: bh.RecordCount,
		LeaderEpoch: epoch, Attributes: bh.Attributes, MaxTimestamp: bh.MaxTimestamp,
		ProducerID: bh.ProducerID, ProducerEpoch: bh.ProducerEpoch, BaseSequence: bh.BaseSequence,
	}
	if bh.IsControl() {
		m, err := batch.ParseMarker(data)
		info.IsMarker, info.Marker = err == nil, m
	}
	return info
}

// patchBatch writes what the proposal's header overlays: b is the batch, size bytes long, or the beginning of it.
func patchBatch(b []byte, base ids.Offset, size int) {
	binary.BigEndian.PutUint64(b[headerOrdinal:], uint64(base))
	binary.BigEndian.PutUint32(b[headerTerm:], uint32(size-batch.LengthOverhead))
}

// timeRowEvery is how many bytes of batches may lie between two time rows: a lookup reads about as many.
const timeRowEvery = 64 << 10

func (s *saver) timeRow(p *pendingSave, partition ids.PartitionID, base ids.Offset) {
	m := &p.sh.log.saves
	if p.state.LogBytes-m.timeBytes < timeRowEvery || p.state.MaxTimestampBase < 0 {
		return
	}
	m.timeBytes = p.state.LogBytes
	t := timeRow{MaxTimestamp: p.state.MaxTimestamp, MaxTimestampBase: p.state.MaxTimestampBase}
	s.key = appendTimeKey(s.key[:0], partition, base)
	s.value = t.appendTo(s.value[:0])
	set(s.batch, s.key, s.value)
}
