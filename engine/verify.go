package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Problem is something that Verify found wrong in a partition's rows.
type Problem struct {
	Offset ids.Offset    // of the batch; NoOffset: not about a batch
	Index  ids.RaftIndex // of the entry; 0: not about an entry
	What   string
}

func (p Problem) String() string {
	switch {
	case p.Index != 0 && p.Offset != ids.NoOffset:
		return fmt.Sprintf("entry %d, offset %d: %s", p.Index, p.Offset, p.What)
	case p.Index != 0:
		return fmt.Sprintf("entry %d: %s", p.Index, p.What)
	case p.Offset != ids.NoOffset:
		return fmt.Sprintf("offset %d: %s", p.Offset, p.What)
	}
	return p.What
}

// problemsMax is how many problems are listed; what follows from damage is not worth more.
const problemsMax = 100

// Verify reads all rows of a partition, batches included, and checks that they agree: CRCs; offsets without a gap
// from the log start to the log end; every entry row follows from the one before it, and its batch is there and is
// the one it describes; epochs, start point and checkpoint fit. It reads a snapshot of the store, not memory, so it
// works beside saves and on a stopped broker alike. An error means that rows could not be read at all.
func (e *Engine) Verify(p ids.PartitionID) ([]Problem, error) {
	snapshot := e.db.NewSnapshot()
	v := &verifier{r: snapshot, p: p, end: ids.NoOffset, txns: map[int64]ids.Offset{}}
	err := v.run()
	return v.problems, errors.Join(err, snapshot.Close())
}

// verifier walks the entry rows in order and the data rows beside them. It shares no code with the write path.
type verifier struct {
	r        pebble.Reader
	p        ids.PartitionID
	problems []Problem

	owner ownerRow
	meta  metaRow
	start StartPoint

	data *pebble.Iterator
	more bool       // data stands on a row that is not yet checked
	end  ids.Offset // behind the last checked data row; NoOffset before the first

	txns    map[int64]ids.Offset // first offsets of transactions that began behind the start point and are open
	state   LogState             // after the last checked entry
	last    ids.RaftIndex
	term    ids.Term
	genesis ids.RaftIndex
	epochs  []EpochStart // that began behind the start point
}

func (v *verifier) problem(o ids.Offset, i ids.RaftIndex, format string, args ...any) {
	if len(v.problems) < problemsMax {
		v.problems = append(v.problems, Problem{Offset: o, Index: i, What: fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) run() (err error) {
	if err := v.load(); err != nil {
		return err
	}
	lo, hi := partitionBounds(rowData, v.p)
	if v.data, err = v.r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.data.Close()) }()
	v.more = v.data.First()
	if err := v.prefix(); err != nil {
		return err
	}
	if err := v.entries(); err != nil {
		return err
	}
	for v.more && len(v.problems) < problemsMax {
		_, base, err := v.batch()
		if err != nil {
			return err
		}
		v.problem(base, 0, "a batch behind the log end %d", v.state.Next)
	}
	if err := v.data.Error(); err != nil {
		return err
	}
	v.tables()
	return errors.Join(v.checkpoint(), v.times())
}

// load reads what stands beside the log.
func (v *verifier) load() error {
	found, err := v.get(appendPartitionKey(nil, rowOwner, v.p), func(b []byte) (err error) {
		v.owner, err = decodeOwnerRow(v.p, b)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %d", ErrNoPartition, v.p)
	}
	if err != nil {
		return err
	}
	v.start = StartPoint{LogState: LogState{Next: v.owner.BaseOffset, LeaderEpoch: ids.NoEpoch, MaxTimestamp: -1, MaxTimestampBase: ids.NoOffset}}
	_, err = v.get(appendReplicaKey(nil, rowStart, v.owner.Shard, v.owner.Replica), func(b []byte) (err error) {
		v.start, err = decodeStartPoint(b)
		return err
	})
	if err != nil {
		return err
	}
	v.state, v.last, v.term = v.start.LogState, v.start.Index, v.start.Term
	v.meta = metaRow{Shard: v.owner.Shard, LogStart: v.owner.BaseOffset}
	_, err = v.get(appendPartitionKey(nil, rowMeta, v.p), func(b []byte) (err error) {
		v.meta, err = decodeMetaRow(b)
		return err
	})
	if v.meta.Shard != v.owner.Shard {
		v.problem(ids.NoOffset, 0, "the meta row is of shard %d, the owner is shard %d", v.meta.Shard, v.owner.Shard)
	}
	return err
}

func (v *verifier) get(key []byte, decode func([]byte) error) (bool, error) {
	b, closer, err := v.r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(decode(b), closer.Close())
}

// prefix checks the batches below the start point: they have no entry rows any more, or those of an older
// generation.
func (v *verifier) prefix() error {
	for v.more {
		_, base, err := parseDataKey(v.data.Key())
		if err != nil {
			return err
		}
		if base >= v.start.Next {
			break
		}
		if _, _, err := v.batch(); err != nil {
			return err
		}
	}
	return v.data.Error()
}

// batch checks the data row the iterator stands on, and that it follows the one before, and steps on. The header
// is that of the row, as far as it could be read.
func (v *verifier) batch() (h batch.Header, base ids.Offset, err error) {
	_, base, err = parseDataKey(v.data.Key())
	if err != nil {
		return h, base, err
	}
	b, err := v.data.ValueAndErr()
	if err != nil {
		return h, base, err
	}
	switch {
	case v.end == ids.NoOffset && base > v.meta.LogStart:
		v.problem(base, 0, "the first batch begins above the log start %d", v.meta.LogStart)
	case v.end != ids.NoOffset && base != v.end:
		v.problem(base, 0, "follows offset %d", v.end-1)
	}
	h, problem := checkBatch(b, base)
	if problem != nil {
		v.problem(base, 0, "%v", problem)
	}
	v.end = max(ids.Offset(h.NextOffset()), base+1)
	v.more = v.data.Next()
	return h, base, nil
}

func checkBatch(b []byte, base ids.Offset) (batch.Header, error) {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return h, err
	}
	if h.Size() != len(b) {
		return h, fmt.Errorf("the batch says it has %d bytes, stored are %d", h.Size(), len(b))
	}
	if ids.Offset(h.BaseOffset) != base {
		return h, fmt.Errorf("the batch says base offset %d", h.BaseOffset)
	}
	return h, batch.VerifyCRC(b)
}

// entries checks all entry rows.
func (v *verifier) entries() (err error) {
	lo, hi := replicaEntryBounds(v.owner.Shard, v.owner.Replica)
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok && len(v.problems) < problemsMax; ok = it.Next() {
		_, _, index, err := parseEntryKey(it.Key())
		if err != nil {
			return err
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		var row EntryRow
		if err := row.decode(index, b); err != nil {
			return err
		}
		if index != v.last+1 {
			v.problem(ids.NoOffset, index, "follows entry %d", v.last)
		}
		if row.Term < v.term {
			v.problem(ids.NoOffset, index, "term %d follows term %d", row.Term, v.term)
		}
		if err := v.entry(&row); err != nil {
			return err
		}
		v.last, v.term, v.state = index, row.Term, row.LogState
	}
	return it.Error()
}

// entry checks one row against the state before it, and its batch.
func (v *verifier) entry(row *EntryRow) error {
	want := v.state
	if row.Kind != KindRaft && row.Kind != KindVoid {
		v.proposal(row, &want)
	}
	if row.Kind == KindData {
		if err := v.dataOf(row, &want); err != nil {
			return err
		}
	}
	if row.LogState != want {
		v.problem(ids.NoOffset, row.Index, "log state %+v, expected %+v", row.LogState, want)
	}
	return nil
}

// proposal checks a proposal's header and what it does to the state, batches aside.
func (v *verifier) proposal(row *EntryRow, want *LogState) {
	ordinal := uint64(1)
	if want.OrdinalTerm == row.Term {
		ordinal = want.Ordinal + 1
	}
	want.OrdinalTerm, want.Ordinal = row.Term, ordinal
	h, ok := row.Header()
	if !ok || h.Term != row.Term || h.Ordinal != ordinal || h.Kind != row.Kind {
		v.problem(ids.NoOffset, row.Index, "%v entry of term %d with header %+v (found: %v), expected ordinal %d", row.Kind, row.Term, h, ok, ordinal)
		return
	}
	if v.meta.GenesisIndex == 0 && v.genesis == 0 && row.Kind != KindGenesis {
		v.problem(ids.NoOffset, row.Index, "%v entry before the genesis", row.Kind)
	}
	switch row.Kind {
	case KindGenesis:
		g, err := DecodeGenesis(row.Cmd[1:])
		if err != nil {
			v.problem(ids.NoOffset, row.Index, "%v", err)
			return
		}
		v.genesis = row.Index
		want.Next, want.LeaderEpoch = g.BaseOffset, ids.NoEpoch
		if n := len(g.Epochs); n > 0 {
			want.LeaderEpoch = g.Epochs[n-1].Epoch
		}
	case KindEpochStart:
		if h.LeaderEpoch <= want.LeaderEpoch {
			v.problem(ids.NoOffset, row.Index, "starts epoch %d after epoch %d", h.LeaderEpoch, want.LeaderEpoch)
		}
		want.LeaderEpoch = h.LeaderEpoch
		v.epochs = append(v.epochs, EpochStart{Epoch: h.LeaderEpoch, Start: want.Next, Index: row.Index})
	}
}

// dataOf checks the batch of an entry row. Compaction may have rewritten it: then it has fewer records.
func (v *verifier) dataOf(row *EntryRow, want *LogState) error {
	i := row.Batch
	if i.Base != want.Next || i.LeaderEpoch != want.LeaderEpoch {
		v.problem(i.Base, row.Index, "describes a batch of epoch %d, expected offset %d of epoch %d", i.LeaderEpoch, want.Next, want.LeaderEpoch)
	}
	if i.MaxTimestamp > want.MaxTimestamp {
		want.MaxTimestamp, want.MaxTimestampBase = i.MaxTimestamp, want.Next
	}
	want.Next += ids.Offset(i.LastOffsetDelta) + 1
	want.LogBytes += int64(i.Size)
	if !v.more {
		v.problem(i.Base, row.Index, "has no batch")
		return v.data.Error()
	}
	if _, base, err := parseDataKey(v.data.Key()); err != nil {
		return err
	} else if base > i.Base {
		v.problem(i.Base, row.Index, "has no batch: the next is at offset %d", base)
		return nil
	}
	raw, err := v.data.ValueAndErr()
	if err != nil {
		return err
	}
	m, markerErr := batch.ParseMarker(raw)
	h, base, err := v.batch()
	if err != nil {
		return err
	}
	got := BatchInfo{
		IsMarker: h.IsControl() && markerErr == nil, Marker: m,
		Base: base, Size: int32(h.Size()), LastOffsetDelta: h.LastOffsetDelta, Count: h.RecordCount, LeaderEpoch: ids.LeaderEpoch(h.LeaderEpoch),
		Attributes: h.Attributes, MaxTimestamp: h.MaxTimestamp, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
	}
	if got.Count < i.Count {
		got.Count, got.Size, got.Attributes, got.MaxTimestamp = i.Count, i.Size, i.Attributes, i.MaxTimestamp
	}
	if got != i {
		v.problem(base, row.Index, "batch %+v, the entry row describes %+v", got, i)
	}
	return v.transaction(row.Index, &i)
}

// transaction checks that a transaction which a marker aborts has its row.
func (v *verifier) transaction(index ids.RaftIndex, i *BatchInfo) error {
	b := i.producerBatch()
	if b.ProducerID < 0 || !b.Transactional {
		return nil
	}
	first, open := v.txns[b.ProducerID]
	if !b.Control {
		if !open {
			v.txns[b.ProducerID] = b.BaseOffset
		}
		return nil
	}
	delete(v.txns, b.ProducerID)
	if !open || b.Commit {
		return nil
	}
	found, err := v.get(appendAbortedKey(nil, v.p, b.LastOffset), func(value []byte) error {
		row, err := decodeAbortedRow(value)
		if err == nil && (row.ProducerID != b.ProducerID || row.First > first || row.Stable > b.LastOffset+1) {
			v.problem(b.LastOffset, index, "aborts %+v, expected producer %d from %d at the latest", row, b.ProducerID, first)
		}
		return err
	})
	if err == nil && !found {
		v.problem(b.LastOffset, index, "aborts the transaction of producer %d from %d, of which there is no row", b.ProducerID, first)
	}
	return err
}

// tables checks what the meta row says of the log against the entries.
func (v *verifier) tables() {
	if v.end != ids.NoOffset && v.end != v.state.Next {
		v.problem(v.end, 0, "the batches end here, the entries at %d", v.state.Next)
	}
	if v.meta.LogStart > v.state.Next {
		v.problem(ids.NoOffset, 0, "log start %d is above the log end %d", v.meta.LogStart, v.state.Next)
	}
	if v.end == ids.NoOffset && v.meta.LogStart < v.state.Next {
		v.problem(v.meta.LogStart, 0, "no batches up to the log end %d", v.state.Next)
	}
	if v.genesis != 0 && v.meta.GenesisIndex != v.genesis || v.genesis == 0 && v.meta.GenesisIndex > v.start.Index {
		v.problem(ids.NoOffset, 0, "the meta row has the genesis at index %d, the entries at %d", v.meta.GenesisIndex, v.genesis)
	}
	var began []EpochStart
	for _, e := range v.meta.Epochs {
		if e.Index > v.start.Index {
			began = append(began, e)
		}
	}
	if fmt.Sprint(began) != fmt.Sprint(v.epochs) {
		v.problem(ids.NoOffset, 0, "the meta row has epochs %v behind index %d, the entries start %v", began, v.start.Index, v.epochs)
	}
	if n := len(v.meta.Epochs); n > 0 && v.meta.Epochs[n-1].Epoch != v.state.LeaderEpoch && v.meta.GenesisIndex != 0 {
		v.problem(ids.NoOffset, 0, "the meta row ends with epoch %d, the log with %d", v.meta.Epochs[n-1].Epoch, v.state.LeaderEpoch)
	}
}

func (v *verifier) checkpoint() error {
	var c checkpointRow
	if _, err := v.get(appendPartitionKey(nil, rowCheckpoint, v.p), func(b []byte) (err error) {
		c, err = decodeCheckpointRow(b)
		return err
	}); err != nil {
		return err
	}
	if c.Shard == v.owner.Shard && c.Applied > v.last {
		v.problem(ids.NoOffset, 0, "applied index %d is behind the last entry %d", c.Applied, v.last)
	}
	if c.HighWatermark > v.state.Next {
		v.problem(ids.NoOffset, 0, "high watermark %d is above the log end %d", c.HighWatermark, v.state.Next)
	}
	return nil
}

// times checks that time rows rise and lie inside the log.
func (v *verifier) times() (err error) {
	lo, hi := partitionBounds(rowTime, v.p)
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	before := timeRow{MaxTimestamp: math.MinInt64}
	for ok := it.First(); ok; ok = it.Next() {
		_, base, err := parseTimeKey(it.Key())
		if err != nil {
			return err
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		t, err := decodeTimeRow(b)
		if err != nil {
			return err
		}
		if base >= v.state.Next || t.MaxTimestamp < before.MaxTimestamp || t.MaxTimestamp > v.state.MaxTimestamp || t.MaxTimestampBase > base || t.MaxTimestampBase < before.MaxTimestampBase {
			v.problem(base, 0, "time row %+v behind %+v, the log ends at %d with %d", t, before, v.state.Next, v.state.MaxTimestamp)
		}
		before = t
	}
	return it.Error()
}
