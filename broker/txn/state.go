package txn

import (
	"fmt"
	"slices"
)

// State is where a transactional id stands, with Kafka's numbers.
type State int8

// The states. Dead and PrepareEpochFence are never written: an id that is forgotten leaves a tombstone, and fencing is
// decided and prepared for abort at once.
const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence
)

var stateNames = [...]string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

// String is Kafka's name of the state, as ListTransactions and DescribeTransactions show it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// ParseState finds a state by its name.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(i), i >= 0
}

// stored reports whether the log may hold the state.
func (s State) stored() bool { return s >= Empty && s <= CompleteAbort }

// prepared: the outcome is decided, and not all partitions have the marker yet.
func (s State) prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// complete: the last transaction is over.
func (s State) complete() bool { return s == CompleteCommit || s == CompleteAbort }

// follows reports whether s may come after before, as Kafka has it with fencing left out: it prepares the abort at once.
func (s State) follows(before State) bool {
	switch s {
	case Empty:
		return before == Empty || before.complete()
	case Ongoing:
		return before == Ongoing || before == Empty || before.complete()
	case PrepareCommit:
		return before == Ongoing
	case PrepareAbort:
		return before == Ongoing || before == Empty || before.complete()
	case CompleteCommit:
		return before == PrepareCommit
	case CompleteAbort:
		return before == PrepareAbort
	}
	return false
}
