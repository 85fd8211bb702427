package segment

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"cairn/wire/batch"
)

// Config has Kafka's names.
type Config struct {
	SegmentBytes       int // segment.bytes: a segment that would exceed it ends
	IndexIntervalBytes int // index.interval.bytes: so much of the log has one entry of the index at most
}

// DefaultConfig has Kafka's defaults.
func DefaultConfig() Config { return Config{SegmentBytes: 1 << 30, IndexIntervalBytes: 4096} }

// Validate joins all that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.SegmentBytes < batch.HeaderLen || c.SegmentBytes > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("segment.bytes %d: want %d to %d", c.SegmentBytes, batch.HeaderLen, math.MaxInt32))
	}
	if c.IndexIntervalBytes < 0 || c.IndexIntervalBytes > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("index.interval.bytes %d: want 0 to %d", c.IndexIntervalBytes, math.MaxInt32))
	}
	return errors.Join(errs...)
}

// Sizes of index entries, in bytes, and of a whole index (segment.index.bytes).
const (
	offsetEntryLen  = 8  // offset relative to the segment's 4, position 4
	timeEntryLen    = 12 // timestamp 8, relative offset 4
	abortedEntryLen = 34 // version 2, producer id, first offset, offset of the marker, last stable offset, 8 each
	indexBytesMax   = 10 << 20
)

// Suffixes of the files.
const (
	logSuffix     = ".log"
	offsetSuffix  = ".index"
	timeSuffix    = ".timeindex"
	abortedSuffix = ".txnindex"
)

// Writer writes the segments of one partition.
type Writer struct {
	dir  string
	cfg  Config
	open map[int64]int64 // first offsets of open transactions by producer id

	seg      *segmentFile // nil before the first batch
	next     int64        // offset behind the last batch
	Segments int
	Batches  int64
	Bytes    int64
}

// segmentFile is the segment that grows.
type segmentFile struct {
	base     int64
	file     *os.File
	out      *bufio.Writer
	position int64
	pending  int64 // bytes since the last entry of the index

	offsets, times, aborted []byte
	maxTimestamp            int64 // of the segment so far, -1: none
	maxTimestampOffset      int64 // last offset of the first batch with it
	lastTime                int64 // timestamp of the last entry of the time index
}

// Create makes the directory; it must not be there, or be empty.
func Create(dir string, cfg Config) (*Writer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(there) > 0 {
		return nil, fmt.Errorf("%s is not empty; choose another directory", dir)
	}
	return &Writer{dir: dir, cfg: cfg, open: map[int64]int64{}}, nil
}

// Append writes a batch, which is borrowed until return. Batches come in the order of their offsets.
func (w *Writer) Append(raw []byte) error {
	h, err := batch.ParseHeader(raw)
	if err == nil {
		err = batch.VerifyCRC(raw)
	}
	if err != nil {
		return err
	}
	if h.Size() != len(raw) || h.BaseOffset < w.next {
		return fmt.Errorf("batch at offset %d of %d bytes, given were %d behind offset %d", h.BaseOffset, h.Size(), len(raw), w.next)
	}
	if w.seg == nil || w.seg.full(&h, w.cfg) {
		if err := w.roll(h.BaseOffset); err != nil {
			return err
		}
	}
	w.seg.index(&h, w.cfg)
	if h.IsTransactional() {
		w.transaction(&h, raw)
	}
	if _, err := w.seg.out.Write(raw); err != nil {
		return err
	}
	w.seg.position += int64(len(raw))
	w.next = h.NextOffset()
	w.Batches++
	w.Bytes += int64(len(raw))
	return nil
}

// full says whether the batch has to begin a new segment, by Kafka's rules without those of time.
func (s *segmentFile) full(h *batch.Header, cfg Config) bool {
	return s.position > 0 && s.position+int64(h.Size()) > int64(cfg.SegmentBytes) || h.LastOffset()-s.base > math.MaxInt32 ||
		len(s.offsets)+offsetEntryLen > indexBytesMax || len(s.times)+2*timeEntryLen > indexBytesMax
}

// index adds entries in front of the batch, when enough bytes have gone by since the last ones.
func (s *segmentFile) index(h *batch.Header, cfg Config) {
	if h.MaxTimestamp > s.maxTimestamp {
		s.maxTimestamp, s.maxTimestampOffset = h.MaxTimestamp, h.LastOffset()
	}
	if s.pending > int64(cfg.IndexIntervalBytes) {
		s.offsets = binary.BigEndian.AppendUint32(s.offsets, uint32(h.LastOffset()-s.base))
		s.offsets = binary.BigEndian.AppendUint32(s.offsets, uint32(s.position))
		s.timeEntry()
		s.pending = 0
	}
	s.pending += int64(h.Size())
}

// timeEntry adds the largest timestamp so far, if it is a new one.
func (s *segmentFile) timeEntry() {
	if s.maxTimestamp <= s.lastTime {
		return
	}
	s.times = binary.BigEndian.AppendUint64(s.times, uint64(s.maxTimestamp))
	s.times = binary.BigEndian.AppendUint32(s.times, uint32(s.maxTimestampOffset-s.base))
	s.lastTime = s.maxTimestamp
}

// transaction follows open transactions, and adds those that a marker aborts.
func (w *Writer) transaction(h *batch.Header, raw []byte) {
	first, open := w.open[h.ProducerID]
	if !h.IsControl() {
		if !open {
			w.open[h.ProducerID] = h.BaseOffset
		}
		return
	}
	m, err := batch.ParseMarker(raw)
	if err != nil {
		return // a control record of another use
	}
	delete(w.open, h.ProducerID)
	if m.Commit || !open {
		return
	}
	stable := h.BaseOffset + 1
	for _, o := range w.open {
		stable = min(stable, o)
	}
	b := binary.BigEndian.AppendUint16(w.seg.aborted, 0)
	for _, n := range []int64{h.ProducerID, first, h.BaseOffset, stable} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	w.seg.aborted = b
}

// roll ends the segment that there is and begins one at an offset.
func (w *Writer) roll(base int64) error {
	if err := w.finish(); err != nil {
		return err
	}
	file, err := os.OpenFile(w.path(base, logSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	w.seg = &segmentFile{base: base, file: file, out: bufio.NewWriterSize(file, 1<<20), maxTimestamp: -1, lastTime: -1}
	w.Segments++
	return nil
}

func (w *Writer) path(base int64, suffix string) string {
	return filepath.Join(w.dir, fmt.Sprintf("%020d%s", base, suffix))
}

// finish writes what is left of the segment, and its indexes, and syncs them.
func (w *Writer) finish() error {
	s := w.seg
	if s == nil {
		return nil
	}
	w.seg = nil
	s.timeEntry()
	err := s.out.Flush()
	if err == nil {
		err = s.file.Sync()
	}
	if err := errors.Join(err, s.file.Close()); err != nil {
		return err
	}
	errs := []error{writeSynced(w.path(s.base, offsetSuffix), s.offsets), writeSynced(w.path(s.base, timeSuffix), s.times)}
	if len(s.aborted) > 0 {
		errs = append(errs, writeSynced(w.path(s.base, abortedSuffix), s.aborted))
	}
	return errors.Join(errs...)
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Close ends the last segment. A log without batches has an empty one, at the offset where it starts.
func (w *Writer) Close(logStart int64) error {
	if w.Segments == 0 {
		if err := w.roll(logStart); err != nil {
			return err
		}
	}
	return w.finish()
}

// Abandon closes what is open and leaves the files as they are; after an error.
func (w *Writer) Abandon() error {
	if w.seg == nil {
		return nil
	}
	err := w.seg.file.Close()
	w.seg = nil
	return err
}
