package engine

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"go.uber.org/zap"
)

// Under FlushOS Pebble believes of its write-ahead log that all of it is synced, and says so in the log. After a
// power cut the end of the log may be torn, which Pebble then takes for corruption and refuses. That loss is what
// FlushOS accepts, so the newest log file, when it is opened for reading, ends behind its last whole record. Older
// ones were synced when they were closed: damage to them is damage. What a commit has synced for real is never
// torn, so the metadata shard loses nothing.

// Open implements vfs.FS.
func (fs *softSyncFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if strings.HasSuffix(name, walSuffix) {
		if end, torn, err := fs.tornAt(name); err != nil {
			return nil, fmt.Errorf("look for the end of %s: %w", name, err)
		} else if torn {
			fs.log.Warn("the write-ahead log ends in a torn write, as after a power cut; what was behind it is lost",
				zap.String("file", name), zap.Int64("bytes", end))
			f, err := fs.FS.Open(name, opts...)
			return &cutFile{File: f, left: end}, err
		}
	}
	return fs.FS.Open(name, opts...)
}

// tornAt says where the last whole record of a log file ends, if it is the newest one and more follows that is none.
func (fs *softSyncFS) tornAt(name string) (end int64, torn bool, err error) {
	number, _, ok := wal.ParseLogFilename(fs.PathBase(name))
	if !ok {
		return 0, false, nil
	}
	names, err := fs.List(fs.PathDir(name))
	if err != nil {
		return 0, false, err
	}
	for _, other := range names {
		if n, _, ok := wal.ParseLogFilename(other); ok && n > number {
			return 0, false, nil
		}
	}
	f, err := fs.FS.Open(name)
	if err != nil {
		return 0, false, err
	}
	end, torn, err = wholeRecords(newRecordReader(record.NewReader, f, uint64(number)))
	return end, torn, errors.Join(err, f.Close())
}

// newRecordReader calls record.NewReader, whose second parameter is of a type that has no name outside of Pebble.
func newRecordReader[N ~uint64](newReader func(io.Reader, N) *record.Reader, r io.Reader, number uint64) *record.Reader {
	return newReader(r, N(number))
}

// wholeRecords reads records to the first that is none. A log that ends in the middle of a write, as after a kill, is
// not torn: nothing behind that write claims to be synced, and Pebble reads it itself.
func wholeRecords(r *record.Reader) (end int64, torn bool, err error) {
	for {
		rec, err := r.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		switch {
		case err == nil:
			end = r.Offset()
		case errors.Is(err, record.ErrInvalidChunk), errors.Is(err, record.ErrZeroedChunk):
			return end, true, nil
		case errors.Is(err, io.EOF), errors.Is(err, record.ErrUnexpectedEOF):
			return end, false, nil
		default:
			return end, false, err
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
