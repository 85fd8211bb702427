package wire

import (
	"errors"
	"unsafe"
)

//go:generate go run ./internal/layoutgen

// kmsg decodes an array by first allocating as many elements as are announced, which a hostile sender can have for
// two bytes each where the structs take fifty, and keeps unknown tagged fields in maps. So a request is measured
// before it is decoded: a walk over the frame by the layout of the request, generated from kmsg's decoders, adds up
// what decoding will allocate, and refuses what is out of proportion.

type layoutOp uint8

const (
	opFixed          layoutOp = iota // size bytes
	opString                         // 16-bit or compact length
	opNullableString                 // the same, decoded as a pointer
	opBytes                          // 32-bit or compact length, aliased when decoded
	opArray                          // 32-bit or compact length; fields of one element, which takes size bytes in memory
	opMaybe                          // a byte, -1 for absent, else fields of a struct of size bytes
	opTags                           // tagged fields, known ones among fields; in flexible versions only
	opTag                            // one tagged field
)

// layout describes a field in the versions min to max.
type layout struct {
	op       layoutOp
	min, max int16
	size     int
	tag      uint32
	fields   []layout
}

type requestLayout struct {
	flexibleFrom int16
	fields       []layout
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// Bounds of what decoding a request may allocate: memoryFloor, or memoryPerByte times the frame if that is more.
// Honest requests of thousands of short names come to 13, hostile ones without this bound to 53. requestMax bounds
// requests other than produce, in bytes: a fetch of 200,000 partitions fits.
const (
	memoryFloor   = 256 << 10
	memoryPerByte = 16
	requestMax    = 8 << 20
)

// What decoding allocates beside the elements of arrays, in bytes.
const (
	allocationStep = 16  // strings are rounded up to it
	pointerCost    = 16  // of a nullable string
	tagCost        = 128 // of an unknown tagged field in a map
	tagMapCost     = 512 // of a map for them
)

var (
	errOutOfProportion = errors.New("needs far more memory than it has bytes")
	errRequestSize     = errors.New("request too long for its kind")
)

// checkMemory walks body and fails if it is not a whole request of the given layout or if decoding it would
// allocate out of proportion.
func (l *requestLayout) checkMemory(version int16, body []byte) error {
	if len(body) > requestMax {
		return errRequestSize
	}
	w := layoutWalk{
		reader: reader{src: body}, version: version, flexible: version >= l.flexibleFrom,
		budget: max(memoryFloor, memoryPerByte*len(body)),
	}
	w.walk(l.fields)
	switch {
	case w.budget < 0:
		return errOutOfProportion
	case w.bad:
		return errTruncated
	}
	return nil
}

// layoutWalk is one walk. budget is what may yet be allocated.
type layoutWalk struct {
	reader
	version  int16
	flexible bool
	budget   int
}

func (w *layoutWalk) walk(fields []layout) {
	for i := range fields {
		f := &fields[i]
		if w.bad || w.version < f.min || w.version > f.max {
			continue
		}
		switch f.op {
		case opFixed:
			w.span(f.size)
		case opString:
			w.string(0)
		case opNullableString:
			w.string(pointerCost)
		case opBytes:
			if n := w.length(w.flexible, 4); n > 0 {
				w.span(n)
			}
		case opArray:
			w.array(f)
		case opMaybe:
			if present := w.span(1); present != nil && int8(present[0]) != -1 {
				w.spend(f.size)
				w.walk(f.fields)
			}
		case opTags:
			w.tags(f.fields)
		}
	}
}

// spend takes n bytes off the budget and ends the walk when it is used up.
func (w *layoutWalk) spend(n int) {
	if w.budget -= n; w.budget < 0 {
		w.bad, w.src = true, nil
	}
}

func (w *layoutWalk) string(cost int) {
	if n := w.length(w.flexible, 2); n >= 0 && !w.bad {
		w.span(n)
		w.spend(cost + (n+allocationStep-1)&^(allocationStep-1))
	}
}

func (w *layoutWalk) array(f *layout) {
	n := w.length(w.flexible, 4)
	if n <= 0 || w.bad {
		return
	}
	if n > len(w.src) {
		w.bad, w.src = true, nil
		return
	}
	w.spend(n * f.size)
	for ; n > 0 && !w.bad; n-- {
		w.walk(f.fields)
	}
}

func (w *layoutWalk) tags(known []layout) {
	if !w.flexible {
		return
	}
	n := w.uvarint()
	if n > 0 {
		w.spend(tagMapCost)
	}
	for ; n > 0 && !w.bad; n-- {
		tag := w.uvarint()
		b := w.span(int(w.uvarint()))
		f := findTag(known, tag)
		if f == nil {
			w.spend(tagCost)
			continue
		}
		inner := layoutWalk{reader: reader{src: b}, version: w.version, flexible: true, budget: w.budget}
		inner.walk(f.fields)
		w.budget = inner.budget
		if inner.bad {
			w.bad, w.src = true, nil
		}
	}
}

func findTag(known []layout, tag uint32) *layout {
	for i := range known {
		if known[i].tag == tag {
			return &known[i]
		}
	}
	return nil
}
