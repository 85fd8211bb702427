package engine

import (
	"errors"
	"math"

	"cairn/engine/producer"
	"cairn/internal/ids"
)

// Aborted transactions have a row each, in the commit of their marker. Which batches a marker makes worthless follows from
// the log before it alone, so all replicas write the same rows. They go with the data that they are about: where the log
// starts, and where it is truncated.

// AbortedTransaction is a transaction whose records nobody is to see.
type AbortedTransaction struct {
	ProducerID  int64
	First, Last ids.Offset // Last is its marker
	// Stable: no transaction with a later marker begins below this offset.
	Stable ids.Offset
}

// AbortedTransactions are those that have records or their marker in [from, to), which must lie below the last stable offset.
// They ascend in Last.
func (l *Log) AbortedTransactions(from, to ids.Offset) ([]AbortedTransaction, error) {
	l.sh.mu.RLock()
	last := l.abortedTo
	l.sh.mu.RUnlock()
	if from >= to || from >= last {
		return nil, nil
	}
	var list []AbortedTransaction
	err := l.scanAborted(from, func(a AbortedTransaction) bool {
		if a.First < to {
			list = append(list, a)
		}
		return a.Stable < to
	})
	return list, err
}

// AbortedBetween are the aborted transactions whose markers are in [from, to).
func (l *Log) AbortedBetween(from, to ids.Offset) ([]AbortedTransaction, error) {
	var list []AbortedTransaction
	err := l.scanAborted(from, func(a AbortedTransaction) bool {
		if a.Last >= to {
			return false
		}
		list = append(list, a)
		return true
	})
	return list, err
}

// scanAborted calls fn with the aborted transactions whose marker is at from or behind, until it returns false.
func (l *Log) scanAborted(from ids.Offset, fn func(AbortedTransaction) bool) (err error) {
	it, err := l.e.newIter(abortedBounds(l.binding.Info.ID, from, math.MaxInt64))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		_, marker, err := parseAbortedKey(it.Key())
		if err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		row, err := decodeAbortedRow(v)
		if err != nil {
			return err
		}
		if !fn(AbortedTransaction{ProducerID: row.ProducerID, First: row.First, Last: marker, Stable: row.Stable}) {
			return nil
		}
	}
	return it.Error()
}

// loadAbortedTo is the offset behind the last marker of an aborted transaction, 0 when there is none.
func (l *Log) loadAbortedTo() (o ids.Offset, err error) {
	it, err := l.e.newIter(partitionBounds(rowAborted, l.binding.Info.ID))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return 0, it.Error()
	}
	_, marker, err := parseAbortedKey(it.Key())
	return marker + 1, err
}

// ownTransactions are those that the save may change.
func (p *pendingSave) ownTransactions() *producer.Transactions {
	if !p.txnsOwned {
		p.txns, p.txnsOwned = p.txns.Clone(), true
	}
	return &p.txns
}

// transaction takes a transactional batch or a marker into account, and stores what the latter aborts.
func (s *saver) transaction(p *pendingSave, partition ids.PartitionID, b producer.Batch) {
	t := p.ownTransactions()
	ended, ends := t.Append(b)
	if !ends || !ended.Aborted {
		return
	}
	row := abortedRow{ProducerID: ended.ProducerID, First: ended.First, Stable: ended.Last + 1}
	if open := t.FirstOpen(); open != ids.NoOffset {
		row.Stable = open
	}
	p.abortedTo = ended.Last + 1
	s.key = appendAbortedKey(s.key[:0], partition, ended.Last)
	s.value = row.appendTo(s.value[:0])
	set(s.batch, s.key, s.value)
}

// truncateTransactions takes back what the replaced entries did.
func (p *pendingSave) truncateTransactions(l *Log, to *truncation) {
	if p.txns.Empty() && len(l.undos) == 0 {
		return
	}
	t := p.ownTransactions()
	for i := len(l.undos) - 1; i >= 0 && l.undos[i].index >= to.first; i-- {
		t.Restore(l.undos[i].undo.Transaction())
	}
	t.Truncate(to.state.Next)
	p.abortedTo = min(p.abortedTo, to.state.Next)
}
