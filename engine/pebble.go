package engine

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// formatVersion is the Pebble format of every store. Raising it is a migration: older binaries cannot go back.
const formatVersion = pebble.FormatValueSeparation

const (
	memTablesMax = 4 // then writes wait for a flush

	// separatedValueBytes is the size from which values live in blob files, which compactions do not rewrite. Record
	// batches are nearly always above, all other rows below. Without it every byte is written four times, not twice.
	separatedValueBytes = 1 << 10

	// When this share of all values in blob files is garbage, blob files are rewritten, the worst first; only once
	// they are old enough that their busy partitions had time to expire as a whole. A blob file holds what was written
	// to all partitions at its time, and one slow partition keeps it.
	blobGarbageRatio  = 0.3
	blobRewriteMinAge = 5 * time.Minute
	blobRewriteUrgent = 5 * time.Second // while the disk is nearly full
	diskStallAfter    = 500 * time.Millisecond
	// Space comes back only once the deletion has left the memtable, which takes for ever when little is written.
	deletionFlushAfter = 30 * time.Second
	dataBlockBytes     = 32 << 10
	tableFileBytes     = 16 << 20
	l0StopWritesFiles  = 1000
	walBytesPerSync    = 1 << 20
	maxOpenFiles       = 4096
)

// pebbleOptions are the options of a store. The cache is created here; the caller unrefs it after Open.
func pebbleOptions(cfg Config, st *stats, room *space) *pebble.Options {
	o := &pebble.Options{
		FS:                          cfg.FS,
		FormatMajorVersion:          formatVersion,
		MemTableSize:                uint64(cfg.MemTableBytes),
		MemTableStopWritesThreshold: memTablesMax,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       l0StopWritesFiles,
		BytesPerSync:                walBytesPerSync,
		MaxOpenFiles:                maxOpenFiles,
		FlushDelayDeleteRange:       cfg.deletionFlushAfter,
		Cache:                       pebble.NewCache(cfg.BlockCacheBytes),
		Logger:                      pebbleLogger{cfg.Logger},
	}
	o.CompactionConcurrencyRange = func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) }
	for i := range o.Levels {
		// Batches come compressed by their producers, or are not worth it.
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.NoCompression }
		o.Levels[i].BlockSize = dataBlockBytes
		o.TargetFileSizes[i] = tableFileBytes
	}
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		minAge := cfg.blobRewriteMinAge
		if SpaceLevel(room.level.Load()) == SpaceLow {
			minAge = min(minAge, blobRewriteUrgent)
		}
		return pebble.ValueSeparationPolicy{
			Enabled:               true,
			MinimumSize:           separatedValueBytes,
			MaxBlobReferenceDepth: 1000, // compactions never copy values together
			TargetGarbageRatio:    blobGarbageRatio,
			RewriteMinimumAge:     minAge,
		}
	}
	o.EventListener = eventListener(cfg, st)
	return o
}

// withStallDetection wraps the disk so that slow operations are reported to whoever wants to hear of them.
func withStallDetection(cfg Config) (vfs.FS, io.Closer) {
	if cfg.OnDiskStall == nil {
		return cfg.FS, noCloser{}
	}
	return vfs.WithDiskHealthChecks(cfg.FS, diskStallAfter, nil, func(info vfs.DiskSlowInfo) {
		cfg.OnDiskStall(info.OpType.String(), info.Path, info.Duration)
	})
}

type noCloser struct{}

func (noCloser) Close() error { return nil }

func eventListener(cfg Config, st *stats) *pebble.EventListener {
	log := cfg.Logger
	l := &pebble.EventListener{
		BackgroundError: func(err error) {
			var failed *DiskError
			if errors.As(err, &failed) && !isFull(failed.Err) {
				panic("engine: store failed: " + failed.Error())
			}
			// It is tried again at once and for ever, as on a full disk: report it less and less often.
			if n := st.backgroundErrors.Add(1); n&(n-1) == 0 {
				log.Error("background work of the store failed; it is tried again", zap.Int64("failures", n), zap.Error(err))
			}
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			if cfg.OnCorruption != nil {
				cfg.OnCorruption(info.Path, info.Details)
				return
			}
			log.Error("the store found corrupt data", zap.String("path", info.Path), zap.Error(info.Details))
		},
		BlobFileRewriteEnd: func(info pebble.BlobFileRewriteInfo) { st.rewrittenBytes.Add(int64(info.Output.Size)) },
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			st.writeStalls.Add(1)
			log.Warn("the disk cannot keep up: writes wait", zap.String("reason", info.Reason))
		},
		WriteStallEnd: func() { log.Warn("writes go on") },
	}
	l.EnsureDefaults(pebbleLogger{log})
	return l
}

// pebbleLogger is where Pebble reports. Fatalf is how it reports a failed write-ahead log: it must not return.
type pebbleLogger struct{ log *zap.Logger }

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error(strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	panic("engine: store failed: " + fmt.Sprintf(format, args...))
}
