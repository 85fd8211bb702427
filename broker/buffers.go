package broker

import (
	"math/bits"
	"sync"
)

const (
	// maxFreeBytes bounds the buffers that are kept for reuse and not in use.
	maxFreeBytes = 32 << 20
	// minBuffer is the smallest buffer in bytes; a power of two, at least 8.
	minBuffer = 512
)

// bufferPool keeps frame buffers for reuse. sync.Pool would do, but the collector empties it so often under load that
// half of all frames were allocated, and cleared, anew.
type bufferPool struct {
	mu   sync.Mutex
	free map[int][][]byte // guarded by mu; by size, sizes are those of bufferSize
	held int              // guarded by mu; bytes in free
}

// bufferSize rounds n up to a size that is worth sharing: between two powers of two there are three more.
func bufferSize(n int) int {
	if n <= minBuffer {
		return minBuffer
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) / step * step
}

// take returns a buffer of at least n bytes, at most about twice that, with unknown content.
func (p *bufferPool) take(n int) []byte {
	size := bufferSize(n)
	p.mu.Lock()
	for s := size; s <= 2*size; s = bufferSize(s + 1) {
		if list := p.free[s]; len(list) > 0 {
			b := list[len(list)-1]
			p.removeLocked(s)
			p.mu.Unlock()
			return b
		}
	}
	p.mu.Unlock()
	return make([]byte, size)
}

// keep puts a buffer from take back, in place of others when there is no room. nil is ignored.
func (p *bufferPool) keep(b []byte) {
	if len(b) == 0 || len(b) > maxFreeBytes/2 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for size := range p.free {
		if p.held+len(b) <= maxFreeBytes {
			break
		}
		for p.held+len(b) > maxFreeBytes && len(p.free[size]) > 0 {
			p.removeLocked(size)
		}
	}
	if p.free == nil {
		p.free = map[int][][]byte{}
	}
	p.free[len(b)] = append(p.free[len(b)], b)
	p.held += len(b)
}

// removeLocked drops the last free buffer of that size.
func (p *bufferPool) removeLocked(size int) {
	list := p.free[size]
	list[len(list)-1] = nil
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(p.free, size)
	} else {
		p.free[size] = list
	}
	p.held -= size
}
