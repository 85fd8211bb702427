package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Problem is something that Verify found wrong in a partition's rows.
type Problem struct {
	Part   ProblemPart   `json:"part"`
	Offset ids.Offset    `json:"offset"` // of the batch; NoOffset: not about a batch
	Index  ids.RaftIndex `json:"index"`  // of the entry; 0: not about an entry
	What   string        `json:"what"`
}

// ProblemPart is the part of what is stored that a problem is about: it decides what can be done.
type ProblemPart string

// The parts.
const (
	ProblemRecords ProblemPart = "records" // a batch is damaged or missing
	ProblemIndex   ProblemPart = "index"   // a time row or the row of an aborted transaction does not fit the batches
	ProblemLog     ProblemPart = "log"     // entry rows and what is stored about the log as a whole
)

// Verification is what Inspect found.
type Verification struct {
	Start       ids.Offset `json:"logStartOffset"`
	End         ids.Offset `json:"logEndOffset"` // exclusive
	Batches     int64      `json:"batches"`
	Bytes       int64      `json:"bytes"` // of the batches
	Entries     int64      `json:"entries"`
	TimeRows    int64      `json:"timeRows"`
	AbortedRows int64      `json:"abortedRows"`
	Problems    []Problem  `json:"problems"` // at most a hundred
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

// Verify is Inspect for those who want to know the problems alone.
func (e *Engine) Verify(p ids.PartitionID) ([]Problem, error) {
	v, err := e.Inspect(context.Background(), p)
	return v.Problems, err
}

// Inspect reads all rows of a partition, batches included, and checks that they agree: CRCs; offsets without a gap
// from the log start to the log end; every entry row follows from the one before it, and its batch is there and is
// the one it describes; time rows and rows of aborted transactions fit the batches; epochs, start point and checkpoint
// fit. It reads a snapshot of the store, not memory, so it works beside saves and on a stopped broker alike. An error
// means that rows could not be read at all, or that ctx ended.
func (e *Engine) Inspect(ctx context.Context, p ids.PartitionID) (Verification, error) {
	snapshot := e.db.NewSnapshot()
	v := &verifier{r: snapshot, p: p, ended: ctx.Err, end: ids.NoOffset, txns: map[int64]ids.Offset{}}
	err := v.run()
	v.found.Start, v.found.End = v.meta.LogStart, v.state.Next
	return v.found, errors.Join(err, snapshot.Close())
}

// verifier walks the entry rows in order and the data rows beside them. It shares no code with the write path.
type verifier struct {
	r     pebble.Reader
	p     ids.PartitionID
	ended func() error // an error once nobody waits for the result
	found Verification

	owner ownerRow
	meta  metaRow
	start StartPoint
	holes ids.Offset // batches below may lack records, or be missing

	data *pebble.Iterator
	more bool       // data stands on a row that is not yet checked
	end  ids.Offset // behind the last checked data row; NoOffset before the first

	index   indexWalk
	txns    map[int64]ids.Offset // first offsets, as far as they are stored, of transactions that are open
	state   LogState             // after the last checked entry
	last    ids.RaftIndex
	term    ids.Term
	genesis ids.RaftIndex
	epochs  []EpochStart // that began behind the start point
}

// problem is one of the log as a whole.
func (v *verifier) problem(o ids.Offset, i ids.RaftIndex, format string, args ...any) {
	v.problemOf(ProblemLog, o, i, format, args...)
}

func (v *verifier) problemOf(part ProblemPart, o ids.Offset, i ids.RaftIndex, format string, args ...any) {
	if !v.full() {
		v.found.Problems = append(v.found.Problems, Problem{Part: part, Offset: o, Index: i, What: fmt.Sprintf(format, args...)})
	}
}

// full: there are as many problems as are listed.
func (v *verifier) full() bool { return len(v.found.Problems) >= problemsMax }

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
	defer func() { err = errors.Join(err, v.index.close()) }()
	if err := v.index.open(v.r, v.p); err != nil {
		return err
	}
	if err := v.prefix(); err != nil {
		return err
	}
	if err := v.entries(); err != nil {
		return err
	}
	for v.more && !v.full() {
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
	return errors.Join(v.checkpoint(), v.restOfIndexes())
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
	if err == nil {
		_, err = v.get(appendPartitionKey(nil, rowCompaction, v.p), func(b []byte) error {
			c, err := decodeCompactionRow(b)
			v.holes = c.Holes
			return err
		})
	}
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
		info, err := v.storedInfo()
		if err != nil {
			return err
		}
		if _, _, err := v.batch(); err != nil {
			return err
		}
		if base < v.meta.LogStart && v.end <= v.meta.LogStart { // left over: it goes with the next deletion
			continue
		}
		if err := errors.Join(v.indexed(&info, nil), v.transaction(0, &info)); err != nil {
			return err
		}
	}
	return v.data.Error()
}

// batch checks the data row the iterator stands on, and that it follows the one before, and steps on. The header
// is that of the row, as far as it could be read.
func (v *verifier) batch() (h batch.Header, base ids.Offset, err error) {
	_, base, err = parseDataKey(v.data.Key())
	if err = errors.Join(err, v.ended()); err != nil {
		return h, base, err
	}
	b, err := v.data.ValueAndErr()
	if err != nil {
		return h, base, err
	}
	switch {
	case v.end == ids.NoOffset && base > max(v.meta.LogStart, v.holes):
		v.problemOf(ProblemRecords, base, 0, "the first batch begins above the log start %d", v.meta.LogStart)
	case v.end != ids.NoOffset && base != v.end && (base < v.end || base > v.holes):
		v.problemOf(ProblemRecords, base, 0, "follows offset %d", v.end-1)
	}
	h, problem := checkBatch(b, base)
	if problem != nil {
		v.problemOf(ProblemRecords, base, 0, "%v", problem)
	}
	v.found.Batches++
	v.found.Bytes += int64(len(b))
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
	for ok := it.First(); ok && !v.full(); ok = it.Next() {
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
		v.found.Entries++
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
	if err := v.indexed(&i, want); err != nil {
		return err
	}
	if there, err := v.hasBatch(row); err != nil || !there {
		return errors.Join(err, v.transaction(row.Index, &i))
	}
	got, err := v.storedInfo()
	if err != nil {
		return err
	}
	_, base, err := v.batch()
	if err != nil {
		return err
	}
	if base < v.holes && got.Count <= i.Count {
		got.Count, got.Size, got.Attributes, got.MaxTimestamp = i.Count, i.Size, i.Attributes, i.MaxTimestamp
	}
	if got != i {
		v.problemOf(ProblemRecords, base, row.Index, "batch %+v, the entry row describes %+v", got, i)
	}
	return v.transaction(row.Index, &i)
}

// hasBatch says whether the batch of an entry row is what the data stands on. Compaction may have deleted it.
func (v *verifier) hasBatch(row *EntryRow) (bool, error) {
	if !v.more {
		if row.Batch.Base >= v.holes {
			v.problemOf(ProblemRecords, row.Batch.Base, row.Index, "has no batch")
		}
		return false, v.data.Error()
	}
	_, base, err := parseDataKey(v.data.Key())
	if err == nil && base > row.Batch.Base && row.Batch.Base >= v.holes {
		v.problemOf(ProblemRecords, row.Batch.Base, row.Index, "has no batch: the next is at offset %d", base)
	}
	return err == nil && base <= row.Batch.Base, err
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
	if b.LastOffset < v.holes {
		return nil // it goes with its marker
	}
	found, err := v.get(appendAbortedKey(nil, v.p, b.LastOffset), func(value []byte) error {
		row, err := decodeAbortedRow(value)
		if err == nil && (row.ProducerID != b.ProducerID || row.First > first || row.Stable > b.LastOffset+1) {
			v.problemOf(ProblemIndex, b.LastOffset, index, "aborts %+v, expected producer %d from %d at the latest", row, b.ProducerID, first)
		}
		return err
	})
	if err == nil && !found {
		v.problemOf(ProblemIndex, b.LastOffset, index, "aborts the transaction of producer %d from %d, of which there is no row", b.ProducerID, first)
	}
	return err
}

// tables checks what the meta row says of the log against the entries.
func (v *verifier) tables() {
	if v.end != ids.NoOffset && v.end != v.state.Next && (v.end > v.state.Next || v.state.Next > v.holes) {
		v.problem(v.end, 0, "the batches end here, the entries at %d", v.state.Next)
	}
	if v.meta.LogStart > v.state.Next {
		v.problem(ids.NoOffset, 0, "log start %d is above the log end %d", v.meta.LogStart, v.state.Next)
	}
	if v.end == ids.NoOffset && v.meta.LogStart < v.state.Next && v.state.Next > v.holes {
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
