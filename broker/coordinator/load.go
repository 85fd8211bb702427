package coordinator

import (
	"encoding/binary"
	"fmt"
	"time"

	"cairn/internal/ids"
	"cairn/wire/batch"

	"go.uber.org/zap"
)

// load replays the log of a leader up to its end. Operations run once that is reached: before, somebody else's are missing.
func (s *shard[M]) load(now time.Time) (more bool) {
	end := max(s.reign.Start(), s.log.End())
	if more = s.replay(min(s.log.HighWatermark(), end), now); more || s.phase != loading {
		return more
	}
	if s.applied < end || s.log.HighWatermark() < end || s.unheard > 0 {
		return false // what raises the high watermark, or tells an outcome, wakes the shard
	}
	s.elect(now)
	return true
}

// elect lets operations in.
func (s *shard[M]) elect(now time.Time) {
	s.counters.Loads++
	s.counters.LoadTime = now.Sub(s.loadSince)
	s.c.cfg.Log.Info("coordinator loaded", s.fields(zap.Int64("offset", int64(s.applied)),
		zap.Uint64("recordsReplayed", s.counters.Records), zap.Duration("took", s.counters.LoadTime))...)
	s.phase, s.end = leading, s.applied
	fx := NewEffects(s.reign.Epoch())
	s.machine.Elected(now, fx)
	s.do(fx, s.reign.Check(), now)
	s.seal(now)
	if s.phase == leading {
		s.expireAt = now // it says then what it waits for
		s.refuse(nil)
	}
}

// replay applies the log below limit, one chunk a turn.
func (s *shard[M]) replay(limit ids.Offset, now time.Time) (more bool) {
	if now.Before(s.retryAt) {
		return false
	}
	s.retryAt = time.Time{}
	s.verify()
	s.applied = max(s.applied, s.log.Start())
	if s.applied >= limit {
		return false
	}
	before := s.applied
	batches, next, err := s.log.Read(s.applied, limit, loadBytes)
	if err == nil {
		err = s.replayAll(batches)
	}
	if err == nil {
		s.applied = max(s.applied, next)
	}
	s.epoch = s.log.EpochBefore(s.applied)
	if err != nil {
		s.retryAt = now.Add(readRetry)
		s.c.cfg.Log.Error("coordinator cannot read its partition; trying again", s.fields(zap.Int64("offset", int64(s.applied)), zap.Error(err))...)
		return false
	}
	return s.applied > before && s.applied < limit // compaction may have left no batches there
}

// replayAll applies batches. A read may begin inside a batch: what was applied already is passed over.
func (s *shard[M]) replayAll(batches []byte) error {
	for len(batches) > 0 {
		h, raw, rest, err := batch.Split(batches)
		if err != nil {
			return err
		}
		if err := s.replayBatch(&h, raw); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		s.applied = max(s.applied, ids.Offset(h.NextOffset()))
		batches = rest
	}
	return nil
}

func (s *shard[M]) replayBatch(h *batch.Header, raw []byte) error {
	meta := Meta{ProducerID: noProducer, ProducerEpoch: -1}
	if h.IsTransactional() {
		meta.ProducerID, meta.ProducerEpoch = h.ProducerID, h.ProducerEpoch
	}
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return err
		}
		meta.Offset = ids.Offset(h.BaseOffset + int64(rec.OffsetDelta))
		if meta.Offset < s.applied {
			continue
		}
		if h.IsControl() {
			if commit, ok := endOfTransaction(rec.Key); ok {
				s.machine.ReplayMarker(h.ProducerID, h.ProducerEpoch, commit)
			}
			continue
		}
		meta.Timestamp = rec.Timestamp(h)
		s.replayRecord(meta, Record{Key: rec.Key, Value: rec.Value})
	}
	return nil
}

// replayRecord applies a record. One that the machine does not understand is passed over, as Kafka does: it may be of a newer
// version, and the rest of the state is of use.
func (s *shard[M]) replayRecord(meta Meta, rec Record) {
	s.counters.Records++
	err := s.machine.Replay(meta, rec)
	if err == nil {
		return
	}
	s.counters.BadRecords++
	if !s.warned {
		s.warned = true
		s.c.cfg.Log.Warn("coordinator does not understand a record; it, and others like it, are left out",
			s.fields(zap.Int64("offset", int64(meta.Offset)), zap.Error(err))...)
	}
}

const (
	// A control record's key: version and type, of which 0 aborts and 1 commits.
	controlKeyBytes = 4
	controlAbort    = 0
	controlCommit   = 1
)

// endOfTransaction reads the key of a control record. Not ok: it is no end of a transaction.
func endOfTransaction(key []byte) (commit, ok bool) {
	if len(key) < controlKeyBytes {
		return false, false
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case controlAbort:
		return false, true
	case controlCommit:
		return true, true
	}
	return false, false
}
