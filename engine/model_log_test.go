package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
	"cairn/internal/bin"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// The model of a partition's log: what its Raft entries mean, worked out from the raw bytes by code of its own.

type modelBatch struct {
	base, next ids.Offset
	index      ids.RaftIndex
	epoch      ids.LeaderEpoch
	proposal   []byte // as proposed; raw() is as stored
}

func (b modelBatch) raw() []byte {
	r := bytes.Clone(b.proposal)
	binary.BigEndian.PutUint64(r, uint64(b.base))
	binary.BigEndian.PutUint32(r[8:], uint32(len(r)-12))
	return r
}

type modelProducer struct {
	epoch       int16
	lastMs      int64
	batches     []producer.CachedBatch // all of the epoch
	coordinator int32                  // epoch of the last marker's coordinator
	txnFirst    ids.Offset             // of the open transaction, NoOffset: none is open
}

// modelTxn is a transaction that has ended.
type modelTxn struct {
	producer    int64
	first, last ids.Offset
	aborted     bool
	settled     bool // its marker cannot be truncated any more: a later generation goes on from it
}

// modelLog is a log after some entries. Index i is at[i-1].
type modelLog struct {
	metadata  bool // entries carry their payload and have no offsets
	at        []modelEntry
	batches   []modelBatch
	epochs    []EpochStart
	genesis   ids.RaftIndex
	producers map[int64]*modelProducer
	ended     []modelTxn
	term      ids.Term // of the ordinal
	ordinal   uint64
	next      ids.Offset
	epoch     ids.LeaderEpoch
	bytes     int64
	maxMs     int64
	maxMsBase ids.Offset

	genesisProducers map[int64]*modelProducer // what the genesis says, if it says something new
}

type modelEntry struct {
	kind EntryKind
	cmd  []byte // as Raft gets it back
	next ids.Offset
}

func newModelLog(metadata bool) *modelLog {
	return &modelLog{metadata: metadata, epoch: ids.NoEpoch, maxMs: -1, maxMsBase: ids.NoOffset, producers: map[int64]*modelProducer{}}
}

// prefix is the log as the next generation begins with it, with all that there is below its base.
func (m *modelLog) prefix() *modelLog {
	p := newModelLog(false)
	p.batches, p.next, p.bytes, p.maxMs, p.maxMsBase = slices.Clone(m.batches), m.next, m.bytes, m.maxMs, m.maxMsBase
	for _, e := range m.epochs {
		p.epochs = append(p.epochs, EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	for i := range p.batches {
		p.batches[i].index = 0
	}
	for _, t := range m.ended {
		t.settled = true
		p.ended = append(p.ended, t)
	}
	p.producers = copyProducers(m.producers)
	return p
}

func copyProducers(from map[int64]*modelProducer) map[int64]*modelProducer {
	to := map[int64]*modelProducer{}
	for id, x := range from {
		x := *x
		x.batches = slices.Clone(x.batches)
		to[id] = &x
	}
	return to
}

// producerSnapshot is the producer state as it is stored and travels: see "producer snapshot" in docs/formats.md.
func (m *modelLog) producerSnapshot() []byte {
	b := bin.AppendUvarint([]byte{1}, uint64(len(m.producers)))
	before := int64(-1)
	for _, id := range slices.Sorted(maps.Keys(m.producers)) {
		p := m.producers[id]
		b = bin.AppendUvarint(b, uint64(id-before-1))
		before = id
		last := p.last()
		b = bin.AppendVarint(bin.AppendVarint(b, p.epoch), p.coordinator)
		b = bin.AppendVarint(bin.AppendVarint(b, p.lastMs), p.txnFirst)
		b = bin.AppendUvarint(b, uint64(len(last)))
		for _, c := range last {
			b = bin.AppendVarint(bin.AppendVarint(b, c.FirstSequence), c.LastSequence)
			b = bin.AppendVarint(bin.AppendVarint(b, c.BaseOffset), c.LastOffset)
			b = bin.AppendVarint(b, c.Timestamp)
		}
	}
	return b
}

// last are the batches that are remembered of a producer.
func (p *modelProducer) last() []producer.CachedBatch {
	return p.batches[max(0, len(p.batches)-producer.CachedBatches):]
}

func (m *modelLog) state() LogState {
	return LogState{OrdinalTerm: m.term, Ordinal: m.ordinal, Next: m.next, LeaderEpoch: m.epoch, MaxTimestamp: m.maxMs, MaxTimestampBase: m.maxMsBase, LogBytes: m.bytes}
}

func (m *modelLog) apply(e *pb.Entry) {
	kind, cmd := KindRaft, e.Cmd
	if !m.metadata && e.Type == pb.EncodedEntry {
		if kind = m.meaning(e); kind == KindVoid {
			cmd = voidCmd(cmd)
		}
	}
	m.at = append(m.at, modelEntry{kind, cmd, m.next})
}

func voidCmd(cmd []byte) []byte {
	if len(cmd) > 0 && cmd[0] != 0 {
		return cmd[:1]
	}
	return cmd[:min(len(cmd), 18)]
}

// meaning lets a proposal take effect.
func (m *modelLog) meaning(e *pb.Entry) EntryKind {
	if len(e.Cmd) < 18 || e.Cmd[0] != 0 {
		return KindVoid
	}
	d := e.Cmd[1:]
	ordinal, term, epoch := binary.BigEndian.Uint64(d), binary.BigEndian.Uint32(d[8:]), ids.LeaderEpoch(binary.BigEndian.Uint32(d[12:]))
	expected := uint64(1)
	if m.term == ids.Term(e.Term) {
		expected = m.ordinal + 1
	}
	if uint64(term) != e.Term || ordinal != expected {
		return KindVoid
	}
	kind := KindVoid
	index := ids.RaftIndex(e.Index)
	switch {
	case d[16] == 0x81 && m.genesis == 0: // the generator makes one that fits the binding
		m.genesis, kind = index, KindGenesis
		if n := len(m.epochs); n > 0 {
			m.epoch = m.epochs[n-1].Epoch
		}
		if m.genesisProducers != nil {
			m.producers = copyProducers(m.genesisProducers)
		}
	case m.genesis == 0:
	case d[16] == 0x82 && epoch > m.epoch && len(d) == 18 && d[17] == 1:
		m.epoch, kind = epoch, KindEpochStart
		m.epochs = append(m.epochs, EpochStart{Epoch: epoch, Start: m.next, Index: index})
	case epoch != m.epoch:
	case d[16] == 0x83:
		if o, n := binary.Uvarint(d[18:]); n > 0 && ids.Offset(o) <= m.next {
			kind = KindLogStart
		}
	case d[16] == 2 && len(d) >= 61:
		kind = KindData
		m.data(index, epoch, d)
	}
	if kind != KindVoid {
		m.term, m.ordinal = ids.Term(e.Term), ordinal
	}
	return kind
}

func (m *modelLog) data(index ids.RaftIndex, epoch ids.LeaderEpoch, d []byte) {
	h := batch.DecodeHeader(d)
	b := modelBatch{base: m.next, next: m.next + ids.Offset(h.LastOffsetDelta) + 1, index: index, epoch: epoch, proposal: d}
	m.batches = append(m.batches, b)
	m.next = b.next
	m.bytes += int64(len(d))
	if h.MaxTimestamp > m.maxMs {
		m.maxMs, m.maxMsBase = h.MaxTimestamp, b.base
	}
	if h.ProducerID < 0 {
		return
	}
	p := m.producers[h.ProducerID]
	if p == nil {
		p = &modelProducer{epoch: h.ProducerEpoch, coordinator: -1, txnFirst: ids.NoOffset}
		m.producers[h.ProducerID] = p
	}
	if p.epoch != h.ProducerEpoch {
		p.epoch, p.batches = h.ProducerEpoch, nil
	}
	p.lastMs = h.MaxTimestamp
	if h.Attributes&0x20 != 0 { // a marker ends a transaction, if one is open, and is none of the producer's batches
		if p.txnFirst != ids.NoOffset {
			m.ended = append(m.ended, modelTxn{producer: h.ProducerID, first: p.txnFirst, last: b.base, aborted: d[markerType] == 0})
		}
		p.coordinator, p.txnFirst = int32(binary.BigEndian.Uint32(d[markerCoordinator:])), ids.NoOffset
		return
	}
	if h.Attributes&0x10 != 0 && p.txnFirst == ids.NoOffset {
		p.txnFirst = b.base
	}
	p.batches = append(p.batches, producer.CachedBatch{
		FirstSequence: h.BaseSequence, LastSequence: int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & 0x7fffffff),
		BaseOffset: b.base, LastOffset: b.next - 1, Timestamp: h.MaxTimestamp,
	})
}

// Where a marker's batch has the low byte of its type (0: abort, 1: commit) and the coordinator's epoch: behind 61 bytes of header a record of
// length, attributes, two deltas and key length, one byte each; a key of version and type, two bytes each; a value, behind its length, of a
// version of two bytes and the epoch.
const (
	markerType        = 61 + 5 + 3
	markerCoordinator = markerType + 1 + 1 + 2
)

// stable is the last stable offset at a high watermark.
func (m *modelLog) stable(highWatermark ids.Offset) ids.Offset {
	stable := highWatermark
	for _, p := range m.producers {
		if p.txnFirst != ids.NoOffset {
			stable = min(stable, p.txnFirst)
		}
	}
	for _, t := range m.ended {
		if t.last >= highWatermark && !t.settled {
			stable = min(stable, t.first)
		}
	}
	return stable
}

// aborted are the aborted transactions of which something lies in [from, to), with the marker at or above an offset, as PRODUCER:FIRST-LAST.
func (m *modelLog) aborted(from, to, marker ids.Offset) map[string]bool {
	found := map[string]bool{}
	for _, t := range m.ended {
		if t.aborted && t.first < to && t.last >= max(from, marker) {
			found[fmt.Sprintf("%d:%d-%d", t.producer, t.first, t.last)] = true
		}
	}
	return found
}

// modelRecord is a record as it was written. An empty value is a tombstone.
type modelRecord struct {
	offset     ids.Offset
	key, value string
	keyless    bool
	ms         int64
}

// modelRecords are the records of a batch.
func modelRecords(raw []byte) (list []modelRecord, err error) {
	h := batch.DecodeHeader(raw)
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return nil, err
		}
		list = append(list, modelRecord{ids.Offset(h.BaseOffset) + ids.Offset(rec.OffsetDelta), string(rec.Key), string(rec.Value), rec.Key == nil, rec.Timestamp(&h)})
	}
	return list, nil
}

// committed are the records in [from, to) that a consumer of committed ones gets, as long as nothing is compacted.
func (m *modelLog) committed(from, to ids.Offset) (list []modelRecord, err error) {
	for i := range m.batches {
		b := &m.batches[i]
		if b.next <= from || b.base >= to {
			continue
		}
		raw := b.raw()
		h := batch.DecodeHeader(raw)
		if h.IsControl() || h.IsTransactional() && m.isAborted(h.ProducerID, b.base) {
			continue
		}
		records, err := modelRecords(raw)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.offset >= from && r.offset < to {
				list = append(list, r)
			}
		}
	}
	return list, nil
}

func (m *modelLog) isAborted(producer int64, base ids.Offset) bool {
	return slices.ContainsFunc(m.ended, func(t modelTxn) bool {
		return t.aborted && t.producer == producer && t.first <= base && base < t.last
	})
}
