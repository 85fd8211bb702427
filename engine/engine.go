package engine

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"cairn/internal/boot"
	"cairn/internal/ids"
)

const storeDir = "store"

// Engine is the store of one broker.
type Engine struct {
	cfg      Config
	log      *zap.Logger
	db       *pebble.DB
	fsCloser io.Closer
	softSync *softSyncFS // nil with FlushAlways
	readOnly bool
	closed   atomic.Bool
	idle     sync.Mutex // CheckpointIdle is at work, or what must not happen meanwhile: Release, Close

	commitBytesMax int // a save is split into commits of about this size
	batchOptions   []pebble.BatchOption
	savers         sync.Pool // *saver
	tails          tails
	stats          *stats
	space          *space
	durable        *durableEnd // nil in a read-only store

	mu       sync.RWMutex // guards what follows; held for map access only
	logs     map[ids.PartitionID]*Log
	shards   map[replicaID]*shard
	byShard  map[ids.ShardID]*shard        // the one loaded last of each
	expected map[replicaID][]snapshotStart // of snapshots on their way, see ExpectSnapshot
}

// ErrClosed is returned by calls on a closed engine.
var ErrClosed = errors.New("engine: closed")

// Open opens or creates the store in cfg.Dir.
func Open(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MemTableBytes == 0 {
		cfg.MemTableBytes = memTableBytesOn(diskBytes(cfg))
	}
	return open(cfg.withDefaults(), false)
}

// OpenReadOnly opens the store of a data directory whose broker is stopped. Only OpenLog, Partitions and the reading
// methods of Log work.
func OpenReadOnly(dir string) (*Engine, error) {
	cfg := Config{Dir: dir, BootID: boot.ID()}.withDefaults()
	cfg.TailBytes = -1
	return open(cfg, true)
}

// prepareStore makes the directory of a store that is to be written, and finds out how far its files must reach. One that is to be read only must be
// there: Pebble would leave a lock file where it finds none.
func prepareStore(cfg Config, readOnly bool, fs vfs.FS, room *space, end *durableEnd, dir string) error {
	if !readOnly {
		if err := createDir(fs, cfg.Dir, dir); err != nil {
			return err
		}
		return end.load(cfg, room.fs, dir)
	}
	note, err := readDurable(room.fs, fs.PathJoin(cfg.Dir, durableFile), cfg.Logger)
	if err != nil {
		return err
	}
	end.current = note
	store, err := pebble.Peek(dir, fs)
	if err == nil && !store.Exists {
		err = pebble.ErrDBDoesNotExist
	}
	if err != nil {
		return fmt.Errorf("open store %s: %w", dir, err)
	}
	return nil
}

func open(cfg Config, readOnly bool) (*Engine, error) {
	if !readOnly {
		cfg.FS = withFaults(cfg.FS)
	}
	dir := cfg.FS.PathJoin(cfg.Dir, storeDir)
	room, end := newSpace(cfg), &durableEnd{}
	watched, closer := withStallDetection(cfg)
	var fs vfs.FS = watched
	if !readOnly {
		room.findBallast()
		fs = &diskFS{FS: watched, space: room, durable: end}
	}
	var soft *softSyncFS
	if cfg.Flush == FlushOS || readOnly {
		soft = &softSyncFS{FS: fs, log: cfg.Logger, cut: &logCut{}}
		fs = soft
	}
	cfg.FS = markerFS{fs}
	st := new(stats)
	o := pebbleOptions(cfg, st, room)
	defer o.Cache.Unref()
	o.ReadOnly = readOnly
	o.ErrorIfNotExists = readOnly
	if err := prepareStore(cfg, readOnly, fs, room, end, dir); err != nil {
		return nil, errors.Join(err, closer.Close())
	}
	if soft != nil {
		soft.cut.mode = cutModeOf(end.current, machineRun(cfg.BootID))
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		if cfg.Flush == FlushAlways && pebble.IsCorruptionError(err) {
			err = fmt.Errorf("%w (if it was written under log.flush=os until a power cut, start it under log.flush=os once)", err)
		}
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), closer.Close())
	}
	if soft != nil {
		soft.cut.mode = cutNothing // what is read from now on, as for a checkpoint, is of this run
	}
	e := &Engine{
		cfg: cfg, log: cfg.Logger, db: db, fsCloser: closer, softSync: soft, readOnly: readOnly, stats: st,
		commitBytesMax: int(cfg.MemTableBytes / 4),
		batchOptions:   []pebble.BatchOption{pebble.WithMaxRetainedSizeBytes(batchRetainedBytes)},
		space:          room,
		logs:           make(map[ids.PartitionID]*Log),
		shards:         make(map[replicaID]*shard),
		byShard:        make(map[ids.ShardID]*shard),
		expected:       make(map[replicaID][]snapshotStart),
	}
	e.savers.New = func() any { return new(saver) }
	e.tails.budget = max(0, cfg.TailBytes)
	if !readOnly {
		if err := e.checkDurable(end, room.fs); err != nil {
			return nil, errors.Join(err, db.Close(), closer.Close())
		}
	}
	room.opened.Store(true)
	e.space.measuring.Lock()
	e.space.measureLocked()
	e.space.measuring.Unlock()
	return e, nil
}

// batchRetainedBytes is the size up to which the buffer of a commit is used again.
const batchRetainedBytes = 4 << 20

// createDir makes the store's directory and syncs its parent, so that a crash cannot lose a whole new store.
func createDir(fs vfs.FS, parent, dir string) error {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	if err := syncDirOn(fs, parent); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	return nil
}

// syncDirOn makes durable which files a directory has.
func syncDirOn(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close writes what was to be written lazily and closes the store. The NodeHost must be closed before. Records that
// readers hold stay valid.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.space.stop()
	var errs []error
	if !e.readOnly {
		e.idle.Lock()
		errs = append(errs, e.writeCheckpoints())
		e.idle.Unlock()
		errs = append(errs, e.flushLast())
	}
	errs = append(errs, e.db.Close())
	if e.softSync != nil {
		errs = append(errs, e.softSync.syncClosed())
	}
	if e.durable != nil {
		errs = append(errs, e.durable.close())
	}
	return errors.Join(append(errs, e.fsCloser.Close())...)
}

// lastFlushMax is how long Close waits for the last flush.
const lastFlushMax = 5 * time.Second

// flushLast moves what the write-ahead log alone has on disk into tables. Otherwise the next start reads that log and does the same before it
// serves anybody. Where it cannot be done, for lack of room or of time, the log is still there.
func (e *Engine) flushLast() error {
	if e.SpaceLevel() != SpaceAmple {
		return nil
	}
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("flush %s: %w", e.cfg.Dir, err)
	}
	limit := time.NewTimer(lastFlushMax)
	defer limit.Stop()
	select {
	case <-flushed:
		e.durable.noteFlushed()
	case <-limit.C:
		e.log.Warn("the last flush takes too long; the next start reads the write-ahead log instead", zap.Duration("waited", lastFlushMax))
	}
	return nil
}

func (e *Engine) writeCheckpoints() error {
	e.mu.RLock()
	logs := make([]*Log, 0, len(e.logs))
	for _, l := range e.logs {
		logs = append(logs, l)
	}
	e.mu.RUnlock()
	b := e.newBatch(0)
	defer b.Close()
	for _, l := range logs {
		l.checkpointTo(b)
	}
	if b.Empty() {
		return nil
	}
	return e.commit(b, flushDurable)
}

func (e *Engine) newBatch(size int) *pebble.Batch {
	return e.db.NewBatchWithSize(size, e.batchOptions...)
}

// flushLevel is what a commit waits for.
type flushLevel int

const (
	flushLazy    flushLevel = iota // nothing: it is in the log behind what was committed before
	flushSaved                     // what Config.Flush says
	flushDurable                   // an fsync
)

// commit is the only way rows get into the store. An error means that the write-ahead log is in an unknown state, so
// it stops the process; only "closed" is returned.
func (e *Engine) commit(b *pebble.Batch, level flushLevel) error {
	o := pebble.Sync
	if level == flushLazy {
		o = pebble.NoSync
	}
	if level == flushDurable && e.softSync != nil {
		e.softSync.hard.Add(1)
		defer e.softSync.hard.Add(-1)
	}
	log := e.newestLog()
	err := e.write(b, o)
	if errors.Is(err, pebble.ErrClosed) {
		return ErrClosed
	}
	if err == nil && e.durable != nil && !b.Empty() && (level == flushDurable || level == flushSaved && e.softSync == nil) {
		e.durable.note(b, log)
	}
	if err != nil {
		panic(fmt.Sprintf("engine: commit failed, the disk cannot be trusted: %v", err))
	}
	return nil
}

// newestLog is the number of the newest file of the write-ahead log.
func (e *Engine) newestLog() uint64 {
	if e.durable == nil {
		return 0
	}
	return e.durable.log.Load()
}

// write commits b. Pebble does not wait for anything when a batch is empty, as the last piece of a split save may be.
func (e *Engine) write(b *pebble.Batch, o *pebble.WriteOptions) error {
	if b.Empty() && o.Sync {
		return e.db.LogData(nil, o)
	}
	return b.Commit(o)
}

// get reads one row and hands it to decode, borrowed until it returns. found is false when there is no such row.
func (e *Engine) get(key []byte, decode func(value []byte) error) (found bool, err error) {
	v, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read row %x: %w", key, err)
	}
	err = decode(v)
	return true, errors.Join(err, closer.Close())
}

func (e *Engine) newIter(lo, hi []byte) (*pebble.Iterator, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return nil, fmt.Errorf("iterate store: %w", err)
	}
	return it, nil
}

// DurableIndex is the last saved index of a shard's replica here, the metadata shard included; 0 when none is loaded.
func (e *Engine) DurableIndex(s ids.ShardID) ids.RaftIndex {
	e.mu.RLock()
	sh := e.byShard[s]
	e.mu.RUnlock()
	if sh == nil {
		return 0
	}
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.last
}

// addShardLocked needs mu.
func (e *Engine) addShardLocked(sh *shard) { e.shards[sh.id], e.byShard[sh.id.Shard] = sh, sh }

// removeShardLocked needs mu.
func (e *Engine) removeShardLocked(id replicaID) {
	sh := e.shards[id]
	delete(e.shards, id)
	if e.byShard[id.Shard] == sh {
		delete(e.byShard, id.Shard)
	}
}

func (e *Engine) shard(id replicaID) *shard {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.shards[id]
}
