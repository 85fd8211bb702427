package controller

import (
	"reflect"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func endOf(p ids.PartitionID, end ids.Offset) PartitionEnd {
	return PartitionEnd{p, LogEnd{LeaderEpoch: 3, End: end, AppendMs: 1_700_000_000_000}}
}

func TestHeartbeatsCarryWhatChanged(t *testing.T) {
	var r reportedEnds
	beat := func(term uint64, current ...PartitionEnd) []PartitionEnd {
		t.Helper()
		req := kmsg.NewPtrBrokerHeartbeatRequest()
		r.attach(req, current)
		ends, complete, err := decodeEnds(tagBytes(&req.UnknownTags, tagEnds))
		if err != nil || !complete {
			t.Fatalf("complete %t, %v", complete, err)
		}
		if resp := kmsg.NewPtrBrokerHeartbeatResponse(); term != 0 {
			setTagUint(&resp.UnknownTags, tagEndsTerm, term)
			r.answered(resp)
		}
		return ends
	}
	for i, step := range []struct {
		term    uint64 // of the controller that answers, 0: none does
		current []PartitionEnd
		sent    []PartitionEnd
	}{
		{7, []PartitionEnd{endOf(1, 5), endOf(2, 6)}, []PartitionEnd{endOf(1, 5), endOf(2, 6)}},
		{7, []PartitionEnd{endOf(1, 5), endOf(2, 6)}, nil},
		{0, []PartitionEnd{endOf(1, 8), endOf(2, 6)}, []PartitionEnd{endOf(1, 8)}},
		{7, []PartitionEnd{endOf(1, 8), endOf(2, 6)}, []PartitionEnd{endOf(1, 8)}},
		{8, []PartitionEnd{endOf(1, 9), endOf(2, 6)}, []PartitionEnd{endOf(1, 9)}},
		{8, []PartitionEnd{endOf(1, 9), endOf(2, 6)}, []PartitionEnd{endOf(2, 6)}}, // another controller knows nothing
		{8, []PartitionEnd{endOf(1, 9), endOf(2, 6)}, nil},
	} {
		if got := beat(step.term, step.current...); !reflect.DeepEqual(got, step.sent) {
			t.Errorf("step %d sent %+v, want %+v", i, got, step.sent)
		}
	}
}

func TestAHeartbeatCarriesSoManyEndsAtMost(t *testing.T) {
	var r reportedEnds
	current := make([]PartitionEnd, endsPerBeat+1)
	for i := range current {
		current[i] = endOf(ids.PartitionID(i+1), 5)
	}
	for i, want := range []int{endsPerBeat, 1} {
		req, resp := kmsg.NewPtrBrokerHeartbeatRequest(), kmsg.NewPtrBrokerHeartbeatResponse()
		r.attach(req, current)
		ends, complete, err := decodeEnds(tagBytes(&req.UnknownTags, tagEnds))
		if err != nil || len(ends) != want || complete != (i == 1) {
			t.Errorf("heartbeat %d: %d ends, complete %t, %v", i, len(ends), complete, err)
		}
		setTagUint(&resp.UnknownTags, tagEndsTerm, 4)
		r.answered(resp)
	}
}

func FuzzDecodeEnds(f *testing.F) {
	f.Add(appendEnds(nil, []PartitionEnd{endOf(1, 5), endOf(1<<60, 1<<62)}, true))
	f.Add([]byte{1, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		ends, complete, err := decodeEnds(b)
		if err != nil {
			return
		}
		again, completeAgain, err := decodeEnds(appendEnds(nil, ends, complete))
		if err != nil || complete != completeAgain || !reflect.DeepEqual(ends, again) {
			t.Errorf("%+v became %+v, %v", ends, again, err)
		}
	})
}

// TestReportedEndIsNewerThanTheKeptOne: what the metadata keeps may be from a controller whose wall clock was ahead.
func TestReportedEndIsNewerThanTheKeptOne(t *testing.T) {
	at := func(end ids.Offset, asOf int64) LogEnd { return LogEnd{LeaderEpoch: 3, End: end, AsOfMs: asOf} }
	p := &Partition{ID: 1, Ends: []ReplicaEnd{{7, at(5, 9000)}}}
	var ends Ends
	if got, ok := ends.Of(p, 7); !ok || got != at(5, 9000) {
		t.Errorf("nothing reported: %+v, %t", got, ok)
	}
	ends.Note(7, []PartitionEnd{{1, at(8, 1000)}})
	if got, ok := ends.Of(p, 7); !ok || got != at(8, 1000) {
		t.Errorf("reported later, by an earlier clock: %+v, %t", got, ok)
	}
	ends.Note(7, []PartitionEnd{{1, at(5, 1000)}})
	if got, ok := ends.Of(p, 7); !ok || got != at(5, 9000) {
		t.Errorf("the same, kept when it was confirmed: %+v, %t", got, ok)
	}
}
