package controller

import (
	"reflect"
	"testing"

	"cairn/internal/ids"

	"pgregory.net/rapid"
)

func (m *machine) lose(node ids.NodeID, atMs int64, ranges ...LostRange) {
	report := LossReport{TopicID: testID(50), LeaderEpoch: m.p().LeaderEpoch, Lost: ranges, AtMs: atMs}
	m.must(ChangeLosses{node, m.epoch(node), []LossReport{report}})
}

func TestLossesThatTouchShareALine(t *testing.T) {
	m := newReplicated(t, "1")
	m.lose(2, 5, LostRange{1, 0, 10}, LostRange{1, 20, 30}, LostRange{2, 10, 20})
	m.lose(3, 6, LostRange{1, 10, 20})
	m.lose(2, 7, LostRange{1, 40, 50})
	m.lose(2, 8, LostRange{1, 8, 20}) // closes the gap
	line := func(node ids.NodeID, r LostRange, atMs int64) Loss {
		return Loss{TopicID: testID(50), Topic: "t", LostRange: r, Cause: CauseDivergent, Holder: node, AtMs: atMs}
	}
	want := []Loss{
		line(2, LostRange{1, 0, 30}, 5), line(2, LostRange{2, 10, 20}, 5), line(3, LostRange{1, 10, 20}, 6), line(2, LostRange{1, 40, 50}, 7),
	}
	if !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("losses %+v\nwant   %+v", m.img.Losses, want)
	}
	m.lose(2, 9, LostRange{1, 3, 25})
	if !reflect.DeepEqual(m.img.Losses, want) {
		t.Errorf("a known part changed the losses to %+v", m.img.Losses)
	}
}

// TestLossesAreBounded: the oldest lines are merged, and every record still counts, and lies in a line of its holder.
func TestLossesAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newReplicated(t, "1")
		type lost struct {
			node ids.NodeID
			LostRange
		}
		var all []lost
		total, recovered := int64(0), false
		for i := range rapid.IntRange(100, 200).Draw(rt, "ranges") {
			r := lost{rapid.SampledFrom([]ids.NodeID{2, 3}).Draw(rt, "node"), LostRange{ids.LeaderEpoch(i / 7), ids.Offset(i * 10), 0}}
			r.To = r.From + ids.Offset(rapid.IntRange(1, 9).Draw(rt, "records"))
			m.lose(r.node, int64(i), r.LostRange)
			all, total = append(all, r), total+int64(r.To-r.From)
			if i%11 == 0 {
				gone := rapid.SampledFrom(all).Draw(rt, "dropped")
				m.must(DropQuarantined{gone.node, m.epoch(gone.node), []DroppedRanges{{m.p().ID, []LostRange{gone.LostRange}, int64(i)}}})
			}
			if i%13 == 0 {
				back := rapid.SampledFrom(all).Draw(rt, "recovered")
				m.must(NoteRecovered{[]RecoveredRanges{{m.p().ID, []LostRange{back.LostRange}, "saved", int64(i)}}})
				recovered = true
			}
		}
		if len(m.img.Losses) > lossesOfPartitionMax {
			rt.Errorf("%d lines", len(m.img.Losses))
		}
		counted := int64(0)
		for _, l := range m.img.Losses {
			counted += l.Count()
			recovered = recovered && l.RecoveredTo == ""
		}
		if recovered {
			rt.Error("nothing counts as recovered")
		}
		if counted != total {
			rt.Errorf("%d records are listed, of %d", counted, total)
		}
		for _, r := range all {
			covered := false
			for _, l := range m.img.Losses {
				own, ok := l.Of(r.LostRange)
				covered = covered || ok && l.Holder == r.node && own == r.LostRange
			}
			if !covered {
				rt.Errorf("%+v is in no line", r)
			}
		}
		lines := len(m.img.Losses)
		m.must(DeleteTopics{Topics: []ids.UUID{testID(50)}})
		if len(m.img.Losses) > 0 {
			rt.Errorf("%d of %d lines outlive their topic", len(m.img.Losses), lines)
		}
	})
}

// A range whose line was merged counts as recovered all the same, and once.
func TestRecoveredRangesOfMergedLinesAreMarked(t *testing.T) {
	m := newReplicated(t, "1")
	ranges := lossesOfPartitionMax + 40
	for i := range ranges {
		m.lose(2, int64(i), LostRange{1, ids.Offset(i * 10), ids.Offset(i*10 + 3)})
	}
	count := func() (all, recovered int64) {
		for _, l := range m.img.Losses {
			if all += l.Count(); l.RecoveredTo == "saved" {
				recovered += l.Count()
			}
		}
		return all, recovered
	}
	note := func(r LostRange) NoteRecovered {
		return NoteRecovered{[]RecoveredRanges{{m.p().ID, []LostRange{r}, "saved", 9}}}
	}
	for i, tc := range []struct {
		r    LostRange
		want int64
	}{
		{LostRange{1, 0, 3}, 3}, // the first line was merged
		{LostRange{1, 0, 3}, 3}, // noted before
		{LostRange{1, 20, 23}, 6},
		{LostRange{1, ids.Offset(ranges*10 - 10), ids.Offset(ranges*10 - 7)}, 9}, // has a line of its own
		{LostRange{2, 0, 3}, 9},
	} {
		m.must(note(tc.r))
		if all, got := count(); got != tc.want || all != int64(ranges*3) {
			t.Errorf("step %d, %+v: %d of %d recovered, want %d of %d: %+v", i, tc.r, got, all, tc.want, ranges*3, m.img.Losses)
		}
	}
}
