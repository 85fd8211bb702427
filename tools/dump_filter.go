package tools

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"cairn/engine"
	"cairn/wire/batch"
)

// DumpFilter picks batches; a batch is taken as a whole.
type DumpFilter struct {
	From, To     int64 // those with offsets in [From, To); To -1: no end
	FromMs, ToMs int64 // those with a record whose timestamp, in ms since 1970, is in [FromMs, ToMs)
	ProducerID   int64 // those of this producer; -1: of any, or of none
}

// AllBatches is the filter that lets all through.
func AllBatches() DumpFilter {
	return DumpFilter{To: -1, FromMs: math.MinInt64, ToMs: math.MaxInt64, ProducerID: -1}
}

// ParseDumpTime reads a time: ms since 1970, or YYYY-MM-DDThh:mm:ss.sss.
func ParseDumpTime(option, text string) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return ms, nil
	}
	t, err := parseDatetime(option, text)
	if err != nil {
		return 0, fmt.Errorf("%w; or ms since 1970", err)
	}
	return t.UnixMilli(), nil
}

func (f DumpFilter) validate() error {
	var errs []error
	if f.To >= 0 && f.To <= f.From {
		errs = append(errs, fmt.Errorf("--from %d --to %d: no offset is in between", f.From, f.To))
	}
	if f.ToMs <= f.FromMs {
		errs = append(errs, fmt.Errorf("--from-time %s --to-time %s: nothing is in between", time.UnixMilli(f.FromMs).UTC().Format(time.RFC3339Nano), time.UnixMilli(f.ToMs).UTC().Format(time.RFC3339Nano)))
	}
	return errors.Join(errs...)
}

// byTime: timestamps matter.
func (f DumpFilter) byTime() bool { return f.FromMs != math.MinInt64 || f.ToMs != math.MaxInt64 }

// takes says whether a batch is picked, offsets aside. One that cannot be read is: its damage is to be seen.
func (f DumpFilter) takes(raw []byte) bool {
	if f.ProducerID < 0 && !f.byTime() {
		return true
	}
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return true
	}
	if f.ProducerID >= 0 && h.ProducerID != f.ProducerID {
		return false
	}
	return f.takesTime(&h, raw)
}

func (f DumpFilter) takesTime(h *batch.Header, raw []byte) bool {
	if !f.byTime() {
		return true
	}
	if h.MaxTimestamp < f.FromMs {
		return false
	}
	if h.MaxTimestamp < f.ToMs {
		return true
	}
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return true
		}
		if ts := rec.Timestamp(h); ts >= f.FromMs && ts < f.ToMs {
			return true
		}
	}
	return false
}

// takesEntry picks entries of the Raft log by what the entry says of its batch; those without a batch by their place alone.
func (f DumpFilter) takesEntry(e *engine.EntryView) bool {
	if e.Data == nil {
		return f.ProducerID < 0 && !f.byTime() && int64(e.NextOffset) >= f.From && (f.To < 0 || int64(e.NextOffset) < f.To)
	}
	return int64(e.NextOffset) > f.From && (f.To < 0 || int64(e.Data.BaseOffset) < f.To) &&
		(f.ProducerID < 0 || e.Data.ProducerID == f.ProducerID) && e.Data.MaxTimestamp >= f.FromMs && e.Data.MaxTimestamp < f.ToMs
}
