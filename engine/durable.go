package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// A write-ahead log that ends early looks like one whose last write was torn by a crash, which loses nothing that was promised, and so does
// a manifest, which names the files of the store. So what is durable is noted outside of them: behind each commit that waited for the
// disk the store's number of the next write, and behind each sync of the manifest how long it is. A store that comes back with less
// has lost what it had promised, and must not take part as if it had not.

const (
	durableFile = "durable-end"
	// The next write's number 8, number of its log file 8, the manifest's number 8, its length 8, run of the machine 8, CRC-32C of them 4.
	durableBytes = 44
	// durableBytesV1 are those of the first version, which had no run of the machine.
	durableBytesV1 = 36

	manifestPrefix = "MANIFEST-"
	// manifestPadding is the most that a manifest may be longer than its records: less than the header of one more.
	manifestPadding = 6
)

// durableNote is what is noted.
type durableNote struct {
	next          uint64 // number of the write behind the last durable one
	log           uint64 // number of the log file that has that one; 0: none is known
	manifest      uint64 // 0: none
	manifestBytes int64
	softBoot      uint64 // run of the machine in which the store was opened last, if that was with FlushOS; 0: it was not
}

// durableEnd notes how far the store is durable. The note is not synced: it may lag behind, never lead.
type durableEnd struct {
	newest string        // file of the write-ahead log, as the store was opened; "": there was none
	log    atomic.Uint64 // number of the log file that was made last

	writing sync.Mutex
	file    vfs.File    // guarded by writing; nil until the store is open
	current durableNote // guarded by writing
}

func (n durableNote) encode() []byte {
	b := make([]byte, 0, durableBytes)
	for _, v := range []uint64{n.next, n.log, n.manifest, uint64(n.manifestBytes), n.softBoot} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return sealDurable(b)
}

func sealDurable(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// readDurable returns the note; zero: there is none, or it cannot be read, which is no damage to what it is about.
func readDurable(disk vfs.FS, path string, log *zap.Logger) (n durableNote, err error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	b, err := io.ReadAll(io.LimitReader(f, durableBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	if len(b) == durableBytes || len(b) == durableBytesV1 {
		n = durableNote{next: at(0), log: at(1), manifest: at(2), manifestBytes: int64(at(3))}
	}
	if len(b) == durableBytes {
		n.softBoot = at(4)
	}
	if end := len(b) - 4; end < 0 || string(sealDurable(b[:end:end])) != string(b) {
		log.Warn("what was noted of the end of the store's log cannot be read; it is noted anew", zap.String("file", path), zap.Int("bytes", len(b)))
		return durableNote{}, nil
	}
	return n, nil
}

// load reads the note before the store is opened, and compares the files with it.
func (d *durableEnd) load(cfg Config, disk vfs.FS, store string) (err error) {
	if d.current, err = readDurable(disk, disk.PathJoin(cfg.Dir, durableFile), cfg.Logger); err != nil {
		return err
	}
	if d.newest, err = newestLog(disk, store); err != nil {
		return err
	}
	n := d.current
	if n.manifest != 0 {
		err = readNoted(disk, disk.PathJoin(store, fmt.Sprintf("%s%06d", manifestPrefix, n.manifest)), 0, func(_ uint64, end int64) error {
			if end+manifestPadding < n.manifestBytes {
				return fmt.Errorf("can be read up to byte %d of %d that were durable", end, n.manifestBytes)
			}
			return nil
		})
	}
	if n.log != 0 && err == nil {
		err = readNoted(disk, disk.PathJoin(store, fmt.Sprintf("%06d%s", n.log, walSuffix)), n.log, func(next uint64, end int64) error {
			if next < n.next {
				return fmt.Errorf("can be read up to byte %d, %d writes before what was durable", end, n.next-next)
			}
			return nil
		})
	}
	return err
}

// readNoted reads a file of records to its end and asks check about it. One that is gone was replaced by a later one.
func readNoted(disk vfs.FS, path string, number uint64, check func(next uint64, end int64) error) error {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l, err := wholeRecords(newRecordReader(record.NewReader, f, number))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := check(l.next, l.end); err != nil {
		return fmt.Errorf("%w: %s %w", ErrStoreDamaged, path, err)
	}
	return nil
}

// note says that the store is durable up to the batch, which was committed. log is the newest log file's number from before: as long as
// that is the newest, the batch is in it. A batch on the way from one to the next is not noted.
func (d *durableEnd) note(b *pebble.Batch, log uint64) {
	next := uint64(b.SeqNum()) + uint64(b.Count())
	d.writing.Lock()
	defer d.writing.Unlock()
	if next > d.current.next && log == d.log.Load() {
		d.current.next, d.current.log = next, log
		d.writeLocked()
	}
}

// noteManifest says that so much of a manifest is durable.
func (d *durableEnd) noteManifest(number uint64, size int64) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if number >= d.current.manifest {
		d.current.manifest, d.current.manifestBytes = number, size
		d.writeLocked()
	}
}

// noteFlushed says that tables have all of the store, so that no log needs to be read for how far it goes. That the store goes as far stays noted.
func (d *durableEnd) noteFlushed() {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.current.log = 0
	d.writeLocked()
}

// writeLocked hands the note to the page cache, which takes microseconds. A failure costs the note, not what it is about.
func (d *durableEnd) writeLocked() {
	if d.file != nil {
		_, _ = d.file.WriteAt(d.current.encode(), 0)
	}
}

// begin makes the note one in a file, and keeps it there from now on. Under which run of the machine it is must be durable before anything is written:
// it tells what a power cut may have taken from what was.
func (d *durableEnd) begin(disk vfs.FS, path string, softBoot uint64) (err error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.file, err = disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return err
	}
	if d.current.softBoot == softBoot {
		d.writeLocked()
		return nil
	}
	d.current.softBoot = softBoot
	if _, err := d.file.WriteAt(d.current.encode(), 0); err != nil {
		return err
	}
	return errors.Join(d.file.Sync(), syncDirOn(disk, disk.PathDir(path)))
}

// unknownBoot stands for a run of the machine of which the system tells no name.
const unknownBoot = 1

// machineRun is a number for a run of the machine.
func machineRun(bootID string) uint64 {
	if bootID == "" {
		return unknownBoot
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(bootID)) // never fails
	return max(h.Sum64(), unknownBoot+1)
}

func (d *durableEnd) close() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.file.Close()
	d.file = nil
	return err
}

// newestLog names the newest file of the write-ahead log in the store's directory, "" when there is none.
func newestLog(disk vfs.FS, store string) (string, error) {
	names, err := disk.List(store)
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, walSuffix) })
	if len(names) == 0 {
		return "", nil
	}
	return disk.PathJoin(store, slices.Max(names)), nil
}

// manifestNumber is the number in a manifest's name, 0 for other files.
func manifestNumber(name string) uint64 {
	digits, ok := strings.CutPrefix(name, manifestPrefix)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// checkDurable compares the opened store with what was noted of its log, and begins to note.
func (e *Engine) checkDurable(d *durableEnd, disk vfs.FS) error {
	b := e.db.NewBatch()
	defer b.Close()
	if err := b.LogData(nil, nil); err != nil {
		return err
	}
	if err := b.Commit(pebble.NoSync); err != nil { // it takes no number, and tells the next one
		return err
	}
	noted := d.current.next
	if next := uint64(b.SeqNum()); next < noted { // a whole file is missing
		return fmt.Errorf("%w: the write-ahead log, last %s, ends %d writes before what was durable", ErrStoreDamaged, d.newest, noted-next)
	}
	softBoot := uint64(0)
	if e.cfg.Flush == FlushOS {
		softBoot = machineRun(e.cfg.BootID)
	}
	if err := d.begin(disk, disk.PathJoin(e.cfg.Dir, durableFile), softBoot); err != nil {
		return err
	}
	e.durable = d
	return nil
}
