package engine

import (
	"sync/atomic"
	"time"
)

// Metrics is a snapshot of the engine's figures. Counters count from Open.
type Metrics struct {
	// Bytes written to disk, by cause, and the bytes of Raft entries that were to be saved. Their ratio is the write
	// amplification.
	WALBytes, FlushedBytes, CompactedBytes int64
	SavedBytes                             int64

	DiskBytes     int64 // used by the store
	MemTableBytes int64
	CacheBytes    int64
	TailBytes     int64 // of memory tails, Raft's commands included

	Saves       int64             // commits of Raft state
	SyncedSaves int64             // of these, with fsync
	SaveSeconds HistogramSnapshot // duration of SaveRaftState up to the commit

	Flushes, Compactions int64
	BackgroundErrors     int64 // failed flushes and compactions: they are tried again
	CompactionDebtBytes  int64
	WriteStalls          int64 // times that saves had to wait for flushes and compactions
}

// HistogramSnapshot is a histogram: Counts[i] are the observations of at most Bounds[i], not cumulated; the last
// count is of those above all bounds.
type HistogramSnapshot struct {
	Bounds []float64 // seconds
	Counts []uint64
	Sum    float64 // seconds
}

const saveBuckets = 18 // 64 µs, doubling, up to 8.4 s

type stats struct {
	savedBytes, saves, synced atomic.Int64
	reads                     atomic.Int64 // of record batches, by Log.Read
	backgroundErrors          atomic.Int64
	writeStalls               atomic.Int64
	rewrittenBytes            atomic.Int64 // by rewrites of blob files, which Pebble counts for no level
	nanos                     atomic.Int64
	counts                    [saveBuckets + 1]atomic.Uint64
}

func saveBound(i int) time.Duration { return 64 * time.Microsecond << i }

func (s *stats) saved(d time.Duration, bytes int, synced bool) {
	s.saves.Add(1)
	s.savedBytes.Add(int64(bytes))
	if synced {
		s.synced.Add(1)
	}
	s.nanos.Add(int64(d))
	i := 0
	for i < saveBuckets && d > saveBound(i) {
		i++
	}
	s.counts[i].Add(1)
}

func (s *stats) histogram() HistogramSnapshot {
	h := HistogramSnapshot{Sum: time.Duration(s.nanos.Load()).Seconds()}
	for i := range s.counts {
		if i < saveBuckets {
			h.Bounds = append(h.Bounds, saveBound(i).Seconds())
		}
		h.Counts = append(h.Counts, s.counts[i].Load())
	}
	return h
}

// Uses counts what is done with the store for others: commits of Raft state, and reads of records. As long as it stands still, nobody waits for it.
func (e *Engine) Uses() int64 { return e.stats.saves.Load() + e.stats.reads.Load() }

// Metrics collects the figures. It takes Pebble's own lock for a moment.
func (e *Engine) Metrics() Metrics {
	p := e.db.Metrics()
	m := Metrics{
		WALBytes:   int64(p.WAL.BytesWritten),
		SavedBytes: e.stats.savedBytes.Load(), Saves: e.stats.saves.Load(), SyncedSaves: e.stats.synced.Load(),
		SaveSeconds:   e.stats.histogram(),
		DiskBytes:     int64(p.DiskSpaceUsage()),
		MemTableBytes: int64(p.MemTable.Size) + int64(p.MemTable.ZombieSize),
		CacheBytes:    p.BlockCache.Size,
		TailBytes:     e.tails.total.Load(),

		CompactedBytes:   e.stats.rewrittenBytes.Load(),
		WriteStalls:      e.stats.writeStalls.Load(),
		BackgroundErrors: e.stats.backgroundErrors.Load(),
		Flushes:          p.Flush.Count, Compactions: p.Compact.Count, CompactionDebtBytes: int64(p.Compact.EstimatedDebt),
	}
	for i := range p.Levels {
		level := &p.Levels[i]
		m.FlushedBytes += int64(level.TableBytesFlushed + level.BlobBytesFlushed)
		// Pebble counts the blob files of flushes as compacted as well.
		m.CompactedBytes += int64(level.TableBytesCompacted + level.BlobBytesCompacted - level.BlobBytesFlushed)
	}
	return m
}
