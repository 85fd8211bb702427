package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrameLength refuses a frame whose announced length is negative or above the limit. The stream cannot be read on.
var ErrFrameLength = errors.New("bad frame length")

// Steps of ReadFrame's buffer. A frame of up to firstStep is allocated at once. A longer one gets secondStep when
// firstStep bytes of it have come, which is all that most produce requests need, so that they are copied by a small
// part only; from there growthFactor times what has come.
const (
	firstStep    = 64 << 10
	secondStep   = 2 << 20
	growthFactor = 8
)

// ReadFrame reads one frame: a big-endian int32 length, then so many bytes, which it returns. The buffer grows with
// the bytes that have come, never ahead of them by more than the steps above, whatever length was announced.
//
// alloc(n), when given, makes each buffer, of exactly n bytes; one that follows replaces the one before, which is
// dropped. An error from it is returned as is (nil alloc: make). max is the largest length accepted, in bytes.
// Errors: io.EOF at the end of the stream between frames, io.ErrUnexpectedEOF within one, ErrFrameLength.
func ReadFrame(r *bufio.Reader, max int32, alloc func(n int) ([]byte, error)) ([]byte, error) {
	prefix, err := r.Peek(4)
	if err != nil {
		if err == io.EOF && len(prefix) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(prefix)))
	if _, err := r.Discard(4); err != nil {
		return nil, err
	}
	if size < 0 || size > int(max) {
		return nil, fmt.Errorf("%w: %d bytes announced, at most %d accepted", ErrFrameLength, size, max)
	}
	if alloc == nil {
		alloc = func(n int) ([]byte, error) { return make([]byte, n), nil }
	}
	var frame []byte
	for have, step := 0, firstStep; ; step = nextStep(have) {
		buf, err := alloc(min(size, step))
		if err != nil {
			return nil, err
		}
		copy(buf, frame[:have])
		frame = buf
		if _, err := io.ReadFull(r, frame[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		have = len(frame)
		if have == size {
			return frame, nil
		}
	}
}

func nextStep(have int) int {
	if have < secondStep {
		return secondStep
	}
	return have * growthFactor
}
