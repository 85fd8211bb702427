//go:build cgo

package engine

// storeReadAllocs bounds the allocations of a read of 1,024 batches from the store: Pebble takes its blocks from C's heap.
const storeReadAllocs = 60
