package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine/producer"
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
}

type modelEntry struct {
	kind EntryKind
	cmd  []byte // as Raft gets it back
	next ids.Offset
}

func newModelLog(metadata bool) *modelLog {
	return &modelLog{metadata: metadata, epoch: ids.NoEpoch, maxMs: -1, maxMsBase: ids.NoOffset, producers: map[int64]*modelProducer{}}
}

// replay is the log after the entries, of which those up to start came as a snapshot: it carries no producer state.
func replay(metadata bool, entries []pb.Entry, start int) *modelLog {
	m := newModelLog(metadata)
	for i := range entries {
		m.apply(&entries[i])
		if i+1 == start {
			m.producers = map[int64]*modelProducer{}
		}
	}
	return m
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
			m.ended = append(m.ended, modelTxn{h.ProducerID, p.txnFirst, b.base, d[markerType] == 0})
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
		if t.last >= highWatermark {
			stable = min(stable, t.first)
		}
	}
	return stable
}

// aborted are the aborted transactions of which something lies in [from, to), as PRODUCER:FIRST-LAST.
func (m *modelLog) aborted(from, to ids.Offset) map[string]bool {
	found := map[string]bool{}
	for _, t := range m.ended {
		if t.aborted && t.first < to && t.last >= from {
			found[fmt.Sprintf("%d:%d-%d", t.producer, t.first, t.last)] = true
		}
	}
	return found
}

// quarantineID names a batch in quarantine.
type quarantineID struct {
	epoch ids.LeaderEpoch
	base  ids.Offset
}

// version is what one shard holds after one save. Versions are never changed.
type version struct {
	hard        pb.State
	entries     []pb.Entry // from index 1 on, those below the start point included
	kept        int        // entries[:kept] were there before
	start       int        // entries[:start] came as a snapshot
	durable     bool       // is durable once the save has returned
	quarantined map[quarantineID][]byte
}

// modelShard is the history of one shard since the store was opened, and makes up what Raft might save next.
type modelShard struct {
	id        replicaID
	binding   Binding // zero: the metadata shard
	versions  []version
	log       *modelLog // of the last version
	nextEpoch ids.LeaderEpoch
	term      uint64

	// What was asked for, and may or may not have reached the disk.
	startMax    ids.RaftIndex
	logStarts   map[ids.Offset]bool
	appliedMax  ids.RaftIndex
	producerSeq int32
}

func newModelShard(shard ids.ShardID, partition ids.PartitionID) *modelShard {
	s := &modelShard{id: replicaID{shard, ids.ReplicaID(shard) + 100}, log: newModelLog(partition == 0), logStarts: map[ids.Offset]bool{0: true}}
	if partition != 0 {
		s.binding = Binding{Info: PartitionInfo{ID: partition, Topic: "t", Partition: int32(partition)}, Shard: shard, Replica: s.id.Replica}
	}
	s.versions = []version{{quarantined: map[quarantineID][]byte{}}}
	return s
}

func (s *modelShard) metadata() bool { return s.binding.Info.ID == 0 }

func (s *modelShard) newest() *version { return &s.versions[len(s.versions)-1] }

// recovered makes v the one version that is known.
func (s *modelShard) recovered(v version) {
	s.versions = []version{v}
	s.log = replay(s.metadata(), v.entries, v.start)
}

// next makes up a save and adds the version that it leads to.
func (s *modelShard) next(rng *rand.Rand) pb.Update {
	old := s.newest()
	v := version{hard: old.hard, quarantined: old.quarantined, kept: len(old.entries), start: old.start}
	s.term = max(s.term, v.hard.Term)
	if rng.IntN(8) == 0 || s.term == 0 {
		s.term += 1 + rng.Uint64N(2)
		v.hard.Vote = rng.Uint64N(4)
		if rng.IntN(3) > 0 {
			v.kept -= rng.IntN(1 + len(old.entries) - int(old.hard.Commit))
		}
	}
	v.hard.Term = s.term
	v.entries = old.entries[:v.kept:v.kept]
	if v.kept < len(old.entries) {
		v.quarantined = s.quarantine(old, v.kept)
		s.log = replay(s.metadata(), v.entries, v.start)
	}
	count := []int{0, 1, 1, 1, 2, 3, 5, 9, 25}[rng.IntN(9)]
	if v.kept < len(old.entries) { // Raft replaces entries, it never only removes them
		count++
	}
	s.grow(rng, &v, count)
	if rng.IntN(3) > 0 {
		v.hard.Commit += rng.Uint64N(uint64(len(v.entries)) - v.hard.Commit + 1)
	}
	v.durable = count > 0 || v.hard.Term != old.hard.Term || v.hard.Vote != old.hard.Vote
	s.versions = append(s.versions, v)
	return pb.Update{ShardID: uint64(s.id.Shard), ReplicaID: uint64(s.id.Replica), State: v.hard, EntriesToSave: v.entries[v.kept:]}
}

// grow adds entries of the present term.
func (s *modelShard) grow(rng *rand.Rand, v *version, count int) {
	for range count {
		e := s.entry(rng)
		e.Index, e.Term = uint64(len(v.entries)+1), s.term
		e.Key, e.ClientID = rng.Uint64(), rng.Uint64()
		v.entries = append(v.entries, e)
		s.log.apply(&e)
	}
}

// install makes up a snapshot at the start of the log of a leader that has gone on, and adds the version that it
// leads to. start is what travels with it.
func (s *modelShard) install(rng *rand.Rand) (u pb.Update, start []byte) {
	old := s.newest()
	v := version{hard: old.hard, durable: true, quarantined: s.quarantine(old, int(old.hard.Commit))}
	s.term = max(s.term, v.hard.Term, 1)
	v.hard.Term = s.term
	v.entries = old.entries[:old.hard.Commit:old.hard.Commit]
	s.log = replay(s.metadata(), v.entries, old.start)
	s.grow(rng, &v, 1+rng.IntN(20))
	for !s.metadata() && s.log.epoch == ids.NoEpoch {
		s.grow(rng, &v, 1)
	}
	at := len(v.entries)
	v.hard.Commit, v.kept, v.start = uint64(at), at, at
	s.log.producers = map[int64]*modelProducer{}
	s.versions = append(s.versions, v)
	s.startMax = max(s.startMax, ids.RaftIndex(at))
	s.logStarts[s.log.next] = true
	travels := snapshotStart{StartPoint: StartPoint{Index: ids.RaftIndex(at), Term: ids.Term(s.term), LogState: s.log.state()}, epochs: s.log.epochs}
	ss := pb.Snapshot{ShardID: uint64(s.id.Shard), Index: uint64(at), Term: s.term, Type: pb.OnDiskStateMachine, Membership: pb.Membership{Addresses: map[uint64]string{1: "node-1"}}}
	return pb.Update{ShardID: uint64(s.id.Shard), ReplicaID: uint64(s.id.Replica), State: v.hard, Snapshot: ss}, travels.encode()
}

// quarantine is what is in quarantine once the entries behind kept are gone.
func (s *modelShard) quarantine(old *version, kept int) map[quarantineID][]byte {
	q := maps.Clone(old.quarantined)
	for _, b := range s.log.batches {
		if int(b.index) > kept {
			q[quarantineID{b.epoch, b.base}] = b.raw()
		}
	}
	return q
}

// entry makes up the next entry of the term: mostly what a leader would propose, with all that can go wrong.
func (s *modelShard) entry(rng *rand.Rand) pb.Entry {
	if s.metadata() {
		cmd := make([]byte, 1+rng.IntN(300))
		cmd[rng.IntN(len(cmd))] = byte(rng.Uint32())
		return pb.Entry{Type: pb.EncodedEntry, Cmd: cmd}
	}
	newTerm := s.log.term != ids.Term(s.term)
	h := Header{Ordinal: s.log.ordinal + 1, Term: ids.Term(s.term), LeaderEpoch: s.log.epoch}
	if newTerm {
		h.Ordinal = 1
	}
	dice := rng.IntN(100)
	switch {
	case dice < 3:
		return pb.Entry{} // a no-op
	case dice < 5:
		c := pb.ConfigChange{Type: pb.AddNonVoting, ReplicaID: 1000 + rng.Uint64N(1000), Address: fmt.Sprintf("node-%d", rng.IntN(1000))}
		return pb.Entry{Type: pb.ConfigChangeEntry, Cmd: pb.MustMarshal(&c)}
	case s.log.genesis == 0 && dice < 90:
		h.Kind, h.LeaderEpoch = KindGenesis, 0
		return encoded(EncodeGenesis(h, Genesis{}))
	case (s.log.epoch == ids.NoEpoch || newTerm) && dice < 90:
		h.Kind, h.LeaderEpoch = KindEpochStart, s.nextEpoch
		s.nextEpoch++
		return encoded(EncodeEpochStart(h))
	case dice < 8:
		h.Kind = KindLogStart
		return encoded(EncodeLogStart(h, ids.Offset(rng.Int64N(int64(s.log.next)+3))))
	case dice < 20:
		return s.misfit(rng, h)
	}
	h.Kind = KindData
	if dice < 35 {
		return encoded(s.marker(rng, h))
	}
	return encoded(s.batch(rng, h))
}

// marker makes up the end of a transaction of any producer, open or not, in its epoch or, as from transaction.version 2 on, in the next.
func (s *modelShard) marker(rng *rand.Rand, h Header) []byte {
	id, epoch := rng.Int64N(5), int16(0)
	if p := s.log.producers[id]; p != nil {
		epoch = p.epoch + int16(rng.IntN(2))
	}
	raw := batch.BuildMarker(id, epoch, batch.Marker{Commit: rng.IntN(2) == 0, CoordinatorEpoch: rng.Int32N(9)}, 1_000_000+rng.Int64N(1000))
	batch.SetLeaderEpoch(raw, int32(h.LeaderEpoch))
	PutHeader(raw, h)
	return raw
}

// misfit makes up an entry that is void.
func (s *modelShard) misfit(rng *rand.Rand, h Header) pb.Entry {
	h.Kind = KindData
	switch rng.IntN(7) {
	case 0:
		h.Ordinal += 1 + rng.Uint64N(3)
	case 1:
		h.Term -= min(h.Term, 1)
	case 2:
		h.LeaderEpoch--
	case 3:
		h.Kind = KindGenesis
		return encoded(EncodeGenesis(h, Genesis{Generation: 9, BaseOffset: 9}))
	case 4:
		return encoded(s.batch(rng, h)[:HeaderLen+rng.IntN(40)])
	case 5:
		return encoded(bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(100)))
	case 6:
		return pb.Entry{Type: pb.EncodedEntry, Cmd: []byte{3, 1, 4}}
	}
	return encoded(s.batch(rng, h))
}

func encoded(data []byte) pb.Entry {
	return pb.Entry{Type: pb.EncodedEntry, Cmd: append([]byte{0}, data...)}
}

// batch makes up a record batch, mostly small, sometimes above the size at which values are stored apart.
func (s *modelShard) batch(rng *rand.Rand, h Header) []byte {
	size := []int{20, 100, 100, 400, 3000, 9000}[rng.IntN(6)]
	cfg := batch.NewBuilderConfig(batch.CodecNone, 1_000_000+rng.Int64N(1000))
	if rng.IntN(2) == 0 {
		cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = rng.Int64N(5), int16(rng.IntN(8)/7), s.producerSeq
		if cfg.Transactional = rng.IntN(2) == 0; cfg.Transactional { // of the epoch that the last marker began
			if p := s.log.producers[cfg.ProducerID]; p != nil {
				cfg.ProducerEpoch = p.epoch
			}
		}
	}
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		panic(err)
	}
	value := make([]byte, size)
	for i := range 1 + rng.IntN(4) {
		binary.BigEndian.PutUint64(value, rng.Uint64())
		if err := b.AppendKV(cfg.BaseTimestamp+int64(i), nil, value); err != nil {
			panic(err)
		}
		s.producerSeq++
	}
	raw, err := b.Build()
	if err != nil {
		panic(err)
	}
	batch.SetLeaderEpoch(raw, int32(h.LeaderEpoch))
	PutHeader(raw, h)
	return raw
}

// The model must reach all kinds of entries, else it proves nothing.
func TestCrashModelMakesAllKindsOfEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[EntryKind]int{}
	quarantined, producers, open, aborted, committed := 0, 0, 0, 0, 0
	for shard := range ids.ShardID(20) {
		s := newModelShard(shard+2, ids.PartitionID(shard+1))
		for range 60 {
			s.next(rng)
		}
		for _, e := range s.log.at {
			seen[e.kind]++
		}
		quarantined += len(s.newest().quarantined)
		producers += len(s.log.producers)
		for _, p := range s.log.producers {
			if p.txnFirst != ids.NoOffset {
				open++
			}
		}
		for _, t := range s.log.ended {
			if t.aborted {
				aborted++
			} else {
				committed++
			}
		}
	}
	for kind := KindRaft; kind < kindEnd; kind++ {
		if seen[kind] < 15 {
			t.Errorf("%d entries of kind %v", seen[kind], kind)
		}
	}
	if seen[KindData] < 1000 || quarantined < 100 || producers < 50 {
		t.Errorf("entries %v, %d batches in quarantine, %d producers", seen, quarantined, producers)
	}
	if open < 20 || aborted < 100 || committed < 100 {
		t.Errorf("%d transactions open, %d aborted, %d committed", open, aborted, committed)
	}
}
