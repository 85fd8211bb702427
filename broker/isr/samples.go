package isr

import (
	"time"

	"cairn/internal/ids"
)

// samplesPerLag is how many samples cover the lag time: a lagging member is noticed late by at most that part of it.
const samplesPerLag = 64

// samples remember when the leader's log end passed which offset, for a little more than the lag time. A sample stands for
// all rises within its slot, with the time of the last one: so an offset counts as passed at the earliest when it was, and
// at most a slot later.
type samples struct {
	slot time.Duration
	ring [samplesPerLag + 2]sample
	head int // the newest
	n    int
}

// sample: the log end rose to end at last, after the end of the sample before.
type sample struct {
	first, last time.Time
	end         ids.Offset
}

func newSamples(lag time.Duration, now time.Time, end ids.Offset) samples {
	s := samples{slot: lag/samplesPerLag + 1, n: 1}
	s.ring[0] = sample{now, now, end}
	return s
}

// note records that the log end was at end at now. An end that did not rise is nothing new.
func (s *samples) note(now time.Time, end ids.Offset) {
	newest := &s.ring[s.head]
	switch {
	case end <= newest.end:
	case s.n > 1 && now.Sub(newest.first) < s.slot:
		newest.last, newest.end = now, end
	default: // the first sample stays as it is: it is the reign's beginning
		s.head = (s.head + 1) % len(s.ring)
		s.ring[s.head] = sample{now, now, end}
		s.n = min(s.n+1, len(s.ring))
	}
}

// caughtUp is the latest time at which the log end was at or below position: when it rose above. Now for a position at
// or beyond the end. For one that was passed before the oldest sample it is that sample's time, which is older than the
// lag time, or the beginning of the reign.
func (s *samples) caughtUp(position ids.Offset, now time.Time) time.Time {
	at := now
	for i := range s.n { // from the newest back
		sm := &s.ring[(s.head-i+len(s.ring))%len(s.ring)]
		if sm.end <= position {
			break
		}
		at = sm.last
	}
	return at
}
