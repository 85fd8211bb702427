package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault kinds that Check finds, by Jepsen's names where it has one.
const (
	LostWrite          = "lost write"          // acknowledged or read, and gone, without a report or where none may be lost
	Duplicate          = "duplicate"           // sent once, readable twice
	InconsistentOffset = "inconsistent offset" // two values at one place, or one value at another place than acknowledged
	Unseen             = "unseen"              // readable, and a reader that has reached the end never got it
	PollSkip           = "poll skip"           // a reader jumped over a readable record
	NonmonotonicPoll   = "nonmonotonic poll"   // a reader got an offset again, or an earlier one
	NonmonotonicSend   = "nonmonotonic send"   // a writer's records are in another order than it sent them
	Unsent             = "unsent"              // a record that nobody sent
	RefusedWrite       = "refused write"       // certainly not stored, by what the writer was told, and stored
	ReadableAndLost    = "readable and lost"   // reported lost, and readable
	UnreportedLoss     = "unreported loss"     // in quarantine, and neither readable nor reported lost
	EmptyLoss          = "empty loss"          // reported as kept by a broker that has nothing
	UnsettledLoss      = "unsettled loss"      // still an estimate though all brokers are back
	ReplicasDiffer     = "replicas differ"     // a replica has something else than readers get
	StuckPartition     = "stuck partition"     // does not serve in time after the faults
	AbortedRead        = "aborted read"        // a read-committed reader got a record whose transaction is not committed
	PrecommittedRead   = "precommitted read"   // it got one before its writer asked for the commit
	TornTransaction    = "torn transaction"    // of one transaction it gets some records, and others not
	OffsetWentBack     = "offset went back"    // what a group had committed was an earlier offset afterwards
	EndedProcess       = "ended process"       // a process ended by itself, without a reason to
	FailedDisk         = "failed disk"         // a process went on after a failed write or sync, or ended without naming the file
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind      string `json:"kind"`
	Partition int32  `json:"p"`
	Text      string `json:"text"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s, partition %d: %s", f.Kind, f.Partition, f.Text)
}

// Report is the outcome of a check.
type Report struct {
	Findings []Finding `json:"findings"`
	// What was looked at, so that one can tell a check from an empty one.
	SentRecords, AckedRecords, ReadableRecords, LostRecords, PolledRecords int
	Transactions, CommittedTransactions, GroupCommits                      int
}

// Err is nil when nothing was found.
func (r Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	var b strings.Builder
	kinds := map[string]int{}
	for _, f := range r.Findings {
		kinds[f.Kind]++
		if kinds[f.Kind] <= 5 {
			fmt.Fprintf(&b, "\n  %s", f)
		}
	}
	return fmt.Errorf("%d findings%s", len(r.Findings), b.String())
}

// ProcessErr is Err of what was found about processes alone, for a round that came to no end.
func (r Report) ProcessErr() error {
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Kind != EndedProcess && f.Kind != FailedDisk })
	return r.Err()
}

func (r Report) String() string {
	return fmt.Sprintf("%d sent, %d acknowledged, %d polled, %d readable in the end, %d acknowledged ones reported lost, %d transactions, %d committed, %d commits of a group: %d findings",
		r.SentRecords, r.AckedRecords, r.PolledRecords, r.ReadableRecords, r.LostRecords, r.Transactions, r.CommittedTransactions, r.GroupCommits, len(r.Findings))
}

// record is all that is known of a value.
type record struct {
	Event         // of its sending
	position  int // of that event in the history
	acked     bool
	ackedAt   int
	offset    int64 // as acknowledged; -1: with acks=0
	refused   string
	log, kept []Entry
}

// place names a record slot for ever: offsets are given out again, but not in the same epoch.
type place struct {
	partition int32
	epoch     int32
	offset    int64
}

// state is a history and its end, with indexes.
type state struct {
	history  History
	final    Final
	records  map[uint64]*record
	values   []uint64 // in the order of sending
	unclean  map[int32]bool
	readable map[place]uint64
	byOffset map[int32]map[int64]Entry // the log, by partition and offset
	visible  map[place]bool            // to a reader of committed transactions
	txns     map[uint64]*transaction
	txnOrder []uint64

	report Report
}

// checks are all that is looked for.
func checks() []func(*state) {
	return []func(*state){
		(*state).checkStuck, (*state).checkLog, (*state).checkAcks, (*state).checkKept, (*state).checkLosses, (*state).checkPlaces,
		(*state).checkReplicas, (*state).checkPolls, (*state).checkSends, (*state).checkTransactions, (*state).checkCommittedReads,
		(*state).checkGroupOffsets, (*state).checkGroupReads,
	}
}

// Check judges a history by its end.
func Check(h History, f Final) Report {
	s := index(h, f)
	for _, c := range checks() {
		c(s)
	}
	slices.SortStableFunc(s.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Partition, b.Partition))
	})
	return s.report
}

func index(h History, f Final) *state {
	s := &state{
		history: h, final: f, records: map[uint64]*record{}, unclean: map[int32]bool{}, readable: map[place]uint64{}, byOffset: map[int32]map[int64]Entry{},
		visible: map[place]bool{}, txns: map[uint64]*transaction{},
	}
	s.indexTransactions()
	for i, e := range h {
		r := s.records[e.Value]
		switch {
		case e.Kind == Sent:
			s.records[e.Value] = &record{Event: e, position: i}
			s.values = append(s.values, e.Value)
			s.report.SentRecords++
		case e.Kind == Unclean:
			s.unclean[e.Partition] = true
		case e.Kind == Polled:
			s.report.PolledRecords += len(e.Entries)
		case r == nil: // tells nothing of a record
		case e.Kind == Acked:
			r.acked, r.ackedAt, r.offset = true, i, e.Offset
			s.report.AckedRecords++
		case e.Kind == Refused:
			r.refused = e.Text
		}
	}
	s.indexEnd()
	return s
}

// indexEnd indexes what there is in the end.
func (s *state) indexEnd() {
	for p, log := range s.final.Log {
		s.byOffset[p] = map[int64]Entry{}
		for _, e := range log {
			s.readable[place{p, e.Epoch, e.Offset}] = e.Value
			s.byOffset[p][e.Offset] = e
			if r := s.records[e.Value]; r != nil && r.Partition == p {
				r.log = append(r.log, e)
			}
			s.report.ReadableRecords++
		}
	}
	for p, markers := range s.final.Markers {
		for _, e := range markers {
			s.readable[place{p, e.Epoch, e.Offset}] = e.Value
		}
	}
	for _, k := range s.final.Kept {
		if r := s.records[k.Value]; r != nil && r.Partition == k.Partition {
			r.kept = append(r.kept, k.Entry)
		}
	}
}

func (s *state) find(kind string, partition int32, format string, args ...any) {
	s.report.Findings = append(s.report.Findings, Finding{kind, partition, fmt.Sprintf(format, args...)})
}

// lost reports whether the place is reported lost.
func (s *state) lost(p place) bool {
	return slices.ContainsFunc(s.final.Lost, func(l Lost) bool {
		return l.Partition == p.partition && l.Epoch == p.epoch && l.From <= p.offset && p.offset < l.To
	})
}

func (s *state) checkStuck() {
	for _, e := range s.history {
		switch e.Kind {
		case Stuck:
			s.find(StuckPartition, e.Partition, "%s", e.Text)
		case Ended:
			s.find(EndedProcess, e.Partition, "%s", e.Text)
		case DiskFailed:
			s.find(FailedDisk, e.Partition, "%s", e.Text)
		}
	}
}
