package segment

import "cairn/wire/batch"

// Outcome is what became of the transaction that a batch belongs to.
type Outcome int

// The outcomes.
const (
	Committed  Outcome = iota // or the batch belongs to none
	Aborted                   // by its marker
	Unfinished                // its marker is not in the files
)

// Transactions knows what became of the transactions in some files, from a first scan over them. It holds those that were not committed.
type Transactions struct {
	open    map[int64]int64  // first offset by producer id
	aborted map[int64][]span // by producer id, ascending
}

// span is an aborted transaction: its first offset and that of its marker.
type span struct{ first, marker int64 }

// FindTransactions scans the files for markers. read is told of each batch.
func FindTransactions(files []string, read func(Batch)) (*Transactions, error) {
	t := &Transactions{open: map[int64]int64{}, aborted: map[int64][]span{}}
	_, err := Scan(files, func(b Batch) error {
		t.add(b)
		read(b)
		return nil
	})
	return t, err
}

func (t *Transactions) add(b Batch) {
	if !b.IsTransactional() {
		return
	}
	first, open := t.open[b.ProducerID]
	if !b.IsControl() {
		if !open {
			t.open[b.ProducerID] = b.BaseOffset
		}
		return
	}
	m, err := batch.ParseMarker(b.Raw)
	if err != nil {
		return
	}
	delete(t.open, b.ProducerID)
	if open && !m.Commit {
		t.aborted[b.ProducerID] = append(t.aborted[b.ProducerID], span{first, b.BaseOffset})
	}
}

// Outcome tells of a batch of a second scan, whose batches come in order: what is behind it is forgotten.
func (t *Transactions) Outcome(b *batch.Header) Outcome {
	if !b.IsTransactional() || b.IsControl() {
		return Committed
	}
	list := t.aborted[b.ProducerID]
	for len(list) > 0 && list[0].marker < b.BaseOffset {
		list = list[1:]
	}
	t.aborted[b.ProducerID] = list
	if len(list) > 0 && b.BaseOffset >= list[0].first {
		return Aborted
	}
	if first, open := t.open[b.ProducerID]; open && b.BaseOffset >= first {
		return Unfinished
	}
	return Committed
}
