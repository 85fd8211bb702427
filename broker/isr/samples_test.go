package isr

import (
	"slices"
	"testing"
	"time"

	"cairn/internal/ids"

	"pgregory.net/rapid"
)

// shrinks reports whether the leader wants node 3 out.
func shrinks(l *Leader, now time.Time) bool { return slices.Contains(l.Lagging(now), 3) }

func TestIdlePartitionNeverShrinks(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2, 3), 10, 10)
	l.NoteProgress(102, 10)
	l.NoteProgress(103, 10)
	if p, ok := l.Propose(at(1000 * lag)); ok {
		t.Errorf("proposal %+v of an idle partition", p)
	}
	// The first record after a long time: the followers were caught up until now.
	l.NoteSaved(11, at(1000*lag))
	if p, ok := l.Propose(at(1000*lag + lag)); ok {
		t.Errorf("proposal %+v within the lag time after the first record", p)
	}
}

func TestSteadyFollowerUnderLoadStays(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2, 3), 0, 0)
	const behind = 20 // records, each a millisecond: never at the log end
	for i := ids.Offset(1); i < 200_000; i++ {
		now := at(time.Duration(i) * time.Millisecond)
		l.NoteSaved(i, now)
		l.NoteProgress(102, i-behind)
		l.NoteProgress(103, i-behind)
		if i%500 == 0 {
			if p, ok := l.Propose(now); ok {
				t.Fatalf("proposal %+v at %d ms", p, i)
			}
		}
	}
}

func TestFrozenMemberLeavesAfterTheLagTimeAndNotBefore(t *testing.T) {
	for name, rate := range map[string]time.Duration{"busy": time.Millisecond, "slow": 7 * time.Second, "once": 100 * lag} {
		l := newLeader(view(1, 0, 1, 1, 2, 3), 10, 10)
		l.NoteProgress(103, 10)
		frozen := at(time.Minute) // the first record that node 3 does not get
		end := ids.Offset(11)
		next := frozen
		for now := frozen; now.Before(frozen.Add(2 * lag)); now = now.Add(time.Millisecond) {
			if !now.Before(next) {
				l.NoteSaved(end, now)
				l.NoteProgress(102, end)
				end++
				next = now.Add(rate)
			}
			if out := now.Sub(frozen); shrinks(l, now) {
				if out <= lag || out > lag+lag/32 {
					t.Errorf("%s: leaves after %v", name, out)
				}
				break
			} else if out > lag+lag/16 {
				t.Errorf("%s: has not left after %v", name, out)
				break
			}
		}
	}
}

// TestLaggingMemberDoesNotFlap: below the minimum the high watermark stands still, so a frozen member holds everything up
// to it. It must not come back before it has caught up.
func TestLaggingMemberDoesNotFlap(t *testing.T) {
	l := newLeader(view(1, 0, 3, 1, 2, 3), 10, 10)
	l.NoteProgress(102, 10)
	l.NoteProgress(103, 10)
	l.NoteSaved(20, at(1))
	l.NoteProgress(102, 20)
	if p, ok := l.Propose(at(2 * lag)); !ok || slices.Contains(p.ISR, 3) {
		t.Fatalf("proposal %+v, %v", p, ok)
	}
	l.Answered()
	mustView(t, l, view(2, 1, 3, 1, 2))
	if p, ok := l.Propose(at(3 * lag)); ok {
		t.Errorf("comes back unchanged: %+v", p)
	}
	l.NoteProgress(103, 20)
	if p, ok := l.Propose(at(3 * lag)); !ok || !slices.Contains(p.ISR, 3) {
		t.Errorf("does not come back: %+v, %v", p, ok)
	}
}

func TestMemberUnheardOfHasTheLagTimeFromTheStartOfTheReign(t *testing.T) {
	l := newLeader(view(1, 0, 1, 1, 2, 3), 10, 10)
	l.NoteProgress(102, 10)
	if shrinks(l, at(lag)) {
		t.Error("leaves at once")
	}
	if !shrinks(l, at(lag+1)) {
		t.Error("stays")
	}
}

// TestCaughtUpProperty compares the samples with the whole history: never earlier than the truth, at most two slots later,
// as far back as the lag time reaches.
func TestCaughtUpProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, end := t0, ids.Offset(rapid.IntRange(0, 5).Draw(t, "start"))
		s := newSamples(lag, now, end)
		type rise struct {
			at  time.Time
			end ids.Offset
		}
		history := []rise{{now, end}}
		for range rapid.IntRange(1, 400).Draw(t, "rises") {
			step := rapid.SampledFrom([]time.Duration{1, time.Millisecond, 100 * time.Millisecond, time.Second, lag / 3}).Draw(t, "step")
			now = now.Add(step)
			end += ids.Offset(rapid.IntRange(0, 3).Draw(t, "records"))
			s.note(now, end)
			if end > history[len(history)-1].end {
				history = append(history, rise{now, end})
			}
		}
		position := ids.Offset(rapid.IntRange(-1, int(end)+1).Draw(t, "position"))
		truth := now
		for i := len(history) - 1; i >= 0 && history[i].end > position; i-- {
			truth = history[i].at
		}
		got := s.caughtUp(position, now)
		if got.Before(truth) {
			t.Fatalf("caught up at %v, it was %v", got.Sub(t0), truth.Sub(t0))
		}
		if late := now.Sub(truth) > lag+2*s.slot && now.Sub(got) <= lag; late {
			t.Fatalf("lags by %v, taken for %v", now.Sub(truth), now.Sub(got))
		}
	})
}

// TestLeaderProperty: whatever comes in whatever order, the high watermark never falls, never passes the commit, the own
// save or a member of the committed ISR, nor a proposed one, and moves only at the minimum.
func TestLeaderProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := func(name string) ids.Offset { return ids.Offset(rapid.IntRange(0, 30).Draw(t, name)) }
		subset := func() []ids.NodeID {
			return append([]ids.NodeID{1}, rapid.SampledFrom([][]ids.NodeID{nil, {2}, {3}, {2, 3}}).Draw(t, "isr")...)
		}
		m := struct {
			saved, committed ids.Offset
			end              map[ids.NodeID]ids.Offset
			inSync, proposed []ids.NodeID
			min              int
		}{saved: 5, committed: -1, end: map[ids.NodeID]ids.Offset{2: -1, 3: -1}, inSync: subset(), min: 1}
		l := newLeader(view(1, 0, 1, m.inSync...), 5, 3)
		now, index, epoch := t0, uint64(1), int32(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := l.HighWatermark()
			now = now.Add(time.Duration(rapid.IntRange(0, int(lag/2)).Draw(t, "time")))
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				o := offset("saved")
				m.saved = max(m.saved, o)
				l.NoteSaved(o, now)
			case 1:
				o := offset("committed")
				m.committed = max(m.committed, o)
				l.NoteCommitted(o)
			case 2, 3:
				n, o := ids.NodeID(rapid.IntRange(2, 3).Draw(t, "node")), offset("progress")
				m.end[n] = max(m.end[n], o)
				l.NoteProgress(ids.ReplicaID(100+n), o)
			case 4:
				index++
				if rapid.Bool().Draw(t, "epoch moves") {
					epoch++
					m.inSync, m.proposed = subset(), nil
				}
				m.min = rapid.IntRange(1, 3).Draw(t, "min")
				l.NoteView(view(index, epoch, m.min, m.inSync...))
			case 5:
				if p, ok := l.Propose(now); ok {
					m.proposed = append(m.proposed, p.ISR...)
				}
			case 6:
				l.Answered()
			}
			hw := l.HighWatermark()
			if hw < before {
				t.Fatalf("high watermark fell from %d to %d", before, hw)
			}
			if hw == before {
				continue
			}
			if hw > m.saved || hw > m.committed || len(m.inSync) < m.min {
				t.Fatalf("high watermark %d, model %+v", hw, m)
			}
			for _, n := range append(slices.Clone(m.inSync), m.proposed...) {
				if n != 1 && hw > m.end[n] {
					t.Fatalf("high watermark %d passes node %d: %+v", hw, n, m)
				}
			}
		}
	})
}
