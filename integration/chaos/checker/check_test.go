package checker

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// The partition that the histories are about.
const p0 int32 = 0

// story builds a history and its end.
type story struct {
	h History
	f Final
}

func (s *story) add(e Event) *story {
	s.h = append(s.h, e)
	return s
}

func (s *story) send(client string, v uint64, acks int16, ordered bool) *story {
	return s.add(Event{Kind: Sent, Client: client, Partition: p0, Value: v, Acks: acks, Ordered: ordered})
}

func (s *story) ack(v uint64, offset int64) *story {
	return s.add(Event{Kind: Acked, Partition: p0, Value: v, Offset: offset})
}

func (s *story) poll(client string, entries ...Entry) *story {
	return s.add(Event{Kind: Polled, Client: client, Partition: p0, Entries: entries})
}

func (s *story) log(entries ...Entry) *story {
	s.f.Log[p0] = append(s.f.Log[p0], entries...)
	return s
}

// lose keeps a record on broker 3 and reports it lost.
func (s *story) lose(e Entry) *story {
	s.f.Kept = append(s.f.Kept, Kept{p0, 3, e})
	s.f.Lost = append(s.f.Lost, Lost{Partition: p0, Epoch: e.Epoch, From: e.Offset, To: e.Offset + 1, Holder: 3})
	return s
}

// transactional has a transaction of two records that is committed, one that is aborted, and one whose end nobody knows.
func transactional() *story {
	s := newStory()
	in := func(v, txn uint64) {
		s.add(Event{Kind: Sent, Client: "t", Partition: p0, Value: v, Acks: -1, Ordered: true, Txn: txn})
	}
	in(1, 1)
	in(2, 1)
	s.ack(1, 0).ack(2, 1).add(Event{Kind: Committing, Client: "t", Txn: 1}).add(Event{Kind: Committed, Client: "t", Txn: 1})
	s.committedPoll("c", Entry{0, 4, 1}, Entry{1, 4, 2})
	in(3, 2)
	s.ack(3, 3)
	in(4, 3)
	in(5, 3)
	s.add(Event{Kind: Committing, Client: "t", Txn: 3})
	s.committedPoll("c", Entry{5, 4, 4}, Entry{6, 4, 5})
	s.log(Entry{0, 4, 1}, Entry{1, 4, 2}, Entry{3, 4, 3}, Entry{5, 4, 4}, Entry{6, 4, 5})
	s.f.Committed = map[int32][]Entry{p0: {{0, 4, 1}, {1, 4, 2}, {5, 4, 4}, {6, 4, 5}}}
	s.f.Markers = map[int32][]Entry{p0: {{2, 4, CommitMarker}, {4, 4, AbortMarker}, {7, 4, CommitMarker}}}
	return s.add(Event{Kind: CaughtUp, Client: "c", Offset: 7, Committed: true})
}

func (s *story) committedPoll(client string, entries ...Entry) *story {
	return s.add(Event{Kind: Polled, Client: client, Partition: p0, Committed: true, Entries: entries})
}

// hide takes a record away from readers of committed transactions.
func (s *story) hide(v uint64) *story {
	s.f.Committed[p0] = slices.DeleteFunc(slices.Clone(s.f.Committed[p0]), func(e Entry) bool { return e.Value == v })
	return s
}

// grouped has a group that reads three records and commits them.
func grouped() *story {
	s := good()
	s.add(Event{Kind: OffsetsAsked, Client: "o"}).add(Event{Kind: OffsetFetched, Client: "o", Offset: -1})
	s.add(Event{Kind: GroupPolled, Client: "m", Entries: []Entry{{0, 4, 1}, {1, 4, 2}}}).add(Event{Kind: GroupStored, Client: "m", Offset: 2})
	s.add(Event{Kind: GroupPolled, Client: "n", Entries: []Entry{{1, 4, 2}, {2, 5, 3}}})
	s.add(Event{Kind: OffsetsAsked, Client: "o"}).add(Event{Kind: GroupStored, Client: "n", Offset: 3})
	return s.add(Event{Kind: OffsetFetched, Client: "o", Offset: 2}) // asked before the last commit was answered
}

func newStory() *story { return &story{f: Final{Log: map[int32][]Entry{}}} }

// good has three records: the first with acks=all, the second with acks=1, the third without an answer.
func good() *story {
	return newStory().
		send("w", 1, -1, true).ack(1, 0).send("w", 2, 1, false).ack(2, 1).send("w", 3, -1, true).
		poll("r", Entry{0, 4, 1}, Entry{1, 4, 2}).
		log(Entry{0, 4, 1}, Entry{1, 4, 2}, Entry{2, 5, 3}).
		poll("r", Entry{2, 5, 3}).add(Event{Kind: CaughtUp, Client: "r", Offset: 3})
}

// unclean has value 2 lost by an unclean election, and the reader told so.
func unclean() *story {
	return newStory().
		send("w", 1, -1, true).ack(1, 0).send("w", 2, -1, true).ack(2, 1).
		poll("r", Entry{0, 4, 1}, Entry{1, 4, 2}).
		add(Event{Kind: Unclean}).send("w", 3, -1, true).ack(3, 1).
		add(Event{Kind: Rewound, Client: "r", Offset: 1}).poll("r", Entry{1, 5, 3}).
		add(Event{Kind: CaughtUp, Client: "r", Offset: 2}).
		log(Entry{0, 4, 1}, Entry{1, 5, 3}).lose(Entry{1, 4, 2})
}

func TestGoodHistoriesPass(t *testing.T) {
	for name, s := range map[string]*story{
		"good": good(), "unclean": unclean(), "empty": newStory(), "transactional": transactional(), "grouped": grouped(), "a lost marker": lostMarker(),
	} {
		if rep := Check(s.h, s.f); rep.Err() != nil {
			t.Errorf("%s: %v", name, rep.Err())
		}
	}
	if rep := Check(unclean().h, unclean().f); rep.LostRecords != 1 || rep.AckedRecords != 3 || rep.PolledRecords != 3 || rep.ReadableRecords != 2 {
		t.Errorf("%s", rep)
	}
}

// lostMarker has a marker lost by an unclean election, and what it aborted is seen after the next transaction.
func lostMarker() *story {
	s := transactional().add(Event{Kind: Unclean}).lose(Entry{4, 3, AbortMarker})
	s.f.Markers[p0] = slices.Delete(s.f.Markers[p0], 1, 2)
	s.f.Committed[p0] = slices.Insert(s.f.Committed[p0], 2, Entry{3, 4, 3})
	return s.add(Event{Kind: Rewound, Client: "c", Offset: 3}).committedPoll("c", Entry{3, 4, 3}, Entry{5, 4, 4}, Entry{6, 4, 5})
}

// badStory is a history that must be rejected, with what must be found.
type badStory struct {
	want string
	s    *story
}

// withoutLog takes a record out of the log.
func withoutLog(s *story, i int) *story {
	s.f.Log[p0] = slices.Delete(s.f.Log[p0], i, i+1)
	return s
}

// badTransactions are those of transactions and groups.
func badTransactions() map[string]badStory {
	aborted := transactional()
	aborted.f.Committed[p0] = append(aborted.f.Committed[p0], Entry{3, 4, 3})
	early := transactional()
	early.h = slices.DeleteFunc(early.h, func(e Event) bool { return e.Kind == Committing && e.Txn == 1 })
	early.add(Event{Kind: Committing, Client: "t", Txn: 1})
	plainHidden := good()
	plainHidden.f.Committed = map[int32][]Entry{p0: {{0, 4, 1}, {2, 5, 3}}}
	more := transactional()
	more.f.Committed[p0] = append(more.f.Committed[p0], Entry{8, 4, 1})
	other := transactional()
	other.f.Committed[p0] = append(slices.Clone(other.f.Committed[p0][:3]), Entry{6, 4, 1})
	return map[string]badStory{
		"aborted, and read":           {AbortedRead, transactional().committedPoll("c2", Entry{0, 4, 1}, Entry{1, 4, 2}, Entry{3, 4, 3})},
		"aborted, and visible":        {AbortedRead, aborted},
		"unknown, read and invisible": {AbortedRead, transactional().hide(4).hide(5)},
		"read before the commit":      {PrecommittedRead, early},
		"committed and half visible":  {TornTransaction, transactional().hide(2)},
		"committed and invisible":     {TornTransaction, transactional().hide(1).hide(2)},
		"unknown and half visible":    {TornTransaction, transactional().hide(5)},
		"committed, and gone":         {LostWrite, withoutLog(transactional(), 1)},
		"committed, and jumped":       {PollSkip, transactional().committedPoll("c2", Entry{0, 4, 1}, Entry{5, 4, 4})},
		"plain, and not visible":      {Unseen, plainHidden},
		"visible, and not readable":   {Unseen, more},
		"visible with another value":  {InconsistentOffset, other},
		"a member's, and gone":        {LostWrite, withoutLog(grouped(), 2)},
		"a member's, another value":   {InconsistentOffset, good().add(Event{Kind: GroupPolled, Client: "m", Entries: []Entry{{0, 4, 2}}})},
		"committed lower later":       {OffsetWentBack, grouped().add(Event{Kind: OffsetsAsked, Client: "o"}).add(Event{Kind: OffsetFetched, Client: "o", Offset: 2})},
		"committed, then none":        {OffsetWentBack, grouped().add(Event{Kind: OffsetsAsked, Client: "o"}).add(Event{Kind: OffsetFetched, Client: "o", Offset: -1})},
		"committed and never got":     {Unseen, good().add(Event{Kind: GroupPolled, Client: "m", Entries: []Entry{{0, 4, 1}}}).add(Event{Kind: GroupStored, Client: "m", Offset: 2})},
	}
}

// bad are all others.
func bad() map[string]badStory {
	swapped := newStory().send("w", 1, -1, true).send("w", 2, -1, true).ack(2, 0).ack(1, 1).log(Entry{0, 4, 2}, Entry{1, 4, 1})
	plain := newStory().send("w", 1, 1, false).ack(1, 1).send("w", 2, 1, false).log(Entry{0, 4, 2}, Entry{1, 4, 1})
	clean := unclean()
	clean.h = slices.DeleteFunc(clean.h, func(e Event) bool { return e.Kind == Unclean })
	untold := unclean()
	untold.h = slices.DeleteFunc(untold.h, func(e Event) bool { return e.Kind == Rewound })
	estimate := unclean()
	estimate.f.Lost[0].Estimated = true
	elsewhere := unclean()
	elsewhere.f.Lost[0].Holder = 2
	replica := good()
	replica.f.Replicas = map[int32]map[int32][]Entry{2: {p0: {{0, 4, 1}, {1, 4, 3}, {2, 5, 3}}}}
	short := good()
	short.f.Replicas = map[int32]map[int32][]Entry{2: {p0: {{0, 4, 1}, {1, 4, 2}}}}
	silent := unclean()
	silent.f.Lost = nil
	return map[string]badStory{
		"acks=all gone":               {LostWrite, withoutLog(good(), 0)},
		"acks=1 gone":                 {LostWrite, withoutLog(good(), 1)},
		"read and gone":               {LostWrite, withoutLog(good(), 2)},
		"lost without an election":    {LostWrite, clean},
		"readable twice":              {Duplicate, good().log(Entry{3, 5, 3})},
		"at another offset":           {InconsistentOffset, newStory().send("w", 1, 1, false).ack(1, 7).log(Entry{0, 4, 1})},
		"two values at a place":       {InconsistentOffset, good().send("w", 9, 0, false).poll("r2", Entry{0, 4, 9})},
		"two values at an offset":     {InconsistentOffset, good().send("w", 9, 0, false).poll("r2", Entry{0, 3, 9})},
		"never got":                   {Unseen, good().add(Event{Kind: CaughtUp, Client: "r2", Offset: 3})},
		"jumped":                      {PollSkip, good().poll("r2", Entry{0, 4, 1}, Entry{2, 5, 3})},
		"began late":                  {PollSkip, good().poll("r2", Entry{1, 4, 2})},
		"again":                       {NonmonotonicPoll, good().poll("r", Entry{2, 5, 3})},
		"back without being told":     {NonmonotonicPoll, untold},
		"ordered writer out of order": {NonmonotonicSend, swapped},
		"sent after an answer":        {NonmonotonicSend, plain},
		"nobody's":                    {Unsent, good().log(Entry{3, 5, 77})},
		"another partition's":         {Unsent, newStory().add(Event{Kind: Sent, Client: "w", Partition: 1, Value: 1}).log(Entry{0, 4, 1})},
		"kept, and nobody's":          {Unsent, good().lose(Entry{9, 4, 77})},
		"refused":                     {RefusedWrite, good().add(Event{Kind: Refused, Value: 3, Text: "NOT_ENOUGH_REPLICAS"})},
		"lost and there":              {ReadableAndLost, good().lose(Entry{2, 5, 3})},
		"kept without report":         {UnreportedLoss, silent},
		"acknowledged, kept, silent":  {LostWrite, silent},
		"kept by another":             {EmptyLoss, elsewhere},
		"still an estimate":           {UnsettledLoss, estimate},
		"replica with another value":  {ReplicasDiffer, replica},
		"replica that is short":       {ReplicasDiffer, short},
		"stuck":                       {StuckPartition, good().add(Event{Kind: Stuck, Text: "no acknowledgement"})},
		"a process that ended":        {EndedProcess, good().add(Event{Kind: Ended, Text: "panic"})},
		"a disk that failed":          {FailedDisk, good().add(Event{Kind: DiskFailed, Text: "goes on"})},
	}
}

func TestBadHistoriesAreRejected(t *testing.T) {
	kinds := map[string]bool{}
	stories := bad()
	maps.Copy(stories, badTransactions())
	for name, row := range stories {
		rep := Check(row.s.h, row.s.f)
		if !slices.ContainsFunc(rep.Findings, func(f Finding) bool { return f.Kind == row.want }) {
			t.Errorf("%s: wanted %q, found %v", name, row.want, rep.Findings)
		}
		kinds[row.want] = true
	}
	table, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := findingKinds(t)
	for _, k := range all {
		if !kinds[k] {
			t.Errorf("no history is bad by %q", k)
		}
		if !regexp.MustCompile(`(?m)^\| ([a-z -]+, )*` + k + `(, [a-z -]+)* \|`).Match(table) {
			t.Errorf("docs/reliability.md has no line for %q", k)
		}
	}
	if len(all) < 20 || len(kinds) != len(all) {
		t.Errorf("%d kinds of findings, histories that are bad by %d", len(all), len(kinds))
	}
}

// findingKinds are the constants of check.go.
func findingKinds(t *testing.T) (list []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "check.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				kind, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, kind)
			}
		}
	}
	return list
}

// TestOneChangeIsFound: a long history of several writers and readers is right; each of many small changes to its end is found.
func TestOneChangeIsFound(t *testing.T) {
	s := newStory()
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 500
	for i := range uint64(n) {
		s.send(fmt.Sprint("w", i%3), i+1, -1, true).ack(i+1, int64(i)).log(Entry{int64(i), int32(i / 100), i + 1})
		s.poll("r", s.f.Log[p0][i])
	}
	if err := Check(s.h, s.f).Err(); err != nil {
		t.Fatal(err)
	}
	log := s.f.Log[p0]
	for range 300 {
		i, j := rng.IntN(n), rng.IntN(n)
		changed := slices.Clone(log)
		switch rng.IntN(4) {
		case 0:
			changed = slices.Delete(changed, i, i+1)
		case 1:
			changed[i].Value = changed[j].Value
		case 2:
			changed[i].Value, changed[j].Value = changed[j].Value, changed[i].Value
		case 3:
			changed[i].Epoch++
		}
		if slices.Equal(changed, log) {
			continue
		}
		f := s.f
		f.Log = maps.Clone(f.Log)
		f.Log[p0] = changed
		if Check(s.h, f).Err() == nil {
			t.Errorf("a change at %d and %d was not found", i, j)
		}
	}
}

func TestHistoryIsReadAsWritten(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(&file)
	for _, e := range unclean().h {
		r.Add(e)
	}
	written, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadHistory(&file)
	if err != nil || !reflect.DeepEqual(read, written) || len(read) != len(unclean().h) {
		t.Errorf("%v: %d events of %d", err, len(read), len(written))
	}
	if _, err := ReadHistory(bytes.NewReader([]byte("{\"kind\":\"sent\"}\n{"))); err == nil {
		t.Error("half an event was read")
	}
}
