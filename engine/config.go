package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"cairn/internal/ids"
)

// FlushMode says what a partition's save waits for. The metadata shard is always synced.
type FlushMode int

const (
	FlushAlways FlushMode = iota // entries, term, vote and snapshots are fsynced before a save returns
	FlushOS                      // a save returns when the bytes are in the page cache: a crash of the machine loses the newest
)

// Defaults of Config.
const (
	DefaultMemTableBytes   = 64 << 20
	DefaultBlockCacheBytes = 64 << 20
	DefaultTailBytes       = 64 << 20
	DefaultDropStepBytes   = 4 << 20 // every range deletion costs later reads
)

// Config says where the engine stores its data and what memory it may use.
type Config struct {
	Dir   string // the data directory; the database is in its sub-directory "store"
	FS    vfs.FS // nil: the disk
	Flush FlushMode

	BootID string // names the machine's present run; "": unknown. After a power cut it is another one

	MemTableBytes   int64 // size of one of at most four memtables; 0: DefaultMemTableBytes
	BlockCacheBytes int64 // 0: DefaultBlockCacheBytes
	TailBytes       int64 // bound of all memory tails together; 0: DefaultTailBytes, negative: no tails
	// Room that is kept free on the disk, see SpaceLevel, and the size of the file that is given up when there is none. 0: none;
	// negative: the default, or less on a small disk.
	MinFreeBytes, BallastBytes int64

	DropStepBytes int64 // expired data is deleted in steps of this size; 0: DefaultDropStepBytes

	Logger *zap.Logger // nil: no logs
	// OnDiskStall hears of a disk operation that has been running for d already. Must not block. May be nil.
	OnDiskStall func(op, file string, d time.Duration)
	// OnDamage hears of each damaged batch that was found, and of the replica that owns it. It is called by whoever reads, perhaps
	// often. Must not block. May be nil.
	OnDamage func(owner Binding, err *CorruptError)
	// OnCorruption hears of each damaged file that the store came across, in whatever work. Must not block. May be nil.
	OnCorruption func(file string, err error)
	Faults       Faults

	blobRewriteMinAge, deletionFlushAfter time.Duration // 0: the default; tests wait less
	producersEvery                        ids.RaftIndex // 0: the default; tests take snapshots more often
}

// Faults are hooks for tests of this and other packages. The zero value injects none.
type Faults struct {
	// SaveDelay runs before the commit of a save that has something to write for the shard, and may block.
	SaveDelay func(shard ids.ShardID)
	// Room says how much room there is on the disk, instead of the file system.
	Room func() (free, total uint64)
	// DataRead hears of every read of record batches from the database.
	DataRead func(p ids.PartitionID, base ids.Offset)
}

const memTableBytesMin = 64 << 10

// Validate reports all that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("engine: Dir is empty"))
	}
	if c.Flush != FlushAlways && c.Flush != FlushOS {
		errs = append(errs, fmt.Errorf("engine: Flush %d is neither FlushAlways nor FlushOS", c.Flush))
	}
	if c.MemTableBytes != 0 && (c.MemTableBytes < memTableBytesMin || c.MemTableBytes >= 4<<30) {
		errs = append(errs, fmt.Errorf("engine: MemTableBytes %d is not in [%d, 4 GiB)", c.MemTableBytes, memTableBytesMin))
	}
	if c.BlockCacheBytes < 0 {
		errs = append(errs, fmt.Errorf("engine: BlockCacheBytes %d is negative", c.BlockCacheBytes))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MemTableBytes == 0 {
		c.MemTableBytes = DefaultMemTableBytes
	}
	if c.BlockCacheBytes == 0 {
		c.BlockCacheBytes = DefaultBlockCacheBytes
	}
	if c.TailBytes == 0 {
		c.TailBytes = DefaultTailBytes
	}
	if c.DropStepBytes <= 0 {
		c.DropStepBytes = DefaultDropStepBytes
	}
	if c.blobRewriteMinAge == 0 {
		c.blobRewriteMinAge = blobRewriteMinAge
	}
	if c.deletionFlushAfter == 0 {
		c.deletionFlushAfter = deletionFlushAfter
	}
	if c.producersEvery == 0 {
		c.producersEvery = producersEvery
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}
