package checker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Kind is what an event tells.
type Kind string

// The kinds of events. In brackets what they use besides Client and Partition.
const (
	Sent     Kind = "sent"     // a writer hands over a record [Value, Acks, Ordered, Txn]
	Acked    Kind = "acked"    // it was acknowledged [Value, Offset; -1 with acks=0]
	Refused  Kind = "refused"  // it was certainly not stored [Value, Text]
	Unknown  Kind = "unknown"  // nobody knows what became of it [Value, Text]
	Polled   Kind = "polled"   // a reader got records [Entries, Committed]
	Rewound  Kind = "rewound"  // a reader was told that records are gone, and goes on at an earlier offset [Offset]
	CaughtUp Kind = "caughtup" // a reader has reached the end, once the load was over [Offset: the end, exclusive; Committed]
	Unclean  Kind = "unclean"  // an unclean election is asked for
	Fault    Kind = "fault"    // something is done to the cluster [Text]
	Stuck    Kind = "stuck"    // a partition does not serve though it should [Text]

	Ended      Kind = "ended"      // a process has ended though nobody ended it [Text]
	DiskFailed Kind = "diskfailed" // a process does not deal as it should with a write or a sync that failed [Text]

	Committing Kind = "committing" // a writer is about to ask that its transaction is committed [Txn]
	Committed  Kind = "committed"  // and was told that it is [Txn]

	GroupPolled   Kind = "grouppolled"   // a member of a group got records, not all of them for the first time [Entries]
	GroupStored   Kind = "groupstored"   // a member was told that its offset is committed [Offset]
	OffsetsAsked  Kind = "offsetsasked"  // an observer is about to ask for the offsets of a group
	OffsetFetched Kind = "offsetfetched" // and was told [Offset; -1: there is none]
)

// What markers of transactions have for a value.
const (
	CommitMarker uint64 = math.MaxUint64 - iota
	AbortMarker
)

// Entry is a record at its place.
type Entry struct {
	Offset int64  `json:"o"`
	Epoch  int32  `json:"e"`
	Value  uint64 `json:"v"`
}

// Event is one line of a history.
type Event struct {
	At        time.Duration `json:"at"` // since the beginning
	Kind      Kind          `json:"kind"`
	Client    string        `json:"client,omitempty"`
	Partition int32         `json:"p"`
	Value     uint64        `json:"v,omitempty"` // unique among all records of all writers
	Acks      int16         `json:"acks,omitempty"`
	// Ordered: the writer promises the order in which it sends, whatever the outcomes. Others promise only that a record follows those that
	// were acknowledged before it was sent.
	Ordered bool    `json:"ordered,omitempty"`
	Offset  int64   `json:"offset,omitempty"`
	Entries []Entry `json:"entries,omitempty"`
	Text    string  `json:"text,omitempty"`
	// Txn is the transaction that a record belongs to, unique among all of all writers; 0: none.
	Txn uint64 `json:"txn,omitempty"`
	// Committed: the reader sees committed transactions only.
	Committed bool `json:"committed,omitempty"`
}

// History is what happened, in order.
type History []Event

// Lost is a range of offsets of one leader epoch that is reported lost.
type Lost struct {
	Partition int32 `json:"p"`
	Epoch     int32 `json:"e"`
	From      int64 `json:"from"`
	To        int64 `json:"to"` // exclusive
	Holder    int32 `json:"holder"`
	// Estimated: by what the holder had reported before. Dropped: it has deleted what it kept.
	Estimated bool `json:"estimated,omitempty"`
	Dropped   bool `json:"dropped,omitempty"`
}

// Kept is a record that a broker keeps in quarantine.
type Kept struct {
	Partition int32 `json:"p"`
	Holder    int32 `json:"holder"`
	Entry
}

// Final is the state once all brokers are up and all replicas in sync again, and no load is left.
type Final struct {
	Log     map[int32][]Entry `json:"log"`     // by partition, in the order of offsets, as a reader gets it
	Markers map[int32][]Entry `json:"markers"` // of transactions, likewise
	// Committed is Log as a reader gets it that sees committed transactions only; may be left out when there were none.
	Committed map[int32][]Entry           `json:"committed"`
	Replicas  map[int32]map[int32][]Entry `json:"replicas"` // by broker and partition, as stored; may be left out
	Lost      []Lost                      `json:"lost"`
	Kept      []Kept                      `json:"kept"`
}

// Recorder writes events as they happen. It is safe for concurrent use.
type Recorder struct {
	begun time.Time

	mu     sync.Mutex
	out    *bufio.Writer // guarded by mu
	events History       // guarded by mu
	err    error         // guarded by mu; the first of writing
}

// NewRecorder begins a history that is written to w, too.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{begun: time.Now(), out: bufio.NewWriter(w)} }

// Add notes an event that happens now.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = time.Since(r.begun)
	r.events = append(r.events, e)
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

// End returns the history; what is added later is no part of it.
func (r *Recorder) End() (History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, r.out.Flush())
	return r.events[:len(r.events):len(r.events)], r.err
}

// ReadHistory reads what a Recorder wrote.
func ReadHistory(in io.Reader) (History, error) {
	var h History
	for dec := json.NewDecoder(in); ; {
		var e Event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("event %d of the history: %w", len(h)+1, err)
		}
		h = append(h, e)
	}
}
