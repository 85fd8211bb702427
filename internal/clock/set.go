package clock

import (
	"time"
	"unsafe"
)

// Set is t as it would be had somebody moved the wall clock by that many seconds before: its monotonic reading, if it has one, is the same. With
// Add it would not be. It is for tests.
func Set(t time.Time, by time.Duration) time.Time {
	// The first word of a time.Time that has a monotonic reading is that fact, the seconds, and 30 bits of nanoseconds.
	word := (*uint64)(unsafe.Pointer(&t))
	if *word>>63 == 0 {
		return t.Add(by)
	}
	*word += uint64(int64(by/time.Second)) << 30
	return t
}
