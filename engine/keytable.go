package engine

import (
	"hash/maphash"
	"math/bits"

	"cairn/internal/ids"
)

// keyTable maps the keys of a stretch of a log to the largest offset at which each occurs, in bounded memory: of a key it keeps a hash of 128
// bits under seeds of its own, so that two keys are as good as never taken for one, by whoever chose them. Its parts grow one by one, so that
// growing takes little memory beyond the bound. It belongs to one goroutine.
type keyTable struct {
	seeds [2]maphash.Seed
	parts [keyTableParts]keyPart
	slots int // of all parts
	limit int // of slots
	load  float64
}

type keyPart struct {
	slots []keySlot
	used  int
}

// keySlot is free when its offset is 0: offsets are stored with 1 added.
type keySlot struct {
	a, b   uint64
	offset int64
}

const (
	keySlotBytes     = 24
	keyTablePartBits = 6
	keyTableParts    = 1 << keyTablePartBits
	keyPartFirst     = 64 // slots of a part to begin with
	keyTableLoadMin  = 0.1
	keyTableLoadMax  = 0.95 // some slots must be free
)

// newKeyTable makes a table of at most maxBytes, of which the share load is used.
func newKeyTable(maxBytes int64, load float64) *keyTable {
	t := &keyTable{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, load: max(keyTableLoadMin, min(load, keyTableLoadMax))}
	t.limit = max(int(maxBytes/keySlotBytes), keyTableParts*keyPartFirst)
	return t
}

// at is the slot of a hash in a part: that with it, or the free one where it belongs. The part must have a free one.
func (p *keyPart) at(a, b uint64) *keySlot {
	i, _ := bits.Mul64(b, uint64(len(p.slots)))
	for {
		s := &p.slots[i]
		if s.offset == 0 || s.a == a && s.b == b {
			return s
		}
		if i++; i == uint64(len(p.slots)) {
			i = 0
		}
	}
}

// put notes that the key occurs at o. false when the table is full and has not got the key, unless forced to grow beyond its bound.
func (t *keyTable) put(key []byte, o ids.Offset, force bool) bool {
	a, b := maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)
	p := &t.parts[a>>(64-keyTablePartBits)]
	if len(p.slots) == 0 {
		t.grow(p, keyPartFirst)
	}
	s := p.at(a, b)
	if s.offset == 0 {
		if float64(p.used+1) > t.load*float64(len(p.slots)) {
			more := max(len(p.slots)/4, 1)
			if t.slots+more > t.limit && !force {
				return false
			}
			t.grow(p, len(p.slots)+more)
			s = p.at(a, b)
		}
		p.used++
		s.a, s.b = a, b
	}
	s.offset = max(s.offset, int64(o)+1)
	return true
}

func (t *keyTable) grow(p *keyPart, size int) {
	old := p.slots
	p.slots = make([]keySlot, size)
	t.slots += size - len(old)
	for _, s := range old {
		if s.offset != 0 {
			*p.at(s.a, s.b) = s
		}
	}
}

// last is the largest offset of the key; false when it does not occur.
func (t *keyTable) last(key []byte) (ids.Offset, bool) {
	a, b := maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)
	p := &t.parts[a>>(64-keyTablePartBits)]
	if p.used == 0 {
		return 0, false
	}
	s := p.at(a, b)
	return ids.Offset(s.offset - 1), s.offset != 0
}

// len is the number of keys.
func (t *keyTable) len() (n int) {
	for i := range t.parts {
		n += t.parts[i].used
	}
	return n
}
