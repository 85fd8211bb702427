package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"
	"testing/iotest"
)

func frameOf(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func TestReadFrame(t *testing.T) {
	for _, size := range []int{0, 1, 100, firstStep - 1, firstStep, firstStep + 1, secondStep, secondStep + 1, 20 << 20} {
		want := bytes.Repeat([]byte{byte(size), 2, 3}, size/3+1)[:size]
		r := bufio.NewReader(bytes.NewReader(append(frameOf(want), frameOf([]byte("next"))...)))
		got, err := ReadFrame(r, math.MaxInt32, nil)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("frame of %d bytes: got %d, %v", size, len(got), err)
		}
		if next, err := ReadFrame(r, 4, nil); err != nil || string(next) != "next" {
			t.Fatalf("behind a frame of %d bytes: %q, %v", size, next, err)
		}
		if _, err := ReadFrame(r, 4, nil); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	}
}

func TestReadFrameErrors(t *testing.T) {
	refused := errors.New("no memory")
	tests := []struct {
		name  string
		in    []byte
		alloc func(int) ([]byte, error)
		want  error
	}{
		{"nothing", nil, nil, io.EOF},
		{"half a length", []byte{0, 0}, nil, io.ErrUnexpectedEOF},
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff, 1}, nil, ErrFrameLength},
		{"above the limit", []byte{0, 0, 4, 1, 1}, nil, ErrFrameLength},
		{"largest length", []byte{0x7f, 0xff, 0xff, 0xff, 1}, nil, ErrFrameLength},
		{"no byte of the frame", []byte{0, 0, 0, 3}, nil, io.ErrUnexpectedEOF},
		{"half a frame", []byte{0, 0, 0, 3, 1}, nil, io.ErrUnexpectedEOF},
		{"no memory", []byte{0, 0, 0, 3, 1, 2, 3}, func(int) ([]byte, error) { return nil, refused }, refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(tt.in), iotest.OneByteReader(bytes.NewReader(tt.in))} {
				if frame, err := ReadFrame(bufio.NewReader(r), 1024, tt.alloc); !errors.Is(err, tt.want) || frame != nil {
					t.Errorf("got %v, %v, want %v", frame, err, tt.want)
				}
			}
		})
	}
}

// What is allocated follows the bytes that came, not the length that was announced.
func TestReadFrameMemoryFollowsTheBytes(t *testing.T) {
	skipUnderRace(t)
	for _, have := range []int{0, 1000, firstStep - 1, firstStep + 10, secondStep + 10} {
		in := append([]byte{0x3f, 0xff, 0xff, 0xff}, make([]byte, have)...)
		r := bufio.NewReader(bytes.NewReader(in))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadFrame(r, math.MaxInt32, nil)
		runtime.ReadMemStats(&after)
		if err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		used, limit := after.TotalAlloc-before.TotalAlloc, uint64(firstStep+growthFactor*have)
		if have >= firstStep {
			limit += secondStep
		}
		if used > limit+8<<10 {
			t.Errorf("%d bytes of a frame: allocated %d, limit %d", have, used, limit)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0, 0, 2, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		rest := b
		for {
			frame, err := ReadFrame(r, 1<<16, nil)
			if err != nil {
				return
			}
			if want := frameOf(frame); !bytes.HasPrefix(rest, want) {
				t.Fatalf("frame %x out of %x", frame, rest)
			} else {
				rest = rest[len(want):]
			}
		}
	})
}
