package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

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
	bare        bool       // that snapshot had no producer state
	durable     bool       // is durable once the save has returned
	quarantined map[quarantineID][]byte

	// What only the model test of the engine does.
	raftStart        ids.RaftIndex // of the Raft log
	logStart         ids.Offset
	clean, compactTo ids.Offset  // compacted, and up to where passes may have changed batches
	cleaning         bool        // a pass is under way: clean may be anywhere up to compactTo
	highWatermark    ids.Offset  // what is stored of it at least
	former           []replicaID // earlier owners of the data, whose rows are still there
}

// modelShard is the history of one shard since the store was opened, and makes up what Raft might save next.
type modelShard struct {
	id        replicaID
	binding   Binding   // zero: the metadata shard
	before    *modelLog // what the generation begins with; nil: nothing
	versions  []version
	log       *modelLog // of the last version
	nextEpoch ids.LeaderEpoch
	term      uint64

	// What was asked for, and may or may not have reached the disk.
	startMax    ids.RaftIndex
	logStarts   map[ids.Offset]bool
	appliedMax  ids.RaftIndex
	producerSeq int32

	mix modelMix

	// What only the model test of the engine does.
	joined  bool                 // the generation was founded elsewhere: its genesis tells who the producers are
	hwMax   ids.Offset           // the highest high watermark that was told
	cleaned map[ids.Offset]int64 // tombstones that compaction has seen, and when first, ms
}

// modelMix is what batches are made of.
type modelMix struct {
	keys   int   // different keys; 0: records have none
	codecs bool  // batches are compressed, too
	now    int64 // ms; timestamps are from a little before on
	small  bool  // no large values
	bare   bool  // half of the snapshots have no producer state, as those of the first version had none
}

func newModelShard(shard ids.ShardID, partition ids.PartitionID) *modelShard {
	s := &modelShard{id: replicaID{shard, ids.ReplicaID(shard) + 100}, log: newModelLog(partition == 0), logStarts: map[ids.Offset]bool{0: true}, cleaned: map[ids.Offset]int64{}}
	if partition != 0 {
		s.binding = Binding{Info: PartitionInfo{ID: partition, Topic: "t", Partition: int32(partition)}, Shard: shard, Replica: s.id.Replica}
	}
	s.versions = []version{{quarantined: map[quarantineID][]byte{}}}
	return s
}

func (s *modelShard) metadata() bool { return s.binding.Info.ID == 0 }

// replay is the log after the first n entries of a version.
func (s *modelShard) replay(v *version, n int) *modelLog {
	m := newModelLog(s.metadata())
	if s.before != nil {
		m = s.before.prefix()
		if s.joined {
			m.producers, m.genesisProducers = map[int64]*modelProducer{}, s.before.producers
		}
	}
	for i := range v.entries[:n] {
		m.apply(&v.entries[i])
		if i+1 == v.start && v.bare {
			m.producers = map[int64]*modelProducer{}
		}
	}
	return m
}

func (s *modelShard) newest() *version { return &s.versions[len(s.versions)-1] }

// recovered makes v the one version that is known.
func (s *modelShard) recovered(v version) {
	s.versions = []version{v}
	s.log = s.replay(&v, len(v.entries))
}

// next makes up a save and adds the version that it leads to.
func (s *modelShard) next(rng *rand.Rand) pb.Update {
	old := s.newest()
	v := *old
	v.kept = len(old.entries)
	s.term = max(s.term, v.hard.Term)
	if rng.IntN(8) == 0 || s.term == 0 {
		s.term += 1 + rng.Uint64N(2)
		v.hard.Vote = rng.Uint64N(4)
		if rng.IntN(3) > 0 {
			v.kept -= rng.IntN(1 + len(old.entries) - int(old.hard.Commit))
			if s.joined { // producers that the genesis told of stay until the next one
				v.kept = max(v.kept, int(s.log.genesis))
			}
		}
	}
	v.hard.Term = s.term
	v.entries = old.entries[:v.kept:v.kept]
	if v.kept < len(old.entries) {
		v.quarantined = s.quarantine(old, v.kept)
		s.log = s.replay(&v, v.kept)
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
	v := *old
	v.durable, v.bare, v.quarantined = true, s.mix.bare && rng.IntN(2) == 0, s.quarantine(old, int(old.hard.Commit))
	s.term = max(s.term, v.hard.Term, 1)
	v.hard.Term = s.term
	v.entries = old.entries[:old.hard.Commit:old.hard.Commit]
	s.log = s.replay(&v, len(v.entries))
	s.grow(rng, &v, 1+rng.IntN(20))
	for !s.metadata() && s.log.epoch == ids.NoEpoch {
		s.grow(rng, &v, 1)
	}
	at := len(v.entries)
	v.hard.Commit, v.kept, v.start = uint64(at), at, at
	v.raftStart, v.logStart, v.clean, v.compactTo = ids.RaftIndex(at), s.log.next, 0, 0
	s.log = s.replay(&v, at)
	s.versions = append(s.versions, v)
	s.startMax = max(s.startMax, ids.RaftIndex(at))
	s.logStarts[s.log.next] = true
	travels := snapshotStart{StartPoint: StartPoint{Index: ids.RaftIndex(at), Term: ids.Term(s.term), LogState: s.log.state()}, epochs: s.log.epochs}
	if !v.bare {
		travels.producers = s.log.producerSnapshot()
	}
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
		return encoded(EncodeGenesis(h, s.genesis()))
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

// genesis is what the generation begins with.
func (s *modelShard) genesis() Genesis {
	g := Genesis{Generation: s.binding.Generation, BaseOffset: s.binding.BaseOffset}
	if s.before != nil {
		g.Epochs, g.Producers = s.before.epochs, s.before.producerSnapshot()
	}
	return g
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
	if s.mix.small {
		size = 12 + size%100
	}
	cfg := batch.NewBuilderConfig(batch.CodecNone, max(s.mix.now, 1_000_000)+rng.Int64N(1000))
	if s.mix.codecs {
		cfg.Codec = batch.Codec(rng.IntN(5))
	}
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
	for i := range 1 + rng.IntN(4) {
		key, value := s.record(rng, size)
		if err := b.AppendKV(cfg.BaseTimestamp+int64(i), key, value); err != nil {
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

// record makes up a key and a value; a quarter of those with a key has no value.
func (s *modelShard) record(rng *rand.Rand, size int) (key, value []byte) {
	value = make([]byte, size)
	binary.BigEndian.PutUint64(value, rng.Uint64())
	if s.mix.keys > 0 {
		key = fmt.Appendf(nil, "key-%d", rng.IntN(s.mix.keys))
		if rng.IntN(4) == 0 {
			value = nil
		}
	}
	return key, value
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
