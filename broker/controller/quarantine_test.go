package controller

import (
	"reflect"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestDroppedQuarantineIsMarked(t *testing.T) {
	m := newReplicated(t, "1")
	report := LossReport{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, Lost: []LostRange{{0, 10, 30}, {1, 10, 30}}, AtMs: 5}
	m.must(ChangeLosses{2, m.epoch(2), []LossReport{report}})
	report.Lost = []LostRange{{0, 10, 20}}
	m.must(ChangeLosses{3, m.epoch(3), []LossReport{report}})
	drop := func(epoch int64, p ids.PartitionID, ranges ...LostRange) DropQuarantined {
		return DropQuarantined{2, epoch, []DroppedRanges{{p, ranges, 9}}}
	}
	m.must(drop(m.epoch(2), m.p().ID, LostRange{0, 5, 12}, LostRange{0, 15, 20}, LostRange{2, 10, 30}))
	loss := func(epoch ids.LeaderEpoch, from, to ids.Offset, holder ids.NodeID, droppedMs int64) Loss {
		return Loss{
			TopicID: testID(50), Topic: "t", LostRange: LostRange{epoch, from, to}, Cause: CauseDivergent, Holder: holder, AtMs: 5, DroppedMs: droppedMs,
		}
	}
	want := []Loss{
		loss(0, 10, 12, 2, 9), loss(0, 12, 15, 2, 0), loss(0, 15, 20, 2, 9), loss(0, 20, 30, 2, 0), loss(1, 10, 30, 2, 0), loss(0, 10, 20, 3, 0),
	}
	if !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("losses %+v\nwant   %+v", m.img.Losses, want)
	}
	m.must(drop(m.epoch(2), m.p().ID, LostRange{0, 0, 100}))
	if want = []Loss{loss(0, 10, 30, 2, 9), loss(1, 10, 30, 2, 0), loss(0, 10, 20, 3, 0)}; !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("losses %+v\nwant   %+v", m.img.Losses, want)
	}
	if res := m.apply(drop(m.epoch(2), 999)); res.Items[0].Code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("of an unknown partition: %+v", res)
	}
	if res := m.apply(drop(m.epoch(2)-1, m.p().ID)); res.Code != kerr.StaleBrokerEpoch.Code {
		t.Errorf("of an earlier registration: %+v", res)
	}
	c, err := DecodeCommand(EncodeCommand(Proposal{1, drop(4, 7, LostRange{0, 5, 12})}))
	if err != nil || !reflect.DeepEqual(c.Command, drop(4, 7, LostRange{0, 5, 12})) {
		t.Errorf("decoded %+v, %v", c, err)
	}
}

// TestRecoveredRecordsAreMarked: with every holder, since they are the same records, and still after they are dropped.
func TestRecoveredRecordsAreMarked(t *testing.T) {
	m := newReplicated(t, "1")
	m.lose(2, 5, LostRange{0, 10, 30}, LostRange{1, 10, 30})
	m.lose(3, 5, LostRange{0, 20, 40})
	note := NoteRecovered{[]RecoveredRanges{{m.p().ID, []LostRange{{0, 20, 35}}, "saved", 9}}}
	m.must(note)
	m.must(DropQuarantined{2, m.epoch(2), []DroppedRanges{{m.p().ID, []LostRange{{0, 0, 25}}, 11}}})
	line := func(holder ids.NodeID, r LostRange, recoveredMs, droppedMs int64) Loss {
		l := Loss{
			TopicID: testID(50), Topic: "t", LostRange: r, Cause: CauseDivergent, Holder: holder, AtMs: 5, DroppedMs: droppedMs, RecoveredMs: recoveredMs,
		}
		if recoveredMs > 0 {
			l.RecoveredTo = "saved"
		}
		return l
	}
	want := []Loss{
		line(2, LostRange{0, 10, 20}, 0, 11), line(2, LostRange{0, 20, 25}, 9, 11), line(2, LostRange{0, 25, 30}, 9, 0),
		line(2, LostRange{1, 10, 30}, 0, 0), line(3, LostRange{0, 20, 35}, 9, 0), line(3, LostRange{0, 35, 40}, 0, 0),
	}
	if !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("losses %+v\nwant   %+v", m.img.Losses, want)
	}
	for _, bad := range []RecoveredRanges{{999, nil, "saved", 9}, {m.p().ID, nil, "", 9}} {
		if res := m.apply(NoteRecovered{[]RecoveredRanges{bad}}); res.Items[0].Code == 0 {
			t.Errorf("%+v is taken", bad)
		}
	}
	c, err := DecodeCommand(EncodeCommand(Proposal{1, note}))
	if err != nil || !reflect.DeepEqual(c.Command, note) {
		t.Errorf("decoded %+v, %v", c, err)
	}
	req := &ReplicaCommandRequest{}
	if err := req.ReadFrom((&ReplicaCommandRequest{Command: note}).AppendTo(nil)); err != nil || !reflect.DeepEqual(req.Command, note) {
		t.Errorf("sent %+v, %v", req.Command, err)
	}
}
