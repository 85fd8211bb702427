package checker

import "slices"

// checkLog: what is readable was sent, once, and not refused.
func (s *state) checkLog() {
	for p, log := range s.final.Log {
		for _, e := range log {
			s.checkOrigin(p, e, "readable")
		}
	}
	for _, v := range s.values {
		if r := s.records[v]; len(r.log) > 1 {
			s.find(Duplicate, r.Partition, "value %d of %s is readable %d times: %+v", v, r.Client, len(r.log), r.log)
		}
	}
}

func (s *state) checkOrigin(partition int32, e Entry, where string) {
	switch r := s.records[e.Value]; {
	case e.Value >= AbortMarker && where != "readable": // sent by no client
	case r == nil:
		s.find(Unsent, partition, "value %d is %s at %+v, and nobody sent it", e.Value, where, e)
	case r.Partition != partition:
		s.find(Unsent, partition, "value %d is %s at %+v, and was sent to partition %d", e.Value, where, e, r.Partition)
	case r.refused != "":
		s.find(RefusedWrite, partition, "value %d is %s at %+v, and the answer was %s", e.Value, where, e, r.refused)
	}
}

// checkAcks: each acknowledged record is where it was acknowledged, or lost where that may be, and reported.
func (s *state) checkAcks() {
	for _, v := range s.values {
		r := s.records[v]
		if !r.acked || r.offset < 0 {
			continue
		}
		at := func(e Entry) bool { return e.Offset == r.offset }
		inLog, inKept := slices.ContainsFunc(r.log, at), slices.ContainsFunc(r.kept, func(e Entry) bool {
			return at(e) && s.lost(place{r.Partition, e.Epoch, e.Offset})
		})
		switch {
		case inLog:
		case !inKept && len(r.log) > 0:
			s.find(InconsistentOffset, r.Partition, "value %d of %s was acknowledged at offset %d and is readable at %+v", v, r.Client, r.offset, r.log)
		case !inKept:
			s.find(LostWrite, r.Partition, "value %d of %s, acknowledged with acks=%d at offset %d, is neither readable nor reported lost (kept: %+v)",
				v, r.Client, r.Acks, r.offset, r.kept)
		case r.Acks == -1 && !s.unclean[r.Partition]:
			s.find(LostWrite, r.Partition, "value %d of %s, acknowledged with acks=all at offset %d, is lost without an unclean election", v, r.Client, r.offset)
		default:
			s.report.LostRecords++
		}
	}
}

// checkKept: what is in quarantine was sent, and is readable or reported lost.
func (s *state) checkKept() {
	for _, k := range s.final.Kept {
		s.checkOrigin(k.Partition, k.Entry, "kept in quarantine")
		at := place{k.Partition, k.Epoch, k.Offset}
		if _, ok := s.readable[at]; !ok && !s.lost(at) {
			s.find(UnreportedLoss, k.Partition, "broker %d keeps value %d at %+v", k.Holder, k.Value, k.Entry)
		}
	}
}

// checkLosses: what is reported lost is not readable, and kept by whom the report names.
func (s *state) checkLosses() {
	type holding struct {
		holder int32
		place
	}
	kept := map[holding]bool{}
	for _, k := range s.final.Kept {
		kept[holding{k.Holder, place{k.Partition, k.Epoch, k.Offset}}] = true
	}
	for _, l := range s.final.Lost {
		if l.Estimated {
			s.find(UnsettledLoss, l.Partition, "%+v", l)
			continue
		}
		for offset := l.From; offset < l.To; offset++ {
			at := place{l.Partition, l.Epoch, offset}
			if v, ok := s.readable[at]; ok {
				s.find(ReadableAndLost, l.Partition, "value %d at offset %d of epoch %d; the report: %+v", v, offset, l.Epoch, l)
			}
			if !l.Dropped && !kept[holding{l.Holder, at}] {
				s.find(EmptyLoss, l.Partition, "offset %d of epoch %d is not kept by broker %d; the report: %+v", offset, l.Epoch, l.Holder, l)
				break
			}
		}
	}
}

// checkPlaces: at one place there is one value, whoever saw it; and in a partition without an unclean election, at one offset.
func (s *state) checkPlaces() {
	seen, exposed := map[place]uint64{}, map[place]uint64{}
	note := func(m map[place]uint64, at place, v uint64, who string) {
		if old, ok := m[at]; ok && old != v {
			s.find(InconsistentOffset, at.partition, "value %d and, seen by %s, value %d at offset %d of epoch %d (-1: any)", old, who, v, at.offset, at.epoch)
			return
		}
		m[at] = v
	}
	both := func(p int32, e Entry, who string) {
		note(seen, place{p, e.Epoch, e.Offset}, e.Value, who)
		if !s.unclean[p] {
			note(exposed, place{p, -1, e.Offset}, e.Value, who)
		}
	}
	for p, log := range s.final.Log {
		for _, e := range log {
			both(p, e, "the last reader")
		}
	}
	for p, log := range s.final.Committed {
		for _, e := range log {
			both(p, e, "the last read-committed reader")
		}
	}
	for _, h := range s.history {
		if h.Kind == Polled || h.Kind == GroupPolled {
			for _, e := range h.Entries {
				both(h.Partition, e, h.Client)
			}
		}
	}
	for _, k := range s.final.Kept {
		note(seen, place{k.Partition, k.Epoch, k.Offset}, k.Value, "the quarantine")
	}
}

// checkReplicas: each replica has what readers get.
func (s *state) checkReplicas() {
	for broker, partitions := range s.final.Replicas {
		for p, log := range partitions {
			stored := map[int64]Entry{}
			for _, e := range log {
				stored[e.Offset] = e
			}
			for _, e := range s.final.Log[p] {
				if got, ok := stored[e.Offset]; !ok || got != e {
					s.find(ReplicasDiffer, p, "broker %d has %+v (found: %t) where readers get %+v", broker, got, ok, e)
					break
				}
			}
		}
	}
}
