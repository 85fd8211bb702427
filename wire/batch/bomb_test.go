package batch

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
)

// zeros is the body of a batch of one record, whose value is size bytes of nothing.
func zeros(size int) []byte {
	return appendRecord(nil, &Record{Value: make([]byte, size)}, 0)
}

// allocated is how many bytes fn allocates, the memory of pooled decoders included.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // empties the pools
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestBombsAreRefusedWithoutTheirMemory(t *testing.T) {
	skipUnderRace(t)
	const size = 200 << 20
	for _, c := range allCodecs[1:] {
		t.Run(c.String(), func(t *testing.T) {
			raw := rawBatch(t, c, 1, zeros(size))
			var err error
			used := allocated(func() { _, err = Validate(raw, lenient()) })
			if !errors.Is(err, ErrMessageTooLarge) {
				t.Errorf("batch of %d bytes that opens to %d: %v", len(raw), size, err)
			}
			if limit := uint64(12 << 20); used > limit {
				t.Errorf("allocated %d bytes, limit %d", used, limit)
			}
			if _, err := drain(raw); !errors.Is(err, ErrMessageTooLarge) {
				t.Errorf("Records: %v", err)
			}
		})
	}
}

// A record that does not say how long it is hides the bomb in many small ones.
func TestBombOfSmallRecords(t *testing.T) {
	skipUnderRace(t)
	const n = 4 << 20
	body := make([]byte, 0, n*8)
	for i := range n {
		body = appendRecord(body, &Record{}, i)
	}
	for _, c := range []Codec{CodecGzip, CodecZstd} {
		raw := rawBatch(t, c, n, body)
		r := lenient()
		r.MaxDecompressedBytes = 1 << 20
		var err error
		used := allocated(func() { _, err = Validate(raw, r) })
		if !errors.Is(err, ErrMessageTooLarge) || used > 12<<20 {
			t.Errorf("%s: %v, allocated %d", c, err, used)
		}
	}
}

// What a batch may open to depends on its size: a small one may not use the whole absolute limit.
func TestBombOfHighRatio(t *testing.T) {
	raw := rawBatch(t, CodecZstd, 1, zeros(100<<20))
	if _, err := Validate(raw, lenient()); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("%d bytes that open to 100 MiB: %v", len(raw), err)
	}
	raw = rawBatch(t, CodecZstd, 1, zeros(15<<20))
	if _, err := Validate(raw, lenient()); err != nil {
		t.Errorf("%d bytes that open to 15 MiB: %v", len(raw), err)
	}
}

func TestCompressedDataMustBeWhole(t *testing.T) {
	for _, c := range allCodecs[1:] {
		raw := build(t, NewBuilderConfig(c, testNow), textRecords(400, 300))
		for _, cut := range []int{1, 5, (len(raw) - HeaderLen) / 2, len(raw) - HeaderLen} {
			short := resealed(raw[:len(raw)-cut], put32(posLength, int32(len(raw)-cut-LengthOverhead)))
			_, err := Validate(short, lenient())
			if c == CodecGzip && cut <= 8 || err != nil && !errors.Is(err, ErrCorruptMessage) && !errors.Is(err, ErrInvalidRecord) {
				if !errors.Is(err, ErrCorruptMessage) {
					t.Errorf("%s without its last %d bytes: %v", c, cut, err)
				}
			} else if err == nil && cut > 8 {
				t.Errorf("%s without its last %d bytes passes", c, cut)
			}
		}
		garbled := resealed(raw, func(b []byte) {
			for i := HeaderLen + 20; i < len(b); i += 3 {
				b[i] ^= 0x55
			}
		})
		if _, err := Validate(garbled, lenient()); !errors.Is(err, ErrCorruptMessage) && !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%s garbled: %v", c, err)
		}
	}
}

// sealed makes a batch of one good record out of already compressed data.
func sealed(c Codec, data []byte) []byte {
	raw := append(make([]byte, HeaderLen), data...)
	h := Header{Length: int32(len(raw) - LengthOverhead), Magic: Magic, Attributes: int16(c), ProducerID: -1, BaseSequence: -1, RecordCount: 1, MaxTimestamp: 0}
	h.Put(raw)
	SetCRC(raw)
	return raw
}

func TestSnappyForms(t *testing.T) {
	skipUnderRace(t)
	body := zeros(100_000)
	bare := snappy.Encode(nil, body)
	framed := append(append([]byte{}, xerialHeader...), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, part := range [][]byte{body[:10], body[10:70_000], nil, body[70_000:]} {
		block := snappy.Encode(nil, part)
		framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...)
	}
	for name, data := range map[string][]byte{"bare": bare, "framed": framed} {
		if _, err := Validate(sealed(CodecSnappy, data), lenient()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{
		"bare, claims 4 GiB":     {0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0},
		"bare, claims 1 GiB":     {0x80, 0x80, 0x80, 0x80, 0x04, 0, 0},
		"framed, block too long": append(framed[:xerialHeaderLen:xerialHeaderLen], 0x7f, 0xff, 0xff, 0xff, 1),
		"framed, length cut":     append(framed[:xerialHeaderLen:xerialHeaderLen], 0, 0),
		"framed, claims 1 GiB":   append(framed[:xerialHeaderLen:xerialHeaderLen], 0, 0, 0, 7, 0x80, 0x80, 0x80, 0x80, 0x04, 0, 0),
	} {
		raw := sealed(CodecSnappy, data)
		var err error
		used := allocated(func() { _, err = Validate(raw, lenient()) })
		if !errors.Is(err, ErrCorruptMessage) || used > 1<<20 {
			t.Errorf("%s: %v, allocated %d", name, err, used)
		}
	}
}

// zstd's highest levels ask for more history than the streaming decoder keeps.
func TestZstdWithLargeWindow(t *testing.T) {
	const size = 12 << 20
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	single := w.EncodeAll(zeros(size), nil)
	var many writerTo
	w.Reset(&many)
	for range 4 { // without a known content size
		if _, err := w.Write(zeros(size)[:size/4]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Validate(sealed(CodecZstd, single), lenient()); err != nil {
		t.Errorf("one frame of known size: %v", err)
	}
	r := lenient()
	r.MaxDecompressedBytes = size / 2
	for name, data := range map[string][]byte{"known size": single, "unknown size": many} {
		if _, err := Validate(sealed(CodecZstd, data), r); !errors.Is(err, ErrMessageTooLarge) {
			t.Errorf("%s above the limit: %v", name, err)
		}
	}
}

type writerTo []byte

func (w *writerTo) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// A frame header may claim any window and content size; nothing is allocated for the claim.
func TestZstdClaims(t *testing.T) {
	skipUnderRace(t)
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for name, header := range map[string][]byte{
		"window 128 MiB":              {0x00, 0x88},
		"content size 1 TiB":          {0xe0, 0, 0, 0, 0, 0, 1, 0, 0},
		"content size 100 MiB":        {0xa0, 0, 0, 0x40, 0x06},
		"window 2 TiB":                {0x00, 0xf8},
		"content size 15 MiB, unfull": {0xa0, 0, 0, 0xf0, 0x00},
	} {
		raw := sealed(CodecZstd, append(append(append([]byte{}, magic...), header...), 0x01, 0, 0))
		var err error
		used := allocated(func() { _, err = Validate(raw, lenient()) })
		if err == nil || used > 17<<20 {
			t.Errorf("%s: %v, allocated %d", name, err, used)
		}
	}
}
