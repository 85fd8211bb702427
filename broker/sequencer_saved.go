package broker

import (
	"fmt"

	"cairn/engine"
	"cairn/internal/ids"
)

// settled is a proposal whose fate is known, and where it went.
type settled struct {
	proposal   *proposal
	base, next ids.Offset
}

// onSaved takes the saves of the partition's group in log order. entries is borrowed until return.
func (s *sequencer) onSaved(entries []engine.SavedEntry) {
	var done []settled
	var failed []*proposal
	s.mu.Lock()
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Term != s.term || e.HeaderTerm != s.term || e.Ordinal == 0:
		case e.Kind == engine.KindVoid:
			failed = append(failed, s.voidLocked(e.Ordinal)...)
		default:
			done = s.settleLocked(done, e)
		}
	}
	s.mu.Unlock()
	for _, d := range done {
		d.report()
	}
	dropAll(failed)
}

// settleLocked finds the proposal of a saved entry that is not void.
func (s *sequencer) settleLocked(done []settled, e *engine.SavedEntry) []settled {
	s.savedOrdinal = e.Ordinal
	if len(s.inFlight) == 0 || s.inFlight[0].ordinal > e.Ordinal {
		s.forgetDoomedLocked(func(p *proposal) bool { return p.ordinal == e.Ordinal })
		return done
	}
	p := s.inFlight[0]
	if p.ordinal != e.Ordinal {
		panic(fmt.Sprintf("BUG: ordinal %d of term %d saved at index %d before ordinal %d", e.Ordinal, e.Term, e.Index, p.ordinal))
	}
	s.inFlight[0] = nil
	s.inFlight = s.inFlight[1:]
	if spec := s.speculative[p.batch.ProducerID]; spec != nil {
		s.releaseLocked(p, spec)
	}
	return append(done, settled{p, e.Base, e.Next})
}

// releaseLocked counts p out of its producer's batches in flight, with the last of which the speculation ends.
func (s *sequencer) releaseLocked(p *proposal, spec *speculation) {
	if spec.inFlight--; spec.inFlight == 0 {
		delete(s.speculative, p.batch.ProducerID)
	}
}

// voidLocked handles a proposal of this reign that Raft appended behind a gap. It returns what failed with it.
func (s *sequencer) voidLocked(ordinal uint64) (failed []*proposal) {
	if len(s.inFlight) > 0 && s.inFlight[0].ordinal <= ordinal {
		failed = s.failLocked()
	}
	s.forgetDoomedLocked(func(p *proposal) bool { return p.ordinal == ordinal })
	return failed
}

func (d settled) report() {
	p := d.proposal
	p.waiter.appended(p.slot, d.base, d.next, noDuplicate)
	for _, r := range p.repeats {
		r.waiter.appended(r.slot, d.base, d.next, p.batch.Timestamp)
	}
}
