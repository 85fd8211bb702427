package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"cairn/wire/batch"
)

// batchBytesMax bounds the memory for a batch; Kafka's brokers take no request above 100 MiB by default.
const batchBytesMax = 256 << 20

var (
	// ErrNoSegments is returned for a directory without segments.
	ErrNoSegments = errors.New("no segment files")
	// ErrDamaged is wrapped by errors about what is in a file.
	ErrDamaged = errors.New("damaged segment")
)

// logName is the name of a segment; others, such as those that Kafka is about to delete, are passed over.
var logName = regexp.MustCompile(`^\d{20}\.log$`)

// Batch is a batch of a segment, borrowed until the next one is read. Its CRC was checked.
type Batch struct {
	batch.Header
	Raw      []byte
	File     string
	Position int64 // in the file
}

// Files are the segments of a directory, in order. ErrNoSegments when there are none.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if logName.MatchString(e.Name()) && e.Type().IsRegular() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w in %s: want 00000000000000000000.log or the like", ErrNoSegments, dir)
	}
	slices.Sort(files) // the names have one length
	return files, nil
}

// Size is how many bytes the files have together.
func Size(files []string) (total int64, err error) {
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// Scan calls fn with the batches of the files, in order, until it fails. The last file may end with bytes that are no batch, as a killed
// broker leaves them: how many is returned. Anything else that is not as it should be is ErrDamaged.
func Scan(files []string, fn func(Batch) error) (tail int64, err error) {
	next := int64(0)
	for i, path := range files {
		if tail, err = scanFile(path, &next, fn); err != nil {
			return tail, err
		}
		if tail > 0 && i < len(files)-1 {
			return tail, fmt.Errorf("%w: %s ends with %d bytes that are no batch, and it is not the last file", ErrDamaged, path, tail)
		}
	}
	return tail, nil
}

func scanFile(path string, next *int64, fn func(Batch) error) (tail int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	s := fileScan{path: path, in: bufio.NewReaderSize(f, 1<<20), size: info.Size()}
	for {
		more, err := s.read()
		if err != nil || !more {
			return s.size - s.position, err
		}
		if s.h.BaseOffset < *next {
			return 0, s.damaged(fmt.Errorf("offset %d behind offset %d", s.h.BaseOffset, *next-1))
		}
		*next = s.h.NextOffset()
		if err := fn(Batch{Header: s.h, Raw: s.raw, File: path, Position: s.position}); err != nil {
			return 0, err
		}
		s.position += int64(len(s.raw))
	}
}

// fileScan reads one file.
type fileScan struct {
	path     string
	in       *bufio.Reader
	size     int64
	position int64
	h        batch.Header
	raw      []byte
}

func (s *fileScan) damaged(err error) error {
	return fmt.Errorf("%w: %s at position %d: %w", ErrDamaged, s.path, s.position, err)
}

// read reads the next batch; false when what is left is none: nothing, a batch that is cut, or zeros that were put there in advance.
func (s *fileScan) read() (bool, error) {
	head, err := s.in.Peek(batch.HeaderLen)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil && !slices.ContainsFunc(head, func(b byte) bool { return b != 0 }) {
		return false, nil
	}
	if err != nil && errors.Is(err, batch.ErrInvalidRecord) && h.Magic < batch.Magic {
		return false, s.damaged(fmt.Errorf("%w; Kafka before 0.11 wrote it, a newer one (up to 3.9) rewrites it when a consumer and a producer copy the topic", err))
	}
	if err != nil {
		return false, s.damaged(err)
	}
	if int64(h.Size()) > s.size-s.position {
		return false, nil
	}
	if h.Size() > batchBytesMax {
		return false, s.damaged(fmt.Errorf("a batch of %d bytes", h.Size()))
	}
	if cap(s.raw) < h.Size() {
		s.raw = make([]byte, h.Size())
	}
	s.raw, s.h = s.raw[:h.Size()], h
	if _, err := io.ReadFull(s.in, s.raw); err != nil {
		return false, err
	}
	if err := batch.VerifyCRC(s.raw); err != nil {
		return false, s.damaged(err)
	}
	return true, nil
}
