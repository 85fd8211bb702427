package checker

// reading is one reader's way through one partition.
type reading struct {
	client    string
	partition int32
	next      int64 // the offset after the last one it got
	begun     bool
	got       map[place]bool
	skipped   map[place]bool
	committed bool // it sees committed transactions only
}

type readingKey struct {
	client    string
	partition int32
}

// checkPolls: a reader gets each readable record once, in order, unless it is told that records are gone; and what it got stays, or is
// reported lost.
func (s *state) checkPolls() {
	readings := map[readingKey]*reading{}
	of := func(e Event) *reading {
		k := readingKey{e.Client, e.Partition}
		if readings[k] == nil {
			readings[k] = &reading{client: e.Client, partition: e.Partition, got: map[place]bool{}, skipped: map[place]bool{}, committed: e.Committed}
		}
		return readings[k]
	}
	for _, e := range s.history {
		switch e.Kind {
		case Polled:
			for _, entry := range e.Entries {
				s.poll(of(e), entry)
			}
		case Rewound:
			r := of(e)
			r.next = min(r.next, e.Offset)
		case CaughtUp:
			s.checkSeen(of(e), e.Offset)
		}
	}
}

// poll takes one record that a reader got.
func (s *state) poll(r *reading, e Entry) {
	at := place{r.partition, e.Epoch, e.Offset}
	switch {
	case r.begun && e.Offset < r.next:
		s.find(NonmonotonicPoll, r.partition, "%s got %+v where offset %d was next", r.client, e, r.next)
	case e.Offset > r.next:
		for offset := r.next; offset < e.Offset; offset++ {
			there, ok := s.byOffset[r.partition][offset]
			if ok && s.shows(r, there) && !r.got[place{r.partition, there.Epoch, offset}] {
				s.find(PollSkip, r.partition, "%s went from offset %d to %d, and %+v is there", r.client, r.next, e.Offset, there)
				r.skipped[place{r.partition, there.Epoch, offset}] = true
				break
			}
		}
	}
	r.begun, r.next = true, e.Offset+1
	r.got[at] = true
	s.checkGot(r.client, at, e)
}

// checkGot: what somebody got is there in the end, or reported lost where an unclean election was held.
func (s *state) checkGot(client string, at place, e Entry) {
	if v, ok := s.readable[at]; !ok && (!s.unclean[at.partition] || !s.lost(at)) {
		s.find(LostWrite, at.partition, "%s got %+v, which is not readable in the end (reported lost: %t)", client, e, s.lost(at))
	} else if ok && v != e.Value {
		s.find(InconsistentOffset, at.partition, "%s got %+v, and in the end value %d is there", client, e, v)
	}
}

// shows reports whether a readable record is one for this reader. Where a marker may be lost nobody knows.
func (s *state) shows(r *reading, e Entry) bool {
	return !r.committed || !s.unclean[r.partition] && s.visible[place{r.partition, e.Epoch, e.Offset}]
}

// checkSeen: a reader that has reached the end got everything below it.
func (s *state) checkSeen(r *reading, end int64) {
	for _, e := range s.final.Log[r.partition] {
		at := place{r.partition, e.Epoch, e.Offset}
		if e.Offset < end && s.shows(r, e) && !r.got[at] && !r.skipped[at] {
			s.find(Unseen, r.partition, "%s has reached offset %d and never got %+v", r.client, end, e)
			return
		}
	}
}

// checkSends: the records of a writer lie in the order of their sending.
func (s *state) checkSends() {
	type last struct {
		value  uint64
		offset int64
	}
	ordered, acked := map[readingKey]last{}, map[readingKey]last{}
	for _, e := range s.history {
		r := s.records[e.Value]
		if r == nil || len(r.log) != 1 {
			continue
		}
		k, own := readingKey{r.Client, r.Partition}, last{e.Value, r.log[0].Offset}
		switch e.Kind {
		case Sent:
			before := acked[k]
			if r.Ordered {
				before = ordered[k]
				ordered[k] = own
			}
			if before.value != 0 && before.offset > own.offset {
				s.find(NonmonotonicSend, r.Partition, "%s sent value %d before %d, and they are at offsets %d and %d", r.Client, before.value, own.value, before.offset, own.offset)
			}
		case Acked:
			if own.offset > acked[k].offset || acked[k].value == 0 {
				acked[k] = own
			}
		}
	}
}
