package producer

import (
	"slices"
	"sort"

	"cairn/internal/ids"
)

// OpenTransaction is a transaction that no marker has ended.
type OpenTransaction struct {
	ProducerID int64
	First      ids.Offset // its first offset in the partition
}

// EndedTransaction is a transaction whose marker is in the log.
type EndedTransaction struct {
	ProducerID  int64
	First, Last ids.Offset // Last is the marker's offset
	Aborted     bool
}

// Transactions are those of one partition that keep its log from being stable: open ones, and ended ones whose marker consumers
// cannot read yet: as long as that may be truncated they are as good as open. The zero value has none. Not safe for concurrent use; copies share memory,
// see Clone.
//
// Invariant: open ascends in First, ended in Last.
type Transactions struct {
	open  []OpenTransaction
	ended []EndedTransaction
}

// Transactions are the open ones of the state.
func (s *State) Transactions() (t Transactions) {
	for id, e := range s.entries {
		if e.TxnFirstOffset != ids.NoOffset {
			t.open = append(t.open, OpenTransaction{id, e.TxnFirstOffset})
		}
	}
	slices.SortFunc(t.open, func(a, b OpenTransaction) int { return int(a.First - b.First) })
	return t
}

// Clone is an independent copy.
func (t Transactions) Clone() Transactions {
	return Transactions{open: slices.Clone(t.open), ended: slices.Clone(t.ended)}
}

// Append takes a batch that is in the log into account, as State.Append does. ended is the transaction that it ends.
func (t *Transactions) Append(b Batch) (ended EndedTransaction, ends bool) {
	if b.ProducerID < 0 || !b.Transactional && !b.Control {
		return ended, false
	}
	at := t.find(b.ProducerID)
	switch {
	case !b.Control && at < 0:
		t.open = append(t.open, OpenTransaction{b.ProducerID, b.BaseOffset})
	case b.Control && at >= 0:
		ended = EndedTransaction{ProducerID: b.ProducerID, First: t.open[at].First, Last: b.LastOffset, Aborted: !b.Commit}
		t.open = slices.Delete(t.open, at, at+1)
		t.ended = append(t.ended, ended)
		return ended, true
	}
	return ended, false
}

func (t *Transactions) find(producerID int64) int {
	return slices.IndexFunc(t.open, func(o OpenTransaction) bool { return o.ProducerID == producerID })
}

// Restore has the producer's transaction open since first, or none when first is ids.NoOffset: the way back of an append.
func (t *Transactions) Restore(producerID int64, first ids.Offset) {
	if at := t.find(producerID); at >= 0 {
		t.open = slices.Delete(t.open, at, at+1)
	}
	if first == ids.NoOffset {
		return
	}
	at := sort.Search(len(t.open), func(i int) bool { return t.open[i].First >= first })
	t.open = slices.Insert(t.open, at, OpenTransaction{producerID, first})
}

// Truncate forgets the ends of transactions whose marker is not below next.
func (t *Transactions) Truncate(next ids.Offset) {
	t.ended = t.ended[:t.endedFrom(next)]
}

// Settle forgets the ended transactions whose marker is below the high watermark.
func (t *Transactions) Settle(highWatermark ids.Offset) {
	t.ended = t.ended[t.endedFrom(highWatermark):]
	if len(t.ended) == 0 {
		t.ended = nil
	}
}

// Unsettled reports whether Settle would forget something.
func (t *Transactions) Unsettled(highWatermark ids.Offset) bool {
	return len(t.ended) > 0 && t.ended[0].Last < highWatermark
}

// endedFrom is the position of the first ended transaction whose marker is not below o.
func (t *Transactions) endedFrom(o ids.Offset) int {
	return sort.Search(len(t.ended), func(i int) bool { return t.ended[i].Last >= o })
}

// FirstOpen is the first offset of all open transactions; ids.NoOffset when there is none.
func (t *Transactions) FirstOpen() ids.Offset {
	if len(t.open) == 0 {
		return ids.NoOffset
	}
	return t.open[0].First
}

// Stable is the last stable offset at a high watermark: below it, consumers know of every transaction how it ended.
func (t *Transactions) Stable(highWatermark ids.Offset) ids.Offset {
	stable := highWatermark
	if len(t.open) > 0 {
		stable = min(stable, t.open[0].First)
	}
	for _, e := range t.ended[t.endedFrom(highWatermark):] {
		stable = min(stable, e.First)
	}
	return stable
}

// Open are the open transactions, ascending in First: a copy.
func (t *Transactions) Open() []OpenTransaction { return slices.Clone(t.open) }

// Ended are the ended transactions that are not settled, ascending in Last: a copy.
func (t *Transactions) Ended() []EndedTransaction { return slices.Clone(t.ended) }

// WithEnded is t with ended transactions that were stored, ascending in Last.
func (t Transactions) WithEnded(ended []EndedTransaction) Transactions {
	t.ended = ended
	return t
}

// Empty reports whether nothing keeps the log from being stable.
func (t *Transactions) Empty() bool { return len(t.open) == 0 && len(t.ended) == 0 }
