//go:build cairn_planted

package broker

import (
	"bytes"
	"context"
	"os"
	"slices"

	"cairn/broker/isr"
	"cairn/engine"
	"cairn/engine/producer"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// Faults that are built in by the tag cairn_planted alone, so that the tests of integration/chaos can show that its checker finds them.
// plantedEnv names the one that is switched on.
const (
	plantedEnv = "CAIRN_PLANTED"

	plantDrop      = "drop"      // some records are left out of what is read
	plantDuplicate = "duplicate" // some batches are appended twice
	plantISR       = "isr"       // a leader takes members out of the ISR without asking the controller
	plantMarker    = "marker"    // markers of transactions for partition 0 are not written
)

func planted(fault string) bool { return os.Getenv(plantedEnv) == fault }

const (
	// plantedEvery is which part of the batches is appended twice, by their timestamps, and of the offsets below plantedBelow left out: a reader
	// that waits for the last record of a log is to get it.
	plantedEvery, plantedBelow = 20, 200
)

// plantedRecords leaves out the batches that begin at some offsets, on whichever broker.
func plantedRecords(r engine.Records) engine.Records {
	if !planted(plantDrop) {
		return r
	}
	raw := bytes.Join(r.Parts, nil) // a part may end within a batch, or within its header
	r.Parts, r.Bytes = nil, 0
	for len(raw) > 0 {
		h, err := batch.ParseHeader(raw)
		if err != nil {
			panic("BUG: no header where a batch begins: " + err.Error())
		}
		if h.BaseOffset%plantedEvery != plantedEvery-1 || h.BaseOffset >= plantedBelow {
			r.Parts, r.Bytes = append(r.Parts, raw[:h.Size()]), r.Bytes+h.Size()
		}
		raw = raw[h.Size():]
	}
	return r
}

// silent hears of appends that nobody waits for.
type silent struct{}

func (silent) appended(int, ids.Offset, ids.Offset, int64) {}

func (silent) dropped(int) {}

// plantedSubmit appends some batches without a producer id twice.
func plantedSubmit(ctx context.Context, s *sequencer, r *reign, sub submission) (producer.CachedBatch, bool, error) {
	again := sub
	again.data, again.waiter = slices.Clone(sub.data), silent{}
	dup, isDup, err := s.submit(ctx, r, sub)
	if err == nil && planted(plantDuplicate) && sub.batch.ProducerID < 0 && sub.batch.Timestamp%plantedEvery == 0 {
		_, _, err = s.submit(ctx, r, again)
	}
	return dup, isDup, err
}

// plantedISR has the leader believe that the controller has agreed to members leaving.
func (p *partition) plantedISR(l *isr.Leader, proposal isr.Proposal) bool {
	if !planted(plantISR) {
		return false
	}
	rep := &p.replication
	rep.mu.Lock()
	t, seen := p.look()
	if rep.leader != l || seen.state == nil || len(proposal.ISR) >= len(seen.state.InSync) {
		rep.mu.Unlock()
		return false
	}
	v := seen.img.View(t, seen.state)
	v.Index++
	for i := range v.Members {
		v.Members[i].InSync = slices.Contains(proposal.ISR, v.Members[i].Node)
	}
	l.Answered()
	l.NoteView(v)
	rep.mu.Unlock()
	p.advance()
	return true
}

// plantedMarker reports whether the marker is lost though its coordinator hears that it is written.
func plantedMarker(to markerTarget, done func(error)) bool {
	if !planted(plantMarker) || to.partition != 0 {
		return false
	}
	done(nil)
	return true
}
