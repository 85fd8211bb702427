//go:build !cairn_planted

package broker

import (
	"context"

	"cairn/broker/isr"
	"cairn/engine"
	"cairn/engine/producer"
)

// The product has no planted faults: these do what is done without them. planted_faults.go has the others.

func plantedRecords(r engine.Records) engine.Records { return r }

func plantedSubmit(ctx context.Context, s *sequencer, r *reign, sub submission) (producer.CachedBatch, bool, error) {
	return s.submit(ctx, r, sub)
}

func (p *partition) plantedISR(*isr.Leader, isr.Proposal) bool { return false }

func plantedMarker(markerTarget, func(error)) bool { return false }
