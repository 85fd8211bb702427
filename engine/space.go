package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"cairn/internal/clock"
)

// A disk that is full stops a store for good: it can neither take a deletion nor make room by compacting. So it must never come
// to that. There are levels, each with less room than the one before, and what is written goes on down to the level that its
// use justifies: records of clients stop first, then records of brokers themselves and what leaders send, then the metadata. Votes and
// new log starts, which give room back, go on to the end. For what fills the disk beside us there is the ballast, a file without
// content that is given up when it counts.

// SpaceLevel says what the disk has room for.
type SpaceLevel int32

// The levels, from much room to none.
const (
	SpaceAmple SpaceLevel = iota // for everything
	SpaceLow                     // below Config.MinFreeBytes: no records of clients
	SpaceShort                   // below half of that: no record batches at all, neither from here nor from leaders
	SpaceOut                     // below a 32nd of it, or a write has found no room: no metadata, either
)

func (l SpaceLevel) String() string {
	switch l {
	case SpaceAmple:
		return "ample"
	case SpaceLow:
		return "low"
	case SpaceShort:
		return "short"
	case SpaceOut:
		return "out"
	}
	return fmt.Sprintf("level %d", int32(l))
}

// Space is how much room there is on the disk of the data directory, in bytes.
type Space struct {
	Level       SpaceLevel
	Free, Total int64 // 0: the file system does not tell
	MinFree     int64 // what Level is measured by
	Ballast     int64 // of the ballast, which is not part of Free; 0: given up, or there is none
}

// Defaults of Config, for disks that are large enough.
const (
	DefaultMinFreeBytes = 1 << 30
	DefaultBallastBytes = 64 << 20
	// On smaller ones the defaults are these parts of the disk.
	minFreeShare, ballastShare = 20, 200
)

const (
	ballastFile = "ballast"
	// roomWait is the time between looks for room, and roomWaitMost how often a flush or a compaction looks before it gives up what
	// it has written, which is room as well. What cannot be given up waits until there is room.
	roomWait     = 50 * time.Millisecond
	roomWaitMost = 40
	// fullHold is how long after a write found no room the disk counts as full.
	fullHold = 2 * time.Second
	// spaceStep is how much may be saved at least between two looks.
	spaceStep = 64 << 10
)

// space watches the room on the disk of one store. Its level is read by anybody at any time.
type space struct {
	fs             vfs.FS // as the disk is, without waits
	dir            string
	log            *zap.Logger
	minFree        int64 // negative: the default
	ballastWanted  int64 // negative: the default
	stopped        chan struct{}
	stopOnce       sync.Once
	opened         atomic.Bool
	level          atomic.Int32
	fullAt         atomic.Pointer[time.Time] // when a write last found no room
	waitTold       atomic.Bool               // that a write waits, since the disk is full
	left           atomic.Int64              // bytes that may be saved before the level is to be looked at again
	measuring      sync.Mutex
	last           Space // guarded by measuring
	ballastBytes   atomic.Int64
	spansMu        sync.Mutex
	spans          []pebble.KeyRange           // guarded by spansMu; that were deleted, and not compacted since
	ballastRefused bool                        // guarded by measuring; told once
	room           func() (free, total uint64) // see Faults
}

func newSpace(cfg Config) *space {
	return &space{
		fs: cfg.FS, dir: cfg.Dir, log: cfg.Logger, minFree: cfg.MinFreeBytes, ballastWanted: cfg.BallastBytes, stopped: make(chan struct{}),
		room: cfg.Faults.Room,
	}
}

// Space is the room as it was last looked at.
func (e *Engine) Space() Space {
	s := e.space
	s.measuring.Lock()
	defer s.measuring.Unlock()
	r := s.last
	r.Level, r.Ballast = SpaceLevel(s.level.Load()), s.ballastBytes.Load()
	return r
}

// SpaceLevel is what the disk has room for.
func (e *Engine) SpaceLevel() SpaceLevel { return SpaceLevel(e.space.level.Load()) }

// CheckSpace looks how much room there is, gives up the ballast where there is nearly none and makes it anew where there is much. It is
// for whoever keeps the time, several times a second; saves look by themselves when they have used up much.
func (e *Engine) CheckSpace() Space {
	s := e.space
	s.measuring.Lock()
	s.measureLocked()
	s.keepBallastLocked()
	s.measuring.Unlock()
	return e.Space()
}

// StopWaiting has nothing wait for room any more: what finds none fails, which stops the process. It is for a node that stops.
func (e *Engine) StopWaiting() { e.space.stop() }

func (s *space) stop() { s.stopOnce.Do(func() { close(s.stopped) }) }

// used notes that a save has written so much.
func (s *space) used(bytes int) {
	if s.left.Add(-int64(bytes)) >= 0 || !s.measuring.TryLock() {
		return
	}
	s.measureLocked()
	s.measuring.Unlock()
}

// measureLocked needs measuring.
func (s *space) measureLocked() {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if s.room != nil {
		usage.AvailBytes, usage.TotalBytes = s.room()
		err = nil
	}
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) && s.last.Free != 0 {
			s.log.Warn("room on the disk cannot be read", zap.String("dir", s.dir), zap.Error(err))
		}
		s.left.Store(1 << 40)
		return
	}
	before := SpaceLevel(s.level.Load())
	r := Space{Free: int64(usage.AvailBytes), Total: int64(usage.TotalBytes)}
	r.MinFree = orShare(s.minFree, DefaultMinFreeBytes, r.Total, minFreeShare)
	r.Level = levelOf(before, r.Free, r.MinFree)
	if at := s.fullAt.Load(); at != nil && time.Since(*at) < fullHold {
		r.Level = SpaceOut // whatever the file system says, as with a quota
	}
	s.last = r
	s.left.Store(max(r.MinFree/16, spaceStep))
	s.level.Store(int32(r.Level))
	if r.Level < SpaceOut {
		s.waitTold.Store(false)
	}
	if r.Level != before {
		s.tell(before, r)
	}
}

func orShare(wanted, most, total, share int64) int64 {
	if wanted >= 0 {
		return wanted
	}
	return min(most, total/share)
}

// levelOf is the level for so much room. Coming back takes a little more than it took to leave, so that a level is not left and entered all
// the time.
func levelOf(before SpaceLevel, free, minFree int64) SpaceLevel {
	for _, step := range []struct {
		level SpaceLevel
		part  int64
	}{{SpaceOut, 32}, {SpaceShort, 2}, {SpaceLow, 1}} {
		limit := minFree / step.part
		if before >= step.level {
			limit += limit / 16
		}
		if free < limit {
			return step.level
		}
	}
	return SpaceAmple
}

// tell logs a change of the level.
func (s *space) tell(before SpaceLevel, r Space) {
	fields := []zap.Field{
		zap.String("dir", s.dir), zap.Int64("freeBytes", r.Free), zap.Int64("log.min.free.bytes", r.MinFree), zap.Int64("ballastBytes", s.ballastBytes.Load()),
	}
	switch {
	case r.Level == SpaceAmple:
		s.log.Info("there is room on the disk again: everything goes on", fields...)
	case r.Level < before:
		s.log.Info("there is more room on the disk, but not enough: level "+r.Level.String(), fields...)
	case r.Level == SpaceLow:
		s.log.Warn("the disk is nearly full: records are refused until there is room again; delete topics or records, or what else is on that disk", fields...)
	case r.Level == SpaceShort:
		s.log.Warn("the disk is nearly full: replicas here take no records until there is room again", fields...)
	default:
		s.log.Error("the disk is full: replicas here stand still until there is room again", fields...)
	}
}

// awaitRoom is asked what to do after a write to the file has found no room, for the so-manieth time: true, once there may be some,
// to try again.
func (s *space) awaitRoom(file string, tries int) bool {
	if s.dropBallast() {
		return true
	}
	now := clock.Now()
	s.fullAt.Store(&now)
	s.level.Store(int32(SpaceOut))
	if !s.waitTold.Swap(true) {
		s.log.Error("the disk is full: a write waits until there is room again; delete what else is on that disk", zap.String("file", file))
	}
	temporary := strings.HasSuffix(file, ".sst") || strings.HasSuffix(file, ".blob")
	if !s.opened.Load() || temporary && tries >= roomWaitMost {
		return false
	}
	timer := time.NewTimer(roomWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stopped:
		return false
	}
}

// dropBallast gives the ballast up, and reports whether there was one.
func (s *space) dropBallast() bool {
	had := s.ballastBytes.Swap(0)
	if had == 0 {
		return false
	}
	if err := s.fs.Remove(s.ballastPath()); err != nil {
		s.log.Error("the ballast cannot be given up", zap.String("file", s.ballastPath()), zap.Error(err))
		return false
	}
	s.log.Warn("the disk is full: the ballast is given up", zap.String("file", s.ballastPath()), zap.Int64("bytes", had))
	return true
}

func (s *space) ballastPath() string { return s.fs.PathJoin(s.dir, ballastFile) }

// findBallast looks for the ballast of an earlier run.
func (s *space) findBallast() {
	if info, err := s.fs.Stat(s.ballastPath()); err == nil {
		s.ballastBytes.Store(max(1, info.Size()))
	}
}

// keepBallastLocked needs measuring. The ballast comes only from room that is left over.
func (s *space) keepBallastLocked() {
	r := s.last
	if r.Total == 0 {
		return
	}
	if r.Level == SpaceOut {
		s.dropBallast()
		return
	}
	wanted := orShare(s.ballastWanted, DefaultBallastBytes, r.Total, ballastShare)
	if wanted == 0 || s.ballastBytes.Load() != 0 || r.Level != SpaceAmple || r.Free < r.MinFree+2*wanted {
		return
	}
	err := writeBallast(s.fs, s.ballastPath(), wanted)
	if err == nil {
		s.ballastBytes.Store(wanted)
		s.ballastRefused = false
		return
	}
	if removed := s.fs.Remove(s.ballastPath()); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if !s.ballastRefused {
		s.log.Warn("no ballast can be made", zap.String("file", s.ballastPath()), zap.Error(err))
	}
	s.ballastRefused = true
}

// ballastChunk is what is written at once where room cannot be reserved.
const ballastChunk = 1 << 20

// writeBallast makes a file that takes so much room: reserved where the file system can do that, else written.
func writeBallast(disk vfs.FS, path string, size int64) (err error) {
	f, err := disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Preallocate(0, size); err == nil {
		_, err := f.WriteAt([]byte{0}, size-1)
		return err
	} else if isFull(err) {
		return err
	}
	chunk := make([]byte, ballastChunk)
	for i := range chunk {
		chunk[i] = byte(i * 131) // nothing that a file system leaves out as empty
	}
	for at := int64(0); at < size; at += ballastChunk {
		if _, err := f.Write(chunk[:min(ballastChunk, size-at)]); err != nil {
			return err
		}
	}
	return f.Sync()
}
