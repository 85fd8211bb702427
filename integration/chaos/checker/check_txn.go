package checker

import "slices"

// transaction is all that is known of one.
type transaction struct {
	committing int // where in the history its writer asked for the commit; -1: never
	committed  bool
	records    []*record // in the order of sending
}

func (s *state) indexTransactions() {
	for i, e := range s.history {
		if e.Kind != Committing && e.Kind != Committed {
			continue
		}
		t := s.transaction(e.Txn)
		if e.Kind == Committing {
			t.committing = i
		} else {
			t.committed = true
			s.report.CommittedTransactions++
		}
	}
	for p, log := range s.final.Committed {
		for _, e := range log {
			s.visible[place{p, e.Epoch, e.Offset}] = true
		}
	}
}

func (s *state) transaction(n uint64) *transaction {
	t := s.txns[n]
	if t == nil {
		t = &transaction{committing: -1}
		s.txns[n] = t
		s.txnOrder = append(s.txnOrder, n)
		s.report.Transactions++
	}
	return t
}

// checkTransactions: in the end a reader of committed transactions gets all readable records of each, or none; all if the writer was told
// that it is committed, none if the writer never asked for that. Records without a transaction it gets in any case. Where an unclean
// election was held a marker may be lost, and with it the word on what is readable. What it gets, a reader of all records gets as well.
func (s *state) checkTransactions() {
	for p, log := range s.final.Committed {
		for _, e := range log {
			if _, ok := s.readable[place{p, e.Epoch, e.Offset}]; !ok {
				s.find(Unseen, p, "a read-committed reader gets %+v in the end, and a reader of all records does not", e)
			}
		}
	}
	for _, v := range s.values {
		if r := s.records[v]; r.Txn != 0 {
			t := s.transaction(r.Txn)
			t.records = append(t.records, r)
		} else if s.final.Committed != nil {
			for _, e := range r.log {
				if !s.unclean[r.Partition] && !s.visible[place{r.Partition, e.Epoch, e.Offset}] {
					s.find(Unseen, r.Partition, "value %d of %s, of no transaction, is at %+v, and a read-committed reader does not get it", v, r.Client, e)
				}
			}
		}
	}
	for _, n := range s.txnOrder {
		s.checkTransaction(n, s.txns[n])
	}
}

func (s *state) checkTransaction(n uint64, t *transaction) {
	var seen, hidden []*record
	for _, r := range t.records {
		if s.unclean[r.Partition] || len(r.log) == 0 {
			continue // what is acknowledged and gone, checkAcks finds
		}
		if slices.ContainsFunc(r.log, func(e Entry) bool { return s.visible[place{r.Partition, e.Epoch, e.Offset}] }) {
			seen = append(seen, r)
		} else {
			hidden = append(hidden, r)
		}
	}
	switch {
	case t.committing < 0 && len(seen) > 0:
		r := seen[0]
		s.find(AbortedRead, r.Partition, "value %d of %s is visible in the end at %+v, and transaction %d was never to be committed", r.Value, r.Client, r.log, n)
	case t.committed && len(hidden) > 0:
		r := hidden[0]
		s.find(TornTransaction, r.Partition, "transaction %d of %s is committed, and %d of its records are visible in the end, %d are not; the first of those is value %d at %+v",
			n, r.Client, len(seen), len(hidden), r.Value, r.log)
	case len(seen) > 0 && len(hidden) > 0:
		r := hidden[0]
		s.find(TornTransaction, r.Partition, "of transaction %d of %s, whose end is not known, %d records are visible in the end, %d are not; the first of those is value %d at %+v",
			n, r.Client, len(seen), len(hidden), r.Value, r.log)
	}
}

// checkCommittedReads: a reader of committed transactions gets nothing of one that its writer has not asked to commit yet, and nothing that
// it does not get in the end.
func (s *state) checkCommittedReads() {
	for i, e := range s.history {
		if e.Kind != Polled || !e.Committed || s.unclean[e.Partition] {
			continue
		}
		for _, entry := range e.Entries {
			r := s.records[entry.Value]
			if r == nil || r.Txn == 0 {
				continue // that nobody sent it, others find
			}
			switch t := s.transaction(r.Txn); {
			case t.committing < 0:
				s.find(AbortedRead, e.Partition, "%s got %+v, and transaction %d was never to be committed", e.Client, entry, r.Txn)
			case t.committing > i:
				s.find(PrecommittedRead, e.Partition, "%s got %+v before the commit of transaction %d was asked for", e.Client, entry, r.Txn)
			case len(r.log) > 0 && !s.visible[place{e.Partition, entry.Epoch, entry.Offset}]: // what is gone, checkPolls finds
				s.find(AbortedRead, e.Partition, "%s got %+v of transaction %d, which is not visible in the end", e.Client, entry, r.Txn)
			}
		}
	}
}
