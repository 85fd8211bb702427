package raftgroup

import (
	"sync"
	_ "unsafe" // for go:linkname
)

// dragonboat keeps the entries of a group in an array whose applied front it lets go of only when the array is full, or when so many
// ticks have passed. By default that is every 100 ticks, ten seconds: at full load those entries, payload and all, were a gigabyte.
// The setting is read from a file in the working directory and from nowhere else, so it is set where it is kept. A tick of a group
// that had nothing to apply costs nothing more.
//
//go:linkname inMemoryReleaseTicks github.com/lni/dragonboat/v4/internal/raft.inMemGcTimeout
var inMemoryReleaseTicks uint64

const (
	dragonboatReleaseTicks = 100 // of the version that go.mod names
	releaseTicks           = 1
)

// adjustDragonboat is called before the first host of the process starts: afterwards dragonboat's workers read the setting.
var adjustDragonboat = sync.OnceFunc(func() {
	if inMemoryReleaseTicks != dragonboatReleaseTicks {
		panic("BUG: dragonboat's setting for releasing applied entries is not where it was")
	}
	inMemoryReleaseTicks = releaseTicks
})
