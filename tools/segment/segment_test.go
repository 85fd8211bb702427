package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cairn/wire/batch"
)

// maker makes batches that follow each other.
type maker struct {
	t    testing.TB
	next int64
}

// at puts a batch at the next offset.
func (m *maker) at(raw []byte) []byte {
	batch.SetBaseOffset(raw, m.next)
	h := batch.DecodeHeader(raw)
	m.next = h.NextOffset()
	return raw
}

// data is a batch of n records of a producer, -1 for none, in a transaction if it has an id.
func (m *maker) data(n int, timestamp, producerID int64) []byte {
	m.t.Helper()
	cfg := batch.NewBuilderConfig(batch.CodecNone, timestamp)
	if producerID >= 0 {
		cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = producerID, 0, 0, true
	}
	b, err := batch.NewBuilder(cfg)
	for i := 0; err == nil && i < n; i++ {
		err = b.AppendKV(timestamp, []byte("key"), bytes.Repeat([]byte{'v'}, 100))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	raw, err := b.Build()
	if err != nil {
		m.t.Fatal(err)
	}
	return m.at(raw)
}

func (m *maker) marker(producerID int64, commit bool) []byte {
	return m.at(batch.BuildMarker(producerID, 0, batch.Marker{Commit: commit}, 5000))
}

// write writes the batches to a new directory.
func write(t testing.TB, cfg Config, batches ...[]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t-0")
	w, err := Create(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// names are those of the files.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// scan reads a directory back.
func scan(t testing.TB, dir string) (bases []int64, all []byte, tail int64, err error) {
	t.Helper()
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	tail, err = Scan(files, func(b Batch) error {
		bases, all = append(bases, b.BaseOffset), append(all, b.Raw...)
		return nil
	})
	return bases, all, tail, err
}

func TestWriterRollsAndIndexes(t *testing.T) {
	m := &maker{t: t, next: 7}
	var batches [][]byte
	for i := range 10 {
		batches = append(batches, m.data(3, 1000+int64(i%4)*100, -1)) // timestamps rise to 1300 twice
	}
	size := len(batches[0])
	dir := write(t, Config{SegmentBytes: 4 * size, IndexIntervalBytes: size - 1}, batches...)
	want := []string{
		"00000000000000000007.index", "00000000000000000007.log", "00000000000000000007.timeindex",
		"00000000000000000019.index", "00000000000000000019.log", "00000000000000000019.timeindex",
		"00000000000000000031.index", "00000000000000000031.log", "00000000000000000031.timeindex",
	}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Fatalf("files %v, want %v", got, want)
	}
	// Each batch but the first of a segment has an entry with its last offset and its position; the time index has each new maximum.
	index := read(t, filepath.Join(dir, want[0]))
	for i := range 3 {
		offset, position := binary.BigEndian.Uint32(index[8*i:]), binary.BigEndian.Uint32(index[8*i+4:])
		if offset != uint32(3*i+5) || position != uint32((i+1)*size) {
			t.Errorf("entry %d: offset %d at %d", i, offset, position)
		}
	}
	if len(index) != 3*offsetEntryLen {
		t.Errorf("index of %d bytes", len(index))
	}
	times := ""
	for b := read(t, filepath.Join(dir, want[2])); len(b) > 0; b = b[timeEntryLen:] {
		times += fmt.Sprintf(" %d@%d", binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]))
	}
	if times != " 1100@5 1200@8 1300@11" {
		t.Errorf("time index%s", times)
	}
	bases, all, tail, err := scan(t, dir)
	if err != nil || tail != 0 || !bytes.Equal(all, bytes.Join(batches, nil)) || bases[0] != 7 || len(bases) != 10 {
		t.Errorf("read back %d batches, %d bytes behind, %v", len(bases), tail, err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWriterOfAnEmptyLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	w, err := Create(dir, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(12); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 3 || got[1] != "00000000000000000012.log" {
		t.Errorf("files %v", got)
	}
	if bases, _, tail, err := scan(t, dir); len(bases) != 0 || tail != 0 || err != nil {
		t.Errorf("read back %v, %d, %v", bases, tail, err)
	}
}

func TestWriterRefuses(t *testing.T) {
	m := &maker{t: t}
	dir := write(t, DefaultConfig(), m.data(1, 1, -1))
	if _, err := Create(dir, DefaultConfig()); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory with files: %v", err)
	}
	for _, cfg := range []Config{{SegmentBytes: 5}, {SegmentBytes: 1 << 40}, {SegmentBytes: 1 << 20, IndexIntervalBytes: -1}} {
		if cfg.Validate() == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	w, err := Create(t.TempDir(), DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	damaged := m.data(1, 1, -1)
	damaged[len(damaged)-1] ^= 1
	second, first := m.data(1, 1, -1), (&maker{t: t}).data(1, 1, -1)
	if err := w.Append(second); err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"damaged": damaged, "cut": second[:len(second)-1], "out of order": first, "short": {1, 2}} {
		if w.Append(raw) == nil {
			t.Errorf("a batch that is %s was taken", name)
		}
	}
	if err := w.Abandon(); err != nil {
		t.Error(err)
	}
}

// TestTransactionsAreTold: the writer's index of aborted ones, and what a reader is to leave out.
func TestTransactionsAreTold(t *testing.T) {
	m := &maker{t: t}
	batches := [][]byte{
		m.data(2, 1000, 1), m.data(2, 1000, 2), m.data(1, 1000, -1), m.marker(1, false), // 0, 2, 4, 5
		m.data(1, 1000, 1), m.marker(1, true), m.marker(2, false), m.data(1, 1000, 3), // 6, 7, 8, 9
		m.marker(4, false), // 10: of nothing
	}
	dir := write(t, DefaultConfig(), batches...)
	var aborted []string
	for b := read(t, filepath.Join(dir, "00000000000000000000.txnindex")); len(b) > 0; b = b[abortedEntryLen:] {
		var n [4]int64
		for i := range n {
			n[i] = int64(binary.BigEndian.Uint64(b[2+8*i:]))
		}
		aborted = append(aborted, fmt.Sprint(n))
	}
	// Producer, first offset, marker, last stable offset: the first one's is held up by producer 2.
	if want := []string{"[1 0 5 2]", "[2 2 8 9]"}; !slices.Equal(aborted, want) {
		t.Errorf("aborted %v, want %v", aborted, want)
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	txns, err := FindTransactions(files, func(Batch) {})
	if err != nil {
		t.Fatal(err)
	}
	var got []Outcome
	if _, err := Scan(files, func(b Batch) error {
		got = append(got, txns.Outcome(&b.Header))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []Outcome{Aborted, Aborted, Committed, Committed, Committed, Committed, Committed, Unfinished, Committed}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
}

// TestScanOfDamagedFiles: what a killed broker leaves at the end is passed over, all else is an error that says where.
func TestScanOfDamagedFiles(t *testing.T) {
	m := &maker{t: t}
	batches := [][]byte{m.data(1, 1, -1), m.data(1, 1, -1), m.data(1, 1, -1)}
	size := int64(len(batches[0]))
	const first, last = "00000000000000000000.log", "00000000000000000002.log"
	for _, tc := range []struct {
		name, file string
		change     func([]byte) []byte
		batches    int
		tail       int64
		says       string
	}{
		{"a batch that is cut", last, func(b []byte) []byte { return b[:size-1] }, 2, size - 1, ""},
		{"a header that is cut", last, func(b []byte) []byte { return append(b, b[:20]...) }, 3, 20, ""},
		{"zeros at the end", last, func(b []byte) []byte { return append(b, make([]byte, 4096)...) }, 3, 4096, ""},
		{"a cut one that is not the last", first, func(b []byte) []byte { return b[:2*size-1] }, 1, size - 1, "not the last file"},
		{"a flipped bit", first, func(b []byte) []byte { b[2*size-1] ^= 1; return b }, 1, 0, "position " + fmt.Sprint(size)},
		{"another magic", last, func(b []byte) []byte { b[16] = 7; return b }, 2, 0, "magic 7"},
		{"an old magic", last, func(b []byte) []byte { b[16] = 1; return b }, 2, 0, "before 0.11"},
		{"offsets that fall", last, func(b []byte) []byte { batch.SetBaseOffset(b, 0); return b }, 2, 0, "offset 0 behind offset 1"},
	} {
		dir := write(t, Config{SegmentBytes: int(2 * size), IndexIntervalBytes: 4096}, batches...)
		path := filepath.Join(dir, tc.file)
		if err := os.WriteFile(path, tc.change(read(t, path)), 0o600); err != nil {
			t.Fatal(err)
		}
		bases, _, tail, err := scan(t, dir)
		if len(bases) != tc.batches {
			t.Errorf("%s: %d batches, want %d", tc.name, len(bases), tc.batches)
		}
		if tc.says == "" && (err != nil || tail != tc.tail) || tc.says != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %d bytes behind, %v; want %d, %q", tc.name, tail, err, tc.tail, tc.says)
		}
	}
	if _, err := Files(t.TempDir()); !errors.Is(err, ErrNoSegments) {
		t.Errorf("an empty directory: %v", err)
	}
}

func FuzzScan(f *testing.F) {
	m := &maker{t: f}
	good := append(m.data(2, 1, -1), m.data(1, 1, 5)...)
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "00000000000000000000.log")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		read := int64(0)
		tail, err := Scan([]string{path}, func(b Batch) error {
			read += int64(len(b.Raw))
			return nil
		})
		if err == nil && read+tail != int64(len(content)) {
			t.Errorf("%d bytes of batches and %d behind, of %d", read, tail, len(content))
		}
	})
}
