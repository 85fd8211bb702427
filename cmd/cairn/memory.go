package main

import (
	"os"
	"runtime/debug"
)

// heapLimit is where Go's collector begins to work harder, in bytes. All that a broker keeps on the heap is bounded (requests, proposals in
// flight, log tails, frames from peers) and comes to half of that at full load; memtables and block cache lie outside of the heap.
const heapLimit = 512 << 20

// limitHeap sets the soft limit of the heap, unless GOMEMLIMIT does.
func limitHeap() {
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(heapLimit)
	}
}
