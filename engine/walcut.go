package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"go.uber.org/zap"
)

// Under FlushOS Pebble believes of its write-ahead log that all of it is synced, and says so in the log. After a
// power cut any part that was not written back may be missing, which Pebble takes for corruption and refuses. That
// loss is what FlushOS accepts, so of the log files that are read at a start the first whole records count: the one in
// which they end is cut there, and those behind it are empty. What a commit has synced for real is always among
// them, so the metadata shard loses nothing. In the same run of the machine there was no power cut, and what is
// missing is damage.

// logCut says how log files are read.
type logCut struct {
	mode cutMode
	ends map[uint64]int64 // what counts of log files, by their number; nil until the first is read
}

type cutMode int

const (
	cutNothing cutMode = iota
	cutNewest          // every file but the newest was synced when it was closed, as by FlushAlways, and by whoever wrote the first version of durable-end
	cutChain
)

// cutModeOf says what a power cut may have done to the log that a note is about.
func cutModeOf(n durableNote, boot uint64) cutMode {
	switch {
	case n.softBoot == 0:
		return cutNewest
	case n.softBoot == boot && boot != unknownBoot:
		return cutNothing
	}
	return cutChain
}

// whole is what counts of a file of which nothing is missing.
const whole = -1

// Open implements vfs.FS.
func (fs *softSyncFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	end, err := fs.endOf(name)
	if err != nil {
		return nil, fmt.Errorf("look for the end of %s: %w", name, err)
	}
	f, err := fs.FS.Open(name, opts...)
	if err != nil || end == whole {
		return f, err
	}
	fs.log.Warn("the write-ahead log ends in a torn write, as after a power cut; what was behind it is lost", zap.String("file", name), zap.Int64("bytes", end))
	return &cutFile{File: f, left: end}, nil
}

// endOf says how much of a file counts. A store is opened by one goroutine, which reads the log files in their order.
func (fs *softSyncFS) endOf(name string) (int64, error) {
	number := logNumber(fs.PathBase(name))
	if number == 0 || fs.cut.mode == cutNothing {
		return whole, nil
	}
	if fs.cut.ends == nil {
		logs, err := fs.logsFrom(fs.PathDir(name), number)
		if err != nil {
			return 0, err
		}
		if fs.cut.ends, err = fs.cutLogs(fs.PathDir(name), logs); err != nil {
			return 0, err
		}
	}
	if end, ok := fs.cut.ends[number]; ok {
		return end, nil
	}
	return whole, nil
}

// logsFrom lists the numbers of the log files in a directory, from one on.
func (fs *softSyncFS) logsFrom(dir string, from uint64) ([]uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, name := range names {
		if n := logNumber(name); n >= from {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// cutLogs finds out how much of the log files counts.
func (fs *softSyncFS) cutLogs(dir string, logs []uint64) (map[uint64]int64, error) {
	ends := map[uint64]int64{}
	var expected uint64 // number of the write that comes next; 0: none is known
	for i, number := range logs {
		newest := i == len(logs)-1
		if fs.cut.mode == cutNewest && !newest {
			continue
		}
		name := fs.PathJoin(dir, fmt.Sprintf("%06d%s", number, walSuffix))
		log, err := fs.readLog(name, number)
		if err != nil {
			return nil, err
		}
		missing := expected != 0 && log.next != 0 && log.first != expected // the end of an earlier one
		if missing {
			log.end = 0
		}
		if missing || log.torn || !newest && !log.ended {
			ends[number] = log.end
			for _, behind := range logs[i+1:] {
				ends[behind] = 0
			}
			return ends, nil
		}
		if log.next != 0 {
			expected = log.next
		}
	}
	return ends, nil
}

// logRecords is what can be read of a log file.
type logRecords struct {
	first, next uint64 // numbers of the first write and of the one behind the last; 0, 0: there is none
	end         int64  // of the last whole record
	torn        bool   // something is there behind the end that is no record
	ended       bool   // nothing is there behind the end, or the mark of a complete log
}

func (fs *softSyncFS) readLog(name string, number uint64) (logRecords, error) {
	f, err := fs.FS.Open(name)
	if err != nil {
		return logRecords{}, err
	}
	l, err := wholeRecords(newRecordReader(record.NewReader, f, number))
	return l, errors.Join(err, f.Close())
}

// newRecordReader calls record.NewReader, whose second parameter is of a type that has no name outside of Pebble.
func newRecordReader[N ~uint64](newReader func(io.Reader, N) *record.Reader, r io.Reader, number uint64) *record.Reader {
	return newReader(r, N(number))
}

// wholeRecords reads records to the first that is none. A log that ends in the middle of a write, as after a kill, is
// not torn: nothing behind that write claims to be synced, and Pebble reads it itself. The first eight bytes of a record
// are the number of its first write, the next four how many it has, both little-endian.
func wholeRecords(r *record.Reader) (l logRecords, err error) {
	var head [12]byte
	for {
		rec, err := r.Next()
		n := 0
		if err == nil {
			n, err = io.ReadFull(rec, head[:])
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				err = nil // a short record
			}
		}
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		switch {
		case err == nil:
			l.end = r.Offset()
			if seq, count := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint32(head[8:]); n == len(head) && count > 0 {
				if l.next == 0 {
					l.first = seq
				}
				l.next = max(l.next, seq+uint64(count))
			}
		case errors.Is(err, record.ErrInvalidChunk), errors.Is(err, record.ErrZeroedChunk):
			l.torn = true
			return l, nil
		case errors.Is(err, record.ErrUnexpectedEOF):
			return l, nil
		case errors.Is(err, io.EOF):
			l.ended = true
			return l, nil
		default:
			return l, err
		}
	}
}

// cutFile ends after some bytes.
type cutFile struct {
	vfs.File
	left int64
}

// Read implements vfs.File.
func (f *cutFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// logNumber is the number in the name of a file of the write-ahead log, 0 for other files.
func logNumber(name string) uint64 {
	if !strings.HasSuffix(name, walSuffix) {
		return 0
	}
	if n, _, ok := wal.ParseLogFilename(name); ok {
		return uint64(n)
	}
	return 0
}
